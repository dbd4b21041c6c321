//! Jinja's tests.

use minijinja::value::{Rest, ValueKind};
use minijinja::{Environment, State, Value, tests as native};

use super::value::{Result, fail, float, is_dict, is_instance, type_name};
use super::{methods, operators, print};

pub(super) const NAMES: &str = "\
    != < <= == > >= boolean callable defined divisibleby eq equalto escaped even false filter float ge greaterthan \
    gt in integer iterable le lessthan lower lt mapping ne none number odd sameas sequence string test true \
    undefined upper";

pub(super) fn add_to(env: &mut Environment<'_>) {
    for name in NAMES.split(' ') {
        env.add_test(name, move |state: &mut State<'_, '_>, value: Value, args: Rest<Value>| {
            match args.as_slice() {
                [] => alone(state, name, &value),
                [other] => against(name, &value, other),
                _ => fail(format!("{name} takes at most one argument")),
            }
        });
    }
}

/// The tests with an argument.
fn against(name: &str, value: &Value, other: &Value) -> Result<bool> {
    let operator = match name {
        "eq" | "equalto" => "==",
        "ne" => "!=",
        "lt" | "lessthan" => "<",
        "le" => "<=",
        "gt" | "greaterthan" => ">",
        "ge" => ">=",
        "!=" | "<" | "<=" | "==" | ">" | ">=" | "in" => name,
        "divisibleby" => return is_multiple(value, other.clone()),
        "sameas" => {
            return match (value.as_object(), other.as_object()) {
                (Some(_), Some(_)) => Ok(native::is_sameas(value, other)),
                _ => Ok(type_name(value) == type_name(other) && operators::equal(value, other)?),
            };
        }
        _ => return fail(format!("{name} takes no argument")),
    };
    operators::compares(value, operator, other)
}

fn is_multiple(value: &Value, of: Value) -> Result<bool> {
    Ok(!operators::operate(value, &[Value::from("%"), of])?.is_true())
}

/// The tests without an argument.
fn alone(state: &mut State<'_, '_>, name: &str, value: &Value) -> Result<bool> {
    let kind = value.kind();
    Ok(match name {
        "boolean" => kind == ValueKind::Bool,
        "callable" => {
            let is_macro = || is_instance(value, "::Macro") || is_instance(value, "::Loop");
            value.is_undefined() || kind == ValueKind::Plain || is_macro()
        }
        "defined" => !value.is_undefined(),
        "escaped" => false,
        "even" => is_multiple(value, Value::from(2))?,
        "false" => kind == ValueKind::Bool && !value.is_true(),
        "filter" => {
            value.as_str().is_some_and(|name| !name.starts_with('_') && native::is_filter(state, name))
        }
        "float" => value.is_number() && !value.is_integer(),
        "integer" => value.is_integer(),
        "iterable" => {
            ![ValueKind::None, ValueKind::Bool, ValueKind::Number, ValueKind::Plain].contains(&kind)
        }
        "lower" | "upper" => {
            let text = Value::from(print::str(value)?);
            methods::call(state, &text, &format!("is{name}"), &[])?.is_true()
        }
        "mapping" => is_dict(value),
        "none" => value.is_none(),
        "number" => float(value).is_some(),
        "odd" => !is_multiple(value, Value::from(2))?,
        "sequence" => {
            is_dict(value) || [ValueKind::Seq, ValueKind::String, ValueKind::Undefined].contains(&kind)
        }
        "string" => value.as_str().is_some(),
        "test" => value.as_str().is_some_and(|name| native::is_test(state, name)),
        "true" => kind == ValueKind::Bool && value.is_true(),
        "undefined" => value.is_undefined(),
        _ => return fail(format!("{name} takes an argument")),
    })
}
