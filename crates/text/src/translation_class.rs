//! The classes of tokenizers of encoder-decoder models.
//!
//! Those on the `tokenizers` crate are rows of the table that [`super::tokenizer_class`] searches; the others
//! name their files alone. The tables are those of `tokenization_*.py` of transformers 5.24.

use tokenizers::AddedToken;

use super::language_codes;
use super::languages::LanguagePlace;
use super::settings::Settings;
use super::tokenizer_class::{Around, Files, Model, OF_BYTES, OF_PIECES, TokenizerClass};

/// Extra special tokens of a class, besides those that the files name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Extra {
    /// None.
    OfFiles,
    /// `<extra_id_0>` and on, so many unless the files say otherwise.
    Sentinels(usize),
    /// Pegasus' masks.
    Masks,
    /// Languages before what the files name.
    LanguagesFirst,
    LanguagesLast,
    /// Languages where the files name nothing.
    LanguagesAlone,
}

/// How a class orders the pieces of a SentencePiece model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum PieceOrder {
    /// As they are, then the sentinels from the last one on.
    Sentinels,
    /// The two first pieces, the masks, and the others.
    Masks,
    /// fairseq's four special tokens instead of the first three pieces, then the languages and the mask.
    Fairseq,
    /// The same four, the pieces that are none of them, the languages and the mask; merges are found by the
    /// order.
    FairseqMerges,
}

const METASPACE: &str =
    r#"{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}"#;
const WORDS: &str = r#"{"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"},
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}]}"#;
const MAP: &str = r#"{"type": "Precompiled", "precompiled_charsmap": "$charsmap"}"#;
const MAP_AND_BLANKS: &str = r#"{"type": "Sequence", "normalizers": [
    {"type": "Precompiled", "precompiled_charsmap": "$charsmap"},
    {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]}"#;
const BLANKS: &str = r#"{"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}"#;
const LINES_AND_BLANKS: &str = r#"{"type": "Sequence", "normalizers": [
    {"type": "Replace", "pattern": {"Regex": "\\n"}, "content": " "},
    {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]}"#;

/// The names and texts of all standard special tokens.
const ALL_NAMED: &[(&str, &str)] = &[
    ("bos_token", "<s>"),
    ("eos_token", "</s>"),
    ("unk_token", "<unk>"),
    ("sep_token", "</s>"),
    ("pad_token", "<pad>"),
    ("cls_token", "<s>"),
    ("mask_token", "<mask>"),
];

const UNIGRAM: TokenizerClass = TokenizerClass {
    names: &["T5Tokenizer"],
    defaults: &[("eos_token", "</s>"), ("unk_token", "<unk>"), ("pad_token", "<pad>")],
    byte_fallback: false,
    model: Model::Unigram { unknown: Some(2) },
    normalizer_of_map: MAP,
    pre_tokenizer: WORDS,
    decoder: METASPACE,
    around: Around::Eos,
    extra: Extra::Sentinels(100),
    files: Files::Pieces("spiece.model", PieceOrder::Sentinels),
    ..OF_PIECES
};

/// A class whose text is not cut by the crate.
const WITHOUT_JSON: TokenizerClass = TokenizerClass { around: Around::Nothing, ..UNIGRAM };

pub(super) const CLASSES: [TokenizerClass; 9] = [
    UNIGRAM,
    TokenizerClass {
        names: &["PegasusTokenizer"],
        defaults: &[
            ("pad_token", "<pad>"),
            ("eos_token", "</s>"),
            ("unk_token", "<unk>"),
            ("mask_token", "<mask_2>"),
        ],
        model: Model::Unigram { unknown: None },
        normalizer: LINES_AND_BLANKS,
        normalizer_of_map: MAP_AND_BLANKS,
        pre_tokenizer: METASPACE,
        extra: Extra::Masks,
        files: Files::Pieces("spiece.model", PieceOrder::Masks),
        ..UNIGRAM
    },
    TokenizerClass {
        names: &["MBartTokenizer"],
        defaults: ALL_NAMED,
        model: Model::Unigram { unknown: Some(3) },
        normalizer_of_map: "",
        around: Around::Language(LanguagePlace::After, "en_XX"),
        languages: language_codes::MBART,
        extra: Extra::LanguagesFirst,
        mask: Some(|token| token.lstrip(true)),
        files: Files::Pieces("sentencepiece.bpe.model", PieceOrder::Fairseq),
        ..UNIGRAM
    },
    TokenizerClass {
        names: &["MBart50Tokenizer"],
        defaults: &[
            ("eos_token", "</s>"),
            ("unk_token", "<unk>"),
            ("sep_token", "</s>"),
            ("pad_token", "<pad>"),
            ("cls_token", "<s>"),
            ("mask_token", "<mask>"),
        ],
        model: Model::Unigram { unknown: Some(3) },
        normalizer: BLANKS,
        normalizer_of_map: MAP_AND_BLANKS,
        pre_tokenizer: METASPACE,
        around: Around::Language(LanguagePlace::Before, "en_XX"),
        languages: language_codes::MBART50,
        extra: Extra::LanguagesLast,
        mask: Some(|token| token.lstrip(true)),
        files: Files::Pieces("sentencepiece.bpe.model", PieceOrder::Fairseq),
        ..UNIGRAM
    },
    TokenizerClass {
        names: &["NllbTokenizer"],
        defaults: ALL_NAMED,
        byte_fallback: false,
        has_unknown: true,
        model: Model::Bpe { fuse_unknown: true },
        normalizer_of_map: MAP_AND_BLANKS,
        pre_tokenizer: METASPACE,
        decoder: METASPACE,
        around: Around::Language(LanguagePlace::Before, "eng_Latn"),
        languages: language_codes::NLLB,
        extra: Extra::LanguagesAlone,
        mask: Some(|token| token.lstrip(true).normalized(true)),
        files: Files::Pieces("sentencepiece.bpe.model", PieceOrder::FairseqMerges),
        ..OF_PIECES
    },
    TokenizerClass {
        names: &["RobertaTokenizer", "BartTokenizer"],
        defaults: ALL_NAMED,
        around: Around::ClsSep,
        ..OF_BYTES
    },
    TokenizerClass {
        names: &["MarianTokenizer"],
        extra: Extra::OfFiles,
        files: Files::Marian,
        ..WITHOUT_JSON
    },
    TokenizerClass {
        names: &["M2M100Tokenizer"],
        defaults: &[
            ("bos_token", "<s>"),
            ("eos_token", "</s>"),
            ("unk_token", "<unk>"),
            ("sep_token", "</s>"),
            ("pad_token", "<pad>"),
        ],
        languages: language_codes::M2M100,
        extra: Extra::OfFiles,
        files: Files::M2M100,
        ..WITHOUT_JSON
    },
    TokenizerClass {
        names: &["ByT5Tokenizer"],
        extra: Extra::Sentinels(125),
        files: Files::Bytes,
        ..WITHOUT_JSON
    },
];

/// Whether models of this type have an encoder.
pub(super) fn is_encoder_decoder(model_type: &str) -> bool {
    "bart m2m_100 marian mbart mt5 pegasus t5 umt5".split(' ').any(|listed| listed == model_type)
}

impl TokenizerClass {
    /// Sets the special tokens that the files do not mention.
    pub(super) fn complete(&self, settings: &mut Settings) {
        for (name, content) in self.defaults {
            settings.default_token(name, content);
        }
        if let Some(flags) = self.mask {
            settings.flag_plain("mask_token", flags);
        }
        self.complete_extra(settings);
    }

    fn complete_extra(&self, settings: &mut Settings) {
        let Some(of_map) = settings.changeable_extra() else { return };
        let special = |content: &str| AddedToken::from(content, true);
        let languages = self.languages.split(' ').map(special);
        let mut listed = settings.pieces.clone().unwrap_or_else(|| of_map.to_vec());
        let extra: Vec<AddedToken> = match self.extra {
            Extra::Sentinels(_) if listed.iter().any(|token| token.content.contains("<extra_id_")) => listed,
            Extra::Sentinels(count) => {
                let names =
                    (0..settings.of_class.extra_ids(count)).map(|i| special(&format!("<extra_id_{i}>")));
                listed.extend(names);
                listed
            }
            Extra::Masks => {
                let of_sentences = settings.of_class.mask_token_sent.as_deref().unwrap_or("<mask_1>");
                let named = listed.iter().any(|token| token.content == of_sentences);
                let mask = (!named).then(|| special(of_sentences));
                let unknown = (2..settings.of_class.offset.unwrap_or(103)).map(|i| format!("<unk_{i}>"));
                mask.into_iter().chain(unknown.map(|content| special(&content))).collect()
            }
            Extra::LanguagesFirst => languages.chain(listed).collect(),
            Extra::LanguagesLast => listed.into_iter().chain(languages).collect(),
            Extra::LanguagesAlone if of_map.is_empty() => languages.collect(),
            Extra::LanguagesAlone | Extra::OfFiles => return,
        };
        settings.set_extra(extra);
    }
}
