//! `"%s" % value`, as Python formats it.

use std::iter::Peekable;
use std::str::Chars;

use super::failure::{Failure, Result};
use super::interpreter::Interpreter;
use super::numbers::{self, Sign};
use super::text::{Side, pad};
use super::value::Value;

/// The flags of a conversion.
#[derive(Default)]
struct Flags {
    left: bool,
    plus: bool,
    space: bool,
    zero: bool,
    alternate: bool,
}

/// The text with its conversions replaced.
pub(super) fn format(interpreter: &Interpreter<'_>, format: &str, values: &Value) -> Result<Value> {
    let budget = &interpreter.budget;
    let mut rest: &[Value] = match values {
        Value::Seq(seq) if seq.kind.is_tuple() => &seq.items,
        other => std::slice::from_ref(other),
    };
    let mut next = || {
        let (value, others) =
            rest.split_first().ok_or_else(|| Failure::new("`%` has fewer values than places"))?;
        rest = others;
        Ok(value)
    };
    let mut named = false;
    let mut out = String::new();
    let mut chars = format.chars().peekable();
    while let Some(char) = chars.next() {
        if char != '%' {
            budget.charge_bytes(char.len_utf8())?;
            out.push(char);
            continue;
        }
        let mut value = None;
        if chars.next_if_eq(&'(').is_some() {
            let name: String = chars.by_ref().take_while(|char| *char != ')').collect();
            let Value::Dict(dict) = values else { return Err(Failure::new("`%(name)s` takes a dict")) };
            let found = dict
                .named(budget, &name)?
                .ok_or_else(|| Failure::new(format!("`%` has no value `{name}`")))?;
            value = Some(found);
            named = true;
        }
        let mut flags = Flags::default();
        while let Some(flag) = chars.next_if(|char| "-+ 0#".contains(*char)) {
            match flag {
                '-' => flags.left = true,
                '+' => flags.plus = true,
                ' ' => flags.space = true,
                '0' => flags.zero = true,
                _ => flags.alternate = true,
            }
        }
        let width = number(&mut chars, &mut next)?.unwrap_or(0);
        flags.left |= width < 0;
        let width = usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX);
        let precision = if chars.next_if_eq(&'.').is_some() {
            let digits = number(&mut chars, &mut next)?.unwrap_or(0).max(0);
            Some(usize::try_from(digits).unwrap_or(usize::MAX))
        } else {
            None
        };
        while chars.next_if(|char| "hlL".contains(*char)).is_some() {}
        let kind = chars.next().ok_or_else(|| Failure::new("`%` has no kind after it"))?;
        if kind == '%' {
            budget.push(&mut out, "%")?;
            continue;
        }
        let value = value.map_or_else(&mut next, Ok)?;
        budget.charge_bytes(width)?;
        let text = convert(interpreter, kind, value, &flags, width, precision)?;
        let side = if flags.left { Side::Left } else { Side::Right };
        budget.push(&mut out, &pad(&text, width, ' ', side))?;
    }
    let is_mapping = named || matches!(values, Value::Dict(_) | Value::Seq(_)) && !is_tuple(values);
    if !rest.is_empty() && !is_mapping {
        return Err(Failure::new("`%` has more values than places"));
    }
    Ok(Value::Str(out.into()))
}

/// Digits, or a `*` that stands for the next value.
fn number<'a>(
    chars: &mut Peekable<Chars<'_>>,
    next: &mut impl FnMut() -> Result<&'a Value>,
) -> Result<Option<i128>> {
    if chars.next_if_eq(&'*').is_some() {
        return next()?.as_int().map(Some).ok_or_else(|| Failure::new("`*` takes a whole number"));
    }
    let mut number = None;
    while let Some(digit) = chars.peek().and_then(|char| char.to_digit(10)) {
        number = Some(number.unwrap_or(0_i128).saturating_mul(10).saturating_add(digit.into()));
        chars.next();
    }
    Ok(number)
}

fn is_tuple(value: &Value) -> bool {
    matches!(value, Value::Seq(seq) if seq.kind.is_tuple())
}

fn convert(
    interpreter: &Interpreter<'_>,
    kind: char,
    value: &Value,
    flags: &Flags,
    width: usize,
    precision: Option<usize>,
) -> Result<String> {
    let sign = if flags.plus {
        Sign::Plus
    } else if flags.space {
        Sign::Space
    } else {
        Sign::Minus
    };
    let wrong = || Failure::new(format!("`%{kind}` takes a number, got {}", value.type_name()));
    let (text, is_finite) = match kind {
        's' | 'r' | 'a' => {
            let mut text = String::new();
            if kind == 's' {
                interpreter.show(value, &mut text)?;
            } else {
                interpreter.show_repr(value, &mut text)?;
            }
            return Ok(match precision {
                Some(precision) => text.chars().take(precision).collect(),
                None => text,
            });
        }
        'c' => {
            return match value {
                Value::Str(text) if text.chars().count() == 1 => Ok(text.to_string()),
                _ => {
                    let code =
                        value.as_int().and_then(|code| u32::try_from(code).ok()).and_then(char::from_u32);
                    code.map(String::from).ok_or_else(|| Failure::new("`%c` takes a character"))
                }
            };
        }
        'd' | 'i' | 'u' | 'x' | 'X' | 'o' => {
            let number = match value {
                Value::Float(value) if "diu".contains(kind) => numbers::truncate(*value).ok_or_else(wrong)?,
                _ => value.as_int().ok_or_else(wrong)?,
            };
            let mut digits = numbers::radix(number.unsigned_abs(), kind);
            if let Some(precision) = precision {
                interpreter.budget.charge_bytes(precision)?;
                digits = pad(&digits, precision, '0', Side::Right);
            }
            let prefix = match kind {
                'x' if flags.alternate => "0x",
                'X' if flags.alternate => "0X",
                'o' if flags.alternate => "0o",
                _ => "",
            };
            (format!("{}{prefix}{digits}", numbers::sign(number < 0, sign)), true)
        }
        'f' | 'F' | 'e' | 'E' | 'g' | 'G' => {
            let number = value.as_float().ok_or_else(wrong)?;
            let digits = numbers::float(number.abs(), kind, precision.unwrap_or(6), flags.alternate)?;
            let is_negative = number.is_sign_negative() && !number.is_nan();
            (format!("{}{digits}", numbers::sign(is_negative, sign)), number.is_finite())
        }
        _ => return Err(Failure::new(format!("`%{kind}` is no kind of conversion"))),
    };
    if flags.zero && !flags.left && is_finite {
        let digits_at = text.len() - text.trim_start_matches(['+', '-', ' ']).len();
        let (sign, digits) = text.split_at(digits_at);
        let (prefix, digits) = digits.split_at(if flags.alternate && "xXo".contains(kind) { 2 } else { 0 });
        let width = width.saturating_sub(sign.len() + prefix.len());
        return Ok(format!("{sign}{prefix}{}", pad(digits, width, '0', Side::Right)));
    }
    Ok(text)
}
