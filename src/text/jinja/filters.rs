//! Jinja's filters. Those of minijinja that agree with Jinja's are used as they are, charged to the budget.

use std::collections::HashSet;

use minijinja::formatting::FormatStyle;
use minijinja::value::{DynObject, Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, State, Value, filters as native};
use minijinja_contrib::filters as contrib;

use super::print::{self, push, spaces};
use super::text::{lines, strip};
use super::value::{
    Result, bind, dict, fail, flag, hashed, integer, is_instance, items, must_be_defined, must_be_plain,
    type_name, walk,
};
use super::{budget, methods, operators};

/// The size of arguments that cost nothing for each item.
const FREE_PATH: usize = 128;
/// The filters implemented here, and those that implement operators.
pub(super) const OWN: &str = "\
    _call _compare _dict _item _iter _method _number _operate _pay _slice _spread _store _text attr capitalize center \
    count e escape first float forceescape format indent int join last length list lower replace reverse safe sort \
    string sum tojson trim truncate unique upper wordcount";

/// The filters of minijinja.
pub(super) fn native() -> [(&'static str, Value); 20] {
    [
        ("abs", Value::from_function(native::abs)),
        ("batch", Value::from_function(native::batch)),
        ("d", Value::from_function(native::default)),
        ("default", Value::from_function(native::default)),
        ("dictsort", Value::from_function(native::dictsort)),
        ("filesizeformat", Value::from_function(contrib::filesizeformat)),
        ("groupby", Value::from_function(native::groupby)),
        ("items", Value::from_function(native::items)),
        ("map", Value::from_function(native::map)),
        ("max", Value::from_function(native::max)),
        ("min", Value::from_function(native::min)),
        ("reject", Value::from_function(native::reject)),
        ("rejectattr", Value::from_function(native::rejectattr)),
        ("round", Value::from_function(native::round)),
        ("select", Value::from_function(native::select)),
        ("selectattr", Value::from_function(native::selectattr)),
        ("slice", Value::from_function(native::slice)),
        ("striptags", Value::from_function(contrib::striptags)),
        ("title", Value::from_function(native::title)),
        ("urlencode", Value::from_function(native::urlencode)),
    ]
}

pub(super) fn add_to(env: &mut Environment<'_>) {
    for name in OWN.split(' ') {
        env.add_filter(name, move |state: &mut State<'_, '_>, value: Value, args: Rest<ValueOrKwargs>| {
            own(state, name, &value, &args.into_values())
        });
    }
    for (name, function) in native() {
        env.add_filter(name, move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
            paid(state, name, &function, args.into_values())
        });
    }
}

/// A filter of minijinja, charged for visiting its arguments. Lazy results are collected immediately.
fn paid(state: &mut State<'_, '_>, name: &str, function: &Value, mut args: Vec<Value>) -> Result<Value> {
    let Some(value) = args.first_mut() else { return fail(format!("{name} needs a value")) };
    if ["d", "default"].contains(&name) {
        return function.call(state, &args);
    }
    if ["title", "striptags"].contains(&name) {
        *value = Value::from(print::str(value)?);
    }
    let (len, size) = (value.len().unwrap_or(0), walk(value)?);
    let mut rest = 0;
    for arg in &args[1..] {
        rest += walk(arg)?;
    }
    match name {
        "batch" | "slice" => {
            let count = integer(name, args.get(1))?.unwrap_or(0);
            budget::elements(usize::try_from(count).unwrap_or(0).saturating_add(2 * len))?;
        }
        // Keys are compared several times.
        "groupby" | "dictsort" => {
            budget::chars(size.saturating_mul(len.checked_ilog2().unwrap_or(0) as usize + 1))?;
        }
        "max" | "min" => budget::elements(len)?,
        // A filter or a test is called for each item.
        "map" | "reject" | "rejectattr" | "select" | "selectattr" => budget::elements(len.saturating_mul(4))?,
        "title" => budget::chars(size.saturating_mul(2))?,
        _ => budget::chars(size)?,
    }
    // The path of an attribute is followed for each item.
    budget::steps(rest.saturating_sub(FREE_PATH).saturating_mul(len))?;
    let value = function.call(state, &args)?;
    match value.kind() {
        ValueKind::Iterable => Ok(Value::from(items(&value)?)),
        // In a query string a space becomes a plus.
        ValueKind::String if name == "urlencode" && args[0].as_object().is_some() => {
            Ok(Value::from(value.to_string().replace("%20", "+").replace('/', "%2F")))
        }
        _ => Ok(value),
    }
}

/// The filters that implement operators and statements.
fn operator(state: &mut State<'_, '_>, name: &str, value: &Value, args: &[Value]) -> Result<Value> {
    let first = args.first().cloned().unwrap_or_default();
    let name_of = first.as_str().unwrap_or_default();
    match name {
        "_call" => methods::call(state, value, name_of, args.get(1..).unwrap_or_default()),
        "_compare" => operators::compare(value, args).map(Value::from),
        "_dict" => dict(items(value)?.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()))),
        "_item" => operators::item(value, &first),
        "_iter" => Ok(if value.is_tuple() { value.clone() } else { Value::from(items(value)?) }),
        "_method" if super::value::is_dict(value) => {
            let (dict, name) = (value.clone(), name_of.to_owned());
            Ok(Value::from_function(move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
                methods::call(state, &dict, &name, &args.into_values())
            }))
        }
        "_method" => value.get_attr(name_of),
        "_number" => Ok(operators::number(value)),
        "_operate" => operators::operate(value, args),
        "_pay" => {
            budget::scan(value.as_str().map_or(0, str::len))?;
            budget::elements(value.as_object().and_then(DynObject::enumerator_len).unwrap_or(0))?;
            Ok(value.clone())
        }
        "_slice" => operators::slice(value, args),
        "_spread" => walk(value).map(|_| value.clone()),
        "_store" => must_be_plain(value).map(|()| value.clone()),
        _ => budget::bytes(value.as_usize().unwrap_or(0)).map(|()| Value::from("")),
    }
}

fn own(state: &mut State<'_, '_>, name: &str, value: &Value, args: &[Value]) -> Result<Value> {
    if name.starts_with('_') {
        return operator(state, name, value, args);
    }
    let mut size = value.as_str().map_or(0, str::len);
    for arg in args {
        size += walk(arg)?;
    }
    if ["escape", "forceescape", "e", "indent", "truncate", "wordcount"].contains(&name) {
        budget::chars(size)?;
    } else {
        budget::scan(size)?;
    }
    match name {
        // Of all else Jinja's `attr` gives no items.
        "attr" if is_instance(value, "::Namespace") => {
            value.get_attr(&args.first().map_or_else(String::new, Value::to_string))
        }
        "attr" => Ok(Value::UNDEFINED),
        "capitalize" | "center" | "lower" | "replace" | "trim" | "upper" => {
            let method = if name == "trim" { "strip" } else { name };
            let text = if value.as_str().is_some() { value.clone() } else { Value::from(print::str(value)?) };
            methods::call(state, &text, method, args)
        }
        "e" | "escape" | "forceescape" => {
            let text = print::str(value)?;
            budget::bytes(5 * text.len())?;
            let signs = [("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\"", "&#34;"), ("'", "&#39;")];
            Ok(Value::from(signs.iter().fold(text, |text, (sign, entity)| text.replace(sign, entity))))
        }
        "first" => Ok(items(value)?.into_iter().next().unwrap_or_default()),
        "format" => print::formatted(FormatStyle::Printf, &print::str(value)?, args),
        "indent" => indent(value, args),
        "int" | "float" => number(state, name, value, args),
        "join" => {
            let [separator, attribute] = bind(name, args, ["d", "attribute"])?;
            let parts = items(value)?.into_iter().map(|item| by_attribute(item, attribute.as_ref()));
            methods::join(&parts.collect::<Result<Vec<_>>>()?, &print::str(&separator.unwrap_or_default())?)
        }
        "last" => Ok(items(value)?.pop().unwrap_or_default()),
        "length" | "count" => match value.len() {
            Some(len) => Ok(Value::from(len)),
            None if value.is_undefined() => Ok(Value::from(0)),
            None => fail(format!("a {} has no length", type_name(value))),
        },
        "list" => items(value).map(Value::from),
        "reverse" => match value.as_str() {
            Some(text) => {
                budget::chars(text.len()).map(|()| Value::from(text.chars().rev().collect::<String>()))
            }
            None => Ok(items(value)?.into_iter().rev().collect()),
        },
        "sort" => {
            let [reverse, case_sensitive, attribute] =
                bind(name, args, ["reverse", "case_sensitive", "attribute"])?;
            let (mut keyed, reverse) = (keyed(value, [case_sensitive, attribute])?, flag(reverse.as_ref()));
            // Equal items keep their order in both directions.
            if reverse {
                keyed.reverse();
            }
            let sorted = sorted(keyed)?.into_iter().map(|(_, item)| item);
            Ok(if reverse { sorted.rev().collect() } else { sorted.collect() })
        }
        "string" | "safe" => print::str(value).map(Value::from),
        "sum" => {
            let [attribute, start] = bind(name, args, ["attribute", "start"])?;
            items(value)?.into_iter().try_fold(start.unwrap_or(Value::from(0)), |total, item| {
                operators::add(&total, &by_attribute(item, attribute.as_ref())?)
            })
        }
        "tojson" => print::tojson(value, args),
        "truncate" => {
            let names = ["length", "killwords", "end", "leeway"];
            let given = names.into_iter().zip(bind(name, args, names)?);
            let given = given.filter_map(|(name, value)| Some((name, value?)));
            contrib::truncate(state, &Value::from(print::str(value)?), given.collect())
        }
        "unique" => {
            let (mut seen, mut out) = (HashSet::new(), Vec::new());
            for (key, item) in keyed(value, bind(name, args, ["case_sensitive", "attribute"])?)? {
                budget::steps(2)?;
                if seen.insert(hashed(&key)?) {
                    out.push(item);
                }
            }
            Ok(Value::from(out))
        }
        _ => {
            let text = print::str(value)?;
            budget::chars(text.len())?;
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
            let path = path.as_str().unwrap_or_default();
            budget::steps(path.len())?;
            path.split('.').try_fold(item, |value, part| {
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
        let key = match key.as_str() {
            Some(text) if !flag(case_sensitive.as_ref()) => {
                budget::chars(text.len())?;
                Value::from(text.to_lowercase())
            }
            _ => operators::number(&key),
        };
        Ok((key, item))
    });
    keyed.collect()
}

/// Sorts entries by key, stably. All keys must be comparable.
pub(super) fn sorted<T>(mut items: Vec<(Value, T)>) -> Result<Vec<(Value, T)>> {
    let comparisons = items.len().checked_ilog2().unwrap_or(0) + 1;
    for (key, _) in &items {
        operators::order(&items[0].0, key)?;
        for _ in 0..comparisons {
            walk(key)?;
        }
    }
    // Unlike `order` this is a total order, also of what holds NaN.
    items.sort_by(|(a, _), (b, _)| a.cmp(b));
    for pair in items.windows(2) {
        operators::order(&pair[0].0, &pair[1].0)?;
    }
    Ok(items)
}

fn indent(value: &Value, args: &[Value]) -> Result<Value> {
    let [width, first, blank] = bind("indent", args, ["width", "first", "blank"])?;
    let indention = match width.as_ref().and_then(Value::as_str) {
        Some(indention) => indention.to_owned(),
        None => spaces("indent", width.as_ref(), 4)?,
    };
    let Some(value) = value.as_str() else {
        return fail(format!("indent takes a text, got {}", type_name(value)));
    };
    // A trailing line break begins another line.
    let value = format!("{value}\n");
    let mut out = String::new();
    for (index, line) in lines(&value, false).into_iter().enumerate() {
        push(&mut out, if index > 0 { "\n" } else { "" })?;
        let is_indented =
            if index == 0 { flag(first.as_ref()) } else { flag(blank.as_ref()) || !line.is_empty() };
        push(&mut out, if is_indented { &indention } else { "" })?;
        push(&mut out, line)?;
    }
    Ok(Value::from(out))
}

/// `int` and `float`: minijinja's, with Python's white space and underscores between digits.
fn number(state: &mut State<'_, '_>, name: &str, value: &Value, args: &[Value]) -> Result<Value> {
    let [default, base] = bind(name, args, ["default", "base"])?;
    must_be_defined(value)?;
    let digits = value.as_str().map(|text| Value::from(strip(text, None, true, true).replace('_', "")));
    let (function, zero) = match name {
        "int" => (Value::from_function(native::int), Value::from(0)),
        _ => (Value::from_function(native::float), Value::from(0.0)),
    };
    let args = [Some(digits.unwrap_or(value.clone())), default.or(Some(zero)), base];
    function.call(state, &args.into_iter().flatten().collect::<Vec<_>>())
}
