//! What minijinja computes by itself. It charges no budget here, so callers do that before.

use std::sync::LazyLock;

use minijinja::value::ValueKind;
use minijinja::{Environment, Expression, Value};

use super::value::{Result, fail};

static ENVIRONMENT: LazyLock<Environment<'_>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    minijinja_contrib::add_to_environment(&mut environment);
    environment
});
/// Operators on the operands `a` to `d`.
static OPERATORS: LazyLock<Vec<(&str, Expression<'_, '_>)>> = LazyLock::new(|| {
    let operators = ["a + b", "a - b", "a * b", "a / b", "a // b", "a % b", "a ** b", "a[b:c:d]"];
    operators
        .into_iter()
        .filter_map(|text| Some((text, ENVIRONMENT.compile_expression(text).ok()?)))
        .collect()
});

pub(super) fn operator(expression: &str, operands: &[&Value]) -> Result<Value> {
    let Some((_, operator)) = OPERATORS.iter().find(|(text, _)| *text == expression) else {
        return fail(format!("there is no operator `{expression}`"));
    };
    let names = ["a", "b", "c", "d"].into_iter();
    listed(operator.eval(Value::from_pairs(names.zip(operands.iter().copied().cloned())))?)
}

pub(super) fn filter(name: &str, args: &[Value]) -> Result<Value> {
    listed(ENVIRONMENT.empty_state().apply_filter(name, args)?)
}

pub(super) fn test(name: &str, args: &[Value]) -> Result<bool> {
    ENVIRONMENT.empty_state().perform_test(name, args)
}

/// Lists that minijinja would make when they are looked at are made here, once.
pub(super) fn listed(value: Value) -> Result<Value> {
    if value.kind() == ValueKind::Iterable { value.try_iter()?.checked().collect() } else { Ok(value) }
}
