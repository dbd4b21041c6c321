//! Jinja's tests: what stands after `is`.

use std::cmp::Ordering;

use super::arguments::Arguments;
use super::failure::{Failure, Result};
use super::interpreter::Interpreter;
use super::value::{Function, SeqKind, Value};
use super::{filters, operators, text};

/// The tests that take a value besides the one they test.
const WITH_ARGUMENT: [&str; 18] = [
    "!=",
    "<",
    "<=",
    "==",
    ">",
    ">=",
    "divisibleby",
    "eq",
    "equalto",
    "ge",
    "greaterthan",
    "gt",
    "in",
    "le",
    "lessthan",
    "lt",
    "ne",
    "sameas",
];
const WITHOUT_ARGUMENT: [&str; 21] = [
    "boolean",
    "callable",
    "defined",
    "escaped",
    "even",
    "false",
    "filter",
    "float",
    "integer",
    "iterable",
    "lower",
    "mapping",
    "none",
    "number",
    "odd",
    "sequence",
    "string",
    "test",
    "true",
    "undefined",
    "upper",
];

/// Whether a value passes a test.
pub(super) fn check(
    interpreter: &mut Interpreter<'_>,
    name: &str,
    value: &Value,
    arguments: &Arguments,
) -> Result<bool> {
    if WITHOUT_ARGUMENT.contains(&name) {
        let [] = arguments.bind(name, [])?;
        return alone(interpreter, name, value);
    }
    if !exists(name) {
        return Err(Failure::new(format!("there is no test `{name}`")));
    }
    let [other] = match arguments.positional.as_slice() {
        [other] if arguments.keywords.is_empty() => [other.clone()],
        _ => arguments.bind_all(name, ["other"])?,
    };
    let budget = &interpreter.budget;
    let order = |operator: &str, is: fn(Ordering) -> bool| {
        Ok(value.compare(&other, operator, budget)?.is_some_and(is))
    };
    match name {
        "==" | "eq" | "equalto" => value.equals(&other, budget),
        "!=" | "ne" => Ok(!value.equals(&other, budget)?),
        "<" | "lt" | "lessthan" => order("<", Ordering::is_lt),
        "<=" | "le" => order("<=", Ordering::is_le),
        ">" | "gt" | "greaterthan" => order(">", Ordering::is_gt),
        ">=" | "ge" => order(">=", Ordering::is_ge),
        "in" => operators::contains(budget, &other, value),
        "divisibleby" => Ok(!operators::arithmetic("%", value, &other)?.is_true()),
        _ => Ok(is_same(value, &other)),
    }
}

/// Whether there is a test of this name.
fn exists(name: &str) -> bool {
    WITHOUT_ARGUMENT.contains(&name) || WITH_ARGUMENT.contains(&name)
}

fn alone(interpreter: &Interpreter<'_>, name: &str, value: &Value) -> Result<bool> {
    let remainder = || operators::arithmetic("%", value, &Value::Int(2));
    Ok(match name {
        "defined" => !value.is_undefined(),
        "undefined" => value.is_undefined(),
        "none" => matches!(value, Value::None),
        "boolean" => matches!(value, Value::Bool(_)),
        "true" => matches!(value, Value::Bool(true)),
        "false" => matches!(value, Value::Bool(false)),
        "integer" => matches!(value, Value::Int(_)),
        "float" => matches!(value, Value::Float(_)),
        "number" => value.as_float().is_some(),
        "string" => matches!(value, Value::Str(_)),
        "mapping" => matches!(value, Value::Dict(_)),
        "sequence" => match value {
            Value::Seq(seq) => !seq.kind.is_view(),
            Value::Str(_) | Value::Dict(_) | Value::Undefined(_) => true,
            _ => false,
        },
        "iterable" => {
            matches!(
                value,
                Value::Seq(_) | Value::Str(_) | Value::Dict(_) | Value::Undefined(_) | Value::Loop(_)
            )
        }
        "callable" => matches!(
            value,
            Value::Function(_) | Value::Macro(_) | Value::Method(_) | Value::Undefined(_) | Value::Loop(_)
        ),
        "odd" => remainder()?.equals(&Value::Int(1), &interpreter.budget)?,
        "even" => remainder()?.equals(&Value::Int(0), &interpreter.budget)?,
        "lower" | "upper" => {
            let value = interpreter.to_text(value)?;
            interpreter.budget.scan(value.len())?;
            text::is_case(&value, name == "upper")
        }
        "filter" => value.as_str().is_some_and(|name| filters::find(name).is_some()),
        "test" => value.as_str().is_some_and(exists),
        // `escaped`: there is no markup.
        _ => false,
    })
}

/// Whether they are one object.
fn is_same(value: &Value, other: &Value) -> bool {
    match (value, other) {
        (Value::Seq(a), Value::Seq(b)) => {
            // There is one empty tuple.
            let empty = |seq: &super::value::Seq| seq.kind == SeqKind::Tuple && seq.items.is_empty();
            std::rc::Rc::ptr_eq(a, b) || (empty(a) && empty(b))
        }
        (Value::Dict(a), Value::Dict(b)) => std::rc::Rc::ptr_eq(a, b),
        (Value::Str(a), Value::Str(b)) => a == b,
        (Value::Int(a), Value::Int(b)) => a == b,
        (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits(),
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::None, Value::None) => true,
        (Value::Namespace(a), Value::Namespace(b))
        | (Value::Macro(a), Value::Macro(b))
        | (Value::Loop(a), Value::Loop(b)) => a == b,
        (Value::Function(a), Value::Function(b)) => Function::name(*a) == Function::name(*b),
        _ => false,
    }
}
