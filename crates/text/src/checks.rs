//! Checks a tokenizer.json before the `tokenizers` crate reads it, where the crate would read it wrongly: its
//! parser reports other damage, and a worker bounds the time that its content takes.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use tokenizers::AddedToken;

use super::expression::Expression;
use rsgen_core::error::{Error, Result, ResultExt as _};
use rsgen_core::json::{self, shown};

/// The most tokens that a post-processor may put around a prompt, and the most bytes of their texts.
const MAX_TOKENS_AROUND: usize = 1024;
const MAX_BYTES_AROUND: usize = 64 << 10;

/// The longest token of a vocabulary: the crate drops a tree that is as deep, with a call for each level.
const MAX_TOKEN_BYTES: usize = 2048;
/// The factor that makes no short text long.
const MAX_QUICK_GROWTH: usize = 16;
/// The longest token that is found in a prompt before the model splits it: preparing the search takes the
/// square of it.
const MAX_ADDED_TOKEN_BYTES: usize = 256;

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
    vocab: Vocab,
}

/// A vocabulary: pieces with their scores, or tokens with their ids.
#[derive(Deserialize)]
#[serde(untagged)]
enum Vocab {
    Pieces(Vec<(String, IgnoredAny)>),
    Ids(Map<String, Value>),
    Other(IgnoredAny),
}

impl Default for Vocab {
    fn default() -> Self {
        Self::Other(IgnoredAny)
    }
}

/// The properties of a tokenizer.json that encoding depends on.
pub(super) struct Checked {
    /// The ids that the post-processor puts around a prompt; each must be a token.
    pub(super) ids_around: Vec<u32>,
    /// Whether it may take long for a short text.
    pub(super) is_slow: bool,
    /// The factor by which what it puts into texts may lengthen them.
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
    let head: Head = serde_json::from_slice(tokenizer_json)
        .map_err(|error| Error::load("it cannot be used; download it again").with_source(error))?;
    let mut ids_around = Vec::new();
    let mut sections = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
    let [normalizer, pre_tokenizer, post_processor, decoder] = &mut sections;
    flatten("normalizers", &head.normalizer, normalizer);
    flatten("pretokenizers", &head.pre_tokenizer, pre_tokenizer);
    flatten("processors", &head.post_processor, post_processor);
    flatten("decoders", &head.decoder, decoder);
    if pre_tokenizer.iter().any(|part| part["type"] == "FixedLength" && part["length"] == 0) {
        return Err(Error::load("its pre_tokenizer FixedLength must have a `length` of at least 1, found 0"));
    }
    for processor in post_processor.iter() {
        check_post_processor(processor, &mut ids_around)?;
    }
    head.added_tokens.iter().try_for_each(check_added)?;
    let longest = match &head.model.vocab {
        Vocab::Pieces(pieces) => pieces.iter().map(|(piece, _)| piece.len()).max(),
        Vocab::Ids(ids) => ids.keys().map(String::len).max(),
        Vocab::Other(_) => None,
    };
    if let Some(found) = longest.filter(|&longest| longest > MAX_TOKEN_BYTES) {
        return Err(Error::load(format!(
            "its model's `vocab` may have tokens of at most {MAX_TOKEN_BYTES} bytes, found {found}"
        )));
    }
    let growth = normalizer.iter().map(|part| growth(part)).fold(1, usize::saturating_mul);
    let mut is_slow = growth > MAX_QUICK_GROWTH;
    for (section, parts) in
        [("normalizer", &*normalizer), ("pre_tokenizer", pre_tokenizer), ("decoder", decoder)]
    {
        for part in parts {
            is_slow |= check_pattern(section, part)?;
        }
    }
    Ok(Checked { ids_around, is_slow, growth })
}

/// The factor by which the texts that a normalizer puts in may lengthen a text.
fn growth(part: &Value) -> usize {
    let length = |value: &Value| value.as_str().map_or(0, str::len);
    let replaced = length(&part["pattern"]["String"]).max(1);
    length(&part["content"]).div_ceil(replaced).max(length(&part["prepend"]) + 1)
}

/// Checks the pattern of a part; says whether a search for it may take more than linear time.
fn check_pattern(section: &str, part: &Value) -> Result<bool> {
    let content = part["content"].as_str();
    let regex = match (part["pattern"]["String"].as_str(), part["pattern"]["Regex"].as_str()) {
        (Some(text), _) => Expression::of_text(text),
        (_, Some(regex)) => Expression::new(regex),
        _ => return Ok(false),
    }
    .context(|| format!("its {section}"))?;
    let rule = match content {
        // The crate has no character to replace at an empty match.
        Some(_) if part["pattern"]["String"] == "" => "a pattern that is not empty",
        Some(_) if regex.backtracks() => "a regular expression without look-around and back-references",
        Some(_) if regex.matches_empty() => "a regular expression that does not match the empty text",
        _ => return Ok(regex.backtracks()),
    };
    Err(Error::load(format!("its {section} Replace must have {rule}, found {}", shown(&part["pattern"]))))
}

/// Checks a token that is found in a prompt before the model splits it.
///
/// # Errors
/// `Load`.
pub(super) fn check_added(token: &AddedToken) -> Result<()> {
    let wrong = |rule: &str| {
        let name = shown(&token.content.as_str().into());
        Err(Error::load(format!("added token {name}: {rule}")))
    };
    let bytes = token.content.len();
    if bytes > MAX_ADDED_TOKEN_BYTES {
        return wrong(&format!("it may have at most {MAX_ADDED_TOKEN_BYTES} bytes, found {bytes}"));
    }
    // The crate gives each space of a run the rest of the run.
    if token.rstrip && token.content.chars().all(char::is_whitespace) && bytes > 0 {
        return wrong("one of white space may not have `rstrip`");
    }
    Ok(())
}

/// The parts of a section, in order.
fn flatten<'a>(list: &str, section: &'a Value, parts: &mut Vec<&'a Value>) {
    match section.get(list) {
        Some(Value::Array(nested)) => nested.iter().for_each(|part| flatten(list, part, parts)),
        _ if section.is_null() => {}
        _ => parts.push(section),
    }
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
