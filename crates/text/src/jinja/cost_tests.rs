//! Every filter, test, method, function and operator pays for what it reads and makes. Names come from the registries.

use std::time::{Duration, Instant};

use minijinja::{Error, Value};

use super::{budget, environment, expression, filters, methods, source, tests, value};

/// The bytes of a large operand, and the items of a long list.
const BYTES: usize = 8_000;
const ITEMS: usize = 250;
/// What every charged step may take at least in an unoptimized build on a busy machine, and what is free.
const STEP: Duration = Duration::from_micros(3);
const FREE: Duration = Duration::from_millis(50);
/// The bytes that a step may stand for, with a margin for roundings.
const BYTES_PER_STEP: usize = 40;
/// Names that take the same time however large their operand is.
const CONSTANT: [&str; 22] = [
    "attr",
    "boolean",
    "callable",
    "copy",
    "d",
    "default",
    "defined",
    "escaped",
    "false",
    "filter",
    "float",
    "integer",
    "iterable",
    "mapping",
    "none",
    "number",
    "sequence",
    "string",
    "test",
    "true",
    "undefined",
    "int",
];
/// Names that are constant for lists and dicts, or look at their items without their contents.
const SHALLOW: [&str; 14] = [
    "count", "first", "get", "in", "index", "items", "keys", "last", "length", "list", "not in", "reverse",
    "sameas", "values",
];
/// Operands, with the bytes of text in each.
const OPERANDS: [(&str, usize); 7] =
    [("t", BYTES), ("l", BYTES), ("d", BYTES), ("n", BYTES), ("[3, 4]", 0), ("'ab'", 0), ("3", 0)];

/// The value of an expression, and the steps and bytes that it took from the budget.
fn run(expression: &str) -> Result<(Value, usize, usize, Duration), Error> {
    let text = "ab ".repeat(BYTES / 3);
    let item = "ab ".repeat(BYTES / ITEMS / 3);
    let list = vec![Value::from(item.as_str()); ITEMS];
    let dict = Value::from_pairs((0..ITEMS).map(|index| (index.to_string(), item.clone())));
    let nested = Value::from(vec![Value::from(vec![Value::from(text.as_str())])]);
    let context =
        Value::from_pairs([("t", Value::from(text)), ("l", Value::from(list)), ("d", dict), ("n", nested)]);
    let prepared = source::prepare(&format!("{{{{ {expression} }}}}")).expect(expression);
    let prepared = prepared.trim_start_matches("{{").trim_end_matches("}}").to_owned();
    let environment = environment().unwrap();
    let compiled = environment.compile_expression(&prepared)?;
    budget::begin(10 * BYTES);
    let (steps, bytes) = budget::left();
    let started = Instant::now();
    let value = compiled.eval(context)?;
    let took = started.elapsed();
    let (steps_left, bytes_left) = budget::left();
    Ok((value, steps - steps_left, bytes - bytes_left, took))
}

/// Checks an expression whose operands have `bytes` bytes of text; says whether it can be evaluated.
fn check(name: &str, expression: &str, bytes: usize) -> bool {
    let Ok((value, steps, charged, took)) = run(expression) else { return false };
    assert!(steps >= bytes / BYTES_PER_STEP, "{expression}: {steps} steps for {bytes} bytes");
    let most = || FREE + STEP * u32::try_from(steps).unwrap();
    let is_quick = took < most() || (0..3).any(|_| run(expression).is_ok_and(|(.., took)| took < most()));
    assert!(is_quick, "{expression}: {steps} steps took {took:?}");
    // Elements of lists are shared, new texts are not.
    if let Some(text) = value.as_str()
        && !CONSTANT.contains(&name)
        && !SHALLOW.contains(&name)
    {
        assert!(text.len() <= charged + 64, "{expression}: {charged} bytes charged for {}", text.len());
    }
    true
}

/// Checks `write(operand, arguments)` for operands and arguments of every size. `read` says how much of both is read.
fn check_all(name: &str, read: fn(usize, usize) -> usize, write: impl Fn(&str, &str) -> String) {
    let arguments = [
        ("", 0),
        ("t", 1),
        ("'ab', t", 1),
        ("t, 'ab'", 1),
        ("t, t", 2),
        ("l", 1),
        ("3", 0),
        ("3, true, t", 1),
        ("attribute=t", 1),
        ("'upper'", 0),
        ("'replace', 'ab', t", 1),
        ("separators=(t, t)", 2),
    ];
    let mut evaluated = 0;
    for (operand, bytes) in OPERANDS {
        for (argument, large) in arguments {
            let is_free = CONSTANT.contains(&name) || SHALLOW.contains(&name) && operand != "t";
            let bytes = if is_free { 0 } else { bytes };
            let arguments =
                if CONSTANT.contains(&name) || SHALLOW.contains(&name) { 0 } else { large * BYTES };
            evaluated += usize::from(check(name, &write(operand, argument), read(bytes, arguments)));
        }
    }
    assert!(evaluated > 0, "{name} is never evaluated");
}

#[test]
fn filters_pay_for_their_operands() {
    for name in filters::names() {
        check_all(
            name,
            |operand, arguments| operand + arguments,
            |operand, arguments| format!("{operand}|{name}({arguments})"),
        );
    }
}

#[test]
fn tests_pay_for_their_operands() {
    for name in tests::names().filter(|name| name.starts_with(char::is_alphabetic)) {
        // Operands of different types are different, and the shorter of two texts decides how much is read.
        check_all(name, |_, _| 0, |operand, arguments| format!("{operand} is {name}({arguments})"));
    }
}

#[test]
fn methods_pay_for_their_operands() {
    let lists = ["count", "index", "copy", "get", "items", "keys", "values"];
    for name in methods::COPYING.split(' ').chain(methods::CHANGING.split(' ')).chain(lists) {
        check_all(
            name,
            |operand, arguments| operand + arguments,
            |operand, arguments| format!("{operand}.{name}({arguments})"),
        );
    }
}

#[test]
fn operators_pay_for_their_operands() {
    for name in expression::LEVELS.concat() {
        let mut evaluated = false;
        for (left, _) in OPERANDS {
            for (right, bytes) in OPERANDS {
                // The smaller text decides how much of both is read.
                let is_text = [left, right].iter().all(|operand| ["t", "'ab'"].contains(operand));
                let bytes = if ["~", "+"].contains(&name) && is_text { bytes } else { 0 };
                evaluated |= check(name, &format!("{left} {name} {right}"), bytes);
            }
        }
        assert!(evaluated, "{name}");
    }
    for expression in [
        "t[3000]",
        "t[1:]",
        "t[::-1]",
        "t in t",
        "t in l",
        "t == t[:]",
        "n == [[t]]",
        "l < l[:]",
        "t is lower",
        "n is upper",
    ] {
        assert!(check("", expression, BYTES), "{expression}");
    }
}

#[test]
fn functions_pay_for_their_operands() {
    let environment = environment().unwrap();
    let names: Vec<&str> = environment.globals().map(|(name, _)| name).collect();
    assert_eq!(names, ["dict", "namespace", "raise_exception", "range", "strftime_now"]);
    assert!(check("", "dict(d)", ITEMS * 32) && check("", "range(5000)", 5000 * 32));
    assert!(check("", "namespace(a=t)", BYTES) && check("", "strftime_now(t)", BYTES));
    assert!(run("raise_exception(t)").unwrap_err().to_string().len() < 2 * BYTES);
}

#[test]
fn an_input_has_the_size_of_its_texts_and_elements() {
    let size = |value: Value| value::walk(&value).unwrap();
    budget::begin(usize::MAX);
    assert_eq!(size(Value::from("abc")), 19);
    assert_eq!(size(Value::from(vec!["abc"; 10])), 206);
    assert_eq!(size(Value::from_pairs([("ab", "abc")])), 53);
}
