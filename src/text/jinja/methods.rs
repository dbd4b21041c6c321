//! The methods of Python's strings, lists and dicts. As in the sandbox of transformers, there are none that change a
//! list or dict. Some come from minijinja's `pycompat`.

use minijinja::formatting::FormatStyle;
use minijinja::value::{Tuple, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::print::{formatted, push, spaces};
use super::text::{self, is_space};
use super::value::{
    Result, bind, fail, flag, float, get, integer, is_dict, items, length, must_be_defined, pairs,
    text as text_of, type_name, walk,
};
use super::{budget, operators};

/// Calls a method of a value.
pub(super) fn call(state: &mut State<'_, '_>, value: &Value, name: &str, args: &[Value]) -> Result<Value> {
    must_be_defined(value)?;
    for arg in args {
        walk(arg)?;
    }
    let result = match value.kind() {
        ValueKind::String => of_text(state, value, name, args),
        ValueKind::Map if is_dict(value) => of_dict(value, name, args),
        ValueKind::Seq => of_list(value, name, args),
        // `cycle` without arguments would divide by zero.
        ValueKind::Map if name == "cycle" && args.is_empty() => fail("cycle takes values"),
        ValueKind::Map => value.call_method(state, name, args),
        ValueKind::Number if name == "is_integer" => {
            Ok(Value::from(float(value).is_some_and(|number| number.fract() == 0.0)))
        }
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    };
    result.map_err(|error| match error.kind() {
        ErrorKind::UnknownMethod => {
            Error::new(ErrorKind::UnknownMethod, format!("a {} has no method `{name}`", type_name(value)))
        }
        _ => error,
    })
}

fn of_dict(dict: &Value, name: &str, args: &[Value]) -> Result<Value> {
    if name == "get" {
        let [Some(key), default] = bind(name, args, ["key", "default"])? else {
            return fail("get needs a key");
        };
        return Ok(get(dict, &key)?.or(default).unwrap_or(Value::from(())));
    }
    let [] = bind(name, args, [])?;
    match name {
        "items" => Ok(pairs(dict)?.into_iter().map(Value::from).collect()),
        "keys" => Ok(pairs(dict)?.into_iter().map(|(key, _)| key).collect()),
        "values" => Ok(pairs(dict)?.into_iter().map(|(_, value)| value).collect()),
        "copy" => Ok(dict.clone()),
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn of_list(list: &Value, name: &str, args: &[Value]) -> Result<Value> {
    let wanted = match name {
        "copy" => return Ok(list.clone()),
        "count" | "index" => bind(name, args, ["value"])?,
        _ => return Err(Error::from(ErrorKind::UnknownMethod)),
    };
    let [Some(wanted)] = wanted else { return fail(format!("{name} needs a value")) };
    let mut count = 0;
    for (index, item) in items(list)?.iter().enumerate() {
        if operators::equal(item, &wanted)? {
            if name == "index" {
                return Ok(Value::from(index));
            }
            count += 1;
        }
    }
    if name == "index" { fail("index: the value is not in the list") } else { Ok(Value::from(count)) }
}

fn of_text(state: &mut State<'_, '_>, text: &Value, name: &str, args: &[Value]) -> Result<Value> {
    let value = text.as_str().unwrap_or_default();
    // Some look at the ends alone, some search, and the others take characters one by one.
    match name {
        "startswith" | "endswith" | "find" | "rfind" | "index" | "rindex" | "count" => {
            budget::scan(value.len())?;
        }
        _ => budget::chars(value.len())?,
    }
    let needed = |text: Option<Value>| match text_of(name, text.as_ref())? {
        Some(text) => Ok(text.to_owned()),
        None => fail(format!("{name} needs a text")),
    };
    match name {
        "strip" | "lstrip" | "rstrip" => {
            let [chars] = bind(name, args, ["chars"])?;
            let chars = text_of(name, chars.as_ref())?;
            Ok(Value::from(text::strip(value, chars, name != "rstrip", name != "lstrip")))
        }
        "split" | "rsplit" => {
            let [separator, most] = bind(name, args, ["sep", "maxsplit"])?;
            let separator = text_of(name, separator.as_ref())?;
            if separator == Some("") {
                return fail(format!("{name}: the separator must not be empty"));
            }
            let most = usize::try_from(integer(name, most.as_ref())?.unwrap_or(-1)).unwrap_or(usize::MAX);
            list(text::split(value, separator, most, name == "rsplit"))
        }
        "splitlines" => {
            let [keepends] = bind(name, args, ["keepends"])?;
            list(text::lines(value, flag(keepends.as_ref())))
        }
        "startswith" | "endswith" | "find" | "rfind" | "index" | "rindex" | "count" => {
            let [part, start, end] = bind(name, args, ["sub", "start", "end"])?;
            let Some(part) = part else { return fail(format!("{name} needs a text")) };
            search(value, name, &part, integer(name, start.as_ref())?, integer(name, end.as_ref())?)
        }
        "replace" => {
            let [old, new, count] = bind(name, args, ["old", "new", "count"])?;
            replace(value, &needed(old)?, &needed(new)?, integer(name, count.as_ref())?)
        }
        "join" => {
            let [Some(parts)] = bind(name, args, ["iterable"])? else { return fail("join needs texts") };
            let parts = items(&parts)?;
            match parts.iter().find(|part| part.as_str().is_none()) {
                Some(part) => fail(format!("join takes texts, got {}", type_name(part))),
                None => join(&parts, value),
            }
        }
        "center" | "ljust" | "rjust" => {
            let [width, fill] = bind(name, args, ["width", "fillchar"])?;
            let fill = text_of(name, fill.as_ref())?.unwrap_or(" ");
            pad(value, name, length(name, width.as_ref(), 0)?, fill)
        }
        "zfill" => {
            let [width] = bind(name, args, ["width"])?;
            let (sign, digits) = value.split_at(usize::from(value.starts_with(['+', '-'])));
            let width = length(name, width.as_ref(), 0)?.saturating_sub(sign.len());
            Ok(Value::from(format!("{sign}{}", pad(digits, "rjust", width, "0")?)))
        }
        "partition" | "rpartition" | "removeprefix" | "removesuffix" => {
            let [part] = bind(name, args, ["sep"])?;
            let part = needed(part)?;
            let found = match name {
                "removeprefix" => return Ok(Value::from(value.strip_prefix(&*part).unwrap_or(value))),
                "removesuffix" => return Ok(Value::from(value.strip_suffix(&*part).unwrap_or(value))),
                _ if part.is_empty() => return fail(format!("{name}: the separator must not be empty")),
                "partition" => value.split_once(&*part),
                _ => value.rsplit_once(&*part),
            };
            let parts = match found {
                Some((before, after)) => [before, &part, after],
                None if name == "partition" => [value, "", ""],
                None => ["", "", value],
            };
            Ok(Value::from(Tuple::from(parts.map(Value::from))))
        }
        "expandtabs" => {
            let [size] = bind(name, args, ["tabsize"])?;
            expand_tabs(value, length(name, size.as_ref(), 8)?)
        }
        "format" => formatted(FormatStyle::StrFormat, value, args),
        "upper" | "lower" | "islower" | "isupper" | "isalnum" | "isalpha" | "isascii" | "isdigit"
        | "isnumeric" => unknown_method_callback(state, text, name, args),
        _ => {
            let [] = bind(name, args, [])?;
            let is_all = |is: fn(char) -> bool| Value::from(!value.is_empty() && value.chars().all(is));
            Ok(match name {
                "title" => Value::from(text::title(value)),
                "capitalize" => Value::from(text::capitalize(value)),
                "swapcase" => Value::from(text::swapcase(value)),
                "casefold" => Value::from(value.to_lowercase()),
                "istitle" => {
                    Value::from(text::title(value) == value && value.chars().any(char::is_alphabetic))
                }
                "isspace" => is_all(is_space),
                "isdecimal" => is_all(char::is_numeric),
                _ => return Err(Error::from(ErrorKind::UnknownMethod)),
            })
        }
    }
}

fn list(parts: Vec<&str>) -> Result<Value> {
    budget::elements(parts.len())?;
    Ok(Value::from(parts.into_iter().map(Value::from).collect::<Vec<_>>()))
}

/// The methods that search a string between two character positions.
fn search(value: &str, name: &str, part: &Value, start: Option<i64>, end: Option<i64>) -> Result<Value> {
    let inside = if start.is_none() && end.is_none() {
        Some((0, value))
    } else {
        let len = value.chars().count() as i64;
        let clamp = |bound: i64| if bound < 0 { bound.saturating_add(len).max(0) } else { bound };
        let (start, end) = (clamp(start.unwrap_or(0)), clamp(end.unwrap_or(len)).min(len));
        let byte =
            |index: i64| value.char_indices().nth(index as usize).map_or(value.len(), |(byte, _)| byte);
        (start <= end).then(|| (byte(start), &value[byte(start)..byte(end)]))
    };
    if name.ends_with("with") {
        let parts = if part.is_tuple() { items(part)? } else { vec![part.clone()] };
        let parts: Option<Vec<&str>> = parts.iter().map(Value::as_str).collect();
        let Some(parts) = parts else { return fail(format!("{name} takes a text or a tuple of texts")) };
        let is_match = |(_, inside): (usize, &str)| match name {
            "endswith" => parts.iter().any(|part| inside.ends_with(part)),
            _ => parts.iter().any(|part| inside.starts_with(part)),
        };
        return Ok(Value::from(inside.is_some_and(is_match)));
    }
    let Some(part) = part.as_str() else {
        return fail(format!("{name} takes a text, got {}", type_name(part)));
    };
    if name == "count" {
        let count = |(_, inside): (usize, &str)| inside.matches(part).count();
        return Ok(Value::from(inside.map_or(0, count)));
    }
    let found = inside.and_then(|(before, inside)| {
        let index = if name.starts_with('r') { inside.rfind(part) } else { inside.find(part) };
        Some(before + index?)
    });
    match found {
        Some(index) => Ok(Value::from(value[..index].chars().count())),
        None if name.ends_with("find") => Ok(Value::from(-1)),
        None => fail(format!("{name}: the text does not hold this part")),
    }
}

/// `str.replace`; a negative count replaces all.
pub(super) fn replace(value: &str, old: &str, new: &str, count: Option<i64>) -> Result<Value> {
    let most = usize::try_from(count.unwrap_or(-1)).unwrap_or(usize::MAX);
    let found = value.matches(old).count().min(most);
    budget::bytes(value.len().saturating_add(found.saturating_mul(new.len())))?;
    Ok(Value::from(value.replacen(old, new, most)))
}

pub(super) fn join(parts: &[Value], separator: &str) -> Result<Value> {
    let mut out = String::new();
    for (index, part) in parts.iter().enumerate() {
        push(&mut out, if index > 0 { separator } else { "" })?;
        match part.as_str() {
            Some(part) => push(&mut out, part)?,
            None => out.push_str(&super::print::str(part)?),
        }
    }
    Ok(Value::from(out))
}

/// Pads a string to a width in characters.
pub(super) fn pad(value: &str, method: &str, width: usize, fill: &str) -> Result<Value> {
    if fill.chars().count() != 1 {
        return fail("a field is filled with one character");
    }
    let missing = width.saturating_sub(value.chars().count());
    budget::bytes(value.len().saturating_add(missing.saturating_mul(fill.len())))?;
    let before = match method {
        "ljust" => 0,
        "rjust" => missing,
        _ => missing / 2 + (missing & width & 1),
    };
    Ok(Value::from([&fill.repeat(before), value, &fill.repeat(missing - before)].concat()))
}

fn expand_tabs(value: &str, size: usize) -> Result<Value> {
    let (mut out, mut column) = (String::new(), 0_usize);
    for char in value.chars() {
        if char == '\t' {
            let width = column.checked_rem(size).map_or(0, |used| size - used);
            push(&mut out, &spaces(width)?)?;
            column += width;
        } else {
            out.push(char);
            column = if "\n\r".contains(char) { 0 } else { column + 1 };
        }
    }
    Ok(Value::from(out))
}
