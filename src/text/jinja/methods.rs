//! The methods of Python's strings, lists and dicts. As in the sandbox of transformers, there are none that change a
//! list or dict. Other methods come from minijinja's `pycompat`.

use minijinja::value::{Tuple, ValueKind};
use minijinja::{ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::text::{self, Side};
use super::value::{
    Kind, Result, View, bind, fail, flag, get, integer, is_dict, items, length, must_be_defined, pairs,
    text as text_of, type_name,
};
use super::{budget, operators, print, printf};

/// Calls a method of a value.
pub(super) fn call(state: &mut State<'_, '_>, value: &Value, name: &str, args: &[Value]) -> Result<Value> {
    must_be_defined(value)?;
    args.iter().try_for_each(super::value::walk)?;
    match value.kind() {
        ValueKind::String => of_text(state, value, name, args),
        ValueKind::Map if is_dict(value) => of_dict(value, name, args),
        ValueKind::Seq if ["count", "index", "copy"].contains(&name) => of_list(value, name, args),
        // `cycle` without arguments would divide by zero.
        ValueKind::Map if name == "cycle" && args.is_empty() => fail("cycle takes values"),
        ValueKind::Map => {
            let result = value.call_method(state, name, args);
            result.map_err(|error| match error.kind() {
                ErrorKind::UnknownMethod => unknown(value, name),
                _ => error,
            })
        }
        _ if name == "is_integer" && super::value::float(value).is_some() => {
            Ok(Value::from(super::value::float(value).is_some_and(|number| number.fract() == 0.0)))
        }
        _ => Err(unknown(value, name)),
    }
}

fn unknown(value: &Value, name: &str) -> minijinja::Error {
    minijinja::Error::new(ErrorKind::UnknownMethod, format!("a {} has no method `{name}`", type_name(value)))
}

fn of_dict(dict: &Value, name: &str, args: &[Value]) -> Result<Value> {
    if name == "get" {
        let [key, default] = bind("get", args, ["key", "default"])?;
        let Some(key) = key else { return fail("get needs a key") };
        return Ok(get(dict, &key)?.or(default).unwrap_or(Value::from(())));
    }
    let [] = bind(name, args, [])?;
    let entries = pairs(dict)?.into_iter();
    match name {
        "items" => Ok(View::of(
            Kind::Items,
            entries.map(|(key, value)| Value::from(Tuple::from([key, value]))).collect(),
        )),
        "keys" => Ok(View::of(Kind::Keys, entries.map(|(key, _)| key).collect())),
        "values" => Ok(View::of(Kind::Values, entries.map(|(_, value)| value).collect())),
        "copy" => Ok(dict.clone()),
        _ => Err(unknown(dict, name)),
    }
}

fn of_list(list: &Value, name: &str, args: &[Value]) -> Result<Value> {
    if name == "copy" {
        return Ok(list.clone());
    }
    let [Some(wanted)] = bind(name, args, ["value"])? else { return fail(format!("{name} needs a value")) };
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
    budget::scan(value.len())?;
    let paid = |text: &str| budget::bytes(text.len()).map(|()| Value::from(text));
    match name {
        "strip" | "lstrip" | "rstrip" => {
            let [chars] = bind(name, args, ["chars"])?;
            paid(text::strip(value, text_of(name, chars.as_ref())?, name != "rstrip", name != "lstrip"))
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
            let (old, new) = (text_of(name, old.as_ref())?, text_of(name, new.as_ref())?);
            let (Some(old), Some(new)) = (old, new) else { return fail("replace takes two texts") };
            replace(value, old, new, integer(name, count.as_ref())?)
        }
        "join" => {
            let [Some(parts)] = bind(name, args, ["iterable"])? else { return fail("join needs texts") };
            let parts = items(&parts)?;
            match parts.iter().find(|part| part.as_str().is_none()) {
                Some(part) => fail(format!("join takes texts, got {}", type_name(part))),
                None => join(&parts, value),
            }
        }
        "center" | "ljust" | "rjust" | "zfill" => {
            let [width, fill] = bind(name, args, ["width", "fillchar"])?;
            let width = length(name, width.as_ref(), 0)?;
            let fill = text_of(name, fill.as_ref())?.unwrap_or(if name == "zfill" { "0" } else { " " });
            let sign = usize::from(name == "zfill" && value.starts_with(['+', '-']));
            let side = match name {
                "center" => Side::Center,
                "ljust" => Side::Left,
                _ => Side::Right,
            };
            Ok(Value::from(
                value[..sign].to_owned() + &padded(&value[sign..], width.saturating_sub(sign), fill, side)?,
            ))
        }
        "partition" | "rpartition" | "removeprefix" | "removesuffix" => {
            let [part] = bind(name, args, ["sep"])?;
            let Some(part) = text_of(name, part.as_ref())? else {
                return fail(format!("{name} needs a text"));
            };
            let found = match name {
                "removeprefix" => return paid(value.strip_prefix(part).unwrap_or(value)),
                "removesuffix" => return paid(value.strip_suffix(part).unwrap_or(value)),
                _ if part.is_empty() => return fail(format!("{name}: the separator must not be empty")),
                "partition" => value.split_once(part),
                _ => value.rsplit_once(part),
            };
            let parts = match found {
                Some((before, after)) => [before, part, after],
                None if name == "partition" => [value, "", ""],
                None => ["", "", value],
            };
            budget::bytes(value.len())?;
            Ok(Value::from(Tuple::from(parts.map(Value::from))))
        }
        "expandtabs" => {
            let [size] = bind(name, args, ["tabsize"])?;
            expand_tabs(value, length(name, size.as_ref(), 8)?)
        }
        "format" => printf::str_format(value, args),
        "title" | "capitalize" | "swapcase" | "istitle" | "isspace" | "casefold" | "isdecimal" => {
            let [] = bind(name, args, [])?;
            Ok(match name {
                "title" => Value::from(text::title(value)),
                "capitalize" => Value::from(text::capitalize(value)),
                "swapcase" => Value::from(text::swapcase(value)),
                "istitle" => {
                    Value::from(text::title(value) == value && value.chars().any(char::is_alphabetic))
                }
                "isspace" => Value::from(!value.is_empty() && value.chars().all(text::is_space)),
                "casefold" => Value::from(value.to_lowercase()),
                _ => Value::from(!value.is_empty() && value.chars().all(char::is_numeric)),
            })
        }
        "upper" | "lower" | "islower" | "isupper" | "isalnum" | "isalpha" | "isascii" | "isdigit"
        | "isnumeric" => {
            budget::bytes(value.len())?;
            unknown_method_callback(state, text, name, args)
        }
        _ => Err(unknown(text, name)),
    }
}

fn list(parts: Vec<&str>) -> Result<Value> {
    budget::elements(parts.len())?;
    budget::bytes(parts.iter().map(|part| part.len()).sum())?;
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
        let mut found = false;
        for part in &parts {
            let Some(part) = part.as_str() else {
                return fail(format!("{name} takes a text or a tuple of texts"));
            };
            let is_match =
                |text: &str| if name == "endswith" { text.ends_with(part) } else { text.starts_with(part) };
            found = found || inside.is_some_and(|(_, inside)| is_match(inside));
        }
        return Ok(Value::from(found));
    }
    let Some(part) = part.as_str() else {
        return fail(format!("{name} takes a text, got {}", type_name(part)));
    };
    if name == "count" {
        let count = |inside: &str| match part {
            "" => inside.chars().count() + 1,
            _ => inside.matches(part).count(),
        };
        return Ok(Value::from(inside.map_or(0, |(_, inside)| count(inside))));
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
    budget::scan(value.len())?;
    let found = if old.is_empty() { value.chars().count() + 1 } else { value.matches(old).count() };
    budget::bytes(value.len().saturating_add(found.min(most).saturating_mul(new.len())))?;
    Ok(Value::from(value.replacen(old, new, most)))
}

pub(super) fn join(parts: &[Value], separator: &str) -> Result<Value> {
    let mut out = String::new();
    for (index, part) in parts.iter().enumerate() {
        print::push(&mut out, if index > 0 { separator } else { "" })?;
        match part.as_str() {
            Some(part) => print::push(&mut out, part)?,
            None => out.push_str(&print::str(part)?),
        }
    }
    Ok(Value::from(out))
}

/// Pads a string to a width in characters.
pub(super) fn padded(value: &str, width: usize, fill: &str, side: Side) -> Result<String> {
    let mut chars = fill.chars();
    let (Some(char), None) = (chars.next(), chars.next()) else {
        return fail("a field is filled with one character");
    };
    budget::bytes(value.len().saturating_add(width.saturating_mul(char.len_utf8())))?;
    Ok(text::pad(value, width, char, side))
}

fn expand_tabs(value: &str, size: usize) -> Result<Value> {
    let (mut out, mut column) = (String::new(), 0_usize);
    for char in value.chars() {
        if char == '\t' {
            let width = column.checked_rem(size).map_or(0, |used| size - used);
            print::push(&mut out, &print::spaces(width)?)?;
            column += width;
        } else {
            out.push(char);
            column = if "\n\r".contains(char) { 0 } else { column + 1 };
        }
    }
    budget::bytes(value.len())?;
    Ok(Value::from(out))
}
