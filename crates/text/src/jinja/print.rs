//! Values as text: Python's `str()` and `repr()`, `json.dumps`, and formatted texts.

use std::fmt::Write as _;

use minijinja::formatting::{FormatStyle, format};
use minijinja::value::ValueKind;
use minijinja::{Error, State, Value};

use super::value::{
    MAX_DEPTH, Pairs, Result, bind, exceeded, fail, integer, is_dict, is_instance, items, pairs, pay, size,
    type_name,
};

/// The most bytes of a number without a width.
const NUMBER_BYTES: usize = 400;

/// `str(value)`
pub(super) fn str(state: &State<'_, '_>, value: &Value) -> Result<String> {
    if let Some(text) = value.as_str() {
        return Ok(text.to_owned());
    }
    let mut text = String::new();
    if !value.is_undefined() {
        Style::repr(state).write(value, &mut text, 0)?;
    }
    Ok(text)
}

/// `repr(value)` with the keys of dicts in order.
pub(super) fn sorted_repr(state: &State<'_, '_>, value: &Value) -> Result<String> {
    let mut text = String::new();
    Style { is_sorted: true, ..Style::repr(state) }.write(value, &mut text, 0)?;
    Ok(text)
}

/// The same as a value. A text is shared.
pub(super) fn text(state: &State<'_, '_>, value: &Value) -> Result<Value> {
    if value.as_str().is_some() { Ok(value.clone()) } else { str(state, value).map(Value::from) }
}

/// An indentation: a text, or a number of spaces.
pub(super) fn spaces(state: &State<'_, '_>, callee: &str, width: &Value, default: i64) -> Result<String> {
    if let Some(text) = width.as_str() {
        return Ok(text.to_owned());
    }
    let width = usize::try_from(integer(callee, width)?.unwrap_or(default)).unwrap_or(0);
    pay(state, width)?;
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
    /// The most bytes that are written.
    room: usize,
}

/// The bytes for which a rendering has fuel left.
fn room(state: &State<'_, '_>) -> usize {
    state
        .fuel_levels()
        .map_or(usize::MAX, |(_, left)| usize::try_from(left).unwrap_or(usize::MAX).saturating_mul(64))
}

impl Style<'_> {
    fn repr(state: &State<'_, '_>) -> Self {
        Self {
            is_json: false,
            is_ascii: false,
            indent: None,
            separators: [", ", ": "],
            is_sorted: false,
            room: room(state),
        }
    }

    fn push(&self, text: &mut String, more: &str) -> Result<()> {
        if text.len() + more.len() > self.room {
            return fail(exceeded("memory"));
        }
        text.push_str(more);
        Ok(())
    }

    fn write(&self, value: &Value, text: &mut String, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return fail(format!("lists and dicts may be nested {MAX_DEPTH} deep"));
        }
        match value.kind() {
            ValueKind::String if value.is_safe() && !self.is_json => {
                self.push(text, "Markup(")?;
                self.write_str(value.as_str().unwrap_or_default(), text)?;
                self.push(text, ")")
            }
            ValueKind::String => self.write_str(value.as_str().unwrap_or_default(), text),
            ValueKind::None | ValueKind::Bool | ValueKind::Number => self.push(text, &self.scalar(value)?),
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
                let pairs = pairs(value);
                let pairs = if self.is_sorted { sorted(pairs)? } else { pairs };
                let items: Vec<_> = pairs.into_iter().map(|(key, value)| (Some(key), value)).collect();
                self.write_items(["{", "}"], &items, text, depth)
            }
            _ if self.is_json => fail(format!("tojson: a {} has no form in JSON", type_name(value))),
            ValueKind::Undefined => self.push(text, "Undefined"),
            _ if is_instance(value, "::Namespace") => {
                self.push(text, "<Namespace ")?;
                self.write(&Value::from_pairs(pairs(value)), text, depth + 1)?;
                self.push(text, ">")
            }
            _ if is_instance(value, "::Macro") => {
                self.push(text, &format!("<Macro '{}'>", value.get_attr("name")?))
            }
            _ => self.push(text, &value.to_string()),
        }
    }

    fn write_items(
        &self,
        brackets: [&str; 2],
        items: &[(Option<Value>, Value)],
        text: &mut String,
        depth: usize,
    ) -> Result<()> {
        self.push(text, brackets[0])?;
        for (index, (key, value)) in items.iter().enumerate() {
            if index > 0 {
                self.push(text, self.separators[0])?;
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
                self.push(text, self.separators[1])?;
            }
            self.write(value, text, depth + 1)?;
        }
        if !items.is_empty() {
            self.break_line(text, depth)?;
        }
        self.push(text, brackets[1])
    }

    fn break_line(&self, text: &mut String, depth: usize) -> Result<()> {
        let Some(indent) = &self.indent else { return Ok(()) };
        self.push(text, "\n")?;
        (0..depth).try_for_each(|_| self.push(text, indent))
    }

    fn write_str(&self, value: &str, text: &mut String) -> Result<()> {
        // Room for a byte is room for its escape.
        self.push(text, "")?;
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
pub(super) fn tojson(state: &State<'_, '_>, value: &Value, args: &[Value]) -> Result<Value> {
    let [ensure_ascii, indent, separators, sort_keys] =
        bind("tojson", args, ["ensure_ascii", "indent", "separators", "sort_keys"])?;
    let indent = if indent.is_none() { None } else { Some(spaces(state, "tojson", &indent, 0)?) };
    let pair = if separators.is_none() { Vec::new() } else { items(&separators)? };
    let separators = match pair.iter().map(Value::as_str).collect::<Vec<_>>()[..] {
        [] if separators.is_none() => [if indent.is_some() { "," } else { ", " }, ": "],
        [Some(item), Some(key)] => [item, key],
        _ => return fail("tojson: `separators` must be two texts"),
    };
    let (is_ascii, is_sorted) = (ensure_ascii.is_true(), sort_keys.is_true());
    let mut text = String::new();
    Style { is_json: true, is_ascii, indent, separators, is_sorted, room: room(state) }
        .write(value, &mut text, 0)?;
    Ok(Value::from(text))
}

/// The entries of a dict by key, all of which must be texts or all numbers.
pub(super) fn sorted(mut pairs: Pairs) -> Result<Pairs> {
    let is_mixed = |pair: &[(Value, Value)]| pair[0].0.kind() != pair[1].0.kind();
    if pairs.windows(2).any(is_mixed) {
        return fail("tojson: keys of several types have no order");
    }
    pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(pairs)
}

/// `format % values`
pub(super) fn printf(state: &State<'_, '_>, text: &str, values: &Value) -> Result<Value> {
    let args = if values.is_tuple() { items(values)? } else { vec![values.clone()] };
    if values.is_tuple() && args.len() > text.replace("%%", "").matches('%').count() {
        return fail("`%` has more values than conversions");
    }
    formatted(state, FormatStyle::Printf, text, &args)
}

/// A text with values in its fields, by minijinja. Every field may show everything, at any width that the
/// text has.
pub(super) fn formatted(
    state: &State<'_, '_>,
    style: FormatStyle,
    text: &str,
    args: &[Value],
) -> Result<Value> {
    let numbers = text.split(|char: char| !char.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let widths = numbers.map(|digits| digits.parse().unwrap_or(usize::MAX));
    let widths = widths.fold(NUMBER_BYTES, usize::saturating_add);
    let bytes =
        args.iter().try_fold(widths, |bytes, arg| Ok::<_, Error>(bytes.saturating_add(size(arg)?)))?;
    let fields = text.matches(if style == FormatStyle::Printf { '%' } else { '{' }).count();
    pay(state, text.len().saturating_add(fields.saturating_mul(bytes)))?;
    let has_names = text.contains("%(");
    let shown = |arg: &Value| match arg.kind() {
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable
            if style == FormatStyle::Printf && !has_names =>
        {
            str(state, arg).map(Value::from)
        }
        _ => Ok(arg.clone()),
    };
    format(style, text, &args.iter().map(shown).collect::<Result<Vec<_>>>()?).map(Value::from)
}
