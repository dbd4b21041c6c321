//! The methods of Python's strings, lists and dicts. As in the sandbox of transformers, there are none that
//! change a list or dict. Some come from minijinja's `pycompat`.

use std::slice;

use minijinja::formatting::FormatStyle;
use minijinja::value::{Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::print::{formatted, str};
use super::text;
use super::value::{Result, bind, fail, float, integer, is_dict, items, most, pay, size, text_of, type_name};

/// Calls a method of a value.
pub(super) fn call(state: &mut State<'_, '_>, value: &Value, name: &str, args: &[Value]) -> Result<Value> {
    // To look for a text, or for its characters, takes longer than to read it.
    let mut bytes = if args.is_empty() { 0 } else { 2 * value.as_str().map_or(0, str::len) };
    for arg in args {
        bytes = bytes.saturating_add(size(arg)?.saturating_mul(8));
    }
    pay(state, bytes)?;
    let result = match value.kind() {
        ValueKind::Undefined => return fail("the value is undefined"),
        ValueKind::String => of_text(state, value, name, args),
        ValueKind::Map if is_dict(value) => of_dict(state, value, name, args),
        ValueKind::Seq | ValueKind::Iterable => of_list(value, name, args),
        ValueKind::Number if name == "is_integer" => {
            Ok(Value::from(float(value).is_some_and(|number| number.fract() == 0.0)))
        }
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    };
    let unknown = || {
        Err(Error::new(ErrorKind::UnknownMethod, format!("a {} has no method `{name}`", type_name(value))))
    };
    result.or_else(|error| if error.kind() == ErrorKind::UnknownMethod { unknown() } else { Err(error) })
}

fn of_dict(state: &mut State<'_, '_>, dict: &Value, name: &str, args: &[Value]) -> Result<Value> {
    match name {
        "copy" => from_args(args).map(|()| dict.clone()),
        _ => unknown_method_callback(state, dict, name, args),
    }
}

fn of_list(list: &Value, name: &str, args: &[Value]) -> Result<Value> {
    match name {
        "copy" => return from_args(args).map(|()| list.clone()),
        "count" | "index" => {}
        _ => return Err(Error::from(ErrorKind::UnknownMethod)),
    }
    let (wanted,): (&Value,) = from_args(args)?;
    let mut places = Vec::new();
    for (place, item) in items(list)?.iter().enumerate() {
        if item == wanted {
            places.push(place);
        }
    }
    match places.first() {
        _ if name == "count" => Ok(Value::from(places.len())),
        Some(place) => Ok(Value::from(*place)),
        None => fail("index: the value is not in the list"),
    }
}

fn of_text(state: &mut State<'_, '_>, value: &Value, name: &str, args: &[Value]) -> Result<Value> {
    let text = value.as_str().unwrap_or_default();
    match name {
        "strip" | "lstrip" | "rstrip" => {
            let [chars] = bind(name, args, ["chars"])?;
            let chars = text_of(name, &chars)?;
            Ok(Value::from(text::strip(text, chars, name != "rstrip", name != "lstrip")))
        }
        "split" | "rsplit" => {
            let [separator, limit] = bind(name, args, ["sep", "maxsplit"])?;
            let separator = text_of(name, &separator)?;
            if separator == Some("") {
                return fail(format!("{name}: the separator must not be empty"));
            }
            list(state, &text::split(text, separator, most(name, &limit)?, name == "rsplit"))
        }
        "splitlines" => {
            let [keepends] = bind(name, args, ["keepends"])?;
            list(state, &text::lines(text, keepends.is_true()))
        }
        "startswith" | "endswith" | "find" | "rfind" | "index" | "rindex" | "count" => {
            search(state, text, name, args)
        }
        "replace" => {
            let [old, new, count] = bind(name, args, ["old", "new", "count"])?;
            if new.is_none() && args.len() < 2 {
                return fail("replace takes two texts");
            }
            let (old, new, most) = (&*str(state, &old)?, &*str(state, &new)?, most(name, &count)?);
            let found = text.matches(old).count().min(most);
            pay(state, found.saturating_mul(new.len() + 16))?;
            Ok(Value::from(text.replacen(old, new, most)))
        }
        "join" => {
            let (parts,): (&Value,) = from_args(args)?;
            let parts = items(parts)?;
            if let Some(part) = parts.iter().find(|part| part.as_str().is_none()) {
                return fail(format!("join takes texts, got {}", type_name(part)));
            }
            let parts: Vec<&str> = parts.iter().filter_map(Value::as_str).collect();
            let bytes = parts.iter().map(|part| part.len() + text.len()).fold(0, usize::saturating_add);
            pay(state, bytes)?;
            Ok(Value::from(parts.join(text)))
        }
        "center" | "ljust" | "rjust" => {
            let [width, fill] = bind(name, args, ["width", "fillchar"])?;
            let fill = text_of(name, &fill)?.unwrap_or(" ");
            // Jinja's filter has a default width.
            pad(state, text, name, integer(name, &width)?.unwrap_or(80), fill)
        }
        "zfill" => {
            let (width,): (i64,) = from_args(args)?;
            let (sign, digits) = text.split_at(usize::from(text.starts_with(['+', '-'])));
            let digits = pad(state, digits, "rjust", width.saturating_sub(sign.len() as i64), "0")?;
            Ok(Value::from(format!("{sign}{digits}")))
        }
        "removeprefix" | "removesuffix" => {
            let (part,): (&str,) = from_args(args)?;
            let rest = if name == "removeprefix" { text.strip_prefix(part) } else { text.strip_suffix(part) };
            Ok(Value::from(rest.unwrap_or(text)))
        }
        "partition" | "rpartition" => {
            let (part,): (&str,) = from_args(args)?;
            if part.is_empty() {
                return fail(format!("{name}: the separator must not be empty"));
            }
            let parts = match text::split(text, Some(part), 1, name == "rpartition")[..] {
                [before, after] => [before, part, after],
                _ if name == "partition" => [text, "", ""],
                _ => ["", "", text],
            };
            Ok(Value::from(Tuple::from(parts.map(Value::from))))
        }
        "format" => formatted(state, FormatStyle::StrFormat, text, args),
        "title" => from_args::<()>(args).and_then(|()| text::title(state, text)),
        "isspace" => Ok(Value::from(!text.is_empty() && text.chars().all(text::is_space))),
        _ => unknown_method_callback(state, value, name, args),
    }
}

fn list(state: &State<'_, '_>, parts: &[&str]) -> Result<Value> {
    pay(state, parts.len().saturating_mul(size_of::<Value>()))?;
    Ok(parts.iter().copied().map(Value::from).collect())
}

/// The methods that search a string, or the part of it between two places.
fn search(state: &mut State<'_, '_>, text: &str, name: &str, args: &[Value]) -> Result<Value> {
    let (wanted, start, stop): (&Value, Option<i64>, Option<i64>) = from_args(args)?;
    if wanted.kind() == ValueKind::Seq && !wanted.is_tuple() {
        return fail(format!("{name} takes a text or a tuple of texts"));
    }
    let chars = if args.len() > 1 { text.chars().count() } else { 0 };
    let place = |bound: i64| {
        let from_end = usize::try_from(bound.unsigned_abs()).unwrap_or(usize::MAX);
        if bound < 0 { chars.saturating_sub(from_end) } else { chars.min(from_end) }
    };
    let byte = |place: usize| text.char_indices().nth(place).map_or(text.len(), |(at, _)| at);
    let start = start.map_or(0, place);
    let (from, to) = (byte(start), stop.map_or(text.len(), |stop| byte(place(stop))));
    let inside = Value::from(&text[from..to.max(from)]);
    let method = name.strip_suffix("index").map(|side| format!("{side}find"));
    let found =
        unknown_method_callback(state, &inside, method.as_deref().unwrap_or(name), slice::from_ref(wanted))?;
    match found.as_i64().filter(|_| method.is_some() || name.ends_with("find")) {
        Some(-1) if method.is_some() => fail(format!("{name}: the text does not hold this part")),
        Some(at @ 0..) => Ok(Value::from(at + start as i64)),
        _ => Ok(found),
    }
}

/// Pads a string to a width in characters.
fn pad(state: &State<'_, '_>, text: &str, method: &str, width: i64, fill: &str) -> Result<Value> {
    if fill.chars().count() != 1 {
        return fail("a field is filled with one character");
    }
    let width = usize::try_from(width).unwrap_or(0);
    let missing = width.saturating_sub(text.chars().count());
    pay(state, missing.saturating_mul(fill.len()))?;
    let before = match method {
        "ljust" => 0,
        "rjust" => missing,
        _ => missing / 2 + (missing & width & 1),
    };
    Ok(Value::from([&fill.repeat(before), text, &fill.repeat(missing - before)].concat()))
}
