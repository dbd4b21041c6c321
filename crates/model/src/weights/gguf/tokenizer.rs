//! The tokenizer of a GGUF file: the texts of a tokenizer.json and of what lies beside it, made of the
//! vocabulary and the settings of the metadata.
//!
//! Vocabularies of SentencePiece have no merges in the file: they are found again by the scores, as
//! transformers does it.

use std::collections::HashMap;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::pre_tokenizers;
use super::unigram;
use super::value::{Metadata, wrong};
use rsgen_core::error::{Error, Result};
use rsgen_core::escape;

const MODEL: &str = "tokenizer.ggml.model";
const PRE: &str = "tokenizer.ggml.pre";
pub(super) const TOKENS: &str = "tokenizer.ggml.tokens";
const MERGES: &str = "tokenizer.ggml.merges";
const SCORES: &str = "tokenizer.ggml.scores";
pub(super) const TYPES: &str = "tokenizer.ggml.token_type";
pub(super) const CHARSMAP: &str = "tokenizer.ggml.precompiled_charsmap";
const TEMPLATE: &str = "tokenizer.chat_template";
/// The space of SentencePiece.
const SPACE: &str = "▁";
const MAX_TOKENS: usize = 1 << 22;
/// The longest token of a vocabulary without merges, in characters: each is cut at every place.
const MAX_PIECE: usize = 128;
/// The way out for what is not supported.
const REMEDY: &str = "copy the tokenizer.json of the model beside the file";

/// The types of tokens that have a meaning here.
const UNKNOWN: u64 = 2;
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;

/// A tokenizer.json.
#[derive(Serialize)]
struct TokenizerJson<'a> {
    version: &'static str,
    truncation: (),
    padding: (),
    added_tokens: Vec<Added<'a>>,
    normalizer: Value,
    pre_tokenizer: Value,
    post_processor: Value,
    decoder: Value,
    model: Bpe<'a>,
}

#[derive(Serialize)]
pub(super) struct Added<'a> {
    pub(super) id: usize,
    content: &'a str,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
    special: bool,
}

impl<'a> Added<'a> {
    pub(super) const fn new(id: usize, content: &'a str, special: bool) -> Self {
        Self { id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special }
    }
}

#[derive(Serialize)]
struct Bpe<'a> {
    r#type: &'static str,
    dropout: (),
    unk_token: Option<&'a str>,
    continuing_subword_prefix: (),
    end_of_word_suffix: (),
    fuse_unk: bool,
    byte_fallback: bool,
    ignore_merges: bool,
    vocab: Vocab<'a>,
    merges: Vec<[&'a str; 2]>,
}

/// Tokens with their ids; of those with the same text the last one counts, as in llama.cpp.
struct Vocab<'a>(HashMap<&'a str, usize>);

impl Serialize for Vocab<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut entries: Vec<_> = self.0.iter().collect();
        entries.sort_unstable_by_key(|(_, id)| **id);
        serializer.collect_map(entries)
    }
}

/// The texts of a tokenizer by the names of their files; none where the file has no tokenizer.
///
/// # Errors
/// `Load`, naming the key, when one is out of its rule or of a kind that is not supported.
pub(super) fn texts(metadata: &Metadata, architecture: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let model = metadata.text(MODEL)?.unwrap_or("none");
    if matches!(model, "none" | "no_vocab") {
        return Ok(Vec::new());
    }
    let tokens = metadata.texts(TOKENS)?.ok_or_else(|| wrong(TOKENS, "given", None))?;
    if tokens.len() > MAX_TOKENS {
        return Err(wrong(TOKENS, &format!("a list of at most {MAX_TOKENS} texts"), metadata.get(TOKENS)));
    }
    let types = metadata.numbers(TYPES)?.unwrap_or_default();
    if !types.is_empty() && types.len() != tokens.len() {
        let rule = format!("a list of {} numbers, one for each token", tokens.len());
        return Err(wrong(TYPES, &rule, metadata.get(TYPES)));
    }
    let types: Vec<u64> = types.iter().map(|number| number.as_count().unwrap_or(0)).collect();
    let source = Source { metadata, tokens, types };
    let json = match model {
        "gpt2" => source.byte_level(architecture)?,
        "llama" => source.sentencepiece(architecture)?,
        "t5" => return unigram::texts(&source),
        _ => {
            return Err(Error::load(format!(
                "{MODEL}: \"{}\" is not supported, only gpt2, llama and t5 are; {REMEDY}",
                escape::name(model)
            )));
        }
    };
    let text = |name: &str, value: Vec<u8>| (name.to_owned(), value);
    let config = Value::from(source.config()?).to_string().into_bytes();
    Ok(vec![text("tokenizer.json", json), text("tokenizer_config.json", config)])
}

/// The text of a `generation_config.json`: the tokens that begin, end and fill up.
///
/// # Errors
/// `Load` when one is no token.
pub(super) fn generation_config(metadata: &Metadata, architecture: &str) -> Result<Vec<u8>> {
    let id = |name: &str| metadata.count(&format!("tokenizer.ggml.{name}_token_id"));
    let mut ends: Vec<u64> = Vec::new();
    for name in ["eos", "eot", "eom"] {
        ends.extend(id(name)?.filter(|id| !ends.contains(id)));
    }
    let mut config = Map::new();
    let eos = if ends.len() == 1 { json!(ends[0]) } else { json!(ends) };
    for (name, value) in [
        ("bos_token_id", id("bos")?.map(Value::from)),
        ("eos_token_id", (!ends.is_empty()).then_some(eos)),
        ("pad_token_id", id("padding")?.map(Value::from)),
        (
            "decoder_start_token_id",
            metadata.count(&format!("{architecture}.decoder_start_token_id"))?.map(Value::from),
        ),
    ] {
        config.extend(value.map(|value| (name.to_owned(), value)));
    }
    Ok(Value::from(config).to_string().into_bytes())
}

fn json_of(tokenizer: &TokenizerJson<'_>) -> Result<Vec<u8>> {
    serde_json::to_vec(tokenizer).map_err(|error| Error::internal("a tokenizer is JSON").with_source(error))
}

/// The metadata, and the tokens with their types.
pub(super) struct Source<'a> {
    pub(super) metadata: &'a Metadata,
    pub(super) tokens: &'a [String],
    pub(super) types: Vec<u64>,
}

impl<'a> Source<'a> {
    /// A vocabulary of byte-level tokens with merges.
    fn byte_level(&self, architecture: &str) -> Result<Vec<u8>> {
        let named = self.metadata.text(PRE)?;
        // GPT-2's files are older than the key.
        let name = named.filter(|&name| name != "default" || architecture != "gpt2");
        let name = name.or_else(|| (architecture == "gpt2").then_some("gpt-2"));
        let name = name.ok_or_else(|| {
            Error::load(format!(
                "{PRE} must name the pre-tokenizer, found nothing: the file is of an old converter; {REMEDY}"
            ))
        })?;
        let pre = pre_tokenizers::find(name).ok_or_else(|| {
            Error::load(format!(
                "{PRE}: the pre-tokenizer \"{}\" is not supported; {REMEDY}",
                escape::name(name)
            ))
        })?;
        let merges = self.metadata.texts(MERGES)?.ok_or_else(|| wrong(MERGES, "given", None))?;
        let pair = |merge: &'a String| {
            // A token may be a space, but not begin with one and go on.
            let at = merge.char_indices().skip(1).find(|(_, letter)| *letter == ' ');
            at.map(|(at, _)| [&merge[..at], &merge[at + 1..]])
        };
        let merges: Option<Vec<[&str; 2]>> = merges.iter().map(pair).collect();
        let rule = "a list of two tokens each, with a space between";
        let merges = merges.ok_or_else(|| wrong(MERGES, rule, self.metadata.get(MERGES)))?;
        json_of(&TokenizerJson {
            normalizer: if pre.nfc { json!({"type": "NFC"}) } else { Value::Null },
            pre_tokenizer: pre.section(),
            post_processor: self.around(pre.add_bos)?,
            decoder: json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
            added_tokens: self.added(false),
            model: Bpe {
                ignore_merges: pre.ignore_merges,
                merges,
                ..Bpe::new(vocab(self.tokens.iter().map(|token| &**token)))
            },
            ..TokenizerJson::new()
        })
    }

    /// A vocabulary of SentencePiece, whose merges are found by its scores, or for Gemma by its order.
    fn sentencepiece(&self, architecture: &str) -> Result<Vec<u8>> {
        if self.metadata.get(CHARSMAP).is_some() {
            return Err(Error::load(format!("{CHARSMAP} is not supported; {REMEDY}")));
        }
        let is_gemma = architecture.starts_with("gemma");
        // llama.cpp's converter writes tokens of spaces alone with plain ones.
        let respelled: Vec<String> = self
            .tokens
            .iter()
            .map(|token| {
                let is_spaces = is_gemma && !token.is_empty() && token.bytes().all(|byte| byte == b' ');
                if is_spaces { SPACE.repeat(token.len()) } else { token.clone() }
            })
            .collect();
        let vocab = vocab(respelled.iter().map(|token| &**token));
        let scores: Vec<f64> =
            if is_gemma { (0..respelled.len()).map(|id| -(id as f64)).collect() } else { self.scores()? };
        let merges = match self.metadata.texts(MERGES)? {
            Some(merges) if !merges.is_empty() => {
                let pairs =
                    merges.iter().map(|merge| merge.split_once(' ').map(|(left, right)| [left, right]));
                let pairs: Option<Vec<[&str; 2]>> = pairs.collect();
                pairs.ok_or_else(|| wrong(MERGES, "a list of two tokens each", self.metadata.get(MERGES)))?
            }
            _ => merges_of(&respelled, &vocab, &scores)?,
        };
        let prefix = self.metadata.flag("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
        let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE});
        let (normalizer, pre_tokenizer) = match (prefix, architecture) {
            (false, _) => (replace, Value::Null),
            (true, "phi3") => {
                let prepend = json!({"type": "Prepend", "prepend": SPACE});
                (json!({"type": "Sequence", "normalizers": [prepend, replace]}), Value::Null)
            }
            (true, _) => {
                let metaspace = json!({
                    "type": "Metaspace", "replacement": SPACE, "prepend_scheme": "first", "split": false
                });
                (Value::Null, metaspace)
            }
        };
        let mut decoders = vec![
            json!({"type": "Replace", "pattern": {"String": SPACE}, "content": " "}),
            json!({"type": "ByteFallback"}),
            json!({"type": "Fuse"}),
        ];
        if prefix {
            decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        let unknown = self.special("unknown")?.or_else(|| {
            let at = self.types.iter().position(|&kind| kind == UNKNOWN);
            at.map(|at| &*self.tokens[at])
        });
        json_of(&TokenizerJson {
            normalizer,
            pre_tokenizer,
            post_processor: self.around(true)?,
            decoder: json!({"type": "Sequence", "decoders": decoders}),
            added_tokens: self.added(true),
            model: Bpe {
                unk_token: unknown.filter(|unknown| vocab.contains_key(unknown)),
                fuse_unk: true,
                byte_fallback: vocab.contains_key("<0x00>"),
                merges,
                ..Bpe::new(vocab)
            },
            ..TokenizerJson::new()
        })
    }

    /// The score of each token.
    pub(super) fn scores(&self) -> Result<Vec<f64>> {
        let scores = self.metadata.numbers(SCORES)?.ok_or_else(|| wrong(SCORES, "given", None))?;
        let scores: Option<Vec<f64>> = scores.iter().map(|score| score.as_f64()).collect();
        scores.filter(|scores| scores.len() == self.tokens.len()).ok_or_else(|| {
            let rule = format!("a list of {} finite numbers, one for each token", self.tokens.len());
            wrong(SCORES, &rule, self.metadata.get(SCORES))
        })
    }

    /// The tokens that are found in a text before anything else. `with_unknown` adds the unknown one.
    pub(super) fn added(&self, with_unknown: bool) -> Vec<Added<'a>> {
        let added = |(id, &kind): (usize, &u64)| {
            let special = kind == CONTROL || with_unknown && kind == UNKNOWN;
            let content = &*self.tokens[id];
            let is_added = (special || kind == USER_DEFINED) && !content.is_empty();
            is_added.then_some(Added::new(id, content, special))
        };
        self.types.iter().enumerate().filter_map(added).collect()
    }

    /// The token that a key names.
    pub(super) fn special(&self, name: &str) -> Result<Option<&'a str>> {
        let key = format!("tokenizer.ggml.{name}_token_id");
        let Some(id) = self.metadata.count(&key)? else { return Ok(None) };
        let token = usize::try_from(id).ok().and_then(|id| self.tokens.get(id));
        let rule = || format!("the id of one of the {} tokens", self.tokens.len());
        token.map(|token| Some(&**token)).ok_or_else(|| wrong(&key, &rule(), self.metadata.get(&key)))
    }

    /// What goes around a prompt; `bos` is whether the first token does, where the file does not say it.
    fn around(&self, bos: bool) -> Result<Value> {
        let flag = |name: &str, default: bool| {
            let flag = self.metadata.flag(&format!("tokenizer.ggml.add_{name}_token"))?.unwrap_or(default);
            Ok::<_, Error>(self.special(name)?.filter(|_| flag))
        };
        let (bos, eos) = (flag("bos", bos)?, flag("eos", false)?);
        if bos.is_none() && eos.is_none() {
            return Ok(Value::Null);
        }
        let token = |token: &str, place: u8| json!({"SpecialToken": {"id": token, "type_id": place}});
        let text = |name: &str, place: u8| json!({"Sequence": {"id": name, "type_id": place}});
        let part = |name: &str, place: u8| -> Vec<Value> {
            let bos = bos.map(|bos| token(bos, place)).into_iter();
            bos.chain([text(name, place)]).chain(eos.map(|eos| token(eos, place))).collect()
        };
        let mut special = Map::new();
        for (token, key) in [(bos, "bos"), (eos, "eos")] {
            let Some(token) = token else { continue };
            let id = self.metadata.count(&format!("tokenizer.ggml.{key}_token_id"))?;
            special.insert(token.to_owned(), json!({"id": token, "ids": [id], "tokens": [token]}));
        }
        let pair = [part("A", 0), part("B", 1)].concat();
        Ok(json!({
            "type": "TemplateProcessing", "single": part("A", 0), "pair": pair, "special_tokens": special
        }))
    }

    /// The `tokenizer_config.json`.
    pub(super) fn config(&self) -> Result<Map<String, Value>> {
        let mut config = Map::new();
        config.insert("tokenizer_class".to_owned(), json!("GGUF"));
        config.insert("clean_up_tokenization_spaces".to_owned(), json!(false));
        for (name, key) in [
            ("bos", "bos"),
            ("eos", "eos"),
            ("unk", "unknown"),
            ("pad", "padding"),
            ("sep", "seperator"),
            ("mask", "mask"),
        ] {
            if let Some(token) = self.special(key)? {
                config.insert(format!("{name}_token"), json!(token));
            }
        }
        let named = self
            .metadata
            .0
            .keys()
            .filter_map(|key| Some((key, key.strip_prefix(TEMPLATE)?.strip_prefix('.')?)));
        let mut templates = Vec::new();
        for (key, name) in named {
            templates.extend(self.metadata.text(key)?.map(|text| json!({"name": name, "template": text})));
        }
        let default = self.metadata.text(TEMPLATE)?;
        if templates.is_empty() {
            config.extend(default.map(|text| ("chat_template".to_owned(), json!(text))));
        } else {
            templates.extend(default.map(|text| json!({"name": "default", "template": text})));
            config.insert("chat_template".to_owned(), templates.into());
        }
        Ok(config)
    }
}

impl TokenizerJson<'_> {
    fn new() -> Self {
        Self {
            version: "1.0",
            truncation: (),
            padding: (),
            added_tokens: Vec::new(),
            normalizer: Value::Null,
            pre_tokenizer: Value::Null,
            post_processor: Value::Null,
            decoder: Value::Null,
            model: Bpe::new(HashMap::new()),
        }
    }
}

impl<'a> Bpe<'a> {
    fn new(vocab: HashMap<&'a str, usize>) -> Self {
        Self {
            r#type: "BPE",
            dropout: (),
            unk_token: None,
            continuing_subword_prefix: (),
            end_of_word_suffix: (),
            fuse_unk: false,
            byte_fallback: false,
            ignore_merges: false,
            vocab: Vocab(vocab),
            merges: Vec::new(),
        }
    }
}

fn vocab<'a>(tokens: impl Iterator<Item = &'a str>) -> HashMap<&'a str, usize> {
    tokens.enumerate().map(|(id, token)| (token, id)).collect()
}

/// Each way to put a token together of two others, the best tokens first, and of one token the longest first
/// part.
fn merges_of<'a>(
    tokens: &'a [String],
    vocab: &HashMap<&'a str, usize>,
    scores: &[f64],
) -> Result<Vec<[&'a str; 2]>> {
    let mut merges: Vec<(f64, [usize; 2], [&str; 2])> = Vec::new();
    for (id, token) in tokens.iter().enumerate() {
        // Of tokens with the same text one counts.
        if vocab.get(&**token) != Some(&id) {
            continue;
        }
        let length = token.chars().take(MAX_PIECE + 1).count();
        if length > MAX_PIECE {
            continue;
        }
        let first = merges.len();
        for (taken, (at, _)) in token.char_indices().enumerate().skip(1) {
            let parts = token.split_at(at);
            if vocab.contains_key(parts.0) && vocab.contains_key(parts.1) {
                merges.push((scores[id], [taken, length - taken], parts.into()));
            }
        }
        if merges.len() > MAX_TOKENS {
            return Err(Error::load(format!(
                "{TOKENS} must be tokens that are put together in at most {MAX_TOKENS} ways; {REMEDY}"
            )));
        }
        merges[first..].sort_by_key(|(_, _, parts)| parts.map(|part| vocab.get(part).copied()));
    }
    merges.sort_by(|one, other| other.0.total_cmp(&one.0).then_with(|| other.1.cmp(&one.1)));
    Ok(merges.into_iter().map(|(_, _, parts)| parts).collect())
}
