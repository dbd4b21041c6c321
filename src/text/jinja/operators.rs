//! Python's operators, as filters that charge the budget for their work and results. Integers have 128 bits.

use std::cmp::Ordering;

use minijinja::Value;
use minijinja::value::{Tuple, ValueKind};

use super::value::{
    Kind, Result, View, fail, float, get, int, int_value, is_dict, is_list, items, must_be_defined,
    type_name, view, walk,
};
use super::{budget, print, printf};

/// Evaluates operands from left to right, each with its operator before it.
pub(super) fn arithmetic(first: &Value, rest: &[Value]) -> Result<Value> {
    let mut value = first.clone();
    for pair in rest.chunks_exact(2) {
        let (operator, other) = (pair[0].as_str().unwrap_or_default(), &pair[1]);
        value = match operator {
            "~" => {
                let mut text = print::str(&value)?;
                print::push(&mut text, &print::str(other)?)?;
                Value::from(text)
            }
            "+" => add(&value, other)?,
            "*" => multiply(&value, other)?,
            "%" if value.as_str().is_some() => printf::format(value.as_str().unwrap_or_default(), other)?,
            _ => numbers(operator, &value, other)?,
        };
    }
    Ok(value)
}

pub(super) fn add(a: &Value, b: &Value) -> Result<Value> {
    if let (Some(a), Some(b)) = (a.as_str(), b.as_str()) {
        budget::bytes(a.len() + b.len())?;
        return Ok(Value::from([a, b].concat()));
    }
    if (is_list(a) && is_list(b)) || (a.is_tuple() && b.is_tuple()) {
        let mut items_of_both = items(a)?;
        items_of_both.extend(items(b)?);
        return Ok(like(a, items_of_both));
    }
    numbers("+", a, b)
}

/// Makes a tuple from a tuple, a list otherwise.
fn like(value: &Value, items: Vec<Value>) -> Value {
    if value.is_tuple() { Value::from(Tuple::new(items)) } else { Value::from(items) }
}

fn multiply(a: &Value, b: &Value) -> Result<Value> {
    let is_repeated = |value: &Value| value.as_str().is_some() || is_list(value) || value.is_tuple();
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

/// `-value` and `+value`
pub(super) fn signed(value: &Value, is_negative: bool) -> Result<Value> {
    match (int(value), float(value)) {
        (Some(_), _) => numbers(if is_negative { "-" } else { "+" }, &Value::from(0), value),
        (None, Some(number)) => Ok(Value::from(if is_negative { -number } else { number })),
        _ => numbers("-", &Value::from(0), value),
    }
}

fn numbers(operator: &str, a: &Value, b: &Value) -> Result<Value> {
    if let (Some(a), Some(b)) = (int(a), int(b)) {
        return integers(operator, a, b);
    }
    if let (Some(a), Some(b)) = (float(a), float(b)) {
        return floats(operator, a, b);
    }
    must_be_defined(a)?;
    must_be_defined(b)?;
    fail(format!("`{operator}` does not go with {} and {}", type_name(a), type_name(b)))
}

fn integers(operator: &str, a: i128, b: i128) -> Result<Value> {
    let floor = |a: i128, b: i128| {
        let (quotient, rest) = (a.checked_div(b)?, a.checked_rem(b)?);
        let is_below = rest != 0 && (rest < 0) != (b < 0);
        Some((quotient - i128::from(is_below), if is_below { rest + b } else { rest }))
    };
    let result = match operator {
        "+" => a.checked_add(b),
        "-" => a.checked_sub(b),
        "*" => a.checked_mul(b),
        "**" if b >= 0 => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
        "//" if b != 0 => floor(a, b).map(|(quotient, _)| quotient),
        "%" if b != 0 => floor(a, b).map(|(_, rest)| rest),
        _ => return floats(operator, a as f64, b as f64),
    };
    match result {
        Some(number) => Ok(int_value(number)),
        None => fail(format!("the result of `{operator}` is too large")),
    }
}

fn floats(operator: &str, a: f64, b: f64) -> Result<Value> {
    if b == 0.0 && ["/", "//", "%"].contains(&operator) || operator == "**" && a == 0.0 && b < 0.0 {
        return fail(format!("`{operator}` by zero"));
    }
    Ok(Value::from(match operator {
        "+" => a + b,
        "-" => a - b,
        "*" => a * b,
        "/" => a / b,
        "//" => floor_division(a, b).0,
        "%" => floor_division(a, b).1,
        _ if a < 0.0 && b.fract() != 0.0 => return fail("a power of a negative number must be whole"),
        _ => match a.powf(b) {
            power if power.is_infinite() && a.is_finite() && b.is_finite() => {
                return fail("the result of `**` is too large");
            }
            power => power,
        },
    }))
}

/// Quotient and remainder with the sign of the divisor, computed as Python does.
fn floor_division(a: f64, b: f64) -> (f64, f64) {
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

/// A chain of comparisons: each operator stands before its right side.
pub(super) fn compare(first: &Value, rest: &[Value]) -> Result<bool> {
    let mut left = first;
    for pair in rest.chunks_exact(2) {
        let (operator, right) = (pair[0].as_str().unwrap_or_default(), &pair[1]);
        if !compares(left, operator, right)? {
            return Ok(false);
        }
        left = right;
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
        if let (Some(a), Some(b)) = (view(a), view(b)) {
            return Ok(a.kind == b.kind && a.items == b.items);
        }
        if view(a).is_some() || view(b).is_some() {
            return Ok(false);
        }
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
    if let (Some(a), Some(b)) = (int(a), int(b)) {
        return Ok(a.cmp(&b));
    }
    if let (Some(a), Some(b)) = (float(a), float(b)) {
        return Ok(a.partial_cmp(&b).unwrap_or(Ordering::Equal));
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

/// `value in container`
fn contains(container: &Value, value: &Value) -> Result<bool> {
    if let Some(text) = container.as_str() {
        budget::scan(text.len())?;
        return match value.as_str() {
            Some(part) => Ok(text.contains(part)),
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
    let found = match (value.kind(), int(key)) {
        (ValueKind::Map, _) => get(value, key)?,
        (ValueKind::String, Some(index)) => {
            let text = value.as_str().unwrap_or_default();
            budget::scan(text.len())?;
            let step = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
            let char = if index < 0 { text.chars().nth_back(step - 1) } else { text.chars().nth(step) };
            char.map(|char| Value::from(&*char.encode_utf8(&mut [0; 4])))
        }
        (ValueKind::Seq, Some(index)) => {
            let len = value.len().unwrap_or(0) as i128;
            let index = if index < 0 { index + len } else { index };
            usize::try_from(index).ok().and_then(|index| value.get_item_by_index(index).ok())
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
        budget::scan(text.len())?;
        if text.is_ascii() {
            let indices = indices(text.len(), bound(0), bound(1), step);
            return Ok(Value::from(
                indices.map(|index| char::from(text.as_bytes()[index])).collect::<String>(),
            ));
        }
        let chars: Vec<char> = text.chars().collect();
        let indices = indices(chars.len(), bound(0), bound(1), step);
        return Ok(Value::from(indices.map(|index| chars[index]).collect::<String>()));
    }
    if value.kind() != ValueKind::Seq {
        return fail(format!("a {} has no slices", type_name(value)));
    }
    let items = items(value)?;
    let chosen = indices(items.len(), bound(0), bound(1), step).map(|index| items[index].clone()).collect();
    Ok(if view(value).is_some() { View::of(Kind::Range, chosen) } else { like(value, chosen) })
}

/// The indices of a slice, in order.
fn indices(
    len: usize,
    start: Option<i128>,
    stop: Option<i128>,
    step: i128,
) -> impl ExactSizeIterator<Item = usize> {
    let len = len as i128;
    let (lowest, highest) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let bound = |bound: Option<i128>, default: i128| {
        bound.map_or(default, |bound| {
            let bound = if bound < 0 { bound.saturating_add(len) } else { bound };
            bound.clamp(lowest, highest)
        })
    };
    let (start, stop) =
        if step > 0 { (bound(start, 0), bound(stop, len)) } else { (bound(start, len - 1), bound(stop, -1)) };
    let distance = if step > 0 { stop - start } else { start - stop };
    // Both are far below 2^64: strings and lists are in memory.
    let stride = step.unsigned_abs().min(u64::MAX.into()) as i128;
    let count = if distance > 0 { (distance - 1) / stride + 1 } else { 0 };
    (0..count as usize).map(move |index| (start + index as i128 * stride * step.signum()) as usize)
}
