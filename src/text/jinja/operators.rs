//! Python's operators, as filters that charge the budget for their work and results. Integers have 128 bits.

use std::cmp::Ordering;

use minijinja::Value;
use minijinja::value::{Tuple, ValueKind};

use super::value::{
    Result, fail, float, get, int, int_value, is_dict, is_list, items, must_be_defined, type_name, walk,
};
use super::{budget, print};

/// Evaluates operands from left to right, each with its operator before it.
pub(super) fn operate(first: &Value, rest: &[Value]) -> Result<Value> {
    rest.chunks_exact(2).try_fold(first.clone(), |value, pair| {
        let (operator, other) = (pair[0].as_str().unwrap_or_default(), &pair[1]);
        match operator {
            "~" => {
                let mut text = print::str(&value)?;
                print::push(&mut text, &print::str(other)?)?;
                Ok(Value::from(text))
            }
            "+" => add(&value, other),
            "*" => multiply(&value, other),
            "%" if value.as_str().is_some() => print::printf(value.as_str().unwrap_or_default(), other),
            _ => numbers(operator, &value, other),
        }
    })
}

pub(super) fn add(a: &Value, b: &Value) -> Result<Value> {
    if let (Some(a), Some(b)) = (a.as_str(), b.as_str()) {
        budget::bytes(a.len() + b.len())?;
        return Ok(Value::from([a, b].concat()));
    }
    if (is_list(a) && is_list(b)) || (a.is_tuple() && b.is_tuple()) {
        return Ok(like(a, [items(a)?, items(b)?].concat()));
    }
    numbers("+", a, b)
}

/// Makes a tuple from a tuple, a list otherwise.
fn like(value: &Value, items: Vec<Value>) -> Value {
    if value.is_tuple() { Value::from(Tuple::new(items)) } else { Value::from(items) }
}

fn multiply(a: &Value, b: &Value) -> Result<Value> {
    let is_repeated = |value: &Value| [ValueKind::String, ValueKind::Seq].contains(&value.kind());
    let (value, times) = if is_repeated(a) { (a, b) } else { (b, a) };
    let Some(times) = int(times).filter(|_| is_repeated(value)) else { return numbers("*", a, b) };
    let times = usize::try_from(times.max(0)).unwrap_or(usize::MAX);
    if let Some(text) = value.as_str() {
        budget::bytes(text.len().saturating_mul(times))?;
        return Ok(Value::from(if text.is_empty() { String::new() } else { text.repeat(times) }));
    }
    let items = items(value)?;
    budget::elements(items.len().saturating_mul(times))?;
    let times = if items.is_empty() { 0 } else { times };
    Ok(like(value, std::iter::repeat_n(&items, times).flatten().cloned().collect()))
}

fn numbers(operator: &str, a: &Value, b: &Value) -> Result<Value> {
    let (Some(x), Some(y)) = (float(a), float(b)) else {
        must_be_defined(a)?;
        must_be_defined(b)?;
        return fail(format!("`{operator}` does not go with {} and {}", type_name(a), type_name(b)));
    };
    if y == 0.0 && ["/", "//", "%"].contains(&operator) {
        return fail(format!("`{operator}` by zero"));
    }
    let result = match (int(a), int(b)) {
        (Some(a), Some(b)) if operator != "/" && (operator != "**" || b >= 0) => {
            integers(operator, a, b).map(int_value)
        }
        _ => floats(operator, x, y).map(Value::from),
    };
    result.map_or_else(|| fail(format!("the result of `{operator}` is too large")), Ok)
}

fn integers(operator: &str, a: i128, b: i128) -> Option<i128> {
    // Rust rounds towards zero, Python down.
    let is_below = |rest: i128| rest != 0 && (rest < 0) != (b < 0);
    match operator {
        "+" => a.checked_add(b),
        "-" => a.checked_sub(b),
        "*" => a.checked_mul(b),
        "//" => a.checked_div(b).map(|quotient| quotient - i128::from(is_below(a % b))),
        "%" => a.checked_rem(b).map(|rest| if is_below(rest) { rest + b } else { rest }),
        _ => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
    }
}

fn floats(operator: &str, a: f64, b: f64) -> Option<f64> {
    let rest = match a % b {
        0.0 => 0.0_f64.copysign(b),
        rest if (rest < 0.0) != (b < 0.0) => rest + b,
        rest => rest,
    };
    match operator {
        "+" => Some(a + b),
        "-" => Some(a - b),
        "*" => Some(a * b),
        "/" => Some(a / b),
        "//" => Some(((a - rest) / b).round()),
        "%" => Some(rest),
        _ => Some(a.powf(b)).filter(|power| power.is_finite() || !a.is_finite() || !b.is_finite()),
    }
}

/// A chain of comparisons: each operator stands before its right side.
pub(super) fn compare(first: &Value, rest: &[Value]) -> Result<bool> {
    let mut left = first;
    for pair in rest.chunks_exact(2) {
        if !compares(left, pair[0].as_str().unwrap_or_default(), &pair[1])? {
            return Ok(false);
        }
        left = &pair[1];
    }
    Ok(true)
}

pub(super) fn compares(left: &Value, operator: &str, right: &Value) -> Result<bool> {
    Ok(match operator {
        "==" => equal(left, right)?,
        "!=" => !equal(left, right)?,
        "in" => contains(right, left)?,
        "not in" => !contains(right, left)?,
        // NaN is neither.
        _ if [left, right].iter().any(|value| float(value).is_some_and(f64::is_nan)) => false,
        "<" => order(left, right)?.is_lt(),
        "<=" => order(left, right)?.is_le(),
        ">" => order(left, right)?.is_gt(),
        _ => order(left, right)?.is_ge(),
    })
}

pub(super) fn equal(a: &Value, b: &Value) -> Result<bool> {
    if a.as_object().is_some() && b.as_object().is_some() {
        walk(a)?;
        walk(b)?;
    } else {
        budget::scan(a.as_str().map_or(0, str::len).min(b.as_str().map_or(0, str::len)))?;
    }
    Ok(a == b)
}

/// The order of numbers, strings, lists and tuples; an error for other values.
pub(super) fn order(a: &Value, b: &Value) -> Result<Ordering> {
    if let (Some(a), Some(b)) = (a.as_str(), b.as_str()) {
        budget::scan(a.len().min(b.len()))?;
        return Ok(a.cmp(b));
    }
    if float(a).is_some() && float(b).is_some() {
        return Ok(number(a).cmp(&number(b)));
    }
    if (is_list(a) && is_list(b)) || (a.is_tuple() && b.is_tuple()) {
        let (a, b) = (items(a)?, items(b)?);
        for (a, b) in a.iter().zip(&b) {
            if !equal(a, b)? {
                return order(a, b);
            }
        }
        return Ok(a.len().cmp(&b.len()));
    }
    must_be_defined(a)?;
    must_be_defined(b)?;
    fail(format!("`<` does not go with {} and {}", type_name(a), type_name(b)))
}

/// A truth value as its number.
pub(super) fn number(value: &Value) -> Value {
    int(value).map_or_else(|| value.clone(), int_value)
}

/// `value in container`
fn contains(container: &Value, value: &Value) -> Result<bool> {
    if let Some(text) = container.as_str() {
        budget::scan(text.len())?;
        return match value.as_str() {
            Some(part) => budget::steps(part.len() / 4).map(|()| text.contains(part)),
            None => fail(format!("only a text can be in a text, got {}", type_name(value))),
        };
    }
    if is_dict(container) {
        return Ok(get(container, value)?.is_some());
    }
    for item in items(container)? {
        if equal(&item, value)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `value[key]`; undefined if missing.
pub(super) fn item(value: &Value, key: &Value) -> Result<Value> {
    must_be_defined(value)?;
    budget::scan(value.as_str().map_or(0, str::len))?;
    let found = match value.kind() {
        ValueKind::Map => get(value, key)?,
        ValueKind::String | ValueKind::Seq => {
            int(key).and_then(|index| value.get_item(&int_value(index)).ok())
        }
        _ => None,
    };
    Ok(found.unwrap_or_default())
}

/// `value[start:stop:step]`
pub(super) fn slice(value: &Value, bounds: &[Value]) -> Result<Value> {
    must_be_defined(value)?;
    if bounds.iter().any(|bound| !bound.is_none() && int(bound).is_none()) {
        return fail("a slice takes whole numbers");
    }
    let bound = |index: usize| bounds.get(index).and_then(int);
    let step = bound(2).unwrap_or(1);
    if step == 0 {
        return fail("the step of a slice must not be 0");
    }
    if let Some(text) = value.as_str() {
        budget::chars(text.len())?;
        let chars: Vec<char> = text.chars().collect();
        return Ok(Value::from(
            places(chars.len(), bound(0), bound(1), step).map(|at| chars[at]).collect::<String>(),
        ));
    }
    if value.kind() != ValueKind::Seq {
        return fail(format!("a {} has no slices", type_name(value)));
    }
    let items = items(value)?;
    Ok(like(value, places(items.len(), bound(0), bound(1), step).map(|at| items[at].clone()).collect()))
}

/// The places of a slice, in order.
fn places(len: usize, start: Option<i128>, stop: Option<i128>, step: i128) -> impl Iterator<Item = usize> {
    let len = len as i128;
    let (lowest, highest) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let bound = |bound: Option<i128>, default: i128| match bound {
        Some(bound) if bound < 0 => bound.saturating_add(len).clamp(lowest, highest),
        Some(bound) => bound.clamp(lowest, highest),
        None => default,
    };
    let (first, last) = if step > 0 { (lowest, highest) } else { (highest, lowest) };
    let (start, stop) = (bound(start, first), bound(stop, last));
    std::iter::successors(Some(start), move |place| place.checked_add(step))
        .take_while(move |place| (stop - place) * step.signum() > 0)
        .map(|place| place as usize)
}
