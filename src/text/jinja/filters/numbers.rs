//! Filters on numbers.

use super::by_attribute;
use crate::text::jinja::arguments::{Arguments, flag, integer, text};
use crate::text::jinja::failure::{Failure, Result};
use crate::text::jinja::interpreter::Interpreter;
use crate::text::jinja::numbers::truncate;
use crate::text::jinja::operators;
use crate::text::jinja::text::{is_space, strip};
use crate::text::jinja::value::Value;

pub(super) fn abs(_: &mut Interpreter<'_>, value: &Value, arguments: &Arguments) -> Result<Value> {
    let [] = arguments.bind("abs", [])?;
    match value {
        Value::Float(number) => Ok(Value::Float(number.abs())),
        _ => match value.as_int() {
            Some(number) if number >= 0 => Ok(Value::Int(number)),
            _ => operators::negate(value),
        },
    }
}

pub(super) fn int(interpreter: &mut Interpreter<'_>, value: &Value, arguments: &Arguments) -> Result<Value> {
    let [default, base] = arguments.bind("int", ["default", "base"])?;
    let base = integer("int", base.as_ref())?.unwrap_or(10);
    let default = default.unwrap_or(Value::Int(0));
    Ok(match value {
        Value::Str(text) => {
            interpreter.budget.scan(text.len())?;
            let whole = parse_int(text, base);
            whole.or_else(|| parse_float(text).and_then(truncate)).map_or(default, Value::Int)
        }
        Value::Float(number) => truncate(*number).map_or(default, Value::Int),
        Value::Undefined(_) => return value.must_be_defined().map(|()| Value::None),
        _ => value.as_int().map_or(default, Value::Int),
    })
}

pub(super) fn float(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    arguments: &Arguments,
) -> Result<Value> {
    let [default] = arguments.bind("float", ["default"])?;
    let default = default.unwrap_or(Value::Float(0.0));
    Ok(match value {
        Value::Str(text) => {
            interpreter.budget.scan(text.len())?;
            parse_float(text).map_or(default, Value::Float)
        }
        Value::Undefined(_) => return value.must_be_defined().map(|()| Value::None),
        _ => value.as_float().map_or(default, Value::Float),
    })
}

pub(super) fn round(_: &mut Interpreter<'_>, value: &Value, arguments: &Arguments) -> Result<Value> {
    let [precision, method] = arguments.bind("round", ["precision", "method"])?;
    let precision = integer("round", precision.as_ref())?.unwrap_or(0);
    let precision = i32::try_from(precision.clamp(-400, 400)).unwrap_or(0);
    let method = text("round", method.as_ref())?;
    let number = value.as_float().ok_or_else(|| Failure::new("round takes a number"))?;
    match method.as_deref() {
        None | Some("common") => match value.as_int() {
            Some(whole) if precision >= 0 => Ok(Value::Int(whole)),
            Some(whole) => Ok(Value::Int(round_whole(whole, precision.unsigned_abs()))),
            None if precision >= 0 => {
                // Exact digits, rounded to even: what Python does.
                let digits = format!("{number:.digits$}", digits = precision as usize);
                Ok(Value::Float(digits.parse().unwrap_or(number)))
            }
            None => {
                let power = 10_f64.powi(-precision);
                Ok(Value::Float((number / power).round_ties_even() * power))
            }
        },
        Some(method @ ("ceil" | "floor")) => {
            let power = 10_f64.powi(precision);
            let scaled = number * power;
            let whole = if method == "ceil" { scaled.ceil() } else { scaled.floor() };
            Ok(Value::Float(whole / power))
        }
        Some(other) => Err(Failure::new(format!("round: the method is common, ceil or floor, got {other}"))),
    }
}

/// Rounded to a power of ten, halves to even.
fn round_whole(number: i128, digits: u32) -> i128 {
    let Some(power) = 10_i128.checked_pow(digits) else { return 0 };
    let (quotient, rest) = (number.div_euclid(power), number.rem_euclid(power));
    let up = rest * 2 > power || (rest * 2 == power && quotient % 2 != 0);
    (quotient + i128::from(up)).saturating_mul(power)
}

pub(super) fn sum(interpreter: &mut Interpreter<'_>, value: &Value, arguments: &Arguments) -> Result<Value> {
    let [attribute, start] = arguments.bind("sum", ["attribute", "start"])?;
    let mut total = start.unwrap_or(Value::Int(0));
    if matches!(total, Value::Str(_)) {
        return Err(Failure::new("sum adds no texts: join them"));
    }
    for item in &interpreter.items(value)?.items {
        let item = by_attribute(interpreter, item, attribute.as_ref())?;
        total = operators::add(&interpreter.budget, &total, &item)?;
    }
    Ok(total)
}

pub(super) fn filesizeformat(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    arguments: &Arguments,
) -> Result<Value> {
    const PREFIXES: [&str; 8] = ["k", "M", "G", "T", "P", "E", "Z", "Y"];
    let [binary] = arguments.bind("filesizeformat", ["binary"])?;
    let binary = flag(binary.as_ref());
    let bytes = match value {
        Value::Str(text) => parse_float(text),
        _ => value.as_float(),
    };
    let bytes = bytes.ok_or_else(|| Failure::new("filesizeformat takes a number"))?;
    let base: f64 = if binary { 1024.0 } else { 1000.0 };
    if bytes == 1.0 {
        return Ok(Value::str("1 Byte"));
    }
    if bytes < base {
        return interpreter.budget.text(format!("{} Bytes", bytes.trunc()));
    }
    let power = (0..PREFIXES.len()).find(|&power| bytes < base.powi(power as i32 + 2)).unwrap_or(7);
    let size = base * bytes / base.powi(power as i32 + 2);
    let prefix = if binary { PREFIXES[power].to_uppercase() + "i" } else { PREFIXES[power].to_owned() };
    interpreter.budget.text(format!("{size:.1} {prefix}B"))
}

/// What Python's `int(text, base)` reads.
fn parse_int(text: &str, base: i64) -> Option<i128> {
    let text = strip(text, None, true, true);
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let (base, digits) = match (lower.get(..2), base) {
        (Some("0x"), 0 | 16) => (16, &lower[2..]),
        (Some("0o"), 0 | 8) => (8, &lower[2..]),
        (Some("0b"), 0 | 2) => (2, &lower[2..]),
        (_, 0) if lower.len() > 1 && lower.starts_with('0') && lower.bytes().any(|digit| digit != b'0') => {
            return None;
        }
        (_, 0) => (10, &*lower),
        (_, base) => (u32::try_from(base).ok().filter(|base| (2..=36).contains(base))?, &*lower),
    };
    let number = i128::from_str_radix(&without_underscores(digits)?, base).ok()?;
    Some(if is_negative { -number } else { number })
}

/// What Python's `float(text)` reads.
fn parse_float(text: &str) -> Option<f64> {
    let text = strip(text, None, true, true);
    if text.chars().any(is_space) {
        return None;
    }
    without_underscores(text)?.parse().ok()
}

/// Underscores stand between digits only.
fn without_underscores(digits: &str) -> Option<String> {
    let bytes = digits.as_bytes();
    let is_between = |place: usize| {
        let digit = |place: Option<usize>| {
            place.and_then(|place| bytes.get(place)).is_some_and(u8::is_ascii_alphanumeric)
        };
        digit(place.checked_sub(1)) && digit(Some(place + 1))
    };
    let is_proper = (0..bytes.len()).all(|place| bytes[place] != b'_' || is_between(place));
    let starts_with_digit = bytes.first().is_some_and(|byte| *byte != b'+' || bytes.len() > 1);
    (is_proper && starts_with_digit).then(|| digits.replace('_', ""))
}
