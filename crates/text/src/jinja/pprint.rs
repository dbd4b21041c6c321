//! Python's `pprint.pformat`: what fits into a line of 80 characters stays in one, the rest is broken between
//! items, and long texts between words.

use minijinja::value::ValueKind;
use minijinja::{State, Value};

use super::print::{sorted, sorted_repr};
use super::text::{is_space, lines};
use super::value::{Result, is_dict, items, pairs, pay};

const WIDTH: usize = 80;

/// The value as text; `indent` characters stand before it in its first line, `after` follow it.
pub(super) fn pformat(
    state: &State<'_, '_>,
    value: &Value,
    indent: usize,
    after: usize,
    depth: usize,
) -> Result<String> {
    let repr = sorted_repr(state, value)?;
    pay(state, repr.len())?;
    if repr.chars().count() <= WIDTH.saturating_sub(indent + after) {
        return Ok(repr);
    }
    let line_break = format!(",\n{}", " ".repeat(indent + 1));
    let nested = |value: &Value, key: &str, is_last: bool, end: usize| {
        let after = if is_last { after + end } else { 1 };
        pformat(state, value, indent + 1 + key.chars().count(), after, depth + 1)
            .map(|text| format!("{key}{text}"))
    };
    match value.kind() {
        ValueKind::String if !value.is_safe() => {
            words(state, value.as_str().unwrap_or_default(), indent, after, depth)
        }
        ValueKind::Map if is_dict(value) => {
            let pairs = sorted(pairs(value))?;
            let last = pairs.len().saturating_sub(1);
            let parts = pairs.iter().enumerate().map(|(index, (key, value))| {
                nested(value, &format!("{}: ", sorted_repr(state, key)?), index == last, 1)
            });
            Ok(format!("{{{}}}", parts.collect::<Result<Vec<_>>>()?.join(&line_break)))
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let items = items(value)?;
            let last = items.len().saturating_sub(1);
            let [begin, end] = match (value.is_tuple(), last) {
                (false, _) => ["[", "]"],
                (true, 0) => ["(", ",)"],
                (true, _) => ["(", ")"],
            };
            let parts =
                items.iter().enumerate().map(|(index, item)| nested(item, "", index == last, end.len()));
            Ok(format!("{begin}{}{end}", parts.collect::<Result<Vec<_>>>()?.join(&line_break)))
        }
        _ => Ok(repr),
    }
}

/// A long text as several, in brackets if it stands alone.
fn words(state: &State<'_, '_>, text: &str, indent: usize, after: usize, depth: usize) -> Result<String> {
    let alone = usize::from(depth == 0);
    let (indent, after) = (indent + alone, after + alone);
    let repr = |text: &str| sorted_repr(state, &Value::from(text));
    let fits = |repr: &str, is_last: bool| {
        repr.chars().count() <= WIDTH.saturating_sub(indent + if is_last { after } else { 0 })
    };
    let (mut chunks, lines) = (Vec::new(), lines(text, true));
    for (index, line) in lines.iter().enumerate() {
        let is_last = index + 1 == lines.len();
        let whole = repr(line)?;
        if fits(&whole, is_last) {
            chunks.push(whole);
            continue;
        }
        let (mut current, mut rest) = (0..0, 0);
        while rest < line.len() {
            let word = line[rest..].find(is_space).unwrap_or(line.len() - rest);
            let space = line[rest + word..].find(|char| !is_space(char)).unwrap_or(line.len() - rest - word);
            let end = rest + word + space;
            pay(state, end - current.start)?;
            if !fits(&repr(&line[current.start..end])?, is_last && end == line.len()) {
                if !current.is_empty() {
                    chunks.push(repr(&line[current.clone()])?);
                }
                current.start = rest;
            }
            (current.end, rest) = (end, end);
        }
        chunks.push(repr(&line[current])?);
    }
    let joined = chunks.join(&format!("\n{}", " ".repeat(indent)));
    Ok(if alone == 1 && chunks.len() > 1 { format!("({joined})") } else { joined })
}
