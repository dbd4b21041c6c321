//! Reads the `decoder` section of a tokenizer.json into stages.

use serde_json::Value;

use super::{Kind, Stage};
use crate::expression::Expression;
use rsgen_core::error::{Error, Result, ResultExt as _};

/// The most stages, more than any tokenizer has; each is one level of recursion.
pub(super) const MAX_STAGES: usize = 16;
/// The longest pattern or replacement of a stage, whose search takes the square of it.
pub(super) const MAX_PATTERN_BYTES: usize = 256;
/// Adds the stages of a section; `fused` tells whether an earlier stage joins all tokens.
pub(super) fn add_stages(decoder: &Value, stages: &mut Vec<Stage>, fused: &mut bool) -> Result<()> {
    let name = decoder["type"].as_str().unwrap_or_default();
    let text = |field: &str| -> Result<String> {
        match decoder[field].as_str() {
            Some(text) if text.len() <= MAX_PATTERN_BYTES => Ok(text.to_owned()),
            Some(text) => Err(unusable(
                name,
                &format!("`{field}` may have at most {MAX_PATTERN_BYTES} bytes, found {}", text.len()),
            )),
            None => Err(unusable(name, &format!("`{field}` must be a string, found {}", decoder[field]))),
        }
    };
    let character = |field: &str| -> Result<char> {
        text(field)?.chars().next().ok_or_else(|| unusable(name, &format!("`{field}` must be one character")))
    };
    let count = |field: &str| usize::try_from(decoder[field].as_u64().unwrap_or(0)).unwrap_or(usize::MAX);
    let kind = match name {
        "Sequence" => {
            for part in decoder["decoders"].as_array().into_iter().flatten() {
                add_stages(part, stages, fused)?;
            }
            return Ok(());
        }
        "Fuse" => {
            *fused = true;
            return Ok(());
        }
        "ByteLevel" => Kind::ByteLevel,
        "ByteFallback" => Kind::ByteFallback,
        "Replace" => match (decoder["pattern"]["String"].as_str(), decoder["pattern"]["Regex"].as_str()) {
            (Some(pattern), _) if !pattern.is_empty() && pattern.len() <= MAX_PATTERN_BYTES => {
                Kind::Replace { pattern: pattern.to_owned(), content: text("content")? }
            }
            (_, Some(pattern)) => {
                let pattern =
                    Expression::new(pattern).context(|| format!("tokenizer.json: decoder {name:?}"))?;
                Kind::ReplaceRegex { pattern, content: text("content")? }
            }
            _ => return Err(unusable(name, "`pattern` must be a short text or a regular expression")),
        },
        "Strip" => Kind::Strip { content: character("content")?, start: count("start"), stop: count("stop") },
        "Metaspace" => Kind::Metaspace {
            replacement: character("replacement")?,
            drop_in_first: decoder["prepend_scheme"].as_str() != Some("never"),
        },
        "WordPiece" => {
            Kind::WordPiece { prefix: text("prefix")?, cleanup: decoder["cleanup"].as_bool().unwrap_or(true) }
        }
        "BPEDecoder" => Kind::EndOfWord { suffix: text("suffix")? },
        _ => return Err(unusable(name, "this kind cannot be used to generate text")),
    };
    let needs_tokens = matches!(
        kind,
        Kind::ByteLevel
            | Kind::ByteFallback
            | Kind::ReplaceRegex { .. }
            | Kind::WordPiece { .. }
            | Kind::EndOfWord { .. }
    );
    if *fused && needs_tokens {
        return Err(unusable(name, "it must come before the stage that joins the tokens"));
    }
    if stages.len() == MAX_STAGES {
        return Err(unusable(name, &format!("a decoder may have at most {MAX_STAGES} stages")));
    }
    let joins = matches!(kind, Kind::ByteLevel);
    stages.push(Stage { kind, fused: *fused });
    *fused |= joins;
    Ok(())
}

fn unusable(name: &str, rule: &str) -> Error {
    Error::load(format!("tokenizer.json: decoder {name:?}: {rule}"))
}
