//! Python's values in minijinja: ranges, views of dicts, and the arguments of functions.

use std::sync::Arc;

use minijinja::value::{DynObject, Enumerator, Kwargs, Object, ObjectRepr, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use serde_json::Value as Json;

use super::{budget, methods};

/// The deepest nesting of lists.
const MAX_DEPTH: usize = 200;

pub(super) type Result<T> = std::result::Result<T, Error>;

#[cold]
pub(super) fn fail<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::new(ErrorKind::InvalidOperation, message.into()))
}

/// Python's sequences besides lists and tuples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Range,
    Keys,
    Values,
    Items,
}

/// A range, or a view of a dict.
#[derive(Debug)]
pub(super) struct View {
    pub(super) kind: Kind,
    pub(super) items: Vec<Value>,
}

impl View {
    pub(super) fn of(kind: Kind, items: Vec<Value>) -> Value {
        Value::from_object(Self { kind, items })
    }
}

impl Object for View {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        if self.kind == Kind::Range { ObjectRepr::Seq } else { ObjectRepr::Iterable }
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.items.get(key.as_usize()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.items.len())
    }
}

/// A method of a dict that is not called immediately.
#[derive(Debug)]
pub(super) struct Method(pub(super) Value, pub(super) String);

impl Object for Method {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, state: &mut State<'_, '_>, args: &[Value]) -> Result<Value> {
        methods::call(state, &self.0, &self.1, args)
    }
}

/// A value from the caller.
pub(super) fn from_json(value: &Json) -> Value {
    match value {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => match number.as_i128() {
            Some(integer) => int_value(integer),
            None => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::from(items.iter().map(from_json).collect::<Vec<_>>()),
        Json::Object(entries) => {
            Value::from_pairs(entries.iter().map(|(key, value)| (key.as_str(), from_json(value))))
        }
    }
}

/// The size of an input for the budget: the bytes of its strings, and some for each element.
pub(super) fn size(value: &Json) -> usize {
    const ELEMENT: usize = 16;
    ELEMENT
        + match value {
            Json::String(text) => text.len(),
            Json::Array(items) => items.iter().map(size).sum(),
            Json::Object(entries) => entries.iter().map(|(key, value)| key.len() + size(value)).sum(),
            _ => 0,
        }
}

/// Python's name of a value's type.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value.kind() {
        ValueKind::Undefined => "undefined value",
        ValueKind::None => "None",
        ValueKind::Bool => "bool",
        ValueKind::Number if value.is_integer() => "int",
        ValueKind::Number => "float",
        ValueKind::String => "str",
        ValueKind::Map if is_dict(value) => "dict",
        ValueKind::Seq if value.is_tuple() => "tuple",
        ValueKind::Seq if view(value).is_none() => "list",
        _ if view(value).is_some() => "view",
        _ => "object",
    }
}

pub(super) fn view(value: &Value) -> Option<&View> {
    value.downcast_object_ref::<View>()
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
    value.kind() == ValueKind::Seq && !value.is_tuple() && view(value).is_none()
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

/// Charges for visiting a value and all that it holds. Too deep nesting is an error.
pub(super) fn walk(value: &Value) -> Result<()> {
    walk_at(value, 0, &|_| Ok(()))
}

/// The same, with a check of each part.
pub(super) fn walk_at(value: &Value, depth: usize, check: &dyn Fn(&Value) -> Result<()>) -> Result<()> {
    if depth > MAX_DEPTH {
        return fail(format!("lists and dicts may be nested {MAX_DEPTH} deep"));
    }
    budget::scan(value.as_str().map_or(0, str::len))?;
    check(value)?;
    let Some(object) = value.as_object() else { return Ok(()) };
    match object.repr() {
        ObjectRepr::Map => {
            for (key, value) in object.try_iter_pairs().into_iter().flatten() {
                walk_at(&key, depth + 1, check)?;
                walk_at(&value, depth + 1, check)?;
            }
        }
        ObjectRepr::Seq | ObjectRepr::Iterable => {
            for item in object.try_iter().into_iter().flatten() {
                walk_at(&item, depth + 1, check)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// The contents of a namespace outlive its scope, so it may hold neither a namespace nor a loop.
pub(super) fn must_be_plain(value: &Value) -> Result<()> {
    walk_at(value, 0, &|part| match part.kind() {
        ValueKind::Map if !is_dict(part) => fail("a namespace may hold texts, numbers, lists and dicts"),
        _ => Ok(()),
    })
}

/// A key of a dict; an error for other values.
pub(super) fn get(dict: &Value, key: &Value) -> Result<Option<Value>> {
    must_be_hashable(key)?;
    let Some(object) = dict.as_object() else { return Ok(None) };
    // A truth value is the same key as its number.
    let other = match int(key) {
        Some(number @ (0 | 1)) if key.kind() == ValueKind::Bool => int_value(number),
        Some(number @ (0 | 1)) => Value::from(number == 1),
        _ => Value::UNDEFINED,
    };
    Ok([key, &other].into_iter().filter(|key| !key.is_undefined()).find_map(|key| object.get_value(key)))
}

pub(super) fn must_be_hashable(key: &Value) -> Result<()> {
    walk_at(key, 0, &|part| match part.kind() {
        ValueKind::Seq if part.is_tuple() => Ok(()),
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => {
            fail(format!("a {} cannot be a key", type_name(part)))
        }
        _ => Ok(()),
    })
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
        if given.is_some() && keywords.has(name) {
            return fail(format!("{callee}: `{name}` is given twice"));
        }
        bound[index] = if keywords.has(name) { Some(keywords.get(name)?) } else { given };
    }
    match keywords.args().find(|name| !names.contains(name)) {
        Some(name) => fail(format!("{callee} has no argument `{name}`")),
        None => Ok(bound),
    }
}

pub(super) fn flag(value: Option<&Value>) -> bool {
    value.is_some_and(Value::is_true)
}

/// An optional integer.
pub(super) fn integer(callee: &str, value: Option<&Value>) -> Result<Option<i64>> {
    match value {
        Some(value) if !value.is_none() => match int(value) {
            Some(number) => Ok(Some(number.clamp(i64::MIN.into(), i64::MAX.into()) as i64)),
            None => fail(format!("{callee} takes a whole number, got {}", type_name(value))),
        },
        _ => Ok(None),
    }
}

/// An optional size; 0 if out of range.
pub(super) fn length(callee: &str, value: Option<&Value>, default: usize) -> Result<usize> {
    Ok(integer(callee, value)?.map_or(default, |number| usize::try_from(number).unwrap_or(0)))
}

/// An optional string.
pub(super) fn text<'a>(callee: &str, value: Option<&'a Value>) -> Result<Option<&'a str>> {
    match value {
        Some(value) if !value.is_none() => match value.as_str() {
            Some(text) => Ok(Some(text)),
            None => fail(format!("{callee} takes a text, got {}", type_name(value))),
        },
        _ => Ok(None),
    }
}
