//! Filters on texts.

use super::by_attribute;
use crate::text::jinja::arguments::{Arguments, flag, integer, text};
use crate::text::jinja::budget::Budget;
use crate::text::jinja::failure::{Failure, Result};
use crate::text::jinja::interpreter::Interpreter;
use crate::text::jinja::text::{self as strings, Side};
use crate::text::jinja::value::{SeqKind, Value};
use crate::text::jinja::{methods, printf};

/// Makes filters that change the text of a value and take no arguments.
macro_rules! changes {
    ($($name:ident => $change:expr;)*) => {$(
        pub(super) fn $name(
            interpreter: &mut Interpreter<'_>,
            value: &Value,
            arguments: &Arguments,
        ) -> Result<Value> {
            let [] = arguments.bind(stringify!($name), [])?;
            let text = interpreter.to_text(value)?;
            interpreter.budget.scan(text.len())?;
            let change: fn(&str) -> String = $change;
            interpreter.budget.text(change(&text))
        }
    )*};
}

changes! {
    upper => str::to_uppercase;
    lower => str::to_lowercase;
    capitalize => strings::capitalize;
    escape => strings::escape;
    title => title_of_words;
    striptags => strip_tags;
}

pub(super) fn string(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    arguments: &Arguments,
) -> Result<Value> {
    let [] = arguments.bind("string", [])?;
    interpreter.to_text(value).map(Value::Str)
}

pub(super) fn trim(interpreter: &mut Interpreter<'_>, value: &Value, arguments: &Arguments) -> Result<Value> {
    let [chars] = arguments.bind("trim", ["chars"])?;
    let chars = text("trim", chars.as_ref())?;
    let value = interpreter.to_text(value)?;
    interpreter.budget.text(strings::strip(&value, chars.as_deref(), true, true))
}

pub(super) fn center(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    arguments: &Arguments,
) -> Result<Value> {
    let [width] = arguments.bind("center", ["width"])?;
    let width = integer("center", width.as_ref())?.unwrap_or(80).max(0) as usize;
    let value = interpreter.to_text(value)?;
    methods::padded(&interpreter.budget, &value, width, ' ', Side::Center)
}

pub(super) fn replace(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    arguments: &Arguments,
) -> Result<Value> {
    let [old, new, count] = arguments.bind("replace", ["old", "new", "count"])?;
    let (Some(old), Some(new)) = (old, new) else { return Err(Failure::new("replace takes two texts")) };
    let value = interpreter.to_text(value)?;
    let (old, new) = (interpreter.to_text(&old)?, interpreter.to_text(&new)?);
    let count = integer("replace", count.as_ref())?.unwrap_or(-1);
    methods::replace(&interpreter.budget, &value, &old, &new, count)
}

pub(super) fn join(interpreter: &mut Interpreter<'_>, value: &Value, arguments: &Arguments) -> Result<Value> {
    let [separator, attribute] = arguments.bind("join", ["d", "attribute"])?;
    let separator = separator.map_or_else(|| Ok("".into()), |separator| interpreter.to_text(&separator))?;
    let items = interpreter.items(value)?;
    let mut out = String::new();
    for (index, item) in items.items.iter().enumerate() {
        if index > 0 {
            interpreter.budget.push(&mut out, &separator)?;
        }
        let item = by_attribute(interpreter, item, attribute.as_ref())?;
        interpreter.show(&item, &mut out)?;
    }
    Ok(Value::Str(out.into()))
}

pub(super) fn format(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    arguments: &Arguments,
) -> Result<Value> {
    let template = interpreter.to_text(value)?;
    let values = match (arguments.positional.is_empty(), arguments.keywords.is_empty()) {
        (_, true) => interpreter.budget.seq(SeqKind::Tuple, arguments.positional.clone())?,
        (true, false) => {
            let keywords = arguments.keywords.iter();
            interpreter
                .budget
                .dict(keywords.map(|(name, value)| (Value::Str(name.clone()), value.clone())))?
        }
        (false, false) => return Err(Failure::new("format takes values by place or by name, not both")),
    };
    printf::format(interpreter, &template, &values)
}

pub(super) fn indent(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    arguments: &Arguments,
) -> Result<Value> {
    let [width, first, blank] = arguments.bind("indent", ["width", "first", "blank"])?;
    let budget = &interpreter.budget;
    let indention = match &width {
        Some(Value::Str(indention)) => indention.to_string(),
        width => {
            let width = integer("indent", width.as_ref())?.unwrap_or(4).max(0) as usize;
            budget.charge_bytes(width)?;
            " ".repeat(width)
        }
    };
    let Value::Str(value) = value else {
        return Err(Failure::new(format!("indent takes a text, got {}", value.type_name())));
    };
    // The end of the last line is one of a line of its own.
    let value = format!("{value}\n");
    budget.charge_elements(value.chars().filter(|char| strings::is_line_end(*char)).count())?;
    let mut out = String::new();
    for (index, line) in strings::lines(&value).into_iter().enumerate() {
        if index > 0 {
            budget.push(&mut out, "\n")?;
        }
        let is_indented =
            if index == 0 { flag(first.as_ref()) } else { flag(blank.as_ref()) || !line.is_empty() };
        if is_indented {
            budget.push(&mut out, &indention)?;
        }
        budget.push(&mut out, line)?;
    }
    Ok(Value::Str(out.into()))
}

pub(super) fn truncate(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    arguments: &Arguments,
) -> Result<Value> {
    let [length, killwords, end, leeway] =
        arguments.bind("truncate", ["length", "killwords", "end", "leeway"])?;
    let Value::Str(value) = value else {
        return Err(Failure::new(format!("truncate takes a text, got {}", value.type_name())));
    };
    let end = text("truncate", end.as_ref())?.unwrap_or_else(|| "...".into());
    let length = integer("truncate", length.as_ref())?.unwrap_or(255);
    let leeway = integer("truncate", leeway.as_ref())?.unwrap_or(5);
    let end_length = end.chars().count() as i64;
    if length < end_length || leeway < 0 {
        return Err(Failure::new(
            "truncate: the length must hold the end, and the leeway must not be negative",
        ));
    }
    interpreter.budget.scan(value.len())?;
    if value.chars().count() as i64 <= length.saturating_add(leeway) {
        return Ok(Value::Str(value.clone()));
    }
    let mut kept: String = value.chars().take((length - end_length) as usize).collect();
    if !flag(killwords.as_ref()) {
        kept.truncate(kept.rfind(' ').unwrap_or(kept.len()));
    }
    interpreter.budget.text(kept + &end)
}

pub(super) fn wordcount(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    arguments: &Arguments,
) -> Result<Value> {
    let [] = arguments.bind("wordcount", [])?;
    let value = interpreter.to_text(value)?;
    interpreter.budget.scan(value.len())?;
    let words = value.split(|char: char| !char.is_alphanumeric() && char != '_');
    Ok(Value::Int(words.filter(|word| !word.is_empty()).count() as i128))
}

pub(super) fn urlencode(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    arguments: &Arguments,
) -> Result<Value> {
    let [] = arguments.bind("urlencode", [])?;
    let pairs = match value {
        Value::Dict(dict) => dict.entries.clone(),
        Value::Seq(seq) => {
            let mut pairs = Vec::new();
            for pair in &seq.items {
                match interpreter.items(pair)?.items.as_slice() {
                    [key, value] => pairs.push((key.clone(), value.clone())),
                    _ => return Err(Failure::new("urlencode takes pairs of a key and a value")),
                }
            }
            pairs
        }
        _ => {
            let text = interpreter.to_text(value)?;
            return quote(&interpreter.budget, &text, "/").map(|text| Value::Str(text.into()));
        }
    };
    let mut out = String::new();
    for (index, (key, value)) in pairs.iter().enumerate() {
        let (key, value) = (interpreter.to_text(key)?, interpreter.to_text(value)?);
        let budget = &interpreter.budget;
        let pair =
            [quote(budget, &key, "")?, quote(budget, &value, "")?].map(|text| text.replace("%20", "+"));
        budget.push(&mut out, if index > 0 { "&" } else { "" })?;
        budget.push(&mut out, &pair.join("="))?;
    }
    Ok(Value::Str(out.into()))
}

/// Percent signs for all but letters, digits, a few signs and those that are safe.
fn quote(budget: &Budget, text: &str, safe: &str) -> Result<String> {
    budget.charge_bytes(text.len().saturating_mul(3))?;
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"_.-~".contains(&byte) || safe.as_bytes().contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.extend(['%', hexadecimal(byte >> 4), hexadecimal(byte & 15)]);
        }
    }
    Ok(out)
}

fn hexadecimal(digit: u8) -> char {
    char::from_digit(u32::from(digit), 16).unwrap_or('0').to_ascii_uppercase()
}

/// A capital at the beginning of each word; unlike `str.title`, an apostrophe begins none.
fn title_of_words(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let is_between = |char: char| strings::is_space(char) || "-({[<".contains(char);
    for part in text.split_inclusive(is_between) {
        let mut chars = part.chars();
        out.extend(chars.next().into_iter().flat_map(char::to_uppercase));
        out.push_str(&chars.as_str().to_lowercase());
    }
    out
}

/// Without tags and comments, with single spaces between words, and the plain entities replaced.
fn strip_tags(text: &str) -> String {
    let mut text = text.to_owned();
    for (open, close) in [("<!--", "-->"), ("<", ">")] {
        let mut out = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(start) = rest.find(open) {
            let Some(end) = rest[start..].find(close) else { break };
            out.push_str(&rest[..start]);
            rest = &rest[start + end + close.len()..];
        }
        out.push_str(rest);
        text = out;
    }
    let text = strings::split(&text, None, usize::MAX, false).join(" ");
    let entities =
        [("&lt;", "<"), ("&gt;", ">"), ("&#34;", "\""), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];
    entities.iter().fold(text, |text, (entity, char)| text.replace(entity, char))
}
