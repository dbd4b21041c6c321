//! The methods of Python's texts, lists and dicts. Those that change a list or dict do not exist, as in the sandbox of
//! transformers.

use super::arguments::{Arguments, flag, integer, text};
use super::budget::Budget;
use super::failure::{Failure, Result};
use super::interpreter::Interpreter;
use super::text::{self as strings, Side};
use super::value::{Dict, SeqKind, Value};
use super::{operators, strformat};

const STR: [&str; 40] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "islower",
    "isnumeric",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "upper",
];
const DICT: [&str; 5] = ["copy", "get", "items", "keys", "values"];
const LIST: [&str; 3] = ["copy", "count", "index"];

/// Whether a value has a method of this name.
pub(super) fn exists(value: &Value, name: &str) -> bool {
    match value {
        Value::Str(_) => STR.binary_search(&name).is_ok() || name == "zfill",
        Value::Dict(_) => DICT.contains(&name),
        Value::Seq(seq) if seq.kind == SeqKind::List => LIST.contains(&name),
        Value::Seq(seq) if !seq.kind.is_view() => LIST[1..].contains(&name),
        Value::Float(_) => name == "is_integer",
        _ => false,
    }
}

/// Calls a method that exists.
pub(super) fn call(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    name: &str,
    arguments: &Arguments,
) -> Result<Value> {
    match value {
        Value::Str(value) if name == "format" => strformat::format(interpreter, value, arguments),
        Value::Str(value) => {
            // All of them look at the whole text; what they make is paid for when it is a value.
            interpreter.budget.scan(value.len())?;
            call_str(interpreter, value, name, arguments)
        }
        Value::Dict(dict) => call_dict(&interpreter.budget, dict, name, arguments),
        Value::Seq(seq) if name == "copy" => {
            interpreter.budget.charge_elements(seq.items.len())?;
            Ok(value.clone())
        }
        Value::Seq(seq) => call_list(&interpreter.budget, &seq.items, name, arguments),
        Value::Float(value) => Ok(Value::Bool(value.fract() == 0.0)),
        _ => Err(Failure::new(format!("a {} has no method `{name}`", value.type_name()))),
    }
}

fn call_dict(budget: &Budget, dict: &Dict, name: &str, arguments: &Arguments) -> Result<Value> {
    if name == "get" {
        let [key, default] = arguments.bind("get", ["key", "default"])?;
        let key = key.ok_or_else(|| Failure::new("get needs a key"))?;
        super::value::must_be_hashable(&key, budget)?;
        let found = dict.get(budget, &key)?.cloned();
        return Ok(found.or(default).unwrap_or(Value::None));
    }
    let [] = arguments.bind(name, [])?;
    budget.charge_elements(2 * dict.entries.len())?;
    let entries = dict.entries.iter();
    match name {
        "items" => {
            let pairs =
                entries.map(|(key, value)| budget.seq(SeqKind::Tuple, vec![key.clone(), value.clone()]));
            budget.seq(SeqKind::Items, pairs.collect::<Result<_>>()?)
        }
        "keys" => budget.seq(SeqKind::Keys, entries.map(|(key, _)| key.clone()).collect()),
        "values" => budget.seq(SeqKind::Values, entries.map(|(_, value)| value.clone()).collect()),
        _ => Ok(Value::Dict(dict.clone().into())),
    }
}

fn call_list(budget: &Budget, items: &[Value], name: &str, arguments: &Arguments) -> Result<Value> {
    let [wanted] = arguments.bind_all(name, ["value"])?;
    let mut count = 0;
    for (place, item) in items.iter().enumerate() {
        if item.equals(&wanted, budget)? {
            if name == "index" {
                return Ok(Value::Int(place as i128));
            }
            count += 1;
        }
    }
    if name == "index" {
        return Err(Failure::new("index: the value is not in the list"));
    }
    Ok(Value::Int(count))
}

fn call_str(
    interpreter: &mut Interpreter<'_>,
    value: &str,
    name: &str,
    arguments: &Arguments,
) -> Result<Value> {
    let budget = &interpreter.budget;
    let all = |is: fn(char) -> bool| Value::Bool(!value.is_empty() && value.chars().all(is));
    let no_arguments = || arguments.bind::<0>(name, []).map(|_| ());
    let list = |parts: Vec<&str>| {
        budget.list(parts.into_iter().map(|part| budget.text(part)).collect::<Result<_>>()?)
    };
    let one_text = |parameter: &'static str| {
        let [given] = arguments.bind_all(name, [parameter])?;
        text(name, Some(&given))?.ok_or_else(|| Failure::new(format!("{name} needs a text")))
    };
    match name {
        "strip" | "lstrip" | "rstrip" => {
            let [chars] = arguments.bind(name, ["chars"])?;
            let chars = text(name, chars.as_ref())?;
            budget.text(strings::strip(value, chars.as_deref(), name != "rstrip", name != "lstrip"))
        }
        "split" | "rsplit" => {
            let [separator, most] = arguments.bind(name, ["sep", "maxsplit"])?;
            let separator = text(name, separator.as_ref())?;
            if separator.as_deref() == Some("") {
                return Err(Failure::new(format!("{name}: the separator must not be empty")));
            }
            let most = integer(name, most.as_ref())?.unwrap_or(-1);
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            let parts = match &separator {
                Some(separator) => value.matches(&**separator).count(),
                None => value.chars().filter(|char| strings::is_space(*char)).count(),
            };
            budget.charge_elements(parts.min(most))?;
            list(strings::split(value, separator.as_deref(), most, name == "rsplit"))
        }
        "splitlines" => {
            let [keepends] = arguments.bind(name, ["keepends"])?;
            budget.charge_elements(value.chars().filter(|char| strings::is_line_end(*char)).count())?;
            let lines = strings::lines(value);
            if !flag(keepends.as_ref()) {
                return list(lines);
            }
            let starts: Vec<usize> =
                lines.iter().map(|line| line.as_ptr() as usize - value.as_ptr() as usize).collect();
            let ends = starts.iter().skip(1).copied().chain([value.len()]);
            list(starts.iter().zip(ends).map(|(&start, end)| &value[start..end]).collect())
        }
        "startswith" | "endswith" => {
            let [parts, start, end] = arguments.bind(name, ["prefix", "start", "end"])?;
            let value = within(value, name, start.as_ref(), end.as_ref())?;
            let Some(value) = value else { return Ok(Value::Bool(false)) };
            let matches =
                |part: &str| if name == "endswith" { value.ends_with(part) } else { value.starts_with(part) };
            match &parts {
                Some(Value::Str(part)) => Ok(Value::Bool(matches(part))),
                Some(Value::Seq(seq)) if seq.kind.is_tuple() => {
                    let mut any = false;
                    for part in &seq.items {
                        budget.charge_elements(1)?;
                        match part {
                            Value::Str(part) => any = any || matches(part),
                            _ => return Err(Failure::new(format!("{name} takes texts"))),
                        }
                    }
                    Ok(Value::Bool(any))
                }
                _ => Err(Failure::new(format!("{name} takes a text or a tuple of texts"))),
            }
        }
        "find" | "rfind" | "index" | "rindex" | "count" => {
            let [part, start, end] = arguments.bind(name, ["sub", "start", "end"])?;
            let part =
                text(name, part.as_ref())?.ok_or_else(|| Failure::new(format!("{name} needs a text")))?;
            let inside = within(value, name, start.as_ref(), end.as_ref())?;
            if name == "count" {
                let count = inside.map_or(0, |inside| {
                    if part.is_empty() { inside.chars().count() + 1 } else { inside.matches(&*part).count() }
                });
                return Ok(Value::Int(count as i128));
            }
            let found = inside.and_then(|inside| {
                let place = if name.starts_with('r') { inside.rfind(&*part) } else { inside.find(&*part) }?;
                Some(inside.as_ptr() as usize - value.as_ptr() as usize + place)
            });
            match found {
                Some(place) => Ok(Value::Int(value[..place].chars().count() as i128)),
                None if name.ends_with("find") => Ok(Value::Int(-1)),
                None => Err(Failure::new(format!("{name}: the text does not hold this part"))),
            }
        }
        "replace" => {
            let [old, new, count] = arguments.bind(name, ["old", "new", "count"])?;
            let (Some(Value::Str(old)), Some(Value::Str(new))) = (old, new) else {
                return Err(Failure::new("replace takes two texts"));
            };
            let count = integer(name, count.as_ref())?.unwrap_or(-1);
            replace(budget, value, &old, &new, count)
        }
        "join" => {
            let [parts] = arguments.bind_all(name, ["iterable"])?;
            let parts = interpreter.items(&parts)?;
            let mut out = String::new();
            for (index, part) in parts.items.iter().enumerate() {
                let Value::Str(part) = part else {
                    return Err(Failure::new(format!("join takes texts, got {}", part.type_name())));
                };
                if index > 0 {
                    budget.push(&mut out, value)?;
                }
                budget.push(&mut out, part)?;
            }
            Ok(Value::Str(out.into()))
        }
        "center" | "ljust" | "rjust" => {
            let [width, fill] = arguments.bind(name, ["width", "fillchar"])?;
            let width = integer(name, width.as_ref())?.unwrap_or(0).max(0) as usize;
            let fill = text(name, fill.as_ref())?.map_or(Some(' '), |fill| single(&fill));
            let fill = fill.ok_or_else(|| Failure::new(format!("{name} fills with one character")))?;
            let side = match name {
                "center" => Side::Center,
                "ljust" => Side::Left,
                _ => Side::Right,
            };
            padded(budget, value, width, fill, side)
        }
        "zfill" => {
            let [width] = arguments.bind_all(name, ["width"])?;
            let width = integer(name, Some(&width))?.unwrap_or(0).max(0) as usize;
            let sign = value.len() - value.trim_start_matches(['+', '-']).len();
            let (sign, digits) = value.split_at(sign.min(1));
            let digits = padded(budget, digits, width.saturating_sub(sign.len()), '0', Side::Right)?;
            operators::add(budget, &Value::str(sign), &digits)
        }
        "partition" | "rpartition" => {
            let separator = one_text("sep")?;
            if separator.is_empty() {
                return Err(Failure::new(format!("{name}: the separator must not be empty")));
            }
            let found = if name == "partition" { value.find(&*separator) } else { value.rfind(&*separator) };
            let parts = match found {
                Some(place) => [&value[..place], &*separator, &value[place + separator.len()..]],
                None if name == "partition" => [value, "", ""],
                None => ["", "", value],
            };
            let parts = parts.map(|part| budget.text(part));
            budget.seq(SeqKind::Tuple, parts.into_iter().collect::<Result<_>>()?)
        }
        "removeprefix" => {
            let prefix = one_text("prefix")?;
            budget.text(value.strip_prefix(&*prefix).unwrap_or(value))
        }
        "removesuffix" => {
            let suffix = one_text("suffix")?;
            budget.text(value.strip_suffix(&*suffix).unwrap_or(value))
        }
        "expandtabs" => {
            let [size] = arguments.bind(name, ["tabsize"])?;
            let size = integer(name, size.as_ref())?.unwrap_or(8).max(0) as usize;
            expand_tabs(budget, value, size)
        }
        _ => {
            no_arguments()?;
            match name {
                "upper" => budget.text(value.to_uppercase()),
                "lower" | "casefold" => budget.text(value.to_lowercase()),
                "title" => budget.text(strings::title(value)),
                "capitalize" => budget.text(strings::capitalize(value)),
                "swapcase" => budget.text(strings::swapcase(value)),
                "isalpha" => Ok(all(char::is_alphabetic)),
                "isalnum" => Ok(all(char::is_alphanumeric)),
                "isascii" => Ok(Value::Bool(value.is_ascii())),
                "isdigit" | "isdecimal" | "isnumeric" => Ok(all(char::is_numeric)),
                "isspace" => Ok(all(strings::is_space)),
                "islower" => Ok(Value::Bool(strings::is_case(value, false))),
                "isupper" => Ok(Value::Bool(strings::is_case(value, true))),
                _ => Ok(Value::Bool(strings::is_title(value))),
            }
        }
    }
}

/// The part of a text between two places, counted in characters; none when they are beyond it.
fn within<'a>(
    value: &'a str,
    callee: &str,
    start: Option<&Value>,
    end: Option<&Value>,
) -> Result<Option<&'a str>> {
    let (start, end) = (integer(callee, start)?, integer(callee, end)?);
    if start.is_none() && end.is_none() {
        return Ok(Some(value));
    }
    let len = value.chars().count() as i64;
    let place = |bound: i64| if bound < 0 { bound.saturating_add(len).max(0) } else { bound };
    let (start, end) = (place(start.unwrap_or(0)), place(end.unwrap_or(len)).min(len));
    if start > end {
        return Ok(None);
    }
    let byte = |place: i64| value.char_indices().nth(place as usize).map_or(value.len(), |(byte, _)| byte);
    Ok(Some(&value[byte(start)..byte(end)]))
}

/// `str.replace`; a negative count replaces all.
pub(super) fn replace(budget: &Budget, value: &str, old: &str, new: &str, count: i64) -> Result<Value> {
    let most = usize::try_from(count).unwrap_or(usize::MAX);
    budget.scan(value.len())?;
    let found = if old.is_empty() { value.chars().count() + 1 } else { value.matches(old).count() };
    budget.charge_bytes(value.len().saturating_add(found.min(most).saturating_mul(new.len())))?;
    Ok(Value::Str(value.replacen(old, new, most).into()))
}

/// A text in a field of so many characters.
pub(super) fn padded(budget: &Budget, value: &str, width: usize, fill: char, side: Side) -> Result<Value> {
    budget.charge_bytes(width.saturating_mul(fill.len_utf8()))?;
    budget.text(strings::pad(value, width, fill, side))
}

fn expand_tabs(budget: &Budget, value: &str, size: usize) -> Result<Value> {
    let (mut out, mut column) = (String::new(), 0_usize);
    budget.charge_bytes(value.len())?;
    for char in value.chars() {
        match char {
            '\t' => {
                let width = column.checked_rem(size).map_or(0, |used| size - used);
                budget.charge_bytes(width)?;
                out.extend(std::iter::repeat_n(' ', width));
                column = column.saturating_add(width);
            }
            '\n' | '\r' => {
                out.push(char);
                column = 0;
            }
            _ => {
                out.push(char);
                column += 1;
            }
        }
    }
    budget.text(out)
}

fn single(text: &str) -> Option<char> {
    let mut chars = text.chars();
    chars.next().filter(|_| chars.next().is_none())
}
