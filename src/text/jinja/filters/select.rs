//! Filters that take names: of tests, of other filters, of attributes.

use super::{apply, by_attribute};
use crate::text::jinja::arguments::{Arguments, flag};
use crate::text::jinja::checks::check;
use crate::text::jinja::failure::{Failure, Result};
use crate::text::jinja::interpreter::Interpreter;
use crate::text::jinja::value::Value;

pub(super) fn attr(interpreter: &mut Interpreter<'_>, value: &Value, arguments: &Arguments) -> Result<Value> {
    let [name] = arguments.bind_all("attr", ["name"])?;
    let Value::Str(name) = name else { return Err(Failure::new("attr takes a text")) };
    match interpreter.own_attribute(value, &name)? {
        Some(found) => Ok(found),
        None => interpreter.undefined(format!("a {} has no attribute `{name}`", value.type_name())),
    }
}

pub(super) fn default(_: &mut Interpreter<'_>, value: &Value, arguments: &Arguments) -> Result<Value> {
    let [default, boolean] = arguments.bind("default", ["default_value", "boolean"])?;
    let is_missing = value.is_undefined() || (flag(boolean.as_ref()) && !value.is_true());
    Ok(if is_missing { default.unwrap_or_else(|| Value::str("")) } else { value.clone() })
}

pub(super) fn map(interpreter: &mut Interpreter<'_>, value: &Value, arguments: &Arguments) -> Result<Value> {
    let items = interpreter.items(value)?;
    let mut out = Vec::with_capacity(items.items.len());
    if arguments.positional.is_empty() {
        let [attribute, default] = arguments.bind("map", ["attribute", "default"])?;
        let attribute = attribute.ok_or_else(|| Failure::new("map takes a filter or an `attribute`"))?;
        for item in &items.items {
            let found = by_attribute(interpreter, item, Some(&attribute))?;
            let is_missing = found.is_undefined();
            out.push(default.clone().filter(|_| is_missing).unwrap_or(found));
        }
    } else {
        let (name, rest) = named(arguments, 0)?;
        for item in &items.items {
            interpreter.budget.charge_elements(1)?;
            out.push(apply(interpreter, &name, item, &copy(&rest))?);
        }
    }
    interpreter.budget.list(out)
}

pub(super) fn select(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    arguments: &Arguments,
) -> Result<Value> {
    choose(interpreter, value, arguments, false, true)
}

pub(super) fn reject(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    arguments: &Arguments,
) -> Result<Value> {
    choose(interpreter, value, arguments, false, false)
}

pub(super) fn selectattr(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    arguments: &Arguments,
) -> Result<Value> {
    choose(interpreter, value, arguments, true, true)
}

pub(super) fn rejectattr(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    arguments: &Arguments,
) -> Result<Value> {
    choose(interpreter, value, arguments, true, false)
}

/// The items whose attribute, or that themselves, pass a test, or do not.
fn choose(
    interpreter: &mut Interpreter<'_>,
    value: &Value,
    arguments: &Arguments,
    by: bool,
    wanted: bool,
) -> Result<Value> {
    let attribute = if by { arguments.positional.first() } else { None };
    if by && attribute.is_none() {
        return Err(Failure::new("selectattr and rejectattr take the name of an attribute"));
    }
    let test = if arguments.positional.len() > usize::from(by) {
        Some(named(arguments, usize::from(by))?)
    } else {
        None
    };
    let items = interpreter.items(value)?;
    let mut out = Vec::new();
    for item in &items.items {
        interpreter.budget.charge_elements(1)?;
        let tested = by_attribute(interpreter, item, attribute)?;
        let passes = match &test {
            Some((name, rest)) => check(interpreter, name, &tested, rest)?,
            None => tested.is_true(),
        };
        if passes == wanted {
            out.push(item.clone());
        }
    }
    interpreter.budget.list(out)
}

/// The name at a place of the arguments, and the arguments after it.
fn named(arguments: &Arguments, place: usize) -> Result<(String, Arguments)> {
    let Some(Value::Str(name)) = arguments.positional.get(place) else {
        return Err(Failure::new("the name of a filter or test must be a text"));
    };
    let rest = Arguments {
        positional: arguments.positional[place + 1..].to_vec(),
        keywords: arguments.keywords.clone(),
    };
    Ok((name.to_string(), rest))
}

fn copy(arguments: &Arguments) -> Arguments {
    Arguments { positional: arguments.positional.clone(), keywords: arguments.keywords.clone() }
}
