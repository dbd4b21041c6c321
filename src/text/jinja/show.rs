//! Values as text: Python's `str()` and `repr()`.

use std::fmt::Write as _;

use super::budget::MAX_DEPTH;
use super::failure::{Failure, Result};
use super::interpreter::Interpreter;
use super::value::{Seq, SeqKind, Value};

impl Interpreter<'_> {
    /// Adds `str(value)` to a text.
    pub(super) fn show(&self, value: &Value, text: &mut String) -> Result<()> {
        match value {
            Value::Undefined(_) => Ok(()),
            Value::Str(value) => self.budget.push(text, value),
            _ => self.show_nested(value, text, 0),
        }
    }

    /// `str(value)` as a text of its own.
    pub(super) fn to_text(&self, value: &Value) -> Result<std::rc::Rc<str>> {
        if let Value::Str(text) = value {
            return Ok(text.clone());
        }
        let mut text = String::new();
        self.show(value, &mut text)?;
        Ok(text.into())
    }

    /// Adds `repr(value)` to a text.
    pub(super) fn show_repr(&self, value: &Value, text: &mut String) -> Result<()> {
        self.show_nested(value, text, 0)
    }

    fn show_nested(&self, value: &Value, text: &mut String, depth: u16) -> Result<()> {
        // Only a namespace in a namespace gets there.
        if depth > MAX_DEPTH {
            return Err(Failure::new(format!("values nested more than {MAX_DEPTH} deep cannot be printed")));
        }
        self.budget.charge_elements(1)?;
        match value {
            Value::Undefined(_) => self.budget.push(text, "Undefined"),
            Value::None => self.budget.push(text, "None"),
            Value::Bool(true) => self.budget.push(text, "True"),
            Value::Bool(false) => self.budget.push(text, "False"),
            Value::Int(value) => self.budget.push(text, &value.to_string()),
            Value::Float(value) => self.budget.push(text, &float_repr(*value)),
            Value::Str(value) => {
                // Every character may become ten.
                self.budget.charge_bytes(value.len())?;
                self.budget.push(text, &str_repr(value))
            }
            Value::Seq(seq) => self.show_seq(seq, text, depth),
            Value::Dict(dict) => self.show_entries(dict.entries.iter(), text, depth),
            Value::Namespace(place) => {
                self.budget.push(text, "<Namespace ")?;
                self.show_entries(self.namespaces[*place].entries.iter(), text, depth)?;
                self.budget.push(text, ">")
            }
            Value::Macro(place) => {
                self.budget.push(text, &format!("<Macro {}>", str_repr(self.macros[*place].name())))
            }
            Value::Loop(place) => self.budget.push(text, &self.loops[*place].to_string()),
            Value::Function(function) => self.budget.push(text, &format!("<function {}>", function.name())),
            Value::Method(method) => {
                let (value, name) = &**method;
                self.budget.push(text, &format!("<method {name} of {}>", value.type_name()))
            }
        }
    }

    fn show_seq(&self, seq: &Seq, text: &mut String, depth: u16) -> Result<()> {
        let (open, close) = match seq.kind {
            SeqKind::List => ("[", "]"),
            SeqKind::Tuple | SeqKind::Group if seq.items.len() == 1 => ("(", ",)"),
            SeqKind::Tuple | SeqKind::Group => ("(", ")"),
            SeqKind::Keys => ("dict_keys([", "])"),
            SeqKind::Values => ("dict_values([", "])"),
            SeqKind::Items => ("dict_items([", "])"),
            SeqKind::Range => return self.budget.push(text, &range_repr(&seq.items)),
        };
        self.budget.push(text, open)?;
        for (index, item) in seq.items.iter().enumerate() {
            if index > 0 {
                self.budget.push(text, ", ")?;
            }
            self.show_nested(item, text, depth + 1)?;
        }
        self.budget.push(text, close)
    }

    fn show_entries<'a>(
        &self,
        entries: impl Iterator<Item = &'a (Value, Value)>,
        text: &mut String,
        depth: u16,
    ) -> Result<()> {
        self.budget.push(text, "{")?;
        for (index, (key, value)) in entries.enumerate() {
            if index > 0 {
                self.budget.push(text, ", ")?;
            }
            self.show_nested(key, text, depth + 1)?;
            self.budget.push(text, ": ")?;
            self.show_nested(value, text, depth + 1)?;
        }
        self.budget.push(text, "}")
    }
}

/// A range as Python writes one with the same numbers.
fn range_repr(items: &[Value]) -> String {
    let number = |place: usize| items.get(place).and_then(Value::as_int);
    let (first, last) = (number(0).unwrap_or(0), number(items.len().wrapping_sub(1)));
    let step = number(1).map_or(1, |second| second - first);
    let end = last.map_or(0, |last| last + step.signum());
    if step == 1 { format!("range({first}, {end})") } else { format!("range({first}, {end}, {step})") }
}

/// The shortest digits that read back as this number, as Python writes them.
pub(super) fn float_repr(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let text = value.to_string();
        return if text.contains('.') { text } else { text + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// A text in quotes: double ones if it holds single quotes only.
pub(super) fn str_repr(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for char in text.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if char == quote => {
                out.push('\\');
                out.push(char);
            }
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

/// Whether Python's `repr` leaves a character as it is.
fn is_printable(char: char) -> bool {
    if char.is_ascii() {
        return !char.is_ascii_control();
    }
    // What combines with the character before it is escaped only where there is none.
    let mut bytes = [b'a'; 5];
    let len = 1 + char.encode_utf8(&mut bytes[1..]).len();
    let text = std::str::from_utf8(&bytes[..len]).unwrap_or("a");
    !text.escape_debug().skip(1).any(|escaped| escaped == '\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_pythons_digits() {
        for (value, expected) in [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(float_repr(value), expected);
        }
    }

    #[test]
    fn texts_have_pythons_quotes_and_escapes() {
        for (text, expected) in [
            ("a", "'a'"),
            ("it's", "\"it's\""),
            ("'\"", "'\\'\"'"),
            ("é😀\u{301}", "'é😀\u{301}'"),
            (
                "\0\u{7f}\u{a0}\u{ad}\u{2028}\u{e000}\u{10ffff}\\",
                "'\\x00\\x7f\\xa0\\xad\\u2028\\ue000\\U0010ffff\\\\'",
            ),
        ] {
            assert_eq!(str_repr(text), expected);
        }
    }
}
