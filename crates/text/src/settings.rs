//! Reads the small files beside a vocabulary as transformers does: named special tokens, added tokens, and
//! decoding options.
//!
//! Chat templates are not read here.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value};
use tokenizers::AddedToken;

use super::class_settings::ClassSettings;
use super::tokenizer::MAX_TOKENIZER_BYTES;
use super::tokenizer_class::{TokenizerClass, choose};
use super::translation_class;
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
    /// The class that the files name.
    pub(super) class: Option<String>,
    /// The type of the model, of its config.json.
    pub(super) model_type: Option<String>,
    /// Named special tokens, the standard ones first, in transformers' order.
    named: Vec<(String, AddedToken)>,
    /// Standard special tokens that the file sets to null: the default of a class does not apply to them.
    unset: Vec<String>,
    /// Those that are texts without flags, as far as no added token gives them some.
    plain: HashSet<String>,
    extra: Vec<AddedToken>,
    /// The texts of `extra`.
    extra_contents: HashSet<String>,
    /// Whether the files have a list of such tokens, if only an empty one.
    has_extra: bool,
    /// Whether it is the `additional_special_tokens` of `special_tokens_map.json`, which is read last.
    extra_is_of_map: bool,
    /// The added tokens, by their ids.
    pub(super) added: BTreeMap<u32, AddedToken>,
    /// Whether `tokenizer_config.json` lists the added tokens: then no other file does.
    pub(super) lists_added: bool,
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
    /// What some classes alone read.
    pub(super) of_class: ClassSettings,
    /// The control and user-defined pieces of the SentencePiece model that the vocabulary was made of.
    pub(super) pieces: Option<Vec<AddedToken>>,
}

impl Settings {
    /// Reads the files beside a vocabulary that are there; `file` gives their contents by name.
    pub(super) fn read(file: &dyn Fn(&str) -> Option<Arc<[u8]>>) -> Result<Self> {
        const FILE: &str = "tokenizer_config.json";
        let read = |name: &str| {
            let object = file(name).map(|bytes| read_object(name, &bytes, MAX_TOKENIZER_BYTES));
            object.transpose().map(Option::unwrap_or_default)
        };
        let (model, config) = (read("config.json")?, read(FILE)?);
        let model_type = model.get("model_type").and_then(Value::as_str).map(str::to_owned);
        let mut settings = Self { model_type, ..Self::default() };
        settings.class = match config.get("tokenizer_class") {
            None | Some(Value::Null) => {
                model.get("tokenizer_class").and_then(Value::as_str).map(str::to_owned)
            }
            Some(Value::String(class)) => Some(class.clone()),
            Some(other) => return Err(wrong(FILE, "tokenizer_class", "a string", other)),
        };
        let older = config.get("fast_tokenizer_files").and_then(Value::as_array).into_iter().flatten();
        if let Some(older) = older.filter(|name| *name != "tokenizer.json").find(|name| is_for_5_24(name)) {
            return Err(Error::load(format!(
                "{FILE}: fast_tokenizer_files must name no file but tokenizer.json, found {}; copy that file to \
                 tokenizer.json, and take out the list",
                shown(older)
            )));
        }
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
        settings.of_class = ClassSettings::read(FILE, &config)?;
        settings.add_named(FILE, &config, false)?;
        match config.get("added_tokens_decoder") {
            Some(Value::Object(tokens)) => {
                settings.lists_added = true;
                settings.added = added_tokens(FILE, tokens)?;
            }
            None | Some(Value::Null) => {
                const MAP: &str = "special_tokens_map.json";
                settings.add_named(MAP, &read(MAP)?, true)?;
                settings.read_added_tokens(read("added_tokens.json")?)?;
            }
            Some(other) => return Err(wrong(FILE, "added_tokens_decoder", "an object", other)),
        }
        settings.share_added_tokens();
        Ok(settings)
    }

    /// The class that reads the files where there is no tokenizer.json.
    pub(super) fn class(&self) -> Result<Option<&'static TokenizerClass>> {
        choose(self.model_type.as_deref(), self.class.as_deref(), || false)
    }

    /// Whether it belongs to an encoder-decoder model.
    pub(super) fn is_for_sources(&self) -> bool {
        self.model_type.as_deref().is_some_and(translation_class::is_encoder_decoder)
    }

    /// `added_tokens.json`: texts with their ids.
    fn read_added_tokens(&mut self, tokens: Map<String, Value>) -> Result<()> {
        for (content, id) in tokens {
            let number = id.as_u64().and_then(|id| u32::try_from(id).ok());
            let number = number.ok_or_else(|| wrong("added_tokens.json", &content, "a token id", &id))?;
            let is_standard =
                self.named.iter().any(|(name, token)| is_standard(name) && token.content == content);
            let special = is_standard || (self.is_extra(&content) && !self.extra_is_of_map);
            self.added.insert(number, AddedToken::from(content, special));
        }
        Ok(())
    }

    /// Adds the tokens of a tokenizer.json to those of the files beside it, if no `tokenizer_config.json`
    /// lists them all.
    pub(super) fn add_of_file(&mut self, tokens: impl IntoIterator<Item = (u32, AddedToken)>) {
        if !self.lists_added {
            self.added.extend(tokens);
            self.share_added_tokens();
        }
    }

    /// Sets a special token that the files do not mention; to none if it is empty.
    pub(super) fn default_token(&mut self, name: &str, content: &str) {
        let mentioned =
            self.named.iter().any(|(known, _)| known == name) || self.unset.iter().any(|n| n == name);
        if mentioned {
        } else if content.is_empty() {
            self.unset.push(name.to_owned());
        } else {
            self.plain.insert(content.to_owned());
            self.set_named(name, AddedToken::from(content, true));
        }
    }

    /// A special token by its name.
    pub(super) fn named(&self, name: &str) -> Option<&AddedToken> {
        self.named.iter().find(|(known, _)| known == name).map(|(_, token)| token)
    }

    /// Whether a named token is a text without flags.
    pub(super) fn is_plain(&self, name: &str) -> bool {
        self.named(name).is_some_and(|token| self.plain.contains(&token.content))
    }

    /// Changes a named token that is a text without flags.
    pub(super) fn flag_plain(&mut self, name: &str, flags: impl FnOnce(AddedToken) -> AddedToken) {
        let named = self.named.iter_mut().find(|(known, _)| known == name);
        if let Some((_, token)) = named.filter(|(_, token)| self.plain.contains(&token.content)) {
            *token = flags(std::mem::take(token));
        }
    }

    /// The extra special tokens of `special_tokens_map.json`, which a class may change; none if the other file
    /// has some that it may not.
    pub(super) fn changeable_extra(&self) -> Option<&[AddedToken]> {
        (!self.has_extra || self.extra_is_of_map).then_some(&self.extra)
    }

    /// Extra special tokens that look like languages, such as `deu_Latn` and `de_DE`.
    pub(super) fn extra_languages(&self) -> impl Iterator<Item = &str> {
        let is_code = |code: &&str| {
            code.split_once('_').is_some_and(|(language, place)| {
                (2..=3).contains(&language.len())
                    && language.bytes().all(|byte| byte.is_ascii_lowercase())
                    && (2..=4).contains(&place.len())
                    && place.starts_with(|first: char| first.is_ascii_uppercase())
                    && place.bytes().all(|byte| byte.is_ascii_alphabetic())
            })
        };
        self.extra.iter().map(|token| token.content.as_str()).filter(is_code)
    }

    /// Replaces the extra special tokens.
    pub(super) fn set_extra(&mut self, tokens: impl IntoIterator<Item = AddedToken>) {
        (self.extra, self.extra_contents) = (Vec::new(), HashSet::new());
        for token in tokens {
            if self.extra_contents.insert(token.content.clone()) {
                self.extra.push(token);
            }
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

    /// Whether this is the text of a special token without a name.
    pub(super) fn is_extra(&self, content: &str) -> bool {
        self.extra_contents.contains(content)
    }

    /// Whether a standard or model-specific name stands for this text.
    pub(super) fn is_named(&self, content: &str) -> bool {
        self.named.iter().any(|(_, token)| token.content == content)
    }

    /// Reads the special tokens of a file; `is_map` is `special_tokens_map.json`, which adds to the other.
    fn add_named(&mut self, file: &str, config: &Map<String, Value>, is_map: bool) -> Result<()> {
        let standard = NAMED.iter().filter_map(|&name| Some((name, config.get(name)?)));
        // Tokens of one model, such as `image_token`; flags such as `add_bos_token` are no strings.
        let own = config.iter().filter(|(name, value)| {
            name.ends_with("_token") && !is_standard(name) && (value.is_string() || value.is_object())
        });
        let mut num_own = 0;
        for (name, value) in
            standard.chain(own.map(|(name, value)| (name.as_str(), value))).take(MAX_NAMED + 1)
        {
            if value.is_null() {
                self.named.retain(|(known, _)| known != name);
                self.unset.push(name.to_owned());
            } else if is_map && !is_standard(name) {
                // Before those of the other file, which count.
                let known = self.named.iter().position(|(known, _)| known == name);
                let token = match known {
                    Some(at) => self.named.remove(at).1,
                    None => token(file, name, value)?,
                };
                let at = self.named.partition_point(|(known, _)| is_standard(known)) + num_own;
                self.named.insert(at, (name.to_owned(), token));
                num_own += 1;
            } else {
                let token = token(file, name, value)?;
                if value.is_string() {
                    self.plain.insert(token.content.clone());
                }
                self.set_named(name, token);
            }
        }
        let is_empty = |value: &Value| match value {
            Value::Array(tokens) => tokens.is_empty(),
            Value::Object(tokens) => tokens.is_empty(),
            other => other.is_null(),
        };
        let [extra, additional] =
            ["extra_special_tokens", "additional_special_tokens"].map(|name| Some((name, config.get(name)?)));
        // The old name counts where the new one says nothing; that of the map, where the other file has none.
        let additional = additional.filter(|_| !is_map || !self.has_extra);
        match extra.filter(|(_, value)| !is_empty(value)).or(additional) {
            None => self.has_extra |= extra.is_some(),
            Some((_, Value::Null)) => self.has_extra = true,
            Some((name, Value::Array(tokens))) => {
                self.extra_is_of_map = is_map && name == "additional_special_tokens";
                self.has_extra = true;
                for value in tokens {
                    let mut token = token(file, name, value)?;
                    // One with flags is not special by its place in this file.
                    if !is_map && value.is_object() && value.get("special").is_none() {
                        token.special = false;
                        token.normalized = value["normalized"].as_bool().unwrap_or(true);
                    }
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
        self.unset.retain(|unset| unset != name);
        if let Some((_, known)) = self.named.iter_mut().find(|(known, _)| known == name) {
            *known = token;
            return;
        }
        let place = |name: &str| NAMED.iter().position(|&it| it == name).unwrap_or(NAMED.len());
        let at = self.named.partition_point(|(known, _)| place(known) <= place(name));
        self.named.insert(at, (name.to_owned(), token));
    }

    /// A standard special token has the flags of the added token of the same text.
    fn share_added_tokens(&mut self) {
        for (_, named) in self.named.iter_mut().filter(|(name, _)| is_standard(name)) {
            if let Some(token) = self.added.values().rev().find(|token| token.content == named.content) {
                self.plain.remove(&named.content);
                *named = token.clone();
            }
        }
    }
}

pub(super) fn flag(file: &str, config: &Map<String, Value>, name: &str) -> Result<Option<bool>> {
    match config.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(value)) => Ok(Some(*value)),
        Some(other) => Err(wrong(file, name, "true or false", other)),
    }
}

/// Whether `tokenizer.4.0.json` and the like is one that transformers 5.24 takes instead of tokenizer.json.
fn is_for_5_24(name: &Value) -> bool {
    let version = name.as_str().and_then(|name| name.strip_prefix("tokenizer.")?.strip_suffix(".json"));
    let numbers = version.map(|version| version.split('.').map(|part| part.parse::<u32>().unwrap_or(0)));
    numbers.is_some_and(|numbers| numbers.collect::<Vec<_>>() < vec![5, 25])
}

fn is_standard(name: &str) -> bool {
    NAMED.contains(&name)
}

fn added_tokens(file: &str, tokens: &Map<String, Value>) -> Result<BTreeMap<u32, AddedToken>> {
    let mut added = BTreeMap::new();
    for (id, value) in tokens {
        let id = id.parse::<u32>().map_err(|error| {
            Error::load(format!("{file}: added_tokens_decoder: {id:?} must be a token id")).with_source(error)
        })?;
        added.insert(id, token(file, "added_tokens_decoder", value)?);
    }
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

pub(super) fn wrong(file: &str, field: &str, rule: &str, found: &Value) -> Error {
    Error::load(format!("{file}: {field} must be {rule}, found {}; correct the file", shown(found)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The settings of a `tokenizer_config.json` and a `special_tokens_map.json`.
    fn read(config: &[u8], map: &[u8]) -> Result<Settings> {
        Settings::read(&|name| match name {
            "tokenizer_config.json" => Some(config.into()),
            "special_tokens_map.json" => Some(map.into()),
            _ => None,
        })
    }

    #[test]
    fn special_tokens_come_from_the_config_with_the_flags_of_the_added_tokens() {
        let config = br#"{"bos_token": "<s>", "eos_token": {"__type": "AddedToken", "content": "</s>", "lstrip": true},
            "pad_token": null, "image_token": "<img>", "add_bos_token": true, "tokenizer_class": "LlamaTokenizerFast",
            "additional_special_tokens": ["<|user|>"], "extra_special_tokens": {},
            "added_tokens_decoder": {"7": {"content": "<s>", "rstrip": true, "special": true}}}"#;
        let map = br#"{"pad_token": "<ignored>"}"#;
        let settings = read(config, map).unwrap();
        assert_eq!(settings.class.as_deref(), Some("LlamaTokenizerFast"));
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
        let settings = read(br#"{"bos_token": "<s>"}"#, map).unwrap();
        assert_eq!(settings.special_token("bos_token"), Some("<b>"));
        assert_eq!(settings.special_token("pad_token"), Some("<pad>"));
        assert!(settings.special_tokens().all(|token| token.special));
    }

    #[test]
    fn a_default_does_not_replace_what_the_files_say() {
        let mut settings = read(br#"{"bos_token": "<b>", "eos_token": null}"#, b"{}").unwrap();
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
            let error = read(config, b"{}").unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
