//! Fields of `tokenizer_config.json` that only classes of encoder-decoder models have.

use serde_json::{Map, Value};

use super::settings::{flag, wrong};
use rsgen_core::error::Result;

/// The most tokens that a class numbers by itself.
const MAX_NUMBERED: u64 = 1 << 16;

/// The fields; `None` where the class decides.
#[derive(Debug, Clone, Default)]
pub(super) struct ClassSettings {
    /// The number of tokens `<extra_id_N>`.
    pub(super) extra_ids: Option<usize>,
    /// Pegasus' first ordinary id but two.
    pub(super) offset: Option<usize>,
    pub(super) mask_token_sent: Option<String>,
    /// The language of sources.
    pub(super) src_lang: Option<String>,
    /// The language of targets.
    pub(super) tgt_lang: Option<String>,
    /// The languages of a Marian model of a single pair.
    pub(super) pair: [Option<String>; 2],
    /// NLLB's languages come after a text.
    pub(super) legacy_behaviour: bool,
    /// Marian's targets have a vocabulary of their own.
    pub(super) separate_vocabs: bool,
    /// The list of languages of an M2M100 model.
    pub(super) language_codes: Option<String>,
    /// Ids without a token after M2M100's languages.
    pub(super) num_madeup_words: Option<usize>,
}

impl ClassSettings {
    pub(super) fn read(file: &str, config: &Map<String, Value>) -> Result<Self> {
        let text = |name: &str| match config.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(wrong(file, name, "a string", other)),
        };
        let count = |name: &str| match config.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => {
                let count = value.as_u64().filter(|&count| count <= MAX_NUMBERED);
                let rule = format!("a number up to {MAX_NUMBERED}");
                count.map(|count| Some(count as usize)).ok_or_else(|| wrong(file, name, &rule, value))
            }
        };
        Ok(Self {
            extra_ids: count("extra_ids")?,
            offset: count("offset")?,
            mask_token_sent: text("mask_token_sent")?,
            src_lang: text("src_lang")?,
            tgt_lang: text("tgt_lang")?,
            pair: [text("source_lang")?, text("target_lang")?],
            legacy_behaviour: flag(file, config, "legacy_behaviour")?.unwrap_or(false),
            separate_vocabs: flag(file, config, "separate_vocabs")?.unwrap_or(false),
            language_codes: text("language_codes")?,
            num_madeup_words: count("num_madeup_words")?,
        })
    }

    pub(super) fn extra_ids(&self, of_class: usize) -> usize {
        self.extra_ids.unwrap_or(of_class)
    }
}
