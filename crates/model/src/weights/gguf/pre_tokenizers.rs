//! The pre-tokenizers that GGUF files name, as sections of a tokenizer.json.
//!
//! Each is that of the published tokenizers with the name, not llama.cpp's adaptation to its own regular
//! expressions.

use serde_json::{Value, json};

/// How a text is cut before its parts are merged.
pub(super) struct PreTokenizer {
    names: &'static [&'static str],
    steps: &'static [Step],
    /// Whether texts are normalized by NFC.
    pub(super) nfc: bool,
    /// Whether a part that is a token as a whole stays one.
    pub(super) ignore_merges: bool,
    /// Whether a text begins with the first token where the file does not say it.
    pub(super) add_bos: bool,
}

#[derive(Clone, Copy)]
enum Step {
    /// Parts that match are set apart.
    Split(&'static str),
    /// Digits are set apart, one by one or all together.
    Digits(bool),
    /// Runs of punctuation are set apart.
    Punctuation,
    /// GPT-2's expression.
    Gpt2,
}

use Step::{Digits, Gpt2, Punctuation, Split};

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
const DEEPSEEK_V3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
const SEED: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
const BAILING: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";

const PLAIN: PreTokenizer =
    PreTokenizer { names: &[], steps: &[Gpt2], nfc: false, ignore_merges: false, add_bos: false };

const PRE_TOKENIZERS: &[PreTokenizer] = &[
    PreTokenizer {
        names: &[
            "gpt-2",
            "phi-2",
            "jais",
            "exaone4",
            "a.x-4.0",
            "mellum",
            "gigachat",
            "trillion",
            "granite-docling",
        ],
        ..PLAIN
    },
    PreTokenizer { names: &["olmo", "mpt"], nfc: true, ..PLAIN },
    PreTokenizer {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
        steps: &[Split(LLAMA3)],
        ignore_merges: true,
        add_bos: true,
        ..PLAIN
    },
    PreTokenizer { names: &["glm4"], steps: &[Split(LLAMA3)], ignore_merges: true, ..PLAIN },
    PreTokenizer { names: &["dbrx", "smaug-bpe", "chatglm-bpe"], steps: &[Split(LLAMA3)], ..PLAIN },
    PreTokenizer {
        names: &["qwen2", "deepseek-r1-qwen", "kormo", "megrez"],
        steps: &[Split(QWEN2)],
        nfc: true,
        ..PLAIN
    },
    PreTokenizer {
        names: &["stablelm2", "hunyuan", "solar-open", "grok-2"],
        steps: &[Split(QWEN2)],
        ..PLAIN
    },
    PreTokenizer { names: &["qwen35"], steps: &[Split(QWEN35)], nfc: true, ..PLAIN },
    PreTokenizer { names: &["tekken"], steps: &[Split(TEKKEN)], ignore_merges: true, add_bos: true, ..PLAIN },
    PreTokenizer {
        names: &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"],
        steps: &[Split(GPT4O)],
        ..PLAIN
    },
    PreTokenizer {
        names: &["starcoder", "refact", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"],
        steps: &[Digits(true), Gpt2],
        ..PLAIN
    },
    PreTokenizer { names: &["command-r"], steps: &[Digits(true), Gpt2], nfc: true, ..PLAIN },
    PreTokenizer {
        names: &["falcon"],
        steps: &[Punctuation, Gpt2, Digits(false), Split("[0-9][0-9][0-9]")],
        ..PLAIN
    },
    PreTokenizer { names: &["bloom", "gpt3-finnish", "poro-chat"], steps: &[Split(BLOOM)], ..PLAIN },
    PreTokenizer { names: &["viking"], steps: &[Split(BLOOM), Digits(true)], ..PLAIN },
    PreTokenizer {
        names: &["deepseek-coder"],
        steps: &[
            Split(r"[\r\n]"),
            Split(r"\s?\p{L}+"),
            Split(r"\s?\p{P}+"),
            Split("[一-龥ࠀ-一가-\u{d7ff}]+"),
            Digits(true),
        ],
        ..PLAIN
    },
    PreTokenizer {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm"],
        steps: &[Split(r"\p{N}{1,3}"), Split("[一-龥぀-ゟ゠-ヿ]+"), Split(DEEPSEEK_V3)],
        ..PLAIN
    },
    PreTokenizer { names: &["seed-coder"], steps: &[Split(SEED)], ..PLAIN },
    PreTokenizer { names: &["bailingmoe", "bailingmoe2", "llada-moe"], steps: &[Split(BAILING)], ..PLAIN },
];

/// The pre-tokenizer of this name.
pub(super) fn find(name: &str) -> Option<&'static PreTokenizer> {
    PRE_TOKENIZERS.iter().find(|known| known.names.contains(&name))
}

/// The first name of each pre-tokenizer, those first that have the sections of this tokenizer.json.
pub(super) fn names_like(
    section: Option<&Value>,
    normalizer: Option<&Value>,
    ignore_merges: bool,
) -> Vec<&'static str> {
    let section = section.map(flat).unwrap_or_default();
    let is_nfc = normalizer.is_some_and(|normalizer| normalizer.get("type") == Some(&json!("NFC")));
    let is_like = |known: &&PreTokenizer| {
        flat(&known.section()) == section && known.nfc == is_nfc && known.ignore_merges == ignore_merges
    };
    let (mut alike, others): (Vec<_>, Vec<_>) = PRE_TOKENIZERS.iter().partition(|known| is_like(known));
    alike.extend(others);
    alike.into_iter().map(|known| known.names[0]).collect()
}

/// The steps of a section, without what does not change tokens.
fn flat(section: &Value) -> Vec<Value> {
    if let Some(steps) = section.get("pretokenizers").and_then(Value::as_array) {
        return steps.iter().flat_map(flat).collect();
    }
    let mut step = section.clone();
    if let Some(step) = step.as_object_mut() {
        step.remove("trim_offsets");
    }
    if step.is_null() { Vec::new() } else { vec![step] }
}

impl PreTokenizer {
    /// The section `pre_tokenizer` of a tokenizer.json.
    pub(super) fn section(&self) -> Value {
        let byte_level = |use_regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex});
        let step = |step: &Step| match *step {
            Split(regex) => json!({
                "type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false
            }),
            Digits(each) => json!({"type": "Digits", "individual_digits": each}),
            Punctuation => json!({"type": "Punctuation", "behavior": "Contiguous"}),
            Gpt2 => byte_level(true),
        };
        let mut steps: Vec<Value> = self.steps.iter().map(step).collect();
        if !self.steps.iter().any(|step| matches!(step, Gpt2)) {
            steps.push(byte_level(false));
        }
        json!({"type": "Sequence", "pretokenizers": steps})
    }
}
