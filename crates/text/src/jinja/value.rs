//! Python's values in minijinja: their types, their size, and the arguments of functions.

use minijinja::value::{DynObject, Kwargs, ObjectRepr, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};

use crate::worker;

/// What a value counts besides its text.
const ELEMENT_BYTES: usize = 64;
/// The largest value that a template makes, unless the conversation is larger.
const MAX_VALUE_BYTES: usize = 4 << 20;
/// The deepest nesting of lists and dicts.
pub(super) const MAX_DEPTH: usize = 200;
/// The bytes of a value that are visited for a unit of fuel.
const BYTES_PER_FUEL: usize = 1024;

/// The keys and values of a dict.
pub(super) type Pairs = Vec<(Value, Value)>;
pub(super) type Result<T> = std::result::Result<T, Error>;

#[cold]
pub(super) fn fail<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::new(ErrorKind::InvalidOperation, message.into()))
}

/// The message of a rendering that takes too much.
pub(super) fn exceeded(what: &str) -> String {
    format!(
        "it takes more {what} than a chat template may: it loops, recurses, or makes texts or lists without end"
    )
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
        ValueKind::Seq | ValueKind::Iterable => "list",
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
        ValueKind::Undefined => Ok(Vec::new()),
        ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => {
            value.try_iter()?.checked().collect()
        }
        _ => fail(format!("a {} cannot be iterated", type_name(value))),
    }
}

/// The keys and values of a dict.
pub(super) fn pairs(dict: &Value) -> Pairs {
    let pairs = dict.as_object().and_then(DynObject::try_iter_pairs);
    pairs.into_iter().flatten().collect()
}

/// The size of a value with all that it holds.
pub(super) fn size(value: &Value) -> Result<usize> {
    let mut left = usize::MAX;
    visit(value, 0, &mut left, false).map(|()| usize::MAX - left)
}

/// Refuses a value that is too large or too deep to be compared, printed or copied in time.
///
/// A list may hold another one many times, so its size may double with each step of a template. minijinja's
/// fuel does not see that. `input` is the size of the conversation; `is_plain` refuses what may hold itself.
pub(super) fn check_size(state: &State<'_, '_>, value: &Value, is_plain: bool) -> Result<()> {
    worker::check().or_else(|_| fail("it was cancelled"))?;
    if value.as_object().is_none() {
        return Ok(());
    }
    let most = MAX_VALUE_BYTES
        .saturating_add(state.lookup(INPUT_SIZE).and_then(|size| size.as_usize()).unwrap_or(0) * 8);
    let mut left = most;
    visit(value, 0, &mut left, is_plain)?;
    state.consume_fuel(((most - left) / BYTES_PER_FUEL) as u64)
}

/// The global with the size of the conversation. No template can name it.
pub(super) const INPUT_SIZE: &str = " input size";

fn visit(value: &Value, depth: usize, left: &mut usize, is_plain: bool) -> Result<()> {
    if depth > MAX_DEPTH {
        return fail(format!("lists and dicts may be nested {MAX_DEPTH} deep"));
    }
    let bytes = value.as_str().map_or(0, str::len) + ELEMENT_BYTES;
    *left = match left.checked_sub(bytes) {
        Some(left) => left,
        None => return fail(exceeded("memory")),
    };
    let Some(object) = value.as_object() else { return Ok(()) };
    if is_plain && object.repr() == ObjectRepr::Map && !is_dict(value) {
        return fail("a namespace may hold texts, numbers, lists and dicts");
    }
    if object.repr() == ObjectRepr::Map {
        for (key, value) in object.try_iter_pairs().into_iter().flatten() {
            visit(&key, depth + 1, left, is_plain)?;
            visit(&value, depth + 1, left, is_plain)?;
        }
    } else {
        for part in object.try_iter().into_iter().flatten() {
            visit(&part, depth + 1, left, is_plain)?;
        }
    }
    Ok(())
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

/// Pays for bytes that are to be made.
pub(super) fn pay(state: &State<'_, '_>, bytes: usize) -> Result<()> {
    state.consume_fuel((bytes / 64) as u64)
}
