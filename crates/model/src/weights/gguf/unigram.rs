//! The tokenizer of T5 in a GGUF file: pieces with their scores. The texts are those of transformers'
//! `T5Tokenizer`, which knows how texts are cut, so that the file's settings of spaces are not needed.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::tokenizer::{Added, CHARSMAP, Source, TYPES};
use super::value::wrong;
use rsgen_core::error::{Error, Result};

/// The type of tokens that no text has, such as those that fill a vocabulary up.
const UNUSED: u64 = 5;
/// The place of the unknown token, which the class knows.
const UNKNOWN: u64 = 2;
/// The place of the token that ends a text, where the file names none.
const EOS: u64 = 1;
/// The marks of gaps in a text. Files call them as what fills the vocabulary up.
const SENTINELS: usize = 100;
/// The longest map of characters, in bytes; those of T5 have 237,539.
const MAX_CHARSMAP: usize = 4 << 20;

/// A tokenizer.json.
#[derive(Serialize)]
struct UnigramJson<'a> {
    version: &'static str,
    added_tokens: Vec<Added<'a>>,
    normalizer: Value,
    pre_tokenizer: Value,
    post_processor: Value,
    decoder: Value,
    model: Unigram<'a>,
}

#[derive(Serialize)]
struct Unigram<'a> {
    r#type: &'static str,
    unk_id: u64,
    vocab: Vec<(&'a str, f64)>,
    byte_fallback: bool,
}

/// The texts of the tokenizer, by the names of their files.
///
/// # Errors
/// `Load`, naming the key, when one is out of its rule.
pub(super) fn texts(source: &Source<'_>) -> Result<Vec<(String, Vec<u8>)>> {
    const ID: &str = "tokenizer.ggml.unknown_token_id";
    let unknown = source.metadata.count(ID)?.unwrap_or(UNKNOWN);
    if unknown != UNKNOWN || source.tokens.len() <= UNKNOWN as usize {
        let rule = format!("{UNKNOWN}, the place of T5's unknown token");
        return Err(wrong(ID, &rule, source.metadata.get(ID)));
    }
    if source.types.len() != source.tokens.len() {
        return Err(wrong(TYPES, "given", None));
    }
    // What fills the vocabulary up at its end are sentinels, if there are enough, and nothing else.
    let is_filler = |id: usize| source.types[id] == UNUSED && source.tokens[id] == format!("[PAD{id}]");
    let pieces = (0..source.tokens.len()).rev().find(|&id| !is_filler(id)).map_or(0, |id| id + 1);
    let sentinels = if source.tokens.len() - pieces >= SENTINELS { SENTINELS } else { 0 };
    let names: Vec<String> = (0..sentinels).rev().map(|i| format!("<extra_id_{i}>")).collect();
    let scores = source.scores()?;
    // Scores are float32, and Python has their numbers.
    let scored = source.tokens.iter().zip(&scores).map(|(token, &score)| (&**token, f64::from(score as f32)));
    let vocab = scored.take(pieces).chain(names.iter().map(|name| (&**name, 0.0))).collect();
    let mut added_tokens = source.added(true);
    added_tokens.retain(|token| token.id < pieces);
    added_tokens.extend(names.iter().enumerate().map(|(at, name)| Added::new(pieces + at, name, true)));
    // The class has these; with umT5 the file counts, and not the class that it names.
    let metaspace = json!({
        "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true
    });
    let json = UnigramJson {
        version: "1.0",
        added_tokens,
        normalizer: normalizer(source)?,
        pre_tokenizer: json!({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]}),
        post_processor: ended(source)?,
        decoder: metaspace,
        model: Unigram { r#type: "Unigram", unk_id: UNKNOWN, vocab, byte_fallback: false },
    };
    let json = serde_json::to_vec(&json)
        .map_err(|error| Error::internal("a tokenizer is JSON").with_source(error))?;
    let mut config = source.config()?;
    config.insert("tokenizer_class".to_owned(), json!("T5Tokenizer"));
    config.insert("extra_ids".to_owned(), json!(sentinels));
    let config = Value::from(config).to_string().into_bytes();
    Ok(vec![("tokenizer.json".to_owned(), json), ("tokenizer_config.json".to_owned(), config)])
}

/// The token after each text: the one that ends it.
fn ended(source: &Source<'_>) -> Result<Value> {
    let id = source.metadata.count("tokenizer.ggml.eos_token_id")?.unwrap_or(EOS);
    let eos = source.special("eos")?.unwrap_or(&source.tokens[EOS as usize]);
    let part = |name: &str| {
        [json!({"Sequence": {"id": name, "type_id": 0}}), json!({"SpecialToken": {"id": eos, "type_id": 0}})]
    };
    let pair = [part("A"), part("B")].concat();
    let special = Map::from_iter([(eos.to_owned(), json!({"id": eos, "ids": [id], "tokens": [eos]}))]);
    Ok(json!({
        "type": "TemplateProcessing",
        "single": part("A"),
        "pair": pair,
        "special_tokens": special,
    }))
}

/// The map of characters.
fn normalizer(source: &Source<'_>) -> Result<Value> {
    let Some(bytes) = source.metadata.bytes(CHARSMAP)? else { return Ok(Value::Null) };
    if bytes.is_empty() || bytes.len() > MAX_CHARSMAP {
        let rule = format!("a list of 1 to {MAX_CHARSMAP} bytes");
        return Err(wrong(CHARSMAP, &rule, source.metadata.get(CHARSMAP)));
    }
    Ok(json!({"type": "Precompiled", "precompiled_charsmap": base64::encode(bytes)}))
}
