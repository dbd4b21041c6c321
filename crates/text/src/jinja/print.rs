//! Values as text: Python's `str()` and `repr()`, `json.dumps`, and formatted texts.

use std::fmt::Write as _;

use minijinja::Value;
use minijinja::formatting::{FormatStyle, format};
use minijinja::value::ValueKind;

use super::value::{
    MAX_DEPTH, Result, bind, fail, integer, is_dict, is_instance, items, pairs, type_name, walk_all,
};
use super::{budget, filters};

/// The most bytes of a number without a width.
const NUMBER_BYTES: usize = 400;

/// `str(value)`
pub(super) fn str(value: &Value) -> Result<String> {
    let mut text = String::new();
    add(&mut text, value).map(|()| text)
}

/// Adds `str(value)` to a text.
fn add(text: &mut String, value: &Value) -> Result<()> {
    match value.as_str() {
        Some(value) => push(text, value),
        None if value.is_undefined() => Ok(()),
        None => Style::REPR.write(value, text, 0),
    }
}

/// The same as a value. A text is shared.
pub(super) fn text(value: &Value) -> Result<Value> {
    if value.as_str().is_some() { Ok(value.clone()) } else { str(value).map(Value::from) }
}

/// Adds to a text.
pub(super) fn push(text: &mut String, more: &str) -> Result<()> {
    budget::bytes(more.len())?;
    text.push_str(more);
    Ok(())
}

/// Values as text, with a separator between them.
pub(super) fn join(parts: &[Value], separator: &str) -> Result<Value> {
    let mut out = String::new();
    for (index, part) in parts.iter().enumerate() {
        push(&mut out, if index > 0 { separator } else { "" })?;
        add(&mut out, part)?;
    }
    Ok(Value::from(out))
}

/// An indentation: a text, or a number of spaces.
pub(super) fn spaces(callee: &str, width: &Value, default: i64) -> Result<String> {
    if let Some(text) = width.as_str() {
        return Ok(text.to_owned());
    }
    let width = usize::try_from(integer(callee, width)?.unwrap_or(default)).unwrap_or(0);
    budget::bytes(width)?;
    Ok(" ".repeat(width))
}

/// How values are written: as Python's `repr()` or as JSON.
struct Style<'a> {
    is_json: bool,
    is_ascii: bool,
    /// The indentation of each level; `None` writes on one line.
    indent: Option<String>,
    /// Between items, and between a key and its value.
    separators: [&'a str; 2],
    is_sorted: bool,
}

impl Style<'_> {
    const REPR: Self =
        Self { is_json: false, is_ascii: false, indent: None, separators: [", ", ": "], is_sorted: false };

    fn write(&self, value: &Value, text: &mut String, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return fail(format!("lists and dicts may be nested {MAX_DEPTH} deep"));
        }
        budget::elements(1)?;
        match value.kind() {
            ValueKind::String => self.write_str(value.as_str().unwrap_or_default(), text),
            ValueKind::None | ValueKind::Bool | ValueKind::Number => push(text, &self.scalar(value)?),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<_> = items(value)?.into_iter().map(|item| (None, item)).collect();
                let is_tuple = value.is_tuple() || is_instance(value, "::GroupTuple");
                let brackets = match items.len() {
                    _ if self.is_json || !is_tuple => ["[", "]"],
                    1 => ["(", ",)"],
                    _ => ["(", ")"],
                };
                self.write_items(brackets, &items, text, depth)
            }
            ValueKind::Map if is_dict(value) => {
                let pairs = pairs(value)?;
                let pairs = if self.is_sorted { filters::sorted(pairs, false)? } else { pairs };
                let items: Vec<_> = pairs.into_iter().map(|(key, value)| (Some(key), value)).collect();
                self.write_items(["{", "}"], &items, text, depth)
            }
            _ if self.is_json => fail(format!("tojson: a {} has no form in JSON", type_name(value))),
            ValueKind::Undefined => push(text, "Undefined"),
            _ if is_instance(value, "::Namespace") => {
                push(text, "<Namespace ")?;
                self.write(&Value::from_pairs(pairs(value)?), text, depth + 1)?;
                push(text, ">")
            }
            _ if is_instance(value, "::Macro") => {
                push(text, &format!("<Macro '{}'>", value.get_attr("name")?))
            }
            _ => push(text, &value.to_string()),
        }
    }

    fn write_items(
        &self,
        brackets: [&str; 2],
        items: &[(Option<Value>, Value)],
        text: &mut String,
        depth: usize,
    ) -> Result<()> {
        push(text, brackets[0])?;
        for (index, (key, value)) in items.iter().enumerate() {
            if index > 0 {
                push(text, self.separators[0])?;
            }
            self.break_line(text, depth + 1)?;
            if let Some(key) = key {
                match key.as_object() {
                    Some(_) if self.is_json => return fail("tojson: a tuple cannot be a key in JSON"),
                    None if self.is_json && key.as_str().is_none() => {
                        self.write_str(&self.scalar(key)?, text)?;
                    }
                    _ => self.write(key, text, depth + 1)?,
                }
                push(text, self.separators[1])?;
            }
            self.write(value, text, depth + 1)?;
        }
        if !items.is_empty() {
            self.break_line(text, depth)?;
        }
        push(text, brackets[1])
    }

    fn break_line(&self, text: &mut String, depth: usize) -> Result<()> {
        let Some(indent) = &self.indent else { return Ok(()) };
        push(text, "\n")?;
        (0..depth).try_for_each(|_| push(text, indent))
    }

    fn write_str(&self, value: &str, text: &mut String) -> Result<()> {
        // Each byte may become an escape.
        budget::chars(2 * value.len() + 1)?;
        let quoted = if self.is_json { serde_json::to_string(value).ok() } else { None };
        let quoted = quoted.unwrap_or_else(|| format!("{:?}", Value::from(value)));
        for char in quoted.chars() {
            let is_kept = if self.is_json { !self.is_ascii || char <= '~' } else { is_printable(char) };
            let _ = match u32::from(char) {
                _ if is_kept => text.write_char(char),
                _ if self.is_json => {
                    let mut units = [0; 2];
                    char.encode_utf16(&mut units).iter().try_for_each(|unit| write!(text, "\\u{unit:04x}"))
                }
                code @ 0..=0xff => write!(text, "\\x{code:02x}"),
                code @ 0x100..=0xffff => write!(text, "\\u{code:04x}"),
                code => write!(text, "\\U{code:08x}"),
            };
        }
        Ok(())
    }

    /// A number, a truth value or nothing.
    fn scalar(&self, value: &Value) -> Result<String> {
        Ok(match value.kind() {
            ValueKind::None if self.is_json => "null".to_owned(),
            ValueKind::Bool if self.is_json => value.is_true().to_string(),
            ValueKind::Number if !value.is_integer() => {
                let text = format(FormatStyle::StrFormat, "{}", std::slice::from_ref(value))?;
                if self.is_json { text.replace("inf", "Infinity").replace("nan", "NaN") } else { text }
            }
            _ => value.to_string(),
        })
    }
}

/// Whether Python's `repr` leaves a character unescaped.
fn is_printable(char: char) -> bool {
    // A letter first: Rust always escapes a combining character at the beginning.
    let is_escaped = || format!("a{char}").escape_debug().count() > 2;
    (' '..='~').contains(&char) || !char.is_ascii() && !is_escaped()
}

/// The filter `tojson`, with the arguments that transformers gives it.
pub(super) fn tojson(value: &Value, args: &[Value]) -> Result<Value> {
    let [ensure_ascii, indent, separators, sort_keys] =
        bind("tojson", args, ["ensure_ascii", "indent", "separators", "sort_keys"])?;
    let indent = if indent.is_none() { None } else { Some(spaces("tojson", &indent, 0)?) };
    let pair = if separators.is_none() { Vec::new() } else { items(&separators)? };
    let separators = match pair.iter().map(Value::as_str).collect::<Vec<_>>()[..] {
        [] if separators.is_none() => [if indent.is_some() { "," } else { ", " }, ": "],
        [Some(item), Some(key)] => [item, key],
        _ => return fail("tojson: `separators` must be two texts"),
    };
    let (is_ascii, is_sorted) = (ensure_ascii.is_true(), sort_keys.is_true());
    let mut text = String::new();
    Style { is_json: true, is_ascii, indent, separators, is_sorted }.write(value, &mut text, 0)?;
    Ok(Value::from(text))
}

/// `format % values`
pub(super) fn printf(text: &str, values: &Value) -> Result<Value> {
    let args = if values.is_tuple() { items(values)? } else { vec![values.clone()] };
    if values.is_tuple() && args.len() > text.replace("%%", "").matches('%').count() {
        return fail("`%` has more values than conversions");
    }
    formatted(FormatStyle::Printf, text, &args)
}

/// A text with values in its fields, by minijinja. Every field may show everything, at any width that the text has.
pub(super) fn formatted(style: FormatStyle, text: &str, args: &[Value]) -> Result<Value> {
    let numbers = text.split(|char: char| !char.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let widths = numbers.map(|digits| digits.parse().unwrap_or(usize::MAX));
    let size = widths.fold(NUMBER_BYTES + walk_all(args)?, usize::saturating_add);
    let fields = text.matches(if style == FormatStyle::Printf { '%' } else { '{' }).count();
    budget::steps(text.len())?;
    budget::bytes(text.len().saturating_add(fields.saturating_mul(size)))?;
    let has_names = text.contains("%(");
    let shown = |arg: &Value| match arg.kind() {
        ValueKind::Seq | ValueKind::Map if style == FormatStyle::Printf && !has_names => {
            str(arg).map(Value::from)
        }
        _ => Ok(arg.clone()),
    };
    format(style, text, &args.iter().map(shown).collect::<Result<Vec<_>>>()?).map(Value::from)
}
