//! JSON: the values that a caller gives, and the filter `tojson`, byte for byte Python's `json.dumps`.

use std::fmt::Write as _;

use std::cmp::Ordering::Less;

use super::arguments::Arguments;
use super::budget::{Budget, MAX_DEPTH};
use super::failure::{Failure, Result};
use super::interpreter::Interpreter;
use super::show::float_repr;
use super::sorting::sorted;
use super::value::{Dict, SeqKind, Value};

/// What an input counts for in the budget: the bytes of its texts, and some for each element.
pub(super) fn size(value: &serde_json::Value) -> usize {
    use serde_json::Value as Json;
    const ELEMENT: usize = 16;
    ELEMENT
        + match value {
            Json::String(text) => text.len(),
            Json::Array(items) => items.iter().map(size).sum(),
            Json::Object(entries) => entries.iter().map(|(key, value)| key.len() + size(value)).sum(),
            _ => 0,
        }
}

/// A value of the caller's.
pub(super) fn from_json(budget: &Budget, value: &serde_json::Value) -> Result<Value> {
    use serde_json::Value as Json;
    match value {
        Json::Null => Ok(Value::None),
        Json::Bool(value) => Ok(Value::Bool(*value)),
        Json::Number(number) => Ok(match number.as_i128() {
            Some(integer) => Value::Int(integer),
            None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        }),
        Json::String(text) => budget.text(text.as_str()),
        Json::Array(items) => {
            let items = items.iter().map(|item| from_json(budget, item));
            budget.list(items.collect::<Result<_>>()?)
        }
        Json::Object(entries) => {
            budget.charge_elements(2 * entries.len() + 1)?;
            let entries = entries
                .iter()
                .map(|(key, value)| Ok((budget.text(key.as_str())?, from_json(budget, value)?)))
                .collect::<Result<Vec<_>>>()?;
            let depth = 1 + entries.iter().map(|(_, value)| value.depth()).max().unwrap_or(0);
            if depth > MAX_DEPTH {
                return Err(Failure::new(format!("lists and dicts may be nested {MAX_DEPTH} deep")));
            }
            Ok(Value::Dict(Dict { entries, depth }.into()))
        }
    }
}

/// How `json.dumps` is to write.
struct Style {
    ensure_ascii: bool,
    /// What each level is indented by; `None` writes on one line.
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// The filter `tojson`, with the arguments that transformers gives it.
pub(super) fn tojson(interpreter: &Interpreter<'_>, value: &Value, arguments: &Arguments) -> Result<Value> {
    let budget = &interpreter.budget;
    let [ensure_ascii, indent, separators, sort_keys] =
        arguments.bind("tojson", ["ensure_ascii", "indent", "separators", "sort_keys"])?;
    let indent = match indent {
        None | Some(Value::None) => None,
        Some(Value::Str(indent)) => Some(indent.to_string()),
        Some(other) => match other.as_int() {
            Some(width) => {
                let width = usize::try_from(width.max(0)).unwrap_or(usize::MAX);
                budget.charge_bytes(width)?;
                Some(" ".repeat(width))
            }
            None => return Err(Failure::new("tojson: `indent` must be a number or a text")),
        },
    };
    let (item_separator, key_separator) = match &separators {
        None | Some(Value::None) => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
        Some(Value::Seq(seq)) => match seq.items.as_slice() {
            [Value::Str(item), Value::Str(key)] => (item.to_string(), key.to_string()),
            _ => return Err(Failure::new("tojson: `separators` must be two texts")),
        },
        Some(_) => return Err(Failure::new("tojson: `separators` must be two texts")),
    };
    let on = |flag: Option<Value>| flag.is_some_and(|flag| flag.is_true());
    let (ensure_ascii, sort_keys) = (on(ensure_ascii), on(sort_keys));
    let style = Style { ensure_ascii, indent, item_separator, key_separator, sort_keys };
    let mut text = String::new();
    style.write(budget, value, &mut text, 0)?;
    Ok(Value::Str(text.into()))
}

impl Style {
    fn write(&self, budget: &Budget, value: &Value, text: &mut String, depth: usize) -> Result<()> {
        budget.charge_elements(1)?;
        match value {
            Value::None => budget.push(text, "null"),
            Value::Bool(true) => budget.push(text, "true"),
            Value::Bool(false) => budget.push(text, "false"),
            Value::Int(number) => budget.push(text, &number.to_string()),
            Value::Float(number) => budget.push(text, &float(*number)),
            Value::Str(value) => self.write_str(budget, value, text),
            Value::Seq(seq) if seq.kind == SeqKind::List || seq.kind.is_tuple() => {
                budget.push(text, "[")?;
                for (index, item) in seq.items.iter().enumerate() {
                    self.separate(budget, text, index, depth + 1)?;
                    self.write(budget, item, text, depth + 1)?;
                }
                self.close(budget, text, seq.items.is_empty(), depth)?;
                budget.push(text, "]")
            }
            Value::Dict(dict) => {
                let mut entries = dict.entries.iter().collect::<Vec<_>>();
                if self.sort_keys {
                    entries = sorted(entries, |(a, _), (b, _)| Ok(a.compare(b, "<", budget)? == Some(Less)))?;
                }
                budget.push(text, "{")?;
                for (index, (key, value)) in entries.into_iter().enumerate() {
                    self.separate(budget, text, index, depth + 1)?;
                    self.write_key(budget, key, text)?;
                    budget.push(text, &self.key_separator)?;
                    self.write(budget, value, text, depth + 1)?;
                }
                self.close(budget, text, dict.entries.is_empty(), depth)?;
                budget.push(text, "}")
            }
            _ => Err(Failure::new(match value {
                Value::Undefined(reason) => format!("tojson: {reason}"),
                _ => format!("tojson: a {} has no form in JSON", value.type_name()),
            })),
        }
    }

    /// What stands before an item.
    fn separate(&self, budget: &Budget, text: &mut String, index: usize, depth: usize) -> Result<()> {
        if index > 0 {
            budget.push(text, &self.item_separator)?;
        }
        self.break_line(budget, text, depth)
    }

    fn close(&self, budget: &Budget, text: &mut String, is_empty: bool, depth: usize) -> Result<()> {
        if is_empty { Ok(()) } else { self.break_line(budget, text, depth) }
    }

    fn break_line(&self, budget: &Budget, text: &mut String, depth: usize) -> Result<()> {
        let Some(indent) = &self.indent else { return Ok(()) };
        budget.push(text, "\n")?;
        (0..depth).try_for_each(|_| budget.push(text, indent))
    }

    fn write_key(&self, budget: &Budget, key: &Value, text: &mut String) -> Result<()> {
        let key = match key {
            Value::Str(key) => return self.write_str(budget, key, text),
            Value::None => "null".to_owned(),
            Value::Bool(value) => value.to_string(),
            Value::Int(value) => value.to_string(),
            Value::Float(value) => float(*value),
            _ => return Err(Failure::new(format!("tojson: a {} cannot be a key in JSON", key.type_name()))),
        };
        self.write_str(budget, &key, text)
    }

    fn write_str(&self, budget: &Budget, value: &str, text: &mut String) -> Result<()> {
        budget.charge_bytes(2 * value.len() + 2)?;
        text.push('"');
        for char in value.chars() {
            match char {
                '"' => text.push_str("\\\""),
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                '\u{8}' => text.push_str("\\b"),
                '\u{c}' => text.push_str("\\f"),
                _ if char < ' ' || (self.ensure_ascii && char > '\u{7e}') => {
                    for unit in char.encode_utf16(&mut [0; 2]) {
                        let _ = write!(text, "\\u{unit:04x}");
                    }
                }
                _ => text.push(char),
            }
        }
        text.push('"');
        Ok(())
    }
}

fn float(value: f64) -> String {
    match value {
        _ if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        _ => float_repr(value),
    }
}
