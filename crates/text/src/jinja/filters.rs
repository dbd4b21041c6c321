//! The filters and tests in which minijinja differs from Jinja, and the filters that `expression` writes.

use std::cmp::Ordering;
use std::iter;

use minijinja::formatting::FormatStyle;
use minijinja::value::{Kwargs, Rest, Tuple, ValueKind, ValueOrKwargs};
use minijinja::{Environment, State, Value, filters};

use super::methods;
use super::pprint::pformat;
use super::print::{self, spaces};
use super::text::{lines, strip};
use super::value::{
    Result, bind, check_size, fail, float, int, is_dict, is_instance, items, must_be_defined, pay, type_name,
};

/// The filters that are implemented here.
const OWN: &str = "\
    _added _compare _each _number _plain _product _sized _text attr center e escape float forceescape format indent int \
    pprint replace safe sort string tojson trim truncate urlencode wordcount";
/// Those of minijinja that put lists into lists.
const NESTING: [&str; 4] = ["batch", "groupby", "slice", "zip"];

pub(super) fn add_to(env: &mut Environment<'_>) {
    for name in OWN.split(' ') {
        env.add_filter(name, move |state: &mut State<'_, '_>, value: Value, args: Rest<ValueOrKwargs>| {
            own(state, name, &value, &args.into_values())
        });
    }
    for name in NESTING {
        env.add_filter(name, move |state: &mut State<'_, '_>, value: Value, args: Rest<ValueOrKwargs>| {
            let filter = match name {
                "batch" => Value::from_function(filters::batch),
                "groupby" => Value::from_function(filters::groupby),
                "slice" => Value::from_function(filters::slice),
                _ => Value::from_function(filters::zip),
            };
            let nested = filter.call(state, &[&[value], &*args.into_values()].concat())?;
            check_size(state, &nested, false).map(|()| nested)
        });
    }
    env.add_test("callable", |value: Value| {
        let is_macro = || is_instance(&value, "::Macro") || is_instance(&value, "::Loop");
        value.is_undefined() || value.kind() == ValueKind::Plain || is_macro()
    });
    env.add_test("even", |value: Value| product(&value, "%", &Value::from(2)).map(|rest| !rest.is_true()));
    env.add_test("odd", |value: Value| product(&value, "%", &Value::from(2)).map(|rest| rest.is_true()));
    env.add_test("iterable", |value: Value| {
        ![ValueKind::None, ValueKind::Bool, ValueKind::Number, ValueKind::Plain].contains(&value.kind())
    });
    env.add_test("mapping", |value: Value| is_dict(&value));
    env.add_test("sequence", |value: Value| {
        is_dict(&value)
            || [ValueKind::Seq, ValueKind::Iterable, ValueKind::String, ValueKind::Undefined]
                .contains(&value.kind())
    });
}

fn own(state: &mut State<'_, '_>, name: &str, value: &Value, args: &[Value]) -> Result<Value> {
    match name {
        "_added" => added(state, value, args.first().unwrap_or(&Value::UNDEFINED)),
        "_compare" => compare(state, value, args).map(Value::from),
        "_each" if value.is_none() => fail("a None cannot be iterated"),
        "_each" => Ok(value.clone()),
        "_number" if value.is_number() => Ok(value.clone()),
        "_number" => match int(value) {
            Some(number) => Ok(Value::from(number)),
            None => must_be_defined(value).and_then(|()| fail(format!("a {} has no sign", type_name(value)))),
        },
        // What a namespace holds outlives its scope, so it may not hold itself.
        "_plain" => check_size(state, value, true).map(|()| value.clone()),
        "_product" => products(state, value, args),
        "_sized" => check_size(state, value, false).map(|()| value.clone()),
        // Of all but namespaces, Jinja's `attr` gives no items.
        "attr" if is_instance(value, "::Namespace") => {
            value.get_attr(&args.first().map_or_else(String::new, Value::to_string))
        }
        "attr" => Ok(Value::UNDEFINED),
        "center" | "replace" | "trim" => {
            let method = if name == "trim" { "strip" } else { name };
            methods::call(state, &print::text(state, value)?, method, args)
        }
        "e" | "escape" => escaped(state, value),
        "forceescape" => escaped(state, &Value::from(print::str(state, value)?)),
        "pprint" => pformat(state, value, 0, 0, 0).map(Value::from),
        "safe" => print::str(state, value).map(Value::from_safe_string),
        "format" => print::formatted(state, FormatStyle::Printf, &print::str(state, value)?, args),
        "indent" => indent(state, value, args),
        "int" | "float" => number(state, name, value, args),
        "_text" | "string" => print::text(state, value),
        "sort" => sort(state, value.clone(), args),
        "tojson" => print::tojson(state, value, args),
        "truncate" => {
            let names = ["length", "killwords", "end", "leeway"];
            let given = names.into_iter().zip(bind(name, args, names)?);
            let given: Kwargs = given.filter(|(_, value)| !value.is_none()).collect();
            minijinja_contrib::filters::truncate(state, &print::text(state, value)?, given)
        }
        "wordcount" => {
            let text = print::str(state, value)?;
            let words = text.split(|char: char| !char.is_alphanumeric() && char != '_');
            Ok(Value::from(words.filter(|word| !word.is_empty()).count()))
        }
        _ => {
            // In a query string a space becomes a plus.
            let text = filters::urlencode(value)?;
            let is_query = value.as_object().is_some();
            Ok(Value::from(if is_query { text.replace("%20", "+").replace('/', "%2F") } else { text }))
        }
    }
}

/// The text of a value for HTML, unless it is marked as such.
pub(super) fn escaped(state: &State<'_, '_>, value: &Value) -> Result<Value> {
    if value.is_safe() {
        return Ok(value.clone());
    }
    let text = print::str(state, value)?;
    pay(state, 5 * text.len())?;
    let signs = [("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\"", "&#34;"), ("'", "&#39;")];
    let text = signs.iter().fold(text, |text, (sign, entity)| text.replace(sign, entity));
    Ok(Value::from_safe_string(text))
}

/// Evaluates `+`. If one of two texts is marked as safe, the other is escaped, and the sum is marked.
fn added(state: &State<'_, '_>, value: &Value, other: &Value) -> Result<Value> {
    if value.as_str().is_some() && other.as_str().is_some() && (value.is_safe() || other.is_safe()) {
        let (value, other) = (escaped(state, value)?, escaped(state, other)?);
        let text = [value.as_str().unwrap_or_default(), other.as_str().unwrap_or_default()].concat();
        pay(state, text.len())?;
        return Ok(Value::from_safe_string(text));
    }
    let sum = state.env().compile_expression("value + other")?;
    sum.eval(minijinja::context! { value, other })
}

/// Evaluates `* / // % **` from left to right: each operator stands before its right side.
fn products(state: &State<'_, '_>, first: &Value, rest: &[Value]) -> Result<Value> {
    let value = rest.chunks_exact(2).try_fold(first.clone(), |value, pair| {
        let (operator, other) = (pair[0].as_str().unwrap_or_default(), &pair[1]);
        match (operator, value.as_str(), value.kind(), other.kind()) {
            ("%", Some(text), ..) => print::printf(state, text, other),
            ("*", _, ValueKind::String | ValueKind::Seq | ValueKind::Iterable, _) => {
                repeat(state, &value, other)
            }
            ("*", _, _, ValueKind::String | ValueKind::Seq | ValueKind::Iterable) => {
                repeat(state, other, &value)
            }
            _ => product(&value, operator, other),
        }
    })?;
    check_size(state, &value, false).map(|()| value)
}

fn repeat(state: &State<'_, '_>, value: &Value, times: &Value) -> Result<Value> {
    let Some(times) = int(times) else { return mismatch("*", value, times) };
    let times = usize::try_from(times.max(0)).unwrap_or(usize::MAX);
    if let Some(text) = value.as_str() {
        pay(state, text.len().saturating_mul(times))?;
        return Ok(Value::from(text.repeat(times)));
    }
    let items = items(value)?;
    pay(state, items.len().saturating_mul(times).saturating_mul(size_of::<Value>()))?;
    let times = if items.is_empty() { 0 } else { times };
    let repeated: Vec<Value> = (0..times).flat_map(|_| items.iter().cloned()).collect();
    Ok(if value.is_tuple() { Tuple::from(repeated).into() } else { repeated.into() })
}

/// A product, quotient, rest or power of two numbers. Truth values are numbers.
fn product(a: &Value, operator: &str, b: &Value) -> Result<Value> {
    let (Some(x), Some(y)) = (float(a), float(b)) else { return mismatch(operator, a, b) };
    if y == 0.0 && !operator.starts_with('*') {
        return fail("division by zero");
    }
    let whole = match (int(a), int(b), operator) {
        (_, _, "/") | (_, Some(..0), "**") | (None, ..) | (_, None, _) => {
            // The sign of the rest is that of the divisor.
            let rest = match x % y {
                0.0 => 0.0_f64.copysign(y),
                rest if (rest < 0.0) != (y < 0.0) => rest + y,
                rest => rest,
            };
            return Ok(Value::from(match operator {
                "*" => x * y,
                "/" => x / y,
                "//" => ((x - rest) / y).round(),
                "**" if x.is_finite() && y.is_finite() && !x.powf(y).is_finite() => {
                    return fail("the result of `**` is too large");
                }
                "**" => x.powf(y),
                _ => rest,
            }));
        }
        (Some(x), Some(y), "*") => x.checked_mul(y),
        (Some(x), Some(y), "**") => u32::try_from(y).ok().and_then(|y| x.checked_pow(y)),
        (Some(x), Some(y), "//") => {
            x.checked_div_euclid(y).map(|whole| whole - i128::from(y < 0 && x.rem_euclid(y) != 0))
        }
        (Some(x), Some(y), _) => {
            x.checked_rem_euclid(y).map(|rest| if y < 0 && rest != 0 { rest + y } else { rest })
        }
    };
    whole.map_or_else(
        || fail(format!("the result of `{operator}` is too large")),
        |whole| Ok(Value::from(whole)),
    )
}

/// A chain of comparisons: each operator stands before its right side.
fn compare(state: &mut State<'_, '_>, first: &Value, rest: &[Value]) -> Result<bool> {
    let lefts = iter::once(first).chain(rest.iter().skip(1).step_by(2));
    for (left, pair) in lefts.zip(rest.chunks_exact(2)) {
        let right = &pair[1];
        let is_so = match pair[0].as_str().unwrap_or_default() {
            "==" => left == right,
            "!=" => left != right,
            "in" => state.perform_test("in", &[left.clone(), right.clone()])?,
            "not in" => !state.perform_test("in", &[left.clone(), right.clone()])?,
            operator => order(left, right)?.is_some_and(|order| match operator {
                "<" => order.is_lt(),
                "<=" => order.is_le(),
                ">" => order.is_gt(),
                _ => order.is_ge(),
            }),
        };
        if !is_so {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The order of numbers, strings, lists and tuples; none with NaN, and an error for other values.
fn order(a: &Value, b: &Value) -> Result<Option<Ordering>> {
    let kind = |value: &Value| if float(value).is_some() { "number" } else { type_name(value) };
    match (kind(a), kind(b)) {
        ("number", "number") if [a, b].iter().any(|value| float(value).is_some_and(f64::is_nan)) => Ok(None),
        ("number", "number") | ("str", "str") => Ok(Some(a.cmp(b))),
        ("list", "list") | ("tuple", "tuple") => {
            let (a, b) = (items(a)?, items(b)?);
            let different = a.iter().zip(&b).find(|(a, b)| a != b);
            different.map_or_else(|| Ok(Some(a.len().cmp(&b.len()))), |(a, b)| order(a, b))
        }
        _ => mismatch("<", a, b),
    }
}

/// minijinja's `sort`, of what Python sorts. An attribute may be a number.
fn sort(state: &mut State<'_, '_>, value: Value, args: &[Value]) -> Result<Value> {
    let [reverse, case_sensitive, attribute] =
        bind("sort", args, ["reverse", "case_sensitive", "attribute"])?;
    if attribute.is_none() {
        let items = items(&value)?;
        items.windows(2).try_for_each(|pair| order(&pair[0], &pair[1]).map(drop))?;
    }
    // The path of an attribute is followed for each item.
    let path = attribute.as_str().map_or(0, str::len);
    pay(state, path.saturating_mul(64).saturating_mul(value.len().unwrap_or(1)))?;
    let attribute = if attribute.is_none() { attribute } else { Value::from(attribute.to_string()) };
    let given = [("reverse", reverse), ("case_sensitive", case_sensitive), ("attribute", attribute)];
    let given: Kwargs = given.into_iter().filter(|(_, value)| !value.is_none()).collect();
    Value::from_function(filters::sort).call(state, &[value, given.into()])
}

fn mismatch<T>(operator: &str, a: &Value, b: &Value) -> Result<T> {
    must_be_defined(a)?;
    must_be_defined(b)?;
    fail(format!("`{operator}` does not go with {} and {}", type_name(a), type_name(b)))
}

/// Whether the first argument is given, be it none.
fn is_given(first: &Value, args: &[Value]) -> bool {
    !first.is_none() || args.first().is_some_and(|first| !first.is_kwargs())
}

fn indent(state: &State<'_, '_>, value: &Value, args: &[Value]) -> Result<Value> {
    let [width, first, blank] = bind("indent", args, ["width", "first", "blank"])?;
    let indention = spaces(state, "indent", &width, 4)?;
    let Some(value) = value.as_str() else {
        return fail(format!("indent takes a text, got {}", type_name(value)));
    };
    // A trailing line break begins another line.
    let value = format!("{value}\n");
    let lines = lines(&value, false);
    pay(state, value.len().saturating_add(lines.len().saturating_mul(indention.len())))?;
    let indented = lines.into_iter().enumerate().map(|(index, line)| match index {
        0 if !first.is_true() => line.to_owned(),
        1.. if line.is_empty() && !blank.is_true() => line.to_owned(),
        _ => format!("{indention}{line}"),
    });
    Ok(Value::from(indented.collect::<Vec<_>>().join("\n")))
}

/// `int` and `float`: minijinja's, with Python's white space and underscores between digits.
fn number(state: &mut State<'_, '_>, name: &str, value: &Value, args: &[Value]) -> Result<Value> {
    let [default, base] = bind(name, args, ["default", "base"])?;
    must_be_defined(value)?;
    let digits = value.as_str().map(|text| Value::from(strip(text, None, true, true).replace('_', "")));
    let zero = if name == "int" { Value::from(0) } else { Value::from(0.0) };
    let default = if is_given(&default, args) { default } else { zero };
    let args = [digits.unwrap_or_else(|| value.clone()), default, base];
    match (name, args[2].is_none()) {
        ("float", _) => Value::from_function(filters::float).call(state, &args[..2]),
        (_, true) => Value::from_function(filters::int).call(state, &args[..2]),
        _ => Value::from_function(filters::int).call(state, &args),
    }
}
