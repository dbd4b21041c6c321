//! Python's values in minijinja: their types, dicts, and the arguments of functions.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use minijinja::value::{DynObject, Kwargs, ObjectRepr, ValueKind, from_args};
use minijinja::{Error, ErrorKind, Value};

use super::budget;

/// The bytes of a value in the size of an input, besides its text.
const ELEMENT_BYTES: usize = 16;
/// The deepest nesting of lists.
pub(super) const MAX_DEPTH: usize = 200;

pub(super) type Result<T> = std::result::Result<T, Error>;

#[cold]
pub(super) fn fail<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::new(ErrorKind::InvalidOperation, message.into()))
}

/// Python's name of a value's type.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value.kind() {
        ValueKind::None => "None",
        ValueKind::Bool => "bool",
        ValueKind::Number if value.is_integer() => "int",
        ValueKind::Number => "float",
        ValueKind::String => "str",
        ValueKind::Map if is_dict(value) => "dict",
        ValueKind::Seq if value.is_tuple() => "tuple",
        ValueKind::Seq => "list",
        _ => "object",
    }
}

/// A dict, not one of the objects of minijinja that have attributes.
pub(super) fn is_dict(value: &Value) -> bool {
    value.kind() == ValueKind::Map
        && !["::Namespace", "::Macro", "::Loop"].into_iter().any(|name| is_instance(value, name))
}

/// Whether it is one of minijinja's own objects, by the end of the name of its type.
pub(super) fn is_instance(value: &Value, name: &str) -> bool {
    value.as_object().is_some_and(|object| object.type_name().ends_with(name))
}

pub(super) fn is_list(value: &Value) -> bool {
    value.kind() == ValueKind::Seq && !value.is_tuple()
}

/// The value as an integer; truth values are numbers.
pub(super) fn int(value: &Value) -> Option<i128> {
    match value.kind() {
        ValueKind::Bool => Some(i128::from(value.is_true())),
        _ if value.is_integer() => i128::try_from(value.clone()).ok(),
        _ => None,
    }
}

pub(super) fn float(value: &Value) -> Option<f64> {
    match int(value) {
        Some(number) => Some(number as f64),
        None if value.is_number() => f64::try_from(value.clone()).ok(),
        None => None,
    }
}

pub(super) fn int_value(number: i128) -> Value {
    i64::try_from(number).map_or_else(|_| Value::from(number), Value::from)
}

pub(super) fn must_be_defined(value: &Value) -> Result<()> {
    if value.is_undefined() { fail("the value is undefined") } else { Ok(()) }
}

/// The items of an iterable.
pub(super) fn items(value: &Value) -> Result<Vec<Value>> {
    match value.kind() {
        ValueKind::Undefined => return Ok(Vec::new()),
        ValueKind::String => budget::elements(value.as_str().map_or(0, str::len))?,
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => budget::elements(value.len().unwrap_or(0))?,
        _ => return fail(format!("a {} cannot be iterated", type_name(value))),
    }
    value.try_iter()?.checked().collect()
}

/// The keys and values of a dict.
pub(super) fn pairs(dict: &Value) -> Result<Vec<(Value, Value)>> {
    budget::elements(2 * dict.len().unwrap_or(0))?;
    let pairs = dict.as_object().and_then(DynObject::try_iter_pairs);
    Ok(pairs.into_iter().flatten().collect())
}

/// Charges for visiting a value and all that it holds, and returns its size. Too deep nesting is an error.
pub(super) fn walk(value: &Value) -> Result<usize> {
    walk_at(value, 0, &|_| Ok(()))
}

/// The same, with a check of each part.
fn walk_at(value: &Value, depth: usize, check: &dyn Fn(&Value) -> Result<()>) -> Result<usize> {
    if depth > MAX_DEPTH {
        return fail(format!("lists and dicts may be nested {MAX_DEPTH} deep"));
    }
    let mut size = value.as_str().map_or(0, str::len) + ELEMENT_BYTES;
    budget::scan(size)?;
    check(value)?;
    let Some(object) = value.as_object() else { return Ok(size) };
    if object.repr() == ObjectRepr::Map {
        for (key, value) in object.try_iter_pairs().into_iter().flatten() {
            size += walk_at(&key, depth + 1, check)? + walk_at(&value, depth + 1, check)?;
        }
    } else {
        for part in object.try_iter().into_iter().flatten() {
            size += walk_at(&part, depth + 1, check)?;
        }
    }
    Ok(size)
}

/// The contents of a namespace outlive its scope, so it may hold neither a namespace nor a loop.
pub(super) fn must_be_plain(value: &Value) -> Result<()> {
    let check = |part: &Value| match part.kind() {
        ValueKind::Map if !is_dict(part) => fail("a namespace may hold texts, numbers, lists and dicts"),
        _ => Ok(()),
    };
    walk_at(value, 0, &check).map(drop)
}

fn must_be_hashable(key: &Value) -> Result<()> {
    let check = |part: &Value| match part.kind() {
        // As a part its hash would differ from that of its number.
        ValueKind::Bool if key.is_tuple() => fail("a tuple with a truth value cannot be a key"),
        ValueKind::Seq if part.is_tuple() => Ok(()),
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => {
            fail(format!("a {} cannot be a key", type_name(part)))
        }
        _ => Ok(()),
    };
    walk_at(key, 0, &check).map(drop)
}

/// A key, or its number if it is a truth value: in Python they are the same key.
pub(super) fn hashed(key: &Value) -> Result<Value> {
    must_be_hashable(key)?;
    Ok(int(key).map_or_else(|| key.clone(), int_value))
}

/// A dict. Of equal keys it has the first with the last value.
pub(super) fn dict(entries: impl IntoIterator<Item = (Value, Value)>) -> Result<Value> {
    let (mut places, mut pairs) = (HashMap::new(), Vec::new());
    for (key, value) in entries {
        budget::elements(8)?;
        match places.entry(hashed(&key)?) {
            Entry::Vacant(place) => {
                place.insert(pairs.len());
                pairs.push((key, value));
            }
            Entry::Occupied(place) => pairs[*place.get()].1 = value,
        }
    }
    Ok(Value::from_pairs(pairs))
}

/// The value of a key of a dict.
pub(super) fn get(dict: &Value, key: &Value) -> Result<Option<Value>> {
    must_be_hashable(key)?;
    let Some(object) = dict.as_object() else { return Ok(None) };
    // A truth value is the same key as its number.
    let other = match float(key) {
        Some(number) if key.kind() == ValueKind::Bool => Value::from(number as i64),
        Some(number) if number == 0.0 || number == 1.0 => Value::from(number == 1.0),
        _ => return Ok(object.get_value(key)),
    };
    Ok(object.get_value(key).or_else(|| object.get_value(&other)))
}

/// Binds positional and keyword arguments.
pub(super) fn bind<const N: usize>(
    callee: &str,
    args: &[Value],
    names: [&str; N],
) -> Result<[Option<Value>; N]> {
    let (positional, keywords) = from_args::<(&[Value], Kwargs)>(args)?;
    if positional.len() > N {
        return fail(format!("{callee} takes at most {N} arguments, got {}", positional.len()));
    }
    let mut bound = [const { None }; N];
    for (index, name) in names.into_iter().enumerate() {
        let given = positional.get(index).cloned();
        bound[index] = if given.is_some() { given } else { keywords.get(name)? };
    }
    keywords.assert_all_used().map(|()| bound)
}

pub(super) fn flag(value: Option<&Value>) -> bool {
    value.is_some_and(Value::is_true)
}

/// An optional integer.
pub(super) fn integer(callee: &str, value: Option<&Value>) -> Result<Option<i64>> {
    match value.filter(|value| !value.is_none()).map(|value| int(value).ok_or(value)) {
        None => Ok(None),
        Some(Ok(number)) => Ok(Some(number.clamp(i64::MIN.into(), i64::MAX.into()) as i64)),
        Some(Err(value)) => fail(format!("{callee} takes a whole number, got {}", type_name(value))),
    }
}

/// An optional string.
pub(super) fn text_of<'a>(callee: &str, value: Option<&'a Value>) -> Result<Option<&'a str>> {
    match value.filter(|value| !value.is_none()) {
        Some(value) if value.as_str().is_none() => {
            fail(format!("{callee} takes a text, got {}", type_name(value)))
        }
        value => Ok(value.and_then(Value::as_str)),
    }
}
