//! Jinja's tests.

use std::slice;

use minijinja::value::{Rest, ValueKind};
use minijinja::{Environment, Value};

use super::operators::{arithmetic, compares};
use super::value::{Result, fail, is_dict, is_instance, walk};
use super::{budget, filters, native, print};

/// The tests implemented here.
pub(super) const OWN: &str = "\
    != < <= == > >= callable divisibleby eq equalto even filter ge greaterthan gt in iterable le lessthan lower lt \
    mapping ne odd sequence test upper";
/// The tests of minijinja. They look at no contents, except for `sameas`.
pub(super) const NATIVE: &str =
    "boolean defined escaped false float integer none number sameas string true undefined";

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    OWN.split(' ').chain(NATIVE.split(' '))
}

pub(super) fn add_to(env: &mut Environment<'_>) {
    for name in names() {
        env.add_test(name, move |value: Value, args: Rest<Value>| run(name, &value, &args));
    }
}

fn run(name: &str, value: &Value, args: &[Value]) -> Result<bool> {
    let kind = value.kind();
    let is_multiple = |of: &Value| arithmetic(value, "%", of).map(|rest| !rest.is_true());
    Ok(match (name, args) {
        ("eq" | "equalto" | "==", [other]) => compares(value, "==", other)?,
        ("ne" | "!=", [other]) => compares(value, "!=", other)?,
        ("lt" | "lessthan" | "<", [other]) => compares(value, "<", other)?,
        ("le" | "<=", [other]) => compares(value, "<=", other)?,
        ("gt" | "greaterthan" | ">", [other]) => compares(value, ">", other)?,
        ("ge" | ">=", [other]) => compares(value, ">=", other)?,
        ("in", [other]) => compares(value, "in", other)?,
        ("divisibleby", [of]) => is_multiple(of)?,
        ("even", []) => is_multiple(&Value::from(2))?,
        ("odd", []) => !is_multiple(&Value::from(2))?,
        ("callable", []) => {
            let is_macro = || is_instance(value, "::Macro") || is_instance(value, "::Loop");
            value.is_undefined() || kind == ValueKind::Plain || is_macro()
        }
        ("filter", []) => value.as_str().is_some_and(|name| filters::names().any(|filter| filter == name)),
        ("iterable", []) => {
            ![ValueKind::None, ValueKind::Bool, ValueKind::Number, ValueKind::Plain].contains(&kind)
        }
        ("lower" | "upper", []) => {
            let text = print::text(value)?;
            budget::chars(text.as_str().map_or(0, str::len))?;
            native::test(name, &[text])?
        }
        ("mapping", []) => is_dict(value),
        ("sequence", []) => {
            is_dict(value) || [ValueKind::Seq, ValueKind::String, ValueKind::Undefined].contains(&kind)
        }
        ("test", []) => value.as_str().is_some_and(|name| names().any(|test| test == name)),
        ("sameas", [other]) => {
            walk(other)?;
            native::test(name, &[value.clone(), other.clone()])?
        }
        (_, []) if NATIVE.split(' ').any(|test| test == name) => native::test(name, slice::from_ref(value))?,
        _ => {
            return fail(format!(
                "the test {name} takes {} arguments",
                if args.is_empty() { "more" } else { "fewer" }
            ));
        }
    })
}
