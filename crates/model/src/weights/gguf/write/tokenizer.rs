//! The tokenizer of a GGUF file that is written: the vocabulary of a tokenizer.json with the types of its tokens,
//! special tokens and chat templates.
//!
//! How a text is cut and normalized has a name in GGUF files, not a description. Each name is a form, and the caller
//! tries which one is the tokenizer.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::super::pre_tokenizers;
use super::entries::{Entries, Entry};
use crate::weights::config::ModelConfig;
use crate::weights::source::{MAX_TEXT_BYTES, ModelFiles};
use rsgen_core::error::{Error, Result};
use rsgen_core::escape;
use rsgen_core::json::read_object;

/// The types of tokens.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;
/// Keys of special tokens: their names in a `tokenizer_config.json`.
const SPECIAL: [(&str, &str); 6] = [
    ("bos_token", "bos"),
    ("eos_token", "eos"),
    ("unk_token", "unknown"),
    ("pad_token", "padding"),
    ("sep_token", "seperator"),
    ("mask_token", "mask"),
];
/// What a generation may end with, beside the first.
const ENDS: [&str; 2] = ["eot", "eom"];

/// What the folder says of its tokenizer.
pub(super) struct Given {
    /// The tokenizer.json, if there is one.
    json: Option<Map<String, Value>>,
    config: Map<String, Value>,
    special: Map<String, Value>,
    /// The chat templates by name; the default one has none.
    templates: Vec<(String, String)>,
    ends: Vec<u32>,
    vocab_size: usize,
}

impl Given {
    /// # Errors
    /// `Load` when a file is damaged, or when there is a tokenizer but no tokenizer.json.
    pub(super) fn read(files: &ModelFiles, config: &ModelConfig) -> Result<Self> {
        let object = |name: &str| -> Result<Option<Map<String, Value>>> {
            let text = files.read_optional(name)?;
            text.map(|text| read_object(name, &text, MAX_TEXT_BYTES)).transpose()
        };
        let json = object("tokenizer.json")?;
        if json.is_none() {
            for name in
                ["tokenizer.model", "spiece.model", "vocab.json", "source.spm", "sentencepiece.bpe.model"]
            {
                if files.contains(name) {
                    return Err(Error::load(format!(
                        "a GGUF file is made of a tokenizer.json, found {name}; load the tokenizer with transformers and save \
                         it"
                    )));
                }
            }
        }
        let tokenizer_config = object("tokenizer_config.json")?.unwrap_or_default();
        let mut templates: Vec<(String, String)> = Vec::new();
        match tokenizer_config.get("chat_template") {
            Some(Value::String(text)) => templates.push((String::new(), text.clone())),
            Some(Value::Array(list)) => {
                for entry in list {
                    let text = |name: &str| entry.get(name).and_then(Value::as_str).map(str::to_owned);
                    if let (Some(name), Some(text)) = (text("name"), text("template")) {
                        templates.push((if name == "default" { String::new() } else { name }, text));
                    }
                }
            }
            _ => {}
        }
        if let Some(text) = files.chat_template()? {
            templates.retain(|(name, _)| !name.is_empty());
            templates.push((String::new(), String::from_utf8_lossy(&text).into_owned()));
        }
        for (name, text) in files.additional_chat_templates()? {
            templates.retain(|(known, _)| *known != name);
            templates.push((name, String::from_utf8_lossy(&text).into_owned()));
        }
        let generation = object("generation_config.json")?.unwrap_or_default();
        let ends = match generation.get("eos_token_id") {
            Some(Value::Array(ids)) => ids.iter().filter_map(id_of).collect(),
            Some(id) => id_of(id).into_iter().collect(),
            None => config.eos_token_ids.iter().map(|id| id.0).collect(),
        };
        Ok(Self {
            json,
            config: tokenizer_config,
            special: object("special_tokens_map.json")?.unwrap_or_default(),
            templates,
            ends,
            vocab_size: config.vocab_size,
        })
    }

    /// The forms that it may have, likely ones first.
    ///
    /// # Errors
    /// `Load`, naming the kind of tokenizer, when there is none.
    pub(super) fn forms(&self) -> Result<Vec<Entries>> {
        let Some(json) = &self.json else {
            let mut entries = Entries::default();
            entries.set("tokenizer.ggml.model", Entry::Text("none".to_owned()));
            self.special_ids(&mut entries, &HashMap::new())?;
            return Ok(vec![entries]);
        };
        let model = json.get("model").and_then(Value::as_object);
        let kind = model.and_then(|model| model.get("type")?.as_str()).unwrap_or("BPE");
        let Some(model) = model.filter(|_| kind == "BPE") else {
            return Err(Error::load(format!(
                "tokenizer.json: a {} has no form in GGUF files of decoders, only BPE does; use the model as it is",
                escape::name(kind)
            )));
        };
        let merges = merges(model)?;
        let is_sentencepiece = model.get("byte_fallback") == Some(&Value::Bool(true));
        let tokens = self.tokens(json, model, is_sentencepiece)?;
        let shared = |kind: &str| {
            let mut entries = Entries::default();
            entries.set("tokenizer.ggml.model", Entry::Text(kind.to_owned()));
            entries
        };
        let finish = |entries: &mut Entries| -> Result<()> {
            entries.set("tokenizer.ggml.tokens", Entry::Texts(tokens.texts.clone()));
            entries.set("tokenizer.ggml.token_type", Entry::I32s(tokens.types.clone()));
            let pairs = merges.iter().map(|[left, right]| format!("{left} {right}")).collect();
            entries.set("tokenizer.ggml.merges", Entry::Texts(pairs));
            self.special_ids(entries, &tokens.ids)?;
            for (name, around) in ["bos", "eos"].into_iter().zip(self.around(json, &tokens.ids)) {
                entries.set(format!("tokenizer.ggml.add_{name}_token"), Entry::Bool(around));
            }
            for (name, text) in &self.templates {
                let dot = if name.is_empty() { "" } else { "." };
                entries.set(format!("tokenizer.chat_template{dot}{name}"), Entry::Text(text.clone()));
            }
            Ok(())
        };
        let mut forms = Vec::new();
        if is_sentencepiece {
            // The better a token, the earlier the merge that makes it.
            let mut scores = vec![0.0_f32; tokens.texts.len()];
            for (rank, [left, right]) in merges.iter().enumerate().rev() {
                if let Some(&id) = tokens.ids.get(&format!("{left}{right}")) {
                    scores[id as usize] = -(rank as f32);
                }
            }
            for prefix in [true, false] {
                let mut entries = shared("llama");
                entries.set("tokenizer.ggml.pre", Entry::Text("default".to_owned()));
                entries.set("tokenizer.ggml.scores", Entry::F32s(scores.clone()));
                entries.set("tokenizer.ggml.add_space_prefix", Entry::Bool(prefix));
                finish(&mut entries)?;
                forms.push(entries);
            }
            return Ok(forms);
        }
        let ignores = model.get("ignore_merges") == Some(&Value::Bool(true));
        for name in pre_tokenizers::names_like(json.get("pre_tokenizer"), json.get("normalizer"), ignores) {
            let mut entries = shared("gpt2");
            entries.set("tokenizer.ggml.pre", Entry::Text(name.to_owned()));
            finish(&mut entries)?;
            forms.push(entries);
        }
        Ok(forms)
    }

    /// The tokens by id, with a name for those that the embedding has and the vocabulary does not.
    fn tokens(
        &self,
        json: &Map<String, Value>,
        model: &Map<String, Value>,
        is_sentencepiece: bool,
    ) -> Result<Tokens> {
        let vocab = model.get("vocab").and_then(Value::as_object);
        let vocab = vocab.ok_or_else(|| Error::load("tokenizer.json: model.vocab must be given"))?;
        let mut ids: HashMap<String, u32> = HashMap::with_capacity(vocab.len());
        let mut tokens: Vec<(String, u32, i32)> = Vec::with_capacity(vocab.len());
        let unknown = model.get("unk_token").and_then(Value::as_str);
        for (text, id) in vocab {
            let id = id_of(id).ok_or_else(|| Error::load("tokenizer.json: model.vocab must hold ids"))?;
            let is_byte = is_sentencepiece
                && text.len() == 6
                && text
                    .strip_prefix("<0x")
                    .and_then(|rest| u8::from_str_radix(rest.get(..2)?, 16).ok())
                    .is_some();
            let kind = match text {
                _ if Some(&**text) == unknown => UNKNOWN,
                _ if is_byte => BYTE,
                _ => NORMAL,
            };
            tokens.push((text.clone(), id, kind));
        }
        for added in json.get("added_tokens").and_then(Value::as_array).into_iter().flatten() {
            let (Some(text), Some(id)) =
                (added.get("content").and_then(Value::as_str), added.get("id").and_then(id_of))
            else {
                continue;
            };
            let is_special = added.get("special") == Some(&Value::Bool(true));
            let kind = match is_special {
                _ if is_sentencepiece && Some(text) == unknown => UNKNOWN,
                true => CONTROL,
                false => USER_DEFINED,
            };
            tokens.push((text.to_owned(), id, kind));
        }
        let (mut texts, mut types) = (vec![None; self.vocab_size], vec![UNUSED; self.vocab_size]);
        for (text, id, kind) in tokens {
            let Some(place) = texts.get_mut(id as usize) else {
                return Err(Error::load(format!(
                    "the token {} has the id {id}, beyond the {} rows of the embedding, which no GGUF file may have",
                    escape::name(&text),
                    self.vocab_size
                )));
            };
            ids.insert(text.clone(), id);
            *place = Some(text);
            types[id as usize] = kind;
        }
        let text = |(id, text): (usize, Option<String>)| text.unwrap_or_else(|| format!("[PAD{id}]"));
        Ok(Tokens { texts: texts.into_iter().enumerate().map(text).collect(), types, ids })
    }

    /// The special tokens by their ids.
    fn special_ids(&self, entries: &mut Entries, ids: &HashMap<String, u32>) -> Result<()> {
        let text = |value: &Value| -> Option<String> {
            value.as_str().or_else(|| value.get("content")?.as_str()).map(str::to_owned)
        };
        let mut ends = self.ends.clone();
        for (name, key) in SPECIAL {
            let token =
                self.config.get(name).and_then(text).or_else(|| self.special.get(name).and_then(text));
            let id = token.and_then(|token| ids.get(&token).copied());
            let is_end = id.is_some_and(|id| self.ends.contains(&id));
            let id = if key == "eos" && !is_end { self.ends.first().copied().or(id) } else { id };
            if let Some(id) = id {
                entries.set(format!("tokenizer.ggml.{key}_token_id"), Entry::U32(id));
                ends.retain(|end| key != "eos" || *end != id);
            }
        }
        if ends.len() > ENDS.len() {
            return Err(Error::load(format!(
                "eos_token_id may hold at most {} tokens in a GGUF file, found {}",
                1 + ENDS.len(),
                self.ends.len()
            )));
        }
        for (key, id) in ENDS.iter().zip(&ends) {
            entries.set(format!("tokenizer.ggml.{key}_token_id"), Entry::U32(*id));
        }
        Ok(())
    }

    /// Whether the first and the last special token go around a text.
    fn around(&self, json: &Map<String, Value>, ids: &HashMap<String, u32>) -> [bool; 2] {
        let named = |name: &str| {
            let value = self.config.get(name).or_else(|| self.special.get(name));
            value.and_then(|value| value.as_str().or_else(|| value.get("content")?.as_str()))
        };
        let mut around = [false; 2];
        let sections = match json.get("post_processor") {
            Some(section) => match section.get("processors").and_then(Value::as_array) {
                Some(list) => list.iter().collect(),
                None => vec![section],
            },
            None => Vec::new(),
        };
        for section in sections {
            let parts = section.get("single").and_then(Value::as_array).into_iter().flatten();
            let is = |part: &Value, name: &str| {
                let token = part.get("SpecialToken").and_then(|token| token.get("id")?.as_str());
                token.is_some() && token == named(name) && token.is_some_and(|token| ids.contains_key(token))
            };
            let parts: Vec<&Value> = parts.collect();
            around[0] |= parts.first().is_some_and(|part| is(part, "bos_token"));
            around[1] |= parts.len() > 1 && parts.last().is_some_and(|part| is(part, "eos_token"));
        }
        // Classes that rebuild the file go by these.
        for (place, name) in [(0, "add_bos_token"), (1, "add_eos_token")] {
            if let Some(flag) = self.config.get(name).and_then(Value::as_bool) {
                around[place] = flag;
            }
        }
        around
    }
}

/// A vocabulary.
struct Tokens {
    texts: Vec<String>,
    types: Vec<i32>,
    ids: HashMap<String, u32>,
}

fn id_of(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}

/// The merges, which old files write as one text each.
fn merges(model: &Map<String, Value>) -> Result<Vec<[&str; 2]>> {
    let list = model.get("merges").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let pairs: Option<Vec<[&str; 2]>> = list.iter().map(pair_of).collect();
    pairs.ok_or_else(|| Error::load("tokenizer.json: model.merges must hold pairs of tokens"))
}

fn pair_of(merge: &Value) -> Option<[&str; 2]> {
    match merge {
        Value::String(text) => text.split_once(' ').map(|(left, right)| [left, right]),
        Value::Array(pair) => match &pair[..] {
            [left, right] => Some([left.as_str()?, right.as_str()?]),
            _ => None,
        },
        _ => None,
    }
}
