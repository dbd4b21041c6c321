//! Checks a tokenizer.json before the `tokenizers` crate reads it, and rejects content that would make the crate
//! panic on a prompt, lengthen a prompt without bound, lose it, or work on it without end.
//!
//! The crate's parser reports other damage, with its position.

use std::panic::catch_unwind;

use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use tokenizers::{
    AddedToken, DecoderWrapper, NormalizedString, Normalizer, NormalizerWrapper, PostProcessorWrapper,
    PreTokenizerWrapper,
};

use super::normalizing::{self, Normalizing};
use rsgen_core::error::{Error, Result, ResultExt as _};
use rsgen_core::json::{self, shown};

/// The greatest factor by which normalizer and pre-tokenizer may lengthen a text.
const MAX_GROWTH: usize = 4096;
/// The most parts of a `Sequence`.
const MAX_PARTS: usize = 64;
/// The most tokens that a post-processor may put around a prompt, and the most bytes of their texts.
const MAX_TOKENS_AROUND: usize = 1024;
const MAX_BYTES_AROUND: usize = 64 << 10;
/// The longest token of a vocabulary.
const MAX_TOKEN_BYTES: usize = 2048;
/// The longest token that is found in a prompt before the model splits it: preparing the search takes the square of it.
const MAX_ADDED_TOKEN_BYTES: usize = 256;
/// The longest prefix, suffix and unknown token, and the longest token of those that share an id: they are copied for each
/// part of a word, however short it is.
const MAX_AFFIX_BYTES: usize = 256;
/// The longest word of `WordPiece`, which takes the cube of it.
const MAX_WORD_CHARS: u64 = 256;
/// The most bytes of all pieces of a `Unigram` that one text begins with: all are looked up at each character.
const MAX_NESTED_BYTES: usize = 4096;

/// The parts of the file that are checked.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    #[serde(default)]
    model: Model,
}

#[derive(Default, Deserialize)]
struct Model {
    #[serde(default)]
    unk_token: Value,
    #[serde(default)]
    continuing_subword_prefix: Value,
    #[serde(default)]
    end_of_word_suffix: Value,
    #[serde(default)]
    max_input_chars_per_word: Value,
    #[serde(default)]
    vocab: Vocab,
}

/// What a tokenizer.json says of the texts that it encodes.
pub(super) struct Checked {
    /// The ids that the post-processor puts around a prompt; each must be a token.
    pub(super) ids_around: Vec<u32>,
    /// The factor by which normalizer and pre-tokenizer may lengthen a text.
    pub(super) growth: usize,
}

/// Checks the text of a tokenizer.json.
///
/// # Errors
/// `Load`, without the name of the file.
pub(super) fn check(tokenizer_json: &[u8]) -> Result<Checked> {
    json::check(tokenizer_json)?;
    // serde would also accept a list, as the fields of the struct in order.
    if !tokenizer_json.trim_ascii_start().starts_with(b"{") {
        return Err(Error::load("it must be a JSON object; download it again"));
    }
    let head: Head = serde_json::from_slice(tokenizer_json).map_err(cannot_be_used)?;
    check_model(&head.model)?;
    let normalizer = parts::<NormalizerWrapper>("normalizer", "normalizers", head.normalizer)?;
    let growth = product(&normalizer)?;
    check_growth("normalizer", growth)?;
    let pre_tokenizer = parts::<PreTokenizerWrapper>("pre_tokenizer", "pretokenizers", head.pre_tokenizer)?;
    let growth = growth.saturating_mul(product(&pre_tokenizer)?);
    check_growth("normalizer and its pre_tokenizer", growth)?;
    if pre_tokenizer.iter().any(|part| part["type"] == "FixedLength" && part["length"] == 0) {
        return Err(Error::load("its pre_tokenizer FixedLength must have a `length` of at least 1, found 0"));
    }
    parts::<DecoderWrapper>("decoder", "decoders", head.decoder)?;
    let normalizing =
        serde_json::from_value(serde_json::json!({"type": "Sequence", "normalizers": normalizer}));
    let normalizing: Normalizing = normalizing.map_err(cannot_be_used)?;
    head.added_tokens.iter().try_for_each(|token| check_added(token, Some(&normalizing)))?;
    let mut ids_around = Vec::new();
    for processor in parts::<PostProcessorWrapper>("post_processor", "processors", head.post_processor)? {
        check_post_processor(&processor, &mut ids_around)?;
    }
    Ok(Checked { ids_around, growth })
}

/// Checks a token that is found in a prompt before the model splits it.
///
/// # Errors
/// `Load`.
pub(super) fn check_added(token: &AddedToken, normalizer: Option<&Normalizing>) -> Result<()> {
    let mut content = NormalizedString::from(token.content.as_str());
    let wrong = |rule: &str| {
        let name = shown(&token.content.as_str().into());
        Err(Error::load(format!("added token {name}: {rule}")))
    };
    let bounded = |bytes: usize| {
        if bytes <= MAX_ADDED_TOKEN_BYTES {
            return Ok(());
        }
        wrong(&format!("it may have at most {MAX_ADDED_TOKEN_BYTES} bytes, normalized or not, found {bytes}"))
    };
    bounded(token.content.len())?;
    if let Some(normalizer) = normalizer.filter(|_| token.normalized) {
        normalizer
            .normalize(&mut content)
            .map_err(|cause| Error::load("an added token cannot be normalized").with_source(cause))?;
        bounded(content.get().len())?;
    }
    // The crate gives each space of a run the rest of the run.
    if token.rstrip && content.get().chars().all(char::is_whitespace) && !content.is_empty() {
        return wrong("one of white space may not have `rstrip`");
    }
    Ok(())
}

fn check_model(model: &Model) -> Result<()> {
    let too_long = |field: &str, rule: &str, most: usize, found: usize| {
        Err(Error::load(format!("its model's `{field}` {rule} at most {most} bytes, found {found}")))
    };
    for (field, value) in [
        ("unk_token", &model.unk_token),
        ("continuing_subword_prefix", &model.continuing_subword_prefix),
        ("end_of_word_suffix", &model.end_of_word_suffix),
    ] {
        let found = value.as_str().map_or(0, str::len);
        if found > MAX_AFFIX_BYTES {
            return too_long(field, "may have", MAX_AFFIX_BYTES, found);
        }
    }
    let Vocab { longest, nested, shares_ids } = model.vocab;
    if shares_ids && longest > MAX_AFFIX_BYTES {
        return too_long("vocab", "may have, where tokens share an id, tokens of", MAX_AFFIX_BYTES, longest);
    }
    if longest > MAX_TOKEN_BYTES {
        return too_long("vocab", "may have tokens of", MAX_TOKEN_BYTES, longest);
    }
    if nested > MAX_NESTED_BYTES {
        return too_long(
            "vocab",
            "may have pieces that begin with each other of together",
            MAX_NESTED_BYTES,
            nested,
        );
    }
    match model.max_input_chars_per_word.as_u64() {
        Some(found) if found > MAX_WORD_CHARS => Err(Error::load(format!(
            "its model's `max_input_chars_per_word` must be at most {MAX_WORD_CHARS}, found {found}"
        ))),
        _ => Ok(()),
    }
}

/// What is checked of a vocabulary.
#[derive(Default)]
struct Vocab {
    /// The longest token in bytes.
    longest: usize,
    /// The most bytes of pieces that one text begins with; for lists only.
    nested: usize,
    /// Whether two tokens have the same id.
    shares_ids: bool,
}

impl<'de> Deserialize<'de> for Vocab {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(VocabVisitor)
    }
}

struct VocabVisitor;

impl<'de> Visitor<'de> for VocabVisitor {
    type Value = Vocab;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a vocabulary")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Vocab, A::Error> {
        let (mut longest, mut ids) = (0, Vec::new());
        while let Some((token, id)) = entries.next_entry::<String, u32>()? {
            longest = longest.max(token.len());
            ids.push(id);
        }
        let num_tokens = ids.len();
        ids.sort_unstable();
        ids.dedup();
        Ok(Vocab { longest, nested: 0, shares_ids: ids.len() < num_tokens })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut pairs: A) -> Result<Vocab, A::Error> {
        let mut pieces = Vec::new();
        while let Some((piece, _)) = pairs.next_element::<(String, IgnoredAny)>()? {
            pieces.push(piece);
        }
        pieces.sort_unstable();
        let longest = pieces.iter().map(String::len).max().unwrap_or(0);
        let (mut open, mut bytes, mut nested) = (Vec::<&str>::new(), 0, 0);
        for piece in &pieces {
            while let Some(last) = open.pop_if(|last| !piece.starts_with(*last)) {
                bytes -= last.len();
            }
            bytes += piece.len();
            open.push(piece);
            nested = nested.max(bytes);
        }
        Ok(Vocab { longest, nested, shares_ids: false })
    }
}

/// The parts of a section as the crate understands them, which takes a part without a type for what its fields suggest.
fn parts<T: DeserializeOwned + Serialize>(section: &str, list: &str, value: Value) -> Result<Vec<Value>> {
    let mut parts = Vec::new();
    flatten(section, list, value, &mut parts)?;
    for part in &mut parts {
        check_replacement(section, part)?;
        growth(part)?;
        let read = catch_unwind(|| serde_json::from_value::<T>(part.clone()));
        let read = read.unwrap_or_else(|_| Err(serde::de::Error::custom("it panics the parser")));
        *part = read.and_then(serde_json::to_value).map_err(|error| {
            Error::load(format!("its {section} cannot be used; download it again")).with_source(error)
        })?;
    }
    Ok(parts)
}

fn flatten(section: &str, list: &str, value: Value, parts: &mut Vec<Value>) -> Result<()> {
    match value {
        Value::Null => {}
        Value::Object(mut object)
            if object.get("type").is_none_or(|kind| kind == "Sequence") && object.contains_key(list) =>
        {
            let Some(Value::Array(nested)) = object.remove(list) else { return Ok(()) };
            for value in nested {
                flatten(section, list, value, parts)?;
            }
        }
        value => parts.push(value),
    }
    if parts.len() > MAX_PARTS {
        return Err(Error::load(format!("its {section} may have at most {MAX_PARTS} parts; merge some")));
    }
    Ok(())
}

fn product(parts: &[Value]) -> Result<usize> {
    parts.iter().try_fold(1, |all: usize, part| Ok(all.saturating_mul(growth(part)?)))
}

fn check_growth(sections: &str, growth: usize) -> Result<()> {
    if growth > MAX_GROWTH {
        return Err(Error::load(format!(
            "its {sections} may make a text at most {MAX_GROWTH} times longer, found {growth}; shorten what it puts in"
        )));
    }
    Ok(())
}

/// The factor by which a part of a normalizer or pre-tokenizer can lengthen a text.
pub(super) fn growth(part: &Value) -> Result<usize> {
    let length = |value: &Value| value.as_str().map_or(0, str::len);
    Ok(match part["type"].as_str() {
        Some("Replace") => {
            let pattern = length(&part["pattern"]["String"]).max(1);
            length(&part["content"]).div_ceil(pattern).max(1)
        }
        Some("Prepend") => length(&part["prepend"]) + 1,
        // From the table of Unicode's report on its normal forms.
        // Or of ByteLevel, a space before a part, and two bytes for each.
        Some("NFD" | "NFC" | "ByteLevel") => 3,
        Some("NFKD" | "NFKC") => 11,
        // Spaces around a character, its decomposition, and its small letters.
        Some("BertNormalizer") => 2 * 3 * 2,
        Some("Lowercase") => 2,
        Some("Precompiled") => longest_replacement(&part["precompiled_charsmap"])?,
        Some("Metaspace") => 1 + length(&part["replacement"]),
        _ => 1,
    })
}

/// The longest replacement of a `Precompiled` normalizer, in bytes. The map holds the size of a trie, the trie, and
/// all replacements, each ended by a zero.
fn longest_replacement(charsmap: &Value) -> Result<usize> {
    const SIZE: usize = 4;
    let replacements = || -> Option<String> {
        let map = base64::decode(charsmap.as_str()?).ok()?;
        let (size, rest) = map.split_first_chunk::<SIZE>()?;
        let trie = usize::try_from(u32::from_le_bytes(*size)).ok()?;
        let whole = trie >= SIZE && trie.is_multiple_of(SIZE);
        String::from_utf8(rest.get(trie..).filter(|_| whole)?.to_vec()).ok()
    };
    let replacements = replacements().ok_or_else(|| {
        Error::load("its normalizer Precompiled must have a whole precompiled_charsmap; download it again")
    })?;
    Ok(replacements.split('\0').map(str::len).max().unwrap_or(0).max(1))
}

/// Rejects expressions that take too long to compile, and those that `Replace` cannot handle: an empty match has no
/// character to replace, and look-around may take exponential time.
fn check_replacement(section: &str, part: &Value) -> Result<()> {
    if !part["pattern"].is_object() {
        return Ok(());
    }
    let regex = normalizing::pattern(&part["pattern"]).context(|| format!("its {section}"))?;
    if part["content"].is_null() {
        return Ok(());
    }
    let rule = if part["pattern"]["String"] == "" {
        "a pattern that is not empty"
    } else if !regex.is_linear() {
        "a regular expression without look-around and back-references"
    } else if regex.matches_empty() {
        "a regular expression that does not match the empty text"
    } else {
        return Ok(());
    };
    Err(Error::load(format!("its {section} Replace must have {rule}, found {}", shown(&part["pattern"]))))
}

/// A template must contain the prompt once, with few tokens around it.
fn check_post_processor(processor: &Value, ids: &mut Vec<u32>) -> Result<()> {
    let mut bytes = 0;
    match processor["type"].as_str() {
        Some("BertProcessing" | "RobertaProcessing") => {
            for token in [&processor["sep"], &processor["cls"]] {
                bytes += token[0].as_str().map_or(0, str::len);
                ids.extend(token[1].as_u64().and_then(|id| u32::try_from(id).ok()));
            }
        }
        Some("TemplateProcessing") => bytes = check_template(processor, ids)?,
        _ => {}
    }
    if ids.len() > MAX_TOKENS_AROUND || bytes > MAX_BYTES_AROUND {
        return Err(Error::load(format!(
            "its post_processor may put at most {MAX_TOKENS_AROUND} tokens and {MAX_BYTES_AROUND} bytes around a prompt, \
             found {} and {bytes}",
            ids.len()
        )));
    }
    Ok(())
}

/// Returns the bytes of the tokens around the prompt.
fn check_template(processor: &Value, ids: &mut Vec<u32>) -> Result<usize> {
    let wrong = |rule: &str, found: &str| {
        Err(Error::load(format!("its post_processor TemplateProcessing must {rule}, found {found}")))
    };
    let (mut prompts, mut bytes) = (0, 0);
    for piece in processor["single"].as_array().into_iter().flatten() {
        match (piece["Sequence"]["id"].as_str(), piece["SpecialToken"]["id"].as_str()) {
            (Some("A"), _) => prompts += 1,
            (Some(other), _) => return wrong("have in `single` one text, A", other),
            (_, Some(name)) => {
                let token = &processor["special_tokens"][name];
                let (Some(its_ids), Some(tokens)) = (token["ids"].as_array(), token["tokens"].as_array())
                else {
                    return wrong("list in `special_tokens` what `single` names", &shown(&name.into()));
                };
                if its_ids.len() != tokens.len() {
                    return wrong("give a special token as many ids as tokens", &shown(token));
                }
                // The crate's parser rejects what is not an id.
                ids.extend(its_ids.iter().filter_map(|id| u32::try_from(id.as_u64()?).ok()));
                bytes += tokens.iter().map(|token| token.as_str().map_or(0, str::len)).sum::<usize>();
                if ids.len() > MAX_TOKENS_AROUND || bytes > MAX_BYTES_AROUND {
                    return Ok(bytes);
                }
            }
            // The crate's parser rejects anything else.
            _ => {}
        }
    }
    if prompts != 1 {
        return wrong("have the text A once in `single`", &format!("it {prompts} times"));
    }
    Ok(bytes)
}

#[cold]
fn cannot_be_used(error: serde_json::Error) -> Error {
    Error::load("it cannot be used; download it again").with_source(error)
}
