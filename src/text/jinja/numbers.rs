//! The digits of numbers, as Python's two kinds of formatting want them.

use super::failure::{Failure, Result};

/// More digits than any number has.
const MAX_PRECISION: usize = 1100;

/// What stands before a number that is not negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    Minus,
    Plus,
    Space,
}

/// The sign of a number.
pub(super) fn sign(is_negative: bool, sign: Sign) -> &'static str {
    match (is_negative, sign) {
        (true, _) => "-",
        (false, Sign::Minus) => "",
        (false, Sign::Plus) => "+",
        (false, Sign::Space) => " ",
    }
}

/// The whole part of a number; none where it has no whole part, or a larger one than is possible here.
pub(super) fn truncate(value: f64) -> Option<i128> {
    let whole = value.trunc();
    (whole.abs() < 1.7e38).then_some(whole as i128)
}

/// The digits of a whole number, by the letter of the conversion.
pub(super) fn radix(number: u128, kind: char) -> String {
    match kind {
        'x' => format!("{number:x}"),
        'X' => format!("{number:X}"),
        'o' => format!("{number:o}"),
        'b' => format!("{number:b}"),
        _ => number.to_string(),
    }
}

/// The digits of a number that is not negative, by the letter of the conversion: `f`, `e`, `g` or `%`.
pub(super) fn float(value: f64, kind: char, precision: usize, alternate: bool) -> Result<String> {
    if precision > MAX_PRECISION {
        return Err(Failure::new(format!("a number may have {MAX_PRECISION} digits after the point")));
    }
    let is_upper = kind.is_ascii_uppercase();
    let text = if value.is_nan() {
        "nan".to_owned()
    } else if value.is_infinite() {
        "inf".to_owned()
    } else {
        match kind.to_ascii_lowercase() {
            'e' => exponential(value, precision, alternate),
            'g' => general(value, precision, alternate),
            _ => fixed(value, precision, alternate),
        }
    };
    Ok(if is_upper { text.to_uppercase() } else { text })
}

fn fixed(value: f64, precision: usize, alternate: bool) -> String {
    let text = format!("{value:.precision$}");
    if alternate && precision == 0 { text + "." } else { text }
}

fn exponential(value: f64, precision: usize, alternate: bool) -> String {
    let text = format!("{value:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let point = if alternate && precision == 0 { "." } else { "" };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}{point}e{sign}{:02}", exponent.abs())
}

/// So many significant digits, without an exponent where that is short.
fn general(value: f64, precision: usize, alternate: bool) -> String {
    let precision = precision.max(1);
    let text = format!("{value:.digits$e}", digits = precision - 1);
    let exponent: i32 = text.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    let trim = |text: &str| {
        if alternate || !text.contains('.') {
            return text.to_owned();
        }
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    if exponent < -4 || exponent >= precision as i32 {
        let text = exponential(value, precision - 1, alternate);
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "+00"));
        return format!("{}e{exponent}", trim(mantissa));
    }
    trim(&fixed(value, (precision as i32 - 1 - exponent).max(0) as usize, alternate))
}
