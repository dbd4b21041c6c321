//! Values as text: Python's `str()` and `repr()`, and `json.dumps`.

use std::fmt::Write as _;

use minijinja::Value;
use minijinja::value::ValueKind;

use super::operators::order;
use super::value::{
    Kind, Result, bind, fail, int, is_dict, is_instance, is_list, length, pairs, type_name, view,
};
use super::{budget, value};

/// `str(value)`
pub(super) fn str(value: &Value) -> Result<String> {
    let mut text = String::new();
    match value.as_str() {
        Some(value) => push(&mut text, value)?,
        None if value.is_undefined() => {}
        None => show(value, &mut text, 0)?,
    }
    Ok(text)
}

/// `repr(value)`
pub(super) fn repr(value: &Value) -> Result<String> {
    let mut text = String::new();
    show(value, &mut text, 0)?;
    Ok(text)
}

/// Adds to a text.
pub(super) fn push(text: &mut String, more: &str) -> Result<()> {
    budget::bytes(more.len())?;
    text.push_str(more);
    Ok(())
}

fn show(value: &Value, text: &mut String, depth: usize) -> Result<()> {
    if depth > 200 {
        return fail("values nested more than 200 deep cannot be printed");
    }
    budget::elements(1)?;
    match value.kind() {
        ValueKind::Undefined => push(text, "Undefined"),
        ValueKind::Number if !value.is_integer() => {
            push(text, &float_repr(value::float(value).unwrap_or(f64::NAN)))
        }
        ValueKind::String => {
            let value = value.as_str().unwrap_or_default();
            // Every character may become ten when escaped.
            budget::bytes(value.len())?;
            push(text, &str_repr(value))
        }
        ValueKind::Map if is_instance(value, "::Namespace") => {
            push(text, "<Namespace ")?;
            show_dict(value, text, depth)?;
            push(text, ">")
        }
        ValueKind::Map if is_dict(value) => show_dict(value, text, depth),
        ValueKind::Seq | ValueKind::Iterable => show_items(value, text, depth),
        ValueKind::Map | ValueKind::Plain => {
            let shown = value.to_string();
            let name = shown.strip_prefix("<macro ").and_then(|rest| rest.strip_suffix('>'));
            push(text, &name.map_or(shown.clone(), |name| format!("<Macro {}>", str_repr(name))))
        }
        _ => push(text, &value.to_string()),
    }
}

fn show_items(value: &Value, text: &mut String, depth: usize) -> Result<()> {
    let items = value::items(value)?;
    let (open, close) = match view(value).map(|view| view.kind) {
        Some(Kind::Range) => return push(text, &range_repr(&items)),
        Some(Kind::Keys) => ("dict_keys([", "])"),
        Some(Kind::Values) => ("dict_values([", "])"),
        Some(Kind::Items) => ("dict_items([", "])"),
        None if !value.is_tuple() && !is_instance(value, "::GroupTuple") => ("[", "]"),
        None if items.len() == 1 => ("(", ",)"),
        None => ("(", ")"),
    };
    push(text, open)?;
    for (index, item) in items.iter().enumerate() {
        push(text, if index > 0 { ", " } else { "" })?;
        show(item, text, depth + 1)?;
    }
    push(text, close)
}

fn show_dict(value: &Value, text: &mut String, depth: usize) -> Result<()> {
    push(text, "{")?;
    for (index, (key, value)) in pairs(value)?.iter().enumerate() {
        push(text, if index > 0 { ", " } else { "" })?;
        show(key, text, depth + 1)?;
        push(text, ": ")?;
        show(value, text, depth + 1)?;
    }
    push(text, "}")
}

/// A range as Python writes one with the same numbers.
fn range_repr(items: &[Value]) -> String {
    let number = |index: usize| items.get(index).and_then(int);
    let (first, last) = (number(0).unwrap_or(0), number(items.len().wrapping_sub(1)));
    let step = number(1).map_or(1, |second| second - first);
    let end = last.map_or(0, |last| last + step.signum());
    if step == 1 { format!("range({first}, {end})") } else { format!("range({first}, {end}, {step})") }
}

/// The shortest digits that parse to this number, as Python writes them.
pub(super) fn float_repr(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    // Rust switches to exponents where Python does, but writes them without a sign.
    let text = format!("{value:?}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let exponent: i32 = exponent.parse().unwrap_or(0);
            format!("{mantissa}e{exponent:+03}")
        }
        None => text,
    }
}

/// A quoted string, in double quotes if it contains only single quotes.
fn str_repr(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for char in text.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if char == quote => out.extend(['\\', char]),
            _ if is_printable(char) => out.push(char),
            _ => {
                let code = u32::from(char);
                let _ = match code {
                    0..=0xff => write!(out, "\\x{code:02x}"),
                    0x100..=0xffff => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
    out
}

/// Whether Python's `repr` leaves a character unescaped.
fn is_printable(char: char) -> bool {
    if char.is_ascii() {
        return !char.is_ascii_control();
    }
    // A letter first: Rust always escapes a combining character at the beginning.
    let mut bytes = [b'a'; 5];
    let len = 1 + char.encode_utf8(&mut bytes[1..]).len();
    let text = std::str::from_utf8(&bytes[..len]).unwrap_or("a");
    !text.escape_debug().skip(1).any(|escaped| escaped == '\\')
}

/// The arguments of `json.dumps`.
struct Style {
    ensure_ascii: bool,
    /// The indentation of each level; `None` writes on one line.
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// The filter `tojson`, with the arguments that transformers gives it.
pub(super) fn tojson(value: &Value, args: &[Value]) -> Result<Value> {
    let [ensure_ascii, indent, separators, sort_keys] =
        bind("tojson", args, ["ensure_ascii", "indent", "separators", "sort_keys"])?;
    let indent = match indent.as_ref().filter(|indent| !indent.is_none()) {
        None => None,
        Some(indent) => Some(match indent.as_str() {
            Some(indent) => indent.to_owned(),
            None => spaces(length("tojson", Some(indent), 0)?)?,
        }),
    };
    let separators = match separators.filter(|separators| !separators.is_none()) {
        None => vec![Value::from(if indent.is_some() { "," } else { ", " }), Value::from(": ")],
        Some(separators) => value::items(&separators)?,
    };
    let [Some(item_separator), Some(key_separator)] =
        [0, 1].map(|index| separators.get(index).and_then(Value::as_str))
    else {
        return fail("tojson: `separators` must be two texts");
    };
    let style = Style {
        ensure_ascii: value::flag(ensure_ascii.as_ref()),
        indent,
        item_separator: item_separator.to_owned(),
        key_separator: key_separator.to_owned(),
        sort_keys: value::flag(sort_keys.as_ref()),
    };
    let mut text = String::new();
    style.write(value, &mut text, 0)?;
    Ok(Value::from(text))
}

/// Writes spaces.
pub(super) fn spaces(width: usize) -> Result<String> {
    budget::bytes(width)?;
    Ok(" ".repeat(width))
}

impl Style {
    fn write(&self, value: &Value, text: &mut String, depth: usize) -> Result<()> {
        if depth > 200 {
            return fail("tojson: values may be nested 200 deep");
        }
        budget::elements(1)?;
        match value.kind() {
            ValueKind::String => self.write_str(value.as_str().unwrap_or_default(), text),
            ValueKind::None | ValueKind::Bool | ValueKind::Number => push(text, &scalar(value)),
            ValueKind::Seq if value.is_tuple() || is_list(value) => {
                let items = value::items(value)?;
                push(text, "[")?;
                for (index, item) in items.iter().enumerate() {
                    self.separate(text, index, depth + 1)?;
                    self.write(item, text, depth + 1)?;
                }
                self.close(text, items.is_empty(), depth)?;
                push(text, "]")
            }
            ValueKind::Map if is_dict(value) => {
                let mut entries = pairs(value)?;
                if self.sort_keys {
                    entries = sorted(entries)?;
                }
                push(text, "{")?;
                for (index, (key, value)) in entries.iter().enumerate() {
                    self.separate(text, index, depth + 1)?;
                    match key.as_str() {
                        Some(key) => self.write_str(key, text)?,
                        None if key.as_object().is_none() => self.write_str(&scalar(key), text)?,
                        None => return fail(format!("tojson: a {} cannot be a key in JSON", type_name(key))),
                    }
                    push(text, &self.key_separator)?;
                    self.write(value, text, depth + 1)?;
                }
                self.close(text, entries.is_empty(), depth)?;
                push(text, "}")
            }
            _ => fail(format!("tojson: a {} has no form in JSON", type_name(value))),
        }
    }

    /// Writes the separator and indentation before an item.
    fn separate(&self, text: &mut String, index: usize, depth: usize) -> Result<()> {
        push(text, if index > 0 { &self.item_separator } else { "" })?;
        self.break_line(text, depth)
    }

    fn close(&self, text: &mut String, is_empty: bool, depth: usize) -> Result<()> {
        if is_empty { Ok(()) } else { self.break_line(text, depth) }
    }

    fn break_line(&self, text: &mut String, depth: usize) -> Result<()> {
        let Some(indent) = &self.indent else { return Ok(()) };
        push(text, "\n")?;
        (0..depth).try_for_each(|_| push(text, indent))
    }

    fn write_str(&self, value: &str, text: &mut String) -> Result<()> {
        budget::bytes(2 * value.len() + 2)?;
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

/// Writes a number, a truth value or null as JSON.
fn scalar(value: &Value) -> String {
    match value.kind() {
        ValueKind::None => "null".to_owned(),
        ValueKind::Bool => value.is_true().to_string(),
        _ if value.is_integer() => value.to_string(),
        _ => match value::float(value).unwrap_or(f64::NAN) {
            number if number.is_nan() => "NaN".to_owned(),
            f64::INFINITY => "Infinity".to_owned(),
            f64::NEG_INFINITY => "-Infinity".to_owned(),
            number => float_repr(number),
        },
    }
}

/// Sorts entries by key, stably. All keys must be comparable.
pub(super) fn sorted<T>(mut items: Vec<(Value, T)>) -> Result<Vec<(Value, T)>> {
    let comparisons = items.len().checked_ilog2().unwrap_or(0) + 1;
    for (key, _) in &items {
        order(&items[0].0, key)?;
        (0..comparisons).try_for_each(|_| value::walk(key))?;
    }
    // Unlike `order` this is a total order, also of what holds NaN.
    items.sort_by(|(a, _), (b, _)| a.cmp(b));
    items.windows(2).try_for_each(|pair| order(&pair[0].0, &pair[1].0).map(drop))?;
    Ok(items)
}
