//! The methods of Python's strings, lists and dicts. As in the sandbox of transformers, there are none that change a
//! list or dict. Some come from minijinja's `pycompat`.

use std::slice;

use minijinja::formatting::FormatStyle;
use minijinja::value::{Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::print::{formatted, join, str};
use super::value::{
    Result, bind, fail, float, integer, is_dict, items, most, must_be_hashable, text_of, type_name, walk_all,
};
use super::{budget, native, operators, text};

/// The methods of strings that copy or search.
pub(super) const COPYING: &str = "\
    center endswith find format index join ljust lstrip partition removeprefix removesuffix rfind rindex rjust \
    rpartition rstrip startswith strip zfill";
/// The methods of strings that read or change characters one by one.
pub(super) const CHANGING: &str = "\
    capitalize count isalnum isalpha isascii isdigit islower isnumeric isspace isupper lower replace rsplit split \
    splitlines title upper";

/// Calls a method of a value.
pub(super) fn call(state: &mut State<'_, '_>, value: &Value, name: &str, args: &[Value]) -> Result<Value> {
    // To look for a text takes longer than to read it.
    budget::steps(walk_all(args)? / 4)?;
    let result = match value.kind() {
        ValueKind::Undefined => return fail("the value is undefined"),
        ValueKind::String => of_text(state, value, name, args),
        ValueKind::Map if is_dict(value) => of_dict(state, value, name, args),
        ValueKind::Seq => of_list(value, name, args),
        // `cycle` without arguments would divide by zero.
        ValueKind::Map if name == "cycle" && args.is_empty() => fail("cycle takes values"),
        ValueKind::Map => value.call_method(state, name, args),
        ValueKind::Number if name == "is_integer" => {
            Ok(Value::from(float(value).is_some_and(|number| number.fract() == 0.0)))
        }
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    };
    let unknown = || fail(format!("a {} has no method `{name}`", type_name(value)));
    result.or_else(|error| if error.kind() == ErrorKind::UnknownMethod { unknown() } else { Err(error) })
}

fn of_dict(state: &mut State<'_, '_>, dict: &Value, name: &str, args: &[Value]) -> Result<Value> {
    match name {
        "copy" => return from_args(args).map(|()| dict.clone()),
        "get" => args.iter().take(1).try_for_each(must_be_hashable)?,
        _ => budget::elements(2 * dict.len().unwrap_or(0))?,
    }
    native::listed(unknown_method_callback(state, dict, name, args)?)
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
        if operators::equal(item, wanted)? {
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
        _ if CHANGING.split(' ').any(|method| method == name) => budget::chars(text.len())?,
        _ if COPYING.split(' ').any(|method| method == name) => budget::bytes(text.len())?,
        _ => return Err(Error::from(ErrorKind::UnknownMethod)),
    }
    match name {
        "strip" | "lstrip" | "rstrip" => {
            let [chars] = bind(name, args, ["chars"])?;
            let chars = text_of(name, &chars)?;
            if let Some(chars) = chars {
                budget::elements(chars.len())?;
                budget::chars(2 * text.len())?;
            }
            Ok(Value::from(text::strip(text, chars, name != "rstrip", name != "lstrip")))
        }
        "split" | "rsplit" => {
            let [separator, limit] = bind(name, args, ["sep", "maxsplit"])?;
            let separator = text_of(name, &separator)?;
            if separator == Some("") {
                return fail(format!("{name}: the separator must not be empty"));
            }
            list(text::split(text, separator, most(name, &limit)?, name == "rsplit"))
        }
        "splitlines" => {
            let [keepends] = bind(name, args, ["keepends"])?;
            list(text::lines(text, keepends.is_true()))
        }
        "startswith" | "endswith" | "find" | "rfind" | "index" | "rindex" | "count" => {
            search(state, value, name, args)
        }
        "replace" => {
            let [old, new, count] = bind(name, args, ["old", "new", "count"])?;
            if new.is_none() && args.len() < 2 {
                return fail("replace takes two texts");
            }
            let (old, new, most) = (&*str(&old)?, &*str(&new)?, most(name, &count)?);
            let found = text.matches(old).count().min(most);
            budget::elements(found)?;
            budget::bytes(found.saturating_mul(new.len()))?;
            Ok(Value::from(text.replacen(old, new, most)))
        }
        "join" => {
            let (parts,): (&Value,) = from_args(args)?;
            let parts = items(parts)?;
            match parts.iter().find(|part| part.as_str().is_none()) {
                Some(part) => fail(format!("join takes texts, got {}", type_name(part))),
                None => join(&parts, text),
            }
        }
        "center" | "ljust" | "rjust" => {
            let [width, fill] = bind(name, args, ["width", "fillchar"])?;
            let fill = text_of(name, &fill)?.unwrap_or(" ");
            // Jinja's filter has a default width.
            pad(text, name, integer(name, &width)?.unwrap_or(80), fill)
        }
        "zfill" => {
            let (width,): (i64,) = from_args(args)?;
            let (sign, digits) = text.split_at(usize::from(text.starts_with(['+', '-'])));
            let digits = pad(digits, "rjust", width.saturating_sub(sign.len() as i64), "0")?;
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
        "format" => formatted(FormatStyle::StrFormat, text, args),
        "title" => from_args::<()>(args).and_then(|()| text::title(text)),
        "isspace" => Ok(Value::from(!text.is_empty() && text.chars().all(text::is_space))),
        _ => unknown_method_callback(state, value, name, args),
    }
}

fn list(parts: Vec<&str>) -> Result<Value> {
    budget::elements(parts.len())?;
    Ok(parts.into_iter().map(Value::from).collect())
}

/// The methods that search a string, or the part of it between two places.
fn search(state: &mut State<'_, '_>, text: &Value, name: &str, args: &[Value]) -> Result<Value> {
    let (part, start, _): (&Value, Option<i64>, Option<i64>) = from_args(args)?;
    if part.kind() == ValueKind::Seq && !part.is_tuple() {
        return fail(format!("{name} takes a text or a tuple of texts"));
    }
    let inside = if args.len() > 1 { operators::slice(text, &args[1..])? } else { text.clone() };
    let method = name.strip_suffix("index").map(|side| format!("{side}find"));
    let found =
        unknown_method_callback(state, &inside, method.as_deref().unwrap_or(name), slice::from_ref(part))?;
    match found.as_i64().filter(|_| method.is_some() || name.ends_with("find")) {
        Some(-1) if method.is_some() => fail(format!("{name}: the text does not hold this part")),
        Some(place @ 0..) if start.is_some() => {
            let rest = operators::slice(text, &args[1..2])?;
            Ok(Value::from(place + text.len().unwrap_or(0) as i64 - rest.len().unwrap_or(0) as i64))
        }
        _ => Ok(found),
    }
}

/// Pads a string to a width in characters.
fn pad(text: &str, method: &str, width: i64, fill: &str) -> Result<Value> {
    if fill.chars().count() != 1 {
        return fail("a field is filled with one character");
    }
    let width = usize::try_from(width).unwrap_or(0);
    let missing = width.saturating_sub(text.chars().count());
    budget::bytes(missing.saturating_mul(fill.len()))?;
    let before = match method {
        "ljust" => 0,
        "rjust" => missing,
        _ => missing / 2 + (missing & width & 1),
    };
    Ok(Value::from([&fill.repeat(before), text, &fill.repeat(missing - before)].concat()))
}
