//! Checks a tokenizer.json before the `tokenizers` crate reads it, and rejects content that would make the crate
//! panic on a prompt, lengthen a prompt without bound, lose it, or search in it forever.
//!
//! The crate's parser reports other damage, with its position. The regular expressions that split prompts are not
//! checked here: they run under a bound of their own.

use regex::Regex;
use serde::Deserialize;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::json::{self, shown};

/// The greatest factor by which a normalizer may lengthen a text.
const MAX_GROWTH: usize = 4096;
/// The most tokens that a post-processor may put around a prompt.
const MAX_TOKENS_AROUND: usize = 1024;

/// The results of the checks.
#[derive(Debug, Default)]
pub(super) struct Checked {
    /// The factor by which the normalizer can lengthen a text.
    pub(super) growth: usize,
    /// The ids that the post-processor puts around a prompt. Each must be a token.
    pub(super) ids_around: Vec<u32>,
}

/// The parts of the file that are checked.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
}

/// Checks the text of a tokenizer.json.
///
/// # Errors
/// `Load`, without the name of the file.
pub(super) fn check(tokenizer_json: &[u8]) -> Result<Checked> {
    json::check(tokenizer_json)?;
    let no_object = || Error::load("it must be a JSON object; download it again");
    // serde would also accept a list, as the fields of the struct in order.
    if !tokenizer_json.trim_ascii_start().starts_with(b"{") {
        return Err(no_object());
    }
    let head: Head =
        serde_json::from_slice(tokenizer_json).map_err(|error| no_object().with_source(error))?;
    let growth = growth(&head.normalizer)?;
    if growth > MAX_GROWTH {
        return Err(Error::load(format!(
            "its normalizer may make a text at most {MAX_GROWTH} times longer, found {growth}; shorten what it puts in"
        )));
    }
    check_replacements("decoder", &head.decoder)?;
    let mut checked = Checked { growth, ids_around: Vec::new() };
    check_post_processor(&head.post_processor, &mut checked.ids_around)?;
    Ok(checked)
}

/// The factor by which a normalizer can lengthen a text.
fn growth(normalizer: &Value) -> Result<usize> {
    let length = |value: &Value| value.as_str().map_or(0, str::len);
    check_replacements("normalizer", normalizer)?;
    Ok(match normalizer["type"].as_str() {
        Some("Sequence") => {
            let mut parts = parts(normalizer, "normalizers").iter().map(growth);
            parts.try_fold(1, |all: usize, part| part.map(|part| all.saturating_mul(part)))?
        }
        Some("Replace") => {
            let pattern = length(&normalizer["pattern"]["String"]).max(1);
            length(&normalizer["content"]).div_ceil(pattern).max(1)
        }
        Some("Prepend") => length(&normalizer["prepend"]).max(1),
        // The longest decomposition has 18 characters, such as that of U+FDFA.
        Some("NFD" | "NFC" | "NFKD" | "NFKC") => 18,
        Some("Precompiled") => longest_replacement(&normalizer["precompiled_charsmap"])?,
        Some("ByteLevel") => 2,
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

/// Rejects patterns that `Replace` cannot handle: an empty match has no character to replace, and look-around may
/// take exponential time.
fn check_replacements(part: &str, value: &Value) -> Result<()> {
    for nested in parts(value, "decoders") {
        check_replacements(part, nested)?;
    }
    if value["type"].as_str() != Some("Replace") {
        return Ok(());
    }
    let wrong = |rule: &str, found: &Value| {
        Err(Error::load(format!("its {part} Replace must have {rule}, found {}", shown(found))))
    };
    let pattern = &value["pattern"];
    if pattern["String"].as_str() == Some("") {
        return wrong("a pattern that is not empty", pattern);
    }
    match pattern["Regex"].as_str().map(Regex::new) {
        None => Ok(()),
        Some(Ok(regex)) if !regex.is_match("") => Ok(()),
        Some(Ok(_)) => wrong("a regular expression that does not match the empty text", pattern),
        Some(Err(error)) => wrong("a regular expression without look-around and back-references", pattern)
            .map_err(|refused: Error| refused.with_source(error)),
    }
}

/// A template must contain the prompt once, with few tokens around it.
fn check_post_processor(processor: &Value, ids: &mut Vec<u32>) -> Result<()> {
    for nested in parts(processor, "processors") {
        check_post_processor(nested, ids)?;
    }
    match processor["type"].as_str() {
        Some("BertProcessing" | "RobertaProcessing") => {
            let places = [&processor["sep"][1], &processor["cls"][1]];
            ids.extend(places.iter().filter_map(|id| u32::try_from(id.as_u64()?).ok()));
        }
        Some("TemplateProcessing") => check_template(processor, ids)?,
        _ => {}
    }
    if ids.len() > MAX_TOKENS_AROUND {
        return Err(Error::load(format!(
            "its post_processor may put at most {MAX_TOKENS_AROUND} tokens around a prompt, found {}",
            ids.len()
        )));
    }
    Ok(())
}

fn check_template(processor: &Value, ids: &mut Vec<u32>) -> Result<()> {
    let wrong = |rule: &str, found: &str| {
        Err(Error::load(format!("its post_processor TemplateProcessing must {rule}, found {found}")))
    };
    let mut prompts = 0;
    for piece in parts(processor, "single") {
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
                if ids.len() > MAX_TOKENS_AROUND {
                    return Ok(());
                }
            }
            // The crate's parser rejects anything else.
            _ => {}
        }
    }
    if prompts != 1 {
        return wrong("have the text A once in `single`", &format!("it {prompts} times"));
    }
    Ok(())
}

fn parts<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map(Vec::as_slice).unwrap_or_default()
}
