//! Jinja's filters and tests. Those of minijinja that agree with Jinja's are used as they are, charged to the budget.

use std::cell::Cell;
use std::collections::HashSet;

use minijinja::value::{DynObject, Kwargs, Rest, Tuple, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Environment, State, Value, filters as native, tests as native_tests};
use minijinja_contrib::filters as contrib;

use super::print::{self, sorted, spaces};
use super::text::{Side, lines, strip};
use super::value::{
    Method, Result, bind, fail, flag, float, int, int_value, integer, is_dict, is_instance, items, length,
    must_be_defined, must_be_hashable, text, type_name, view, walk, walk_at,
};
use super::{budget, methods, operators, printf};

/// The filters implemented here, and those that implement operators.
const OWN: &str = "\
    _arithmetic _call _compare _item _iter _key _method _negative _new _pay _positive _slice _store \
    _text attr capitalize center count e escape first float forceescape format indent int join last \
    length list max min replace reverse safe sort string sum tojson trim truncate unique wordcount";
const TESTS: &str = "\
    != < <= == > >= callable divisibleby eq equalto even filter ge greaterthan gt in iterable le \
    lessthan lower lt ne number odd sameas sequence test upper";
/// Replaces minijinja's filters and tests with Jinja's.
pub(super) fn add_to(env: &mut Environment<'_>) {
    let function = [
        ("abs", Value::from_function(native::abs)),
        ("batch", Value::from_function(native::batch)),
        ("d", Value::from_function(native::default)),
        ("default", Value::from_function(native::default)),
        ("dictsort", Value::from_function(native::dictsort)),
        ("filesizeformat", Value::from_function(contrib::filesizeformat)),
        ("groupby", Value::from_function(native::groupby)),
        ("items", Value::from_function(native::items)),
        ("lower", Value::from_function(native::lower)),
        ("map", Value::from_function(native::map)),
        ("reject", Value::from_function(native::reject)),
        ("rejectattr", Value::from_function(native::rejectattr)),
        ("round", Value::from_function(native::round)),
        ("select", Value::from_function(native::select)),
        ("selectattr", Value::from_function(native::selectattr)),
        ("slice", Value::from_function(native::slice)),
        ("striptags", Value::from_function(contrib::striptags)),
        ("title", Value::from_function(native::title)),
        ("upper", Value::from_function(native::upper)),
        ("urlencode", Value::from_function(native::urlencode)),
    ];
    for name in ["lines", "pprint", "split", "bool", "chain", "zip"] {
        env.remove_filter(name);
    }
    for name in ["safe", "int", "startingwith", "endingwith"] {
        env.remove_test(name);
    }
    for (name, function) in function {
        env.add_filter(name, move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
            paid(state, name, &function, &args.into_values())
        });
    }
    for name in OWN.split(' ') {
        env.add_filter(name, move |state: &mut State<'_, '_>, value: Value, args: Rest<ValueOrKwargs>| {
            own(state, name, &value, &args.into_values())
        });
    }
    for name in TESTS.split(' ') {
        env.add_test(name, move |state: &State<'_, '_>, value: Value, args: Rest<Value>| {
            test(state, name, &value, &args)
        });
    }
}

/// A filter of minijinja, charged for visiting its arguments. Lazy results are collected immediately.
fn paid(state: &mut State<'_, '_>, name: &str, function: &Value, args: &[Value]) -> Result<Value> {
    let mut args = args.to_vec();
    match name {
        "d" | "default" => budget::elements(1)?,
        "lower" | "upper" | "title" => args[0] = Value::from(print::str(&args[0])?),
        "batch" | "slice" => {
            args.iter().try_for_each(walk)?;
            budget::elements(length(name, args.get(1), 0)?)?;
        }
        "map" | "selectattr" | "rejectattr" | "groupby" => {
            walk(&args[0])?;
            // The path of an attribute is followed for each item.
            let names = Cell::new(0_usize);
            let count = |part: &Value| {
                names.set(names.get() + part.as_str().map_or(0, str::len));
                Ok(())
            };
            args[1..].iter().try_for_each(|arg| walk_at(arg, 0, &count))?;
            budget::scan(names.get().saturating_mul(4 * args[0].len().unwrap_or(0)))?;
        }
        _ => args.iter().try_for_each(walk)?,
    }
    let value = function.call(state, &args)?;
    match value.kind() {
        ValueKind::Iterable if view(&value).is_none() => Ok(Value::from(items(&value)?)),
        // In a query string a space becomes a plus.
        ValueKind::String if name == "urlencode" && args[0].as_object().is_some() => {
            Ok(Value::from(value.to_string().replace("%20", "+").replace('/', "%2F")))
        }
        ValueKind::String => budget::bytes(value.as_str().map_or(0, str::len)).map(|()| value),
        _ => Ok(value),
    }
}

fn own(state: &mut State<'_, '_>, name: &str, value: &Value, args: &[Value]) -> Result<Value> {
    if !name.starts_with('_') {
        args.iter().try_for_each(walk)?;
    }
    match name {
        "_arithmetic" => operators::arithmetic(value, args),
        "_call" => methods::call(state, value, args[0].as_str().unwrap_or_default(), &args[1..]),
        "_compare" => operators::compare(value, args).map(Value::from),
        "_item" => operators::item(value, &args[0]),
        "_iter" => Ok(if value.is_tuple() { value.clone() } else { Value::from(items(value)?) }),
        "_key" => must_be_hashable(value).map(|()| value.clone()),
        "_method" if is_dict(value) => Ok(Value::from_object(Method(value.clone(), args[0].to_string()))),
        "_method" => value.get_attr(args[0].as_str().unwrap_or_default()),
        "_negative" | "_positive" => operators::signed(value, name == "_negative"),
        "_new" => walk(value).map(|()| value.clone()),
        "_pay" => {
            budget::scan(value.as_str().map_or(0, str::len))?;
            budget::elements(value.as_object().and_then(DynObject::enumerator_len).unwrap_or(0))?;
            Ok(value.clone())
        }
        "_slice" => operators::slice(value, args),
        "_store" => super::value::must_be_plain(value).map(|()| value.clone()),
        "_text" => budget::bytes(value.as_usize().unwrap_or(0)).map(|()| Value::from("")),
        // Of all else Jinja's `attr` gives no items.
        "attr" if is_instance(value, "::Namespace") => value.get_attr(args[0].as_str().unwrap_or_default()),
        "attr" => Ok(Value::UNDEFINED),
        "capitalize" => Ok(Value::from(super::text::capitalize(&print::str(value)?))),
        "center" => {
            let [width] = bind(name, args, ["width"])?;
            let width = length(name, width.as_ref(), 80)?;
            Ok(Value::from(methods::padded(&print::str(value)?, width, " ", Side::Center)?))
        }
        "e" | "escape" | "forceescape" => {
            let text = print::str(value)?;
            budget::bytes(5 * text.len())?;
            let signs = [("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\"", "&#34;"), ("'", "&#39;")];
            Ok(Value::from(signs.iter().fold(text, |text, (sign, entity)| text.replace(sign, entity))))
        }
        "format" => {
            let (positional, keywords) = from_args::<(&[Value], Kwargs)>(args)?;
            let has_names = keywords.args().next().is_some();
            match (positional.is_empty(), has_names) {
                (_, false) => {
                    printf::format(&print::str(value)?, &Value::from(Tuple::new(positional.to_vec())))
                }
                (true, true) => {
                    let pairs =
                        keywords.args().map(|name| Ok((name.to_owned(), keywords.peek::<Value>(name)?)));
                    let pairs = pairs.collect::<Result<Vec<_>>>()?;
                    printf::format(&print::str(value)?, &Value::from_pairs(pairs))
                }
                _ => fail("format takes values by position or by name, not both"),
            }
        }
        "first" => Ok(items(value)?.into_iter().next().unwrap_or_default()),
        "indent" => indent(value, args),
        "int" | "float" => number(state, name, value, args),
        "join" => {
            let [separator, attribute] = bind(name, args, ["d", "attribute"])?;
            let separator =
                separator.map_or_else(|| Ok(String::new()), |separator| print::str(&separator))?;
            let parts = items(value)?.into_iter().map(|item| by_attribute(item, attribute.as_ref()));
            methods::join(&parts.collect::<Result<Vec<_>>>()?, &separator)
        }
        "last" => Ok(items(value)?.pop().unwrap_or_default()),
        "length" | "count" => match value.kind() {
            ValueKind::Undefined => Ok(Value::from(0)),
            ValueKind::String => {
                budget::scan(value.as_str().map_or(0, str::len))?;
                Ok(Value::from(value.len()))
            }
            _ if value.len().is_some() => Ok(Value::from(value.len())),
            _ => fail(format!("a {} has no length", type_name(value))),
        },
        "list" => items(value).map(Value::from),
        "max" | "min" => {
            let keyed = keyed(value, bind(name, args, ["case_sensitive", "attribute"])?)?;
            let operator = if name == "max" { ">" } else { "<" };
            let mut best = 0;
            for index in 1..keyed.len() {
                if operators::compares(&keyed[index].0, operator, &keyed[best].0)? {
                    best = index;
                }
            }
            Ok(keyed.get(best).map(|(_, item)| item.clone()).unwrap_or_default())
        }
        "replace" => {
            let [old, new, count] = bind(name, args, ["old", "new", "count"])?;
            let (Some(old), Some(new)) = (old, new) else { return fail("replace takes two texts") };
            let count = integer(name, count.as_ref())?;
            methods::replace(&print::str(value)?, &print::str(&old)?, &print::str(&new)?, count)
        }
        "reverse" => match value.as_str() {
            Some(text) => {
                budget::bytes(text.len()).map(|()| Value::from(text.chars().rev().collect::<String>()))
            }
            None => Ok(items(value)?.into_iter().rev().collect()),
        },
        "sort" => {
            let [reverse, case_sensitive, attribute] =
                bind(name, args, ["reverse", "case_sensitive", "attribute"])?;
            let mut keyed = keyed(value, [case_sensitive, attribute])?;
            if flag(reverse.as_ref()) {
                keyed.reverse();
            }
            let mut keyed = sorted(keyed)?;
            if flag(reverse.as_ref()) {
                keyed.reverse();
            }
            Ok(Value::from(keyed.into_iter().map(|(_, item)| item).collect::<Vec<_>>()))
        }
        "string" | "safe" => print::str(value).map(Value::from),
        "sum" => {
            let [attribute, start] = bind(name, args, ["attribute", "start"])?;
            let mut total = start.unwrap_or(Value::from(0));
            for item in items(value)? {
                let item = by_attribute(item, attribute.as_ref())?;
                if item.as_str().is_some() {
                    return fail("sum adds no texts: join them");
                }
                total = operators::add(&total, &item)?;
            }
            Ok(total)
        }
        "tojson" => print::tojson(value, args),
        "trim" => {
            let [chars] = bind(name, args, ["chars"])?;
            let value = print::str(value)?;
            Ok(Value::from(strip(&value, text(name, chars.as_ref())?, true, true)))
        }
        "truncate" => {
            walk(value)?;
            let names = ["length", "killwords", "end", "leeway"];
            let given = names.into_iter().zip(bind(name, args, names)?);
            let given = given.filter_map(|(name, value)| Some((name, value?)));
            contrib::truncate(state, value, given.collect())
        }
        "unique" => {
            let (mut seen, mut out) = (HashSet::new(), Vec::new());
            for (key, item) in keyed(value, bind(name, args, ["case_sensitive", "attribute"])?)? {
                must_be_hashable(&key)?;
                if seen.insert(key) {
                    out.push(item);
                }
            }
            Ok(Value::from(out))
        }
        _ => {
            let text = print::str(value)?;
            let words = text.split(|char: char| !char.is_alphanumeric() && char != '_');
            Ok(Value::from(words.filter(|word| !word.is_empty()).count()))
        }
    }
}

/// The value of an `attribute` such as `function.name` or `0`; the item itself without one.
fn by_attribute(item: Value, attribute: Option<&Value>) -> Result<Value> {
    match attribute.filter(|attribute| !attribute.is_none()) {
        None => Ok(item),
        Some(path) if path.as_str().is_some() => {
            let parts = path.as_str().unwrap_or_default().split('.');
            parts.into_iter().try_fold(item, |value, part| {
                let key = part.parse::<u32>().map_or_else(|_| Value::from(part), Value::from);
                operators::item(&value, &key)
            })
        }
        Some(key) => operators::item(&item, key),
    }
}

/// Items with their sort keys: strings in lower case, unless case matters, and truth values as numbers.
fn keyed(value: &Value, [case_sensitive, attribute]: [Option<Value>; 2]) -> Result<Vec<(Value, Value)>> {
    let keyed = items(value)?.into_iter().map(|item| {
        let key = by_attribute(item.clone(), attribute.as_ref())?;
        let key = match (key.as_str(), int(&key)) {
            (Some(text), _) if !flag(case_sensitive.as_ref()) => {
                budget::bytes(text.len())?;
                Value::from(text.to_lowercase())
            }
            (_, Some(number)) => int_value(number),
            _ => key,
        };
        Ok((key, item))
    });
    keyed.collect()
}

fn indent(value: &Value, args: &[Value]) -> Result<Value> {
    let [width, first, blank] = bind("indent", args, ["width", "first", "blank"])?;
    let indention = match width.as_ref().and_then(Value::as_str) {
        Some(indention) => indention.to_owned(),
        None => spaces(length("indent", width.as_ref(), 4)?)?,
    };
    let Some(value) = value.as_str() else {
        return fail(format!("indent takes a text, got {}", type_name(value)));
    };
    // A trailing line break begins another line.
    let value = format!("{value}\n");
    let mut out = String::new();
    for (index, line) in lines(&value, false).into_iter().enumerate() {
        print::push(&mut out, if index > 0 { "\n" } else { "" })?;
        let is_indented =
            if index == 0 { flag(first.as_ref()) } else { flag(blank.as_ref()) || !line.is_empty() };
        print::push(&mut out, if is_indented { &indention } else { "" })?;
        print::push(&mut out, line)?;
    }
    Ok(Value::from(out))
}

/// `int` and `float`: minijinja's, with Python's additional string syntax.
fn number(state: &mut State<'_, '_>, name: &str, value: &Value, args: &[Value]) -> Result<Value> {
    let [default, base] = bind(name, args, ["default", "base"])?;
    must_be_defined(value)?;
    walk(value)?;
    let default = default.unwrap_or(if name == "int" { Value::from(0) } else { Value::from(0.0) });
    let value = match value.as_str().map(|text| strip(text, None, true, true)) {
        // Underscores are valid only between digits.
        Some(text) if text.starts_with('_') || text.ends_with('_') || text.contains("__") => {
            return Ok(default);
        }
        Some(text) => Value::from(text.replace('_', "")),
        None => value.clone(),
    };
    match base {
        _ if name == "float" => Value::from_function(native::float).call(state, &[value, default]),
        Some(base) => Value::from_function(native::int).call(state, &[value, default, base]),
        None => Value::from_function(native::int).call(state, &[value, default]),
    }
}

fn test(state: &State<'_, '_>, name: &str, value: &Value, args: &[Value]) -> Result<bool> {
    if let [other] = args {
        let operator = match name {
            "eq" | "equalto" => "==",
            "ne" => "!=",
            "lt" | "lessthan" => "<",
            "le" => "<=",
            "gt" | "greaterthan" => ">",
            "ge" => ">=",
            "divisibleby" => {
                let rest = operators::arithmetic(value, &[Value::from("%"), other.clone()])?;
                return Ok(!rest.is_true());
            }
            "sameas" => return same(value, other),
            other => other,
        };
        return operators::compares(value, operator, other);
    }
    if !args.is_empty() {
        return fail(format!("{name} takes one argument"));
    }
    let remainder = || operators::arithmetic(value, &[Value::from("%"), Value::from(2)]);
    Ok(match name {
        "callable" => {
            value.is_undefined()
                || value.kind() == ValueKind::Plain
                || is_instance(value, "::Macro")
                || is_instance(value, "::Loop")
        }
        "odd" => remainder()?.is_true(),
        "even" => !remainder()?.is_true(),
        "filter" => {
            value.as_str().is_some_and(|name| !name.starts_with('_') && native_tests::is_filter(state, name))
        }
        "test" => value.as_str().is_some_and(|name| native_tests::is_test(state, name)),
        "iterable" => {
            ![ValueKind::None, ValueKind::Bool, ValueKind::Number, ValueKind::Plain].contains(&value.kind())
        }
        "number" => float(value).is_some(),
        "sequence" => match value.kind() {
            ValueKind::Map => is_dict(value),
            kind => [ValueKind::Seq, ValueKind::String, ValueKind::Undefined].contains(&kind),
        },
        "lower" | "upper" => {
            let text = print::str(value)?;
            let (upper, lower) = (text.chars().any(char::is_uppercase), text.chars().any(char::is_lowercase));
            if name == "upper" { upper && !lower } else { lower && !upper }
        }
        _ => return fail(format!("{name} takes an argument")),
    })
}

/// Whether they are the same object.
fn same(value: &Value, other: &Value) -> Result<bool> {
    match (value.as_object(), other.as_object()) {
        (Some(_), Some(_)) => Ok(native_tests::is_sameas(value, other)),
        _ => Ok(type_name(value) == type_name(other) && operators::equal(value, other)?),
    }
}
