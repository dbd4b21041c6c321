//! The classes of transformers' tokenizers: which one reads the files of a model, and what it makes of them.
//!
//! A class without an entry in [`CLASSES`] takes a tokenizer.json as it is. The others take its vocabulary
//! and merges, and build the rest themselves. The tables are those of `tokenization_auto.py` and of the
//! `tokenization_*.py` of transformers 5.24.

use tokenizers::AddedToken;

use super::languages::LanguagePlace;
use super::translation_class::{self, Extra, PieceOrder};
use rsgen_core::error::{Error, Result};
use rsgen_core::json::shown;

/// The class that takes a tokenizer.json as it is.
const BACKEND: &str = "TokenizersBackend";
/// The class of files that were made of a GGUF file: they are right as they are, whatever the type of the model.
const MADE_OF_GGUF: &str = "GGUF";

/// Types of models with the class that transformers registers for them. Other types have none.
const REGISTERED: [(&str, &str); 13] = [
    (
        BACKEND,
        "mistral mixtral mistral3 ministral ministral3 phi3 phimoe olmo2 olmo3 granite granitemoe \
         granitemoeshared granitemoehybrid stablelm glm glm4 glm4_moe ernie4_5 ernie4_5_moe nemotron gpt_bigcode \
         minimax_m2 persimmon umt5",
    ),
    ("GPT2Tokenizer", "gpt2 gpt_neo gptj opt phi starcoder2 codegen dbrx jais2"),
    ("GPTNeoXTokenizer", "gpt_neox olmo olmoe mpt"),
    ("GemmaTokenizer", "gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text"),
    ("Qwen2Tokenizer", "qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next"),
    ("Qwen3_5Tokenizer", "qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text"),
    ("CohereTokenizer", "cohere cohere2"),
    ("T5Tokenizer", "t5 mt5"),
    ("PegasusTokenizer", "pegasus"),
    ("MBartTokenizer", "mbart"),
    ("RobertaTokenizer", "bart"),
    ("MarianTokenizer", "marian"),
    ("M2M100Tokenizer", "m2m_100"),
];

/// Types whose folders name a wrong class: the registered one counts.
const WRONGLY_NAMED: &str = "qwen2 phi3 phimoe ernie4_5 ernie4_5_moe nemotron minimax_m2 qwen3_5 qwen3_5_moe \
     qwen3_5_moe_text";

/// Classes of transformers that change a tokenizer.json in ways of their own, for models that do not generate
/// text or are not supported.
const UNSUPPORTED: &str = "Albert Barthez Bert BigBird Blenderbot CLIP Camembert Deberta DebertaV2 \
     DistilBert DPRContextEncoder DPRQuestionEncoder DPRReader Electra Esmc Funnel Herbert Lasr LayoutLM LayoutLMv2 LayoutLMv3 \
     LayoutXLM Longformer LED Luke Lxmert MLuke MPNet MarkupLM MobileBert Mvp Nougat OpenAIGPT \
     Reformer RemBert RoFormer SeamlessM4T Siglip2 Splinter SqueezeBert Tipsv2 Udop VideoPrism \
     Whisper XGLM XLMRoberta XLNet";

/// What a class makes of the files.
#[derive(Debug)]
pub(super) struct TokenizerClass {
    /// Its names, without `Fast`.
    pub(super) names: &'static [&'static str],
    /// The special tokens that it has where the files do not mention them; empty for none.
    pub(super) defaults: &'static [(&'static str, &'static str)],
    /// Whether characters that are no tokens become tokens of bytes.
    pub(super) byte_fallback: bool,
    /// Whether the BPE model itself knows the unknown token.
    pub(super) has_unknown: bool,
    pub(super) model: Model,
    /// The sections of a tokenizer.json, with `$` before what the files set.
    pub(super) normalizer: &'static str,
    /// The normalizer of a file with a map of characters; empty where the map does not count.
    pub(super) normalizer_of_map: &'static str,
    pub(super) pre_tokenizer: &'static str,
    pub(super) decoder: &'static str,
    pub(super) around: Around,
    pub(super) added: Added,
    /// Its languages, separated by spaces.
    pub(super) languages: &'static str,
    /// Extra special tokens.
    pub(super) extra: Extra,
    /// The flags of a mask token that is a text alone.
    pub(super) mask: Option<fn(AddedToken) -> AddedToken>,
    /// The files that it reads besides a tokenizer.json, or instead of one.
    pub(super) files: Files,
}

/// The model that a class makes of a vocabulary.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Model {
    Bpe {
        /// Whether unknown characters side by side are one token.
        fuse_unknown: bool,
    },
    /// `unknown` is the id of the unknown token; where there is none, it is found by its text.
    Unigram { unknown: Option<usize> },
}

/// The files of a class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Files {
    /// A tokenizer.json, or a `tokenizer.model`.
    Json,
    /// A tokenizer.json, or a vocab.json with a merges.txt.
    Merges,
    /// A tokenizer.json, or a SentencePiece model of this name.
    Pieces(&'static str, PieceOrder),
    /// Two SentencePiece models with a vocab.json.
    Marian,
    /// A SentencePiece model with a vocab.json.
    M2M100,
    /// None.
    Bytes,
}

/// What a class puts around a prompt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Around {
    /// What the file says.
    OfFile,
    Nothing,
    Bos,
    Eos,
    /// `cls_token` and `sep_token`.
    ClsSep,
    /// The token of a language, this one where none is named.
    Language(LanguagePlace, &'static str),
}

/// Whether special tokens are added once more, over those of the files with the same texts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Added {
    Once,
    /// With the flags of their names.
    Again,
    /// Without flags.
    AgainPlain,
}

const NFC: &str = r#"{"type": "NFC"}"#;
const BYTE_LEVEL: &str =
    r#"{"type": "ByteLevel", "add_prefix_space": $space, "trim_offsets": true, "use_regex": true}"#;
const DIGITS_AND_BYTES: &str = r#"{"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true},
    {"type": "ByteLevel", "add_prefix_space": $space, "trim_offsets": true, "use_regex": true}]}"#;
const METASPACE: &str =
    r#"{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "$scheme", "split": false}"#;
/// Of a text that no added token cuts, only the first part gets a space.
const METASPACE_FIRST: &str =
    r#"{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "$first", "split": false}"#;
const PIECES: &str = r#"{"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]}"#;
const STRIPPED_PIECES: &str = r#"{"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": $strip, "stop": 0}]}"#;
const QWEN2: &str = r#"{"type": "Sequence", "pretokenizers": [
    {"type": "Split", "behavior": "Isolated", "invert": false, "pattern": {"Regex":
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {"type": "ByteLevel", "add_prefix_space": $space, "trim_offsets": true, "use_regex": false}]}"#;
const QWEN3_5: &str = r#"{"type": "Sequence", "pretokenizers": [
    {"type": "Split", "behavior": "Isolated", "invert": false, "pattern": {"Regex":
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {"type": "ByteLevel", "add_prefix_space": $space, "trim_offsets": true, "use_regex": false}]}"#;

const END_OF_TEXT: &str = "<|endoftext|>";
pub(super) const OF_BYTES: TokenizerClass = TokenizerClass {
    names: &["GPT2Tokenizer", "CodeGenTokenizer"],
    defaults: &[
        ("unk_token", END_OF_TEXT),
        ("bos_token", END_OF_TEXT),
        ("eos_token", END_OF_TEXT),
        ("pad_token", ""),
    ],
    byte_fallback: false,
    has_unknown: false,
    model: Model::Bpe { fuse_unknown: false },
    normalizer: "null",
    normalizer_of_map: "",
    pre_tokenizer: BYTE_LEVEL,
    decoder: r#"{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}"#,
    around: Around::OfFile,
    added: Added::Once,
    languages: "",
    extra: Extra::OfFiles,
    mask: None,
    files: Files::Merges,
};
pub(super) const OF_PIECES: TokenizerClass = TokenizerClass {
    names: &["LlamaTokenizer", "Phi3Tokenizer"],
    defaults: &[("unk_token", "<unk>"), ("bos_token", "<s>"), ("eos_token", "</s>")],
    byte_fallback: true,
    has_unknown: false,
    model: Model::Bpe { fuse_unknown: true },
    normalizer: "null",
    normalizer_of_map: "",
    pre_tokenizer: METASPACE,
    decoder: STRIPPED_PIECES,
    around: Around::OfFile,
    added: Added::Once,
    languages: "",
    extra: Extra::OfFiles,
    mask: None,
    files: Files::Json,
};

const CLASSES: [TokenizerClass; 8] = [
    OF_PIECES,
    TokenizerClass {
        names: &["CodeLlamaTokenizer"],
        defaults: &[
            ("unk_token", "<unk>"),
            ("bos_token", "<s>"),
            ("eos_token", "</s>"),
            ("prefix_token", "▁<PRE>"),
            ("middle_token", "▁<MID>"),
            ("suffix_token", "▁<SUF>"),
            ("eot_token", "▁<EOT>"),
            ("fill_token", "<FILL_ME>"),
        ],
        has_unknown: true,
        pre_tokenizer: METASPACE_FIRST,
        decoder: r#"{"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}"#,
        around: Around::Bos,
        ..OF_PIECES
    },
    TokenizerClass {
        names: &["GemmaTokenizer"],
        defaults: &[
            ("unk_token", "<unk>"),
            ("bos_token", "<bos>"),
            ("eos_token", "<eos>"),
            ("pad_token", "<pad>"),
            ("mask_token", "<mask>"),
        ],
        has_unknown: true,
        normalizer: r#"{"type": "Replace", "pattern": {"String": " "}, "content": "▁"}"#,
        pre_tokenizer: r#"{"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false}"#,
        decoder: PIECES,
        ..OF_PIECES
    },
    OF_BYTES,
    TokenizerClass {
        names: &["GPTNeoXTokenizer"],
        defaults: &[
            ("unk_token", END_OF_TEXT),
            ("bos_token", END_OF_TEXT),
            ("eos_token", END_OF_TEXT),
            ("pad_token", "<|padding|>"),
        ],
        normalizer: NFC,
        around: Around::Nothing,
        ..OF_BYTES
    },
    TokenizerClass {
        names: &["Qwen2Tokenizer"],
        defaults: &[("unk_token", END_OF_TEXT), ("eos_token", END_OF_TEXT), ("pad_token", END_OF_TEXT)],
        normalizer: NFC,
        pre_tokenizer: QWEN2,
        added: Added::AgainPlain,
        ..OF_BYTES
    },
    TokenizerClass {
        names: &["Qwen3_5Tokenizer"],
        defaults: &[("unk_token", END_OF_TEXT), ("eos_token", END_OF_TEXT), ("pad_token", END_OF_TEXT)],
        normalizer: NFC,
        pre_tokenizer: QWEN3_5,
        ..OF_BYTES
    },
    TokenizerClass {
        names: &["CohereTokenizer"],
        defaults: &[
            ("unk_token", "<UNK>"),
            ("bos_token", "<BOS_TOKEN>"),
            ("eos_token", "<|END_OF_TURN_TOKEN|>"),
            ("pad_token", "<PAD>"),
            ("cls_token", "<CLS>"),
            ("sep_token", "<SEP>"),
            ("mask_token", "<MASK_TOKEN>"),
        ],
        normalizer: NFC,
        pre_tokenizer: DIGITS_AND_BYTES,
        added: Added::Again,
        ..OF_BYTES
    },
];

/// The class for a model's type and the class that the folder names; `None` is one that takes a
/// tokenizer.json as it is. `is_byte_level` says whether the folder has a tokenizer.json that works on bytes.
///
/// # Errors
/// `Load` when it is a class that changes the file in ways that are not known here.
pub(super) fn choose(
    model_type: Option<&str>,
    named: Option<&str>,
    is_byte_level: impl FnOnce() -> bool,
) -> Result<Option<&'static TokenizerClass>> {
    let lists =
        |types: &str| model_type.is_some_and(|it| types.split_whitespace().any(|listed| listed == it));
    let registered = REGISTERED.iter().find(|(_, types)| lists(types)).map(|&(class, _)| class);
    let named = named.map(|named| named.strip_suffix("Fast").unwrap_or(named));
    let is_wrong = lists(WRONGLY_NAMED);
    let class = match (registered, named) {
        (_, Some(MADE_OF_GGUF)) => BACKEND,
        (_, Some("LlamaTokenizer")) if !is_wrong && is_byte_level() => BACKEND,
        (Some(BACKEND), _) => BACKEND,
        (Some(registered), Some(_)) if is_wrong => registered,
        (registered, named) => named.or(registered).unwrap_or(BACKEND),
    };
    let is_unsupported = |name: &&str| class.strip_suffix("Tokenizer") == Some(*name);
    if UNSUPPORTED.split_whitespace().any(|name| is_unsupported(&name)) {
        return Err(Error::load(format!(
            "tokenizer_config.json: tokenizer_class must be one for models that generate text, as {} changes the \
             tokenizer.json in ways of its own; if the file is right as it is, set it to \"PreTrainedTokenizerFast\"",
            shown(&class.into())
        )));
    }
    Ok(CLASSES.iter().chain(&translation_class::CLASSES).find(|it| it.names.contains(&class)))
}

impl TokenizerClass {
    /// A section with what the files set.
    pub(super) fn section(&self, section: &str, add_prefix_space: Option<bool>, legacy: bool) -> String {
        let space = add_prefix_space.unwrap_or(self.byte_fallback);
        let first = if space { "first" } else { "never" };
        let scheme = if space && legacy { "always" } else { first };
        section
            .replace("$space", if space { "true" } else { "false" })
            .replace("$strip", if space { "1" } else { "0" })
            .replace("$scheme", scheme)
            .replace("$first", first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_other_models_are_refused() {
        for (model_type, class) in [("llama", "AlbertTokenizerFast"), ("gpt2", "WhisperTokenizer")] {
            let error = choose(Some(model_type), Some(class), || false).unwrap_err().to_string();
            assert!(error.contains("tokenizer_class must be one for models that generate text"), "{error}");
        }
        // Where the class does not count, its name does not matter.
        assert!(choose(Some("phi3"), Some("AlbertTokenizer"), || false).unwrap().is_none());
        let qwen2 = choose(Some("qwen2"), Some("AlbertTokenizer"), || false).unwrap().unwrap();
        assert_eq!(qwen2.names, ["Qwen2Tokenizer"]);
    }
}
