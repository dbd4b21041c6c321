//! `"%s" % value` and `"{}".format(value)`: Python's formatting, field by field with minijinja's.

use minijinja::Value;
use minijinja::formatting::{FormatStyle, format as native};
use minijinja::value::{Kwargs, from_args};

use super::print;
use super::value::{Result, fail, float, get, is_dict, items, type_name};
use super::{budget, operators};

const MAX_FLAGS: usize = 40;

/// `format % values`.
pub(super) fn format(format: &str, values: &Value) -> Result<Value> {
    let mut rest = if values.is_tuple() { items(values)? } else { vec![values.clone()] }.into_iter();
    let mut is_named = false;
    let mut out = String::new();
    let mut left = format;
    while let Some(start) = left.find('%') {
        print::push(&mut out, &left[..start])?;
        left = &left[start + 1..];
        let end = left.find(|char: char| char.is_ascii_alphabetic() && !"hlL".contains(char) || char == '%');
        let name = left.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        let (name, flags) = match name {
            Some((name, rest)) => (Some(name), rest),
            None => (None, left),
        };
        let end = if name.is_some() { flags.find(|char: char| char.is_ascii_alphabetic()) } else { end };
        let Some(end) = end else { return fail("`%` has no kind after it") };
        let kind = &flags[end..=end];
        left = &flags[end + 1..];
        let mut flags = flags[..end].replace(['h', 'l', 'L'], "");
        if flags.len() > MAX_FLAGS {
            return fail(format!("`%` may have at most {MAX_FLAGS} flags and digits"));
        }
        while flags.contains('*') {
            let number = rest.next().and_then(|value| super::value::int(&value));
            let Some(number) = number else { return fail("`*` takes a whole number") };
            flags = flags.replacen('*', &number.to_string(), 1);
        }
        if kind == "%" {
            print::push(&mut out, "%")?;
            continue;
        }
        let value = match name {
            Some(name) if is_dict(values) => {
                is_named = true;
                get(values, &Value::from(name))?
            }
            Some(_) => return fail("`%(name)s` takes a dict"),
            None => rest.next(),
        };
        let Some(value) = value else { return fail("`%` has fewer values than conversions") };
        let (kind, value) = match kind {
            "s" => ("s", Value::from(print::str(&value)?)),
            "r" | "a" => ("s", Value::from(print::repr(&value)?)),
            "c" => ("c", value),
            "u" | "i" => ("d", value),
            _ if float(&value).is_none() => {
                return fail(format!("`%{kind}` takes a number, got {}", type_name(&value)));
            }
            kind => (kind, value),
        };
        pay(&flags)?;
        print::push(&mut out, &native(FormatStyle::Printf, &format!("%{flags}{kind}"), &[value])?)?;
    }
    print::push(&mut out, left)?;
    let is_mapping = is_named || (!values.is_tuple() && values.as_object().is_some());
    if rest.next().is_some() && !is_mapping {
        return fail("`%` has more values than conversions");
    }
    Ok(Value::from(out))
}

/// Charges for the widths and precisions in flags.
fn pay(flags: &str) -> Result<()> {
    let numbers = flags.split(|char: char| !char.is_ascii_digit()).filter(|digits| !digits.is_empty());
    numbers.into_iter().try_for_each(|digits| budget::bytes(digits.parse().unwrap_or(usize::MAX)))
}

/// `text.format(...)`
pub(super) fn str_format(text: &str, args: &[Value]) -> Result<Value> {
    let mut out = String::new();
    fill(text, args, &mut 0, true, &mut out)?;
    Ok(Value::from(out))
}

fn fill(text: &str, args: &[Value], automatic: &mut usize, may_nest: bool, out: &mut String) -> Result<()> {
    let mut rest = text;
    while let Some(start) = rest.find(['{', '}']) {
        print::push(out, &rest[..start])?;
        let (sign, after) = rest[start..].split_at(1);
        if let Some(after) = after.strip_prefix(sign) {
            print::push(out, sign)?;
            rest = after;
            continue;
        }
        let mut depth = 1;
        let end = after.find(|char| {
            depth += i32::from(char == '{') - i32::from(char == '}');
            depth == 0
        });
        let Some(end) = end.filter(|_| sign == "{") else {
            return fail(format!("format: a single `{sign}`"));
        };
        let (field, spec) = after[..end].split_once(':').unwrap_or((&after[..end], ""));
        let (name, conversion) = field.split_once('!').unwrap_or((field, ""));
        let value = find(name, args, automatic)?;
        let mut filled = String::new();
        if !may_nest && spec.contains('{') {
            return fail("format: fields are nested too deep");
        }
        fill(spec, args, automatic, false, &mut filled)?;
        print::push(out, &formatted(&value, conversion, &filled)?)?;
        rest = &after[end + 1..];
    }
    print::push(out, rest)
}

/// The value of a field name such as `0`, `x.y` or `x[key]`.
fn find(name: &str, args: &[Value], automatic: &mut usize) -> Result<Value> {
    let (positional, keywords) = from_args::<(&[Value], Kwargs)>(args)?;
    let end = name.find(['.', '[']).unwrap_or(name.len());
    let first = &name[..end];
    let index = if first.is_empty() { Some(*automatic) } else { first.parse().ok() };
    *automatic += usize::from(first.is_empty());
    let found = match index {
        Some(index) => positional.get(index).cloned(),
        None if keywords.has(first) => Some(keywords.get(first)?),
        None => None,
    };
    let Some(mut value) = found else { return fail(format!("format: there is no value `{first}`")) };
    for part in name[end..].split(['.', '[']).skip(1) {
        let key = part.trim_end_matches(']');
        let key = key.parse::<i64>().map_or_else(|_| Value::from(key), Value::from);
        value = operators::item(&value, &key)?;
    }
    super::value::must_be_defined(&value)?;
    Ok(value)
}

/// Formats a value by a conversion and a format spec.
fn formatted(value: &Value, conversion: &str, spec: &str) -> Result<String> {
    let value = match conversion {
        "r" | "a" => Value::from(print::repr(value)?),
        "" if float(value).is_some() && !spec.is_empty() => value.clone(),
        "" | "s" => Value::from(print::str(value)?),
        other => return fail(format!("format: there is no `!{other}`")),
    };
    if spec.is_empty() {
        return print::str(&value);
    }
    pay(spec)?;
    if let (Some(spec), Some(number)) = (spec.strip_suffix('%'), float(&value)) {
        let spec = if spec.contains('.') { spec.to_owned() } else { format!("{spec}.6") };
        return Ok(
            native(FormatStyle::StrFormat, &format!("{{:{spec}f}}"), &[Value::from(number * 100.0)])? + "%"
        );
    }
    native(FormatStyle::StrFormat, &format!("{{:{spec}}}"), &[value])
}
