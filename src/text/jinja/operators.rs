//! Python's operators on numbers, texts and lists. Whole numbers have 128 bits; beyond is an error.

use std::rc::Rc;

use super::budget::Budget;
use super::failure::{Failure, Result};
use super::value::{Seq, SeqKind, Value};

/// `a + b`
pub(super) fn add(budget: &Budget, left: &Value, right: &Value) -> Result<Value> {
    match (left, right) {
        (Value::Str(a), Value::Str(b)) => {
            budget.charge_bytes(a.len() + b.len())?;
            Ok(Value::Str([&**a, &**b].concat().into()))
        }
        (Value::Seq(a), Value::Seq(b)) if are_joinable(a, b) => {
            budget.charge_elements(a.items.len() + b.items.len())?;
            let items = [&*a.items, &*b.items].concat();
            Ok(Value::Seq(Rc::new(Seq { kind: plain(a), items, depth: a.depth.max(b.depth) })))
        }
        _ => arithmetic("+", left, right),
    }
}

/// `a * b`
pub(super) fn multiply(budget: &Budget, left: &Value, right: &Value) -> Result<Value> {
    let (value, times) = match (left, right) {
        (Value::Str(_) | Value::Seq(_), other) => (left, other.as_int()),
        (other, Value::Str(_) | Value::Seq(_)) => (right, other.as_int()),
        _ => return arithmetic("*", left, right),
    };
    let Some(times) = times else { return arithmetic("*", left, right) };
    let times = usize::try_from(times.max(0)).unwrap_or(usize::MAX);
    match value {
        Value::Str(text) => {
            budget.charge_bytes(text.len().saturating_mul(times))?;
            Ok(Value::Str(if text.is_empty() { "".into() } else { text.repeat(times).into() }))
        }
        Value::Seq(seq) if are_joinable(seq, seq) => {
            budget.charge_elements(seq.items.len().saturating_mul(times))?;
            let times = if seq.items.is_empty() { 0 } else { times };
            let items = std::iter::repeat_n(&seq.items, times).flatten().cloned().collect();
            Ok(Value::Seq(Rc::new(Seq { kind: plain(seq), items, depth: seq.depth })))
        }
        _ => arithmetic("*", left, right),
    }
}

/// Whether Python adds them: two lists or two tuples.
fn are_joinable(a: &Seq, b: &Seq) -> bool {
    (a.kind == SeqKind::List && b.kind == SeqKind::List) || (a.kind.is_tuple() && b.kind.is_tuple())
}

fn plain(seq: &Seq) -> SeqKind {
    if seq.kind.is_tuple() { SeqKind::Tuple } else { SeqKind::List }
}

/// `-a`
pub(super) fn negate(value: &Value) -> Result<Value> {
    match value {
        Value::Float(value) => Ok(Value::Float(-value)),
        _ => arithmetic("-", &Value::Int(0), value),
    }
}

/// The operators of numbers.
pub(super) fn arithmetic(operator: &str, left: &Value, right: &Value) -> Result<Value> {
    if let (Some(a), Some(b)) = (left.as_int(), right.as_int()) {
        return integers(operator, a, b);
    }
    if let (Some(a), Some(b)) = (left.as_float(), right.as_float()) {
        return floats(operator, a, b);
    }
    left.must_be_defined()?;
    right.must_be_defined()?;
    Err(Failure::new(format!("`{operator}` does not go with {} and {}", left.type_name(), right.type_name())))
}

fn integers(operator: &str, a: i128, b: i128) -> Result<Value> {
    let result = match operator {
        "+" => a.checked_add(b),
        "-" => a.checked_sub(b),
        "*" => a.checked_mul(b),
        "**" if b >= 0 => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)).or(match a {
            0 | 1 => Some(a),
            -1 => Some(if b % 2 == 0 { 1 } else { -1 }),
            _ => None,
        }),
        "//" if b != 0 => floor_division(a, b).map(|(quotient, _)| quotient),
        "%" if b != 0 => floor_division(a, b).map(|(_, remainder)| remainder),
        _ => return floats(operator, a as f64, b as f64),
    };
    result.map(Value::Int).ok_or_else(|| Failure::new(format!("the result of `{operator}` is too large")))
}

/// Rounded towards minus infinity, as Python does.
fn floor_division(a: i128, b: i128) -> Option<(i128, i128)> {
    let (quotient, remainder) = (a.checked_div(b)?, a.checked_rem(b)?);
    if remainder != 0 && (remainder < 0) != (b < 0) {
        return Some((quotient.checked_sub(1)?, remainder.checked_add(b)?));
    }
    Some((quotient, remainder))
}

fn floats(operator: &str, a: f64, b: f64) -> Result<Value> {
    let by_zero = || Err(Failure::new(format!("`{operator}` by zero")));
    Ok(Value::Float(match operator {
        "+" => a + b,
        "-" => a - b,
        "*" => a * b,
        "/" | "//" | "%" if b == 0.0 => return by_zero(),
        "/" => a / b,
        "//" => float_floor_division(a, b).0,
        "%" => float_floor_division(a, b).1,
        _ if a == 0.0 && b < 0.0 => return by_zero(),
        _ if a < 0.0 && b.fract() != 0.0 => {
            return Err(Failure::new("a power of a negative number must be whole"));
        }
        _ => {
            let power = a.powf(b);
            if power.is_infinite() && a.is_finite() && b.is_finite() {
                return Err(Failure::new("the result of `**` is too large"));
            }
            power
        }
    }))
}

/// Quotient and remainder with the sign of the divisor, in the steps that Python takes.
fn float_floor_division(a: f64, b: f64) -> (f64, f64) {
    let mut remainder = a % b;
    let mut quotient = (a - remainder) / b;
    if remainder == 0.0 {
        remainder = 0.0_f64.copysign(b);
    } else if (b < 0.0) != (remainder < 0.0) {
        remainder += b;
        quotient -= 1.0;
    }
    let floor = if quotient == 0.0 {
        0.0_f64.copysign(a / b)
    } else {
        let floor = quotient.floor();
        if quotient - floor > 0.5 { floor + 1.0 } else { floor }
    };
    (floor, remainder)
}

/// `value in container`
pub(super) fn contains(budget: &Budget, container: &Value, value: &Value) -> Result<bool> {
    match container {
        Value::Str(text) => {
            if let Value::Str(part) = value {
                budget.scan(text.len())?;
                return Ok(text.contains(&**part));
            }
            value.must_be_defined()?;
            Err(Failure::new(format!("only a text can be in a text, got {}", value.type_name())))
        }
        Value::Seq(seq) => {
            for item in &seq.items {
                if item.equals(value, budget)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Value::Dict(dict) => {
            super::value::must_be_hashable(value, budget)?;
            dict.get(budget, value).map(|found| found.is_some())
        }
        Value::Undefined(_) => Ok(false),
        _ => Err(Failure::new(format!("nothing is in a {}", container.type_name()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(operator: &str, a: &Value, b: &Value) -> String {
        arithmetic(operator, a, b).map_or_else(|_| "error".to_owned(), |value| format!("{value:?}"))
    }

    #[test]
    fn division_rounds_towards_minus_infinity() {
        use Value::{Float, Int};
        assert_eq!(result("//", &Int(-7), &Int(2)), "Int(-4)");
        assert_eq!(result("%", &Int(-7), &Int(3)), "Int(2)");
        assert_eq!(result("//", &Float(-7.5), &Int(2)), "Float(-4.0)");
        assert_eq!(result("%", &Float(7.5), &Int(-2)), "Float(-0.5)");
        assert_eq!(result("/", &Int(4), &Int(2)), "Float(2.0)");
    }

    #[test]
    fn what_has_no_result_is_an_error() {
        use Value::{Float, Int, None};
        for (operator, a, b) in [
            ("+", Int(i128::MAX), Int(1)),
            ("//", Int(i128::MIN), Int(-1)),
            ("**", Int(10), Int(1000)),
            ("**", Int(0), Int(-1)),
            ("%", Int(1), Int(0)),
            ("/", Float(1.0), Int(0)),
            ("-", None, Int(1)),
        ] {
            assert_eq!(result(operator, &a, &b), "error");
        }
        assert_eq!(result("**", &Int(-1), &Int(i128::MAX)), "Int(-1)");
    }
}
