//! Python's operators, as filters that charge the budget before they run. Arithmetic and slices are minijinja's.

use std::cmp::Ordering;
use std::iter;

use minijinja::Value;
use minijinja::value::ValueKind;

use super::budget::ELEMENT_BYTES;
use super::value::{
    Result, bind, fail, float, int, integer, is_dict, items, must_be_defined, must_be_hashable, type_name,
    walk,
};
use super::{budget, native, print};

/// The steps that minijinja takes for an operator.
const STEPS: usize = 8;
/// The largest bound of a slice.
const MAX_BOUND: i64 = 1 << 60;

/// Evaluates operands from left to right, each with its operator before it.
pub(super) fn operate(first: &Value, rest: &[Value]) -> Result<Value> {
    rest.chunks_exact(2).try_fold(first.clone(), |value, pair| {
        let (operator, other) = (pair[0].as_str().unwrap_or_default(), &pair[1]);
        match (operator, value.as_str()) {
            ("~", _) => print::join(&[value, other.clone()], ""),
            ("%", Some(text)) => print::printf(text, other),
            _ => arithmetic(&value, operator, other),
        }
    })
}

/// The bytes of a text or a list, without the contents of its items.
fn size(value: &Value) -> Option<usize> {
    match value.kind() {
        ValueKind::String => value.as_str().map(str::len),
        ValueKind::Seq => value.len().map(|len| len * ELEMENT_BYTES),
        _ => None,
    }
}

pub(super) fn arithmetic(a: &Value, operator: &str, b: &Value) -> Result<Value> {
    let times = int(a).or(int(b)).map(|times| usize::try_from(times.max(0)).unwrap_or(usize::MAX));
    let bytes = match (operator, size(a), size(b), times) {
        ("+", Some(a_size), Some(b_size), _) if type_name(a) == type_name(b) => a_size + b_size,
        ("*", Some(size), None, Some(times)) | ("*", None, Some(size), Some(times)) => {
            size.saturating_mul(times)
        }
        _ if float(a).is_some() && float(b).is_some() => 0,
        _ => return mismatch(operator, a, b),
    };
    budget::steps(STEPS)?;
    budget::bytes(bytes)?;
    let result = native::operator(&format!("a {operator} b"), &[a, b])?;
    let is_finite = |value: &Value| float(value).is_none_or(f64::is_finite);
    if operator == "**" && !is_finite(&result) && is_finite(a) && is_finite(b) {
        return fail("the result of `**` is too large");
    }
    Ok(result)
}

/// A chain of comparisons: each operator stands before its right side.
pub(super) fn compare(first: &Value, rest: &[Value]) -> Result<bool> {
    let lefts = iter::once(first).chain(rest.iter().skip(1).step_by(2));
    for (left, pair) in lefts.zip(rest.chunks_exact(2)) {
        if !compares(left, pair[0].as_str().unwrap_or_default(), &pair[1])? {
            return Ok(false);
        }
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
    let kind = |value: &Value| if float(value).is_some() { "number" } else { type_name(value) };
    match (kind(a), kind(b)) {
        ("number", "number") => Ok(a.cmp(b)),
        ("str", "str") => equal(a, b).map(|_| a.cmp(b)),
        ("list", "list") | ("tuple", "tuple") => {
            let (a, b) = (items(a)?, items(b)?);
            for (a, b) in a.iter().zip(&b) {
                if !equal(a, b)? {
                    return order(a, b);
                }
            }
            Ok(a.len().cmp(&b.len()))
        }
        _ => mismatch("<", a, b),
    }
}

fn mismatch<T>(operator: &str, a: &Value, b: &Value) -> Result<T> {
    must_be_defined(a)?;
    must_be_defined(b)?;
    fail(format!("`{operator}` does not go with {} and {}", type_name(a), type_name(b)))
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
    if let Some(dict) = container.as_object().filter(|_| is_dict(container)) {
        return must_be_hashable(value).map(|()| dict.get_value(value).is_some());
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
    match value.kind() {
        ValueKind::Map => must_be_hashable(key).and_then(|()| value.get_item(key)),
        ValueKind::String | ValueKind::Seq if int(key).is_some() => value.get_item(key),
        _ => Ok(Value::UNDEFINED),
    }
}

/// `value[start:stop:step]`
pub(super) fn slice(value: &Value, bounds: &[Value]) -> Result<Value> {
    must_be_defined(value)?;
    budget::steps(STEPS)?;
    let Some(size) = size(value) else { return fail(format!("a {} has no slices", type_name(value))) };
    let bounds = bind("a slice", bounds, ["start", "stop", "step"])?;
    let bound = |index: usize| {
        let bound = integer("a slice", &bounds[index]);
        bound.map(|bound| Value::from(bound.map(|bound| bound.clamp(-MAX_BOUND, MAX_BOUND))))
    };
    if value.as_str().is_some() { budget::chars(size) } else { budget::bytes(size) }?;
    native::operator("a[b:c:d]", &[value, &bound(0)?, &bound(1)?, &bound(2)?])
}
