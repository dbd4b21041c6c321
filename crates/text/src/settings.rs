//! Reads the small files beside a vocabulary as transformers does: named special tokens, added tokens, and
//! decoding options.
//!
//! `add_bos_token` and `add_eos_token` apply only to a tokenizer.model: a tokenizer.json has a
//! post-processor. Chat templates are not read here.

use std::collections::HashSet;

use serde_json::{Map, Value};
use tokenizers::AddedToken;

use super::tokenizer::MAX_TOKENIZER_BYTES;
use rsgen_core::error::{Error, Result};
use rsgen_core::json::{read_object, shown};

/// The special tokens that every tokenizer of transformers may have, in its order.
const NAMED: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// The most special tokens with names.
const MAX_NAMED: usize = 256;

/// The settings of a tokenizer besides its tokenizer.json.
#[derive(Debug, Clone, Default)]
pub(super) struct Settings {
    /// The class that the file names, without the suffix `Fast`.
    pub(super) class: Option<String>,
    /// Named special tokens, the standard ones first.
    named: Vec<(String, AddedToken)>,
    /// Standard special tokens that the file sets to null: the default of a class does not apply to them.
    unset: Vec<String>,
    extra: Vec<AddedToken>,
    /// The texts of `extra`.
    extra_contents: HashSet<String>,
    /// Tokens with their ids, ascending; `None` when the file has no such list.
    pub(super) added: Option<Vec<(u32, AddedToken)>>,
    pub(super) clean_up: bool,
    /// Clean up also for BPE vocabularies, which transformers otherwise does not.
    pub(super) force_clean_up: bool,
    /// Encode special tokens in a prompt as plain text.
    pub(super) split_special_tokens: bool,
    pub(super) add_prefix_space: Option<bool>,
    pub(super) legacy: Option<bool>,
    pub(super) add_bos_token: Option<bool>,
    pub(super) add_eos_token: Option<bool>,
    /// The most tokens of a text that is truncated; what is above a quintillion is no limit.
    pub(super) model_max_length: Option<usize>,
}

impl Settings {
    /// Reads `tokenizer_config.json` and `special_tokens_map.json`, of which either may be missing.
    pub(super) fn read(tokenizer_config: Option<&[u8]>, special_tokens_map: Option<&[u8]>) -> Result<Self> {
        const FILE: &str = "tokenizer_config.json";
        let mut settings = Self::default();
        let config = tokenizer_config
            .map(|bytes| read_object(FILE, bytes, MAX_TOKENIZER_BYTES))
            .transpose()?
            .unwrap_or_default();
        settings.class = match config.get("tokenizer_class") {
            None | Some(Value::Null) => None,
            Some(Value::String(class)) => Some(class.strip_suffix("Fast").unwrap_or(class).to_owned()),
            Some(other) => return Err(wrong(FILE, "tokenizer_class", "a string", other)),
        };
        settings.clean_up = flag(FILE, &config, "clean_up_tokenization_spaces")?.unwrap_or(false);
        settings.force_clean_up =
            flag(FILE, &config, "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output")?
                .unwrap_or(false);
        settings.split_special_tokens = flag(FILE, &config, "split_special_tokens")?.unwrap_or(false);
        settings.add_prefix_space = flag(FILE, &config, "add_prefix_space")?;
        settings.legacy = flag(FILE, &config, "legacy")?;
        settings.add_bos_token = flag(FILE, &config, "add_bos_token")?;
        settings.add_eos_token = flag(FILE, &config, "add_eos_token")?;
        let length = config.get("model_max_length").and_then(Value::as_f64);
        settings.model_max_length =
            length.filter(|length| (0.0..=1e18).contains(length)).map(|length| length as usize);
        settings.add_named(FILE, &config)?;
        match config.get("added_tokens_decoder") {
            Some(Value::Object(tokens)) => settings.added = Some(added_tokens(FILE, tokens)?),
            None | Some(Value::Null) => {
                if let Some(bytes) = special_tokens_map {
                    const FILE: &str = "special_tokens_map.json";
                    settings.add_named(FILE, &read_object(FILE, bytes, MAX_TOKENIZER_BYTES)?)?;
                }
            }
            Some(other) => return Err(wrong(FILE, "added_tokens_decoder", "an object", other)),
        }
        settings.share_added_tokens();
        Ok(settings)
    }

    /// Reads `added_tokens.json`, texts with their ids. Used only if `tokenizer_config.json` lists no added
    /// tokens.
    pub(super) fn read_added_tokens(&mut self, added_tokens: &[u8]) -> Result<()> {
        const FILE: &str = "added_tokens.json";
        if self.added.is_some() {
            return Ok(());
        }
        let mut added = Vec::new();
        for (content, id) in read_object(FILE, added_tokens, MAX_TOKENIZER_BYTES)? {
            let number = id.as_u64().and_then(|id| u32::try_from(id).ok());
            let number = number.ok_or_else(|| wrong(FILE, &content, "a token id", &id))?;
            let special = self.is_named(&content) || self.is_extra(&content);
            added.push((number, AddedToken::from(content, special)));
        }
        added.sort_by_key(|&(id, _)| id);
        self.added = Some(added);
        Ok(())
    }

    /// Sets a standard special token that the files do not mention.
    pub(super) fn default_token(&mut self, name: &str, content: &str) {
        let mentioned =
            self.named.iter().any(|(known, _)| known == name) || self.unset.iter().any(|n| n == name);
        if !mentioned {
            self.set_named(name, AddedToken::from(content, true));
            self.share_added_tokens();
        }
    }

    /// The text of a special token, such as `bos_token`.
    pub(super) fn special_token(&self, name: &str) -> Option<&str> {
        self.named.iter().find(|(known, _)| known == name).map(|(_, token)| token.content.as_str())
    }

    /// The named special tokens with their texts.
    pub(super) fn named_tokens(&self) -> impl Iterator<Item = (&str, &str)> {
        self.named.iter().map(|(name, token)| (name.as_str(), token.content.as_str()))
    }

    /// All special tokens, in the order in which transformers adds them to a vocabulary that lacks them.
    pub(super) fn special_tokens(&self) -> impl Iterator<Item = &AddedToken> {
        self.named.iter().map(|(_, token)| token).chain(&self.extra)
    }

    /// All special tokens, the standard ones in transformers' order first.
    pub(super) fn special_tokens_in_order(&self) -> impl Iterator<Item = &AddedToken> {
        let standard = NAMED.iter().filter_map(|&name| self.named.iter().find(|(known, _)| known == name));
        let own = self.named.iter().filter(|(name, _)| !NAMED.contains(&name.as_str()));
        standard.chain(own).map(|(_, token)| token).chain(&self.extra)
    }

    /// Whether this is the text of a special token without a name.
    pub(super) fn is_extra(&self, content: &str) -> bool {
        self.extra_contents.contains(content)
    }

    /// Whether a standard or model-specific name stands for this text.
    pub(super) fn is_named(&self, content: &str) -> bool {
        self.named.iter().any(|(_, token)| token.content == content)
    }

    fn add_named(&mut self, file: &str, config: &Map<String, Value>) -> Result<()> {
        let standard = NAMED.iter().filter_map(|&name| Some((name, config.get(name)?)));
        // Tokens of one model, such as `image_token`; flags such as `add_bos_token` are no strings.
        let own = config.iter().filter(|(name, value)| {
            name.ends_with("_token")
                && !NAMED.contains(&name.as_str())
                && (value.is_string() || value.is_object())
        });
        for (name, value) in
            standard.chain(own.map(|(name, value)| (name.as_str(), value))).take(MAX_NAMED + 1)
        {
            if value.is_null() {
                self.named.retain(|(known, _)| known != name);
                self.unset.push(name.to_owned());
            } else {
                self.set_named(name, token(file, name, value)?);
            }
        }
        let extra = ["extra_special_tokens", "additional_special_tokens"]
            .iter()
            .filter_map(|&name| Some((name, config.get(name)?)))
            .find(|(_, value)| match value {
                Value::Array(tokens) => !tokens.is_empty(),
                Value::Object(tokens) => !tokens.is_empty(),
                _ => !value.is_null(),
            });
        match extra {
            None => {}
            Some((name, Value::Array(tokens))) => {
                for value in tokens {
                    let token = token(file, name, value)?;
                    if self.extra_contents.insert(token.content.clone()) {
                        self.extra.push(token);
                    }
                }
            }
            Some((_, Value::Object(tokens))) => {
                for (name, value) in tokens.iter().take(MAX_NAMED + 1) {
                    self.set_named(name, token(file, name, value)?);
                }
            }
            Some((name, other)) => return Err(wrong(file, name, "a list of tokens", other)),
        }
        if self.named.len() > MAX_NAMED {
            return Err(Error::load(format!(
                "{file}: at most {MAX_NAMED} special tokens may have names, found {}; list the others in \
                 extra_special_tokens",
                self.named.len()
            )));
        }
        Ok(())
    }

    fn set_named(&mut self, name: &str, token: AddedToken) {
        match self.named.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = token,
            None => self.named.push((name.to_owned(), token)),
        }
    }

    /// A named token has the flags of the added token of the same text.
    fn share_added_tokens(&mut self) {
        let added = self.added.as_deref().unwrap_or_default();
        for (_, named) in &mut self.named {
            if let Some((_, token)) = added.iter().rev().find(|(_, token)| token.content == named.content) {
                *named = token.clone();
            }
        }
    }
}

fn flag(file: &str, config: &Map<String, Value>, name: &str) -> Result<Option<bool>> {
    match config.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(value)) => Ok(Some(*value)),
        Some(other) => Err(wrong(file, name, "true or false", other)),
    }
}

fn added_tokens(file: &str, tokens: &Map<String, Value>) -> Result<Vec<(u32, AddedToken)>> {
    let mut added = Vec::with_capacity(tokens.len());
    for (id, value) in tokens {
        let id = id.parse::<u32>().map_err(|error| {
            Error::load(format!("{file}: added_tokens_decoder: {id:?} must be a token id")).with_source(error)
        })?;
        added.push((id, token(file, "added_tokens_decoder", value)?));
    }
    added.sort_by_key(|&(id, _)| id);
    Ok(added)
}

/// A token as a string, or as an object with its text and flags.
fn token(file: &str, name: &str, value: &Value) -> Result<AddedToken> {
    if let Value::String(content) = value {
        return Ok(AddedToken::from(content.as_str(), true));
    }
    let Some(content) = value.get("content").and_then(Value::as_str) else {
        return Err(wrong(file, name, "a token: a string, or an object with `content`", value));
    };
    let on = |flag: &str| value.get(flag).and_then(Value::as_bool);
    // A token of special_tokens_map.json is special without saying so.
    let special = on("special").unwrap_or(name != "added_tokens_decoder");
    Ok(AddedToken {
        content: content.to_owned(),
        single_word: on("single_word").unwrap_or(false),
        lstrip: on("lstrip").unwrap_or(false),
        rstrip: on("rstrip").unwrap_or(false),
        normalized: on("normalized").unwrap_or(!special),
        special,
    })
}

fn wrong(file: &str, field: &str, rule: &str, found: &Value) -> Error {
    Error::load(format!("{file}: {field} must be {rule}, found {}; correct the file", shown(found)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_tokens_come_from_the_config_with_the_flags_of_the_added_tokens() {
        let config = br#"{"bos_token": "<s>", "eos_token": {"__type": "AddedToken", "content": "</s>", "lstrip": true},
            "pad_token": null, "image_token": "<img>", "add_bos_token": true, "tokenizer_class": "LlamaTokenizerFast",
            "additional_special_tokens": ["<|user|>"], "extra_special_tokens": {},
            "added_tokens_decoder": {"7": {"content": "<s>", "rstrip": true, "special": true}}}"#;
        let map = br#"{"pad_token": "<ignored>"}"#;
        let settings = Settings::read(Some(config), Some(map)).unwrap();
        assert_eq!(settings.class.as_deref(), Some("LlamaTokenizer"));
        let tokens: Vec<(&str, bool, bool)> =
            settings.special_tokens().map(|t| (t.content.as_str(), t.lstrip, t.rstrip)).collect();
        assert_eq!(
            tokens,
            [
                ("<s>", false, true),
                ("</s>", true, false),
                ("<img>", false, false),
                ("<|user|>", false, false)
            ]
        );
        assert_eq!(settings.special_token("pad_token"), None);
    }

    #[test]
    fn the_special_tokens_map_counts_when_the_config_lists_no_added_tokens() {
        let map = br#"{"pad_token": {"content": "<pad>", "normalized": true}, "bos_token": "<b>"}"#;
        let settings = Settings::read(Some(br#"{"bos_token": "<s>"}"#), Some(map)).unwrap();
        assert_eq!(settings.special_token("bos_token"), Some("<b>"));
        assert_eq!(settings.special_token("pad_token"), Some("<pad>"));
        assert!(settings.special_tokens().all(|token| token.special));
    }

    #[test]
    fn a_default_does_not_replace_what_the_files_say() {
        let mut settings = Settings::read(Some(br#"{"bos_token": "<b>", "eos_token": null}"#), None).unwrap();
        for (name, content) in [("bos_token", "<s>"), ("eos_token", "</s>"), ("unk_token", "<unk>")] {
            settings.default_token(name, content);
        }
        assert_eq!(settings.special_token("bos_token"), Some("<b>"));
        assert_eq!(settings.special_token("eos_token"), None);
        assert_eq!(settings.special_token("unk_token"), Some("<unk>"));
    }

    #[test]
    fn a_wrong_value_is_named_with_its_file_and_field() {
        for (config, message) in [
            (&b"[1]"[..], "tokenizer_config.json: it must be a JSON object"),
            (br#"{"legacy": 3}"#, "tokenizer_config.json: legacy must be true or false, found 3"),
            (br#"{"bos_token": "a", "bos_token": "b"}"#, "the key \"bos_token\" comes twice"),
            (br#"{"bos_token": 3}"#, "tokenizer_config.json: bos_token must be a token"),
            (br#"{"added_tokens_decoder": {"x": "a"}}"#, "\"x\" must be a token id"),
            (br#"{"extra_special_tokens": "a"}"#, "extra_special_tokens must be a list"),
        ] {
            let error = Settings::read(Some(config), None).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
