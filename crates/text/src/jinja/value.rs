//! Python's values in minijinja: their types and contents, and the arguments of functions.

use minijinja::value::{DynObject, Kwargs, ObjectRepr, ValueKind, from_args};
use minijinja::{Error, ErrorKind, Value};

use super::budget;

/// The bytes of a value in the size of an input, besides its text.
const ELEMENT_BYTES: usize = 16;
/// The deepest nesting of lists.
pub(super) const MAX_DEPTH: usize = 200;

/// The keys and values of a dict, or items with their sort keys.
pub(super) type Pairs = Vec<(Value, Value)>;
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

/// The value as an integer; truth values are numbers.
pub(super) fn int(value: &Value) -> Option<i128> {
    let is_int = value.is_integer() || value.kind() == ValueKind::Bool;
    if is_int { i128::try_from(value.clone()).ok() } else { None }
}

pub(super) fn float(value: &Value) -> Option<f64> {
    if value.is_number() { f64::try_from(value.clone()).ok() } else { int(value).map(|number| number as f64) }
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
pub(super) fn pairs(dict: &Value) -> Result<Pairs> {
    budget::elements(2 * dict.len().unwrap_or(0))?;
    let pairs = dict.as_object().and_then(DynObject::try_iter_pairs);
    Ok(pairs.into_iter().flatten().collect())
}

/// Charges for visiting a value and all that it holds, and returns its size. Too deep nesting is an error.
pub(super) fn walk(value: &Value) -> Result<usize> {
    walk_at(value, 0, &|_| Ok(()))
}

pub(super) fn walk_all(values: &[Value]) -> Result<usize> {
    values.iter().try_fold(0, |size, value| Ok(size + walk(value)?))
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

/// Charges for hashing a key.
pub(super) fn must_be_hashable(key: &Value) -> Result<()> {
    let check = |part: &Value| match part.kind() {
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable if !part.is_tuple() => {
            fail(format!("a {} cannot be a key", type_name(part)))
        }
        _ => Ok(()),
    };
    walk_at(key, 0, &check).map(drop)
}

/// Binds positional and keyword arguments. Those that are missing are none.
pub(super) fn bind<const N: usize>(callee: &str, args: &[Value], names: [&str; N]) -> Result<[Value; N]> {
    let (positional, keywords) = from_args::<(&[Value], Kwargs)>(args)?;
    if positional.len() > N {
        return fail(format!("{callee} takes at most {N} arguments, got {}", positional.len()));
    }
    let mut bound = [(); N].map(Value::from);
    for (index, name) in names.into_iter().enumerate() {
        bound[index] = match positional.get(index) {
            Some(value) => value.clone(),
            None => Value::from(keywords.get::<Option<Value>>(name)?),
        };
    }
    keywords.assert_all_used().map(|()| bound)
}

/// An optional integer.
pub(super) fn integer(callee: &str, value: &Value) -> Result<Option<i64>> {
    match int(value) {
        Some(number) => Ok(Some(number.clamp(i64::MIN.into(), i64::MAX.into()) as i64)),
        None if value.is_none() => Ok(None),
        None => fail(format!("{callee} takes a whole number, got {}", type_name(value))),
    }
}

/// An optional number of occurrences. Without one, or with a negative one, all count.
pub(super) fn most(callee: &str, value: &Value) -> Result<usize> {
    Ok(usize::try_from(integer(callee, value)?.unwrap_or(-1)).unwrap_or(usize::MAX))
}

/// An optional string.
pub(super) fn text_of<'a>(callee: &str, value: &'a Value) -> Result<Option<&'a str>> {
    match value.as_str() {
        None if !value.is_none() => fail(format!("{callee} takes a text, got {}", type_name(value))),
        text => Ok(text),
    }
}
