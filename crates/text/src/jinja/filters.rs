//! Jinja's filters. Those of minijinja that agree with Jinja's are used as they are, charged to the budget.

use std::collections::HashSet;
use std::slice;

use minijinja::formatting::FormatStyle;
use minijinja::value::{Kwargs, Rest, ValueOrKwargs};
use minijinja::{Environment, State, Value, filters};

use super::print::{self, spaces};
use super::text::{lines, strip};
use super::value::{
    Pairs, Result, bind, fail, int, integer, is_dict, is_instance, items, must_be_defined, must_be_hashable,
    must_be_plain, type_name, walk, walk_all,
};
use super::{budget, methods, native, operators};

/// The size of arguments that cost nothing for each item.
const FREE_PATH: usize = 128;
/// The filters that implement operators and statements.
const OPERATORS: &str = "_call _compare _item _iter _key _method _number _operate _pay _slice _spread _store";
/// The filters implemented here.
const OWN: &str = "\
    attr center e escape float forceescape format indent int join list replace safe sort string sum tojson trim \
    truncate unique wordcount";
/// The filters of minijinja.
const NATIVE: &str = "\
    abs batch capitalize count d default dictsort filesizeformat first groupby items last length lower map max min \
    reject rejectattr reverse round select selectattr slice striptags title upper urlencode";

/// The names of Jinja's filters.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    OWN.split(' ').chain(NATIVE.split(' '))
}

pub(super) fn add_to(env: &mut Environment<'_>) {
    for name in OPERATORS.split(' ').chain(names()) {
        env.add_filter(name, move |state: &mut State<'_, '_>, value: Value, args: Rest<ValueOrKwargs>| {
            let args = args.into_values();
            match name {
                _ if name.starts_with('_') => operator(state, name, &value, &args),
                _ if OWN.split(' ').any(|own| own == name) => own(state, name, &value, &args),
                _ => paid(state, name, value, &args),
            }
        });
    }
}

/// A filter of minijinja, charged for visiting its arguments.
fn paid(state: &mut State<'_, '_>, name: &str, value: Value, args: &[Value]) -> Result<Value> {
    let is_text = ["capitalize", "lower", "striptags", "title", "upper"].contains(&name);
    let value = if is_text { print::text(&value)? } else { value };
    let all = [slice::from_ref(&value), args].concat();
    if ["count", "d", "default", "first", "last", "length"].contains(&name) {
        budget::scan(value.as_str().map_or(0, str::len))?;
        return native::filter(name, &all);
    }
    let (len, size, rest) = (value.len().unwrap_or(0), walk(&value)?, walk_all(args)?);
    match name {
        "batch" | "slice" => {
            let count = integer(name, args.first().unwrap_or(&Value::from(())))?.unwrap_or(0);
            budget::elements(usize::try_from(count).unwrap_or(0).saturating_add(2 * len))?;
        }
        // Keys are compared several times.
        "groupby" | "dictsort" => {
            budget::chars(size.saturating_mul(len.checked_ilog2().unwrap_or(0) as usize + 1))?;
        }
        "max" | "min" => budget::elements(len)?,
        // A filter or a test is called for each item.
        "map" | "reject" | "rejectattr" | "select" | "selectattr" => budget::elements(4 * len)?,
        _ => budget::chars(size)?,
    }
    // The path of an attribute is followed for each item.
    budget::steps(rest.saturating_sub(FREE_PATH).saturating_mul(len))?;
    match name {
        "map" => Value::from_function(filters::map).call(state, &all),
        "reject" => Value::from_function(filters::reject).call(state, &all),
        "rejectattr" => Value::from_function(filters::rejectattr).call(state, &all),
        "select" => Value::from_function(filters::select).call(state, &all),
        "selectattr" => Value::from_function(filters::selectattr).call(state, &all),
        // In a query string a space becomes a plus.
        "urlencode" if value.as_object().is_some() => {
            let text = native::filter(name, &all)?.to_string();
            Ok(Value::from(text.replace("%20", "+").replace('/', "%2F")))
        }
        _ => native::filter(name, &all),
    }
}

/// The filters that implement operators and statements.
fn operator(state: &mut State<'_, '_>, name: &str, value: &Value, args: &[Value]) -> Result<Value> {
    let first = args.first().cloned().unwrap_or_default();
    let name_of = first.as_str().unwrap_or_default();
    match name {
        "_call" => methods::call(state, value, name_of, args.get(1..).unwrap_or_default()),
        "_compare" => operators::compare(value, args).map(Value::from),
        "_item" => operators::item(value, &first),
        "_iter" => Ok(if value.is_tuple() { value.clone() } else { Value::from(items(value)?) }),
        "_key" => must_be_hashable(value).map(|()| value.clone()),
        "_method" if is_dict(value) => {
            let (dict, name) = (value.clone(), name_of.to_owned());
            Ok(Value::from_function(move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
                methods::call(state, &dict, &name, &args.into_values())
            }))
        }
        "_method" => value.get_attr(name_of),
        // A truth value as its number.
        "_number" if value.is_number() => Ok(value.clone()),
        "_number" => match int(value) {
            Some(number) => Ok(Value::from(number)),
            None => must_be_defined(value).and_then(|()| fail(format!("a {} has no sign", type_name(value)))),
        },
        "_operate" => operators::operate(value, args),
        "_slice" => operators::slice(value, args),
        "_spread" => walk(value).map(|_| value.clone()),
        "_store" => must_be_plain(value).map(|()| value.clone()),
        // `_pay`: to count its characters takes time.
        _ => budget::scan(value.as_str().map_or(0, str::len)).map(|()| value.clone()),
    }
}

fn own(state: &mut State<'_, '_>, name: &str, value: &Value, args: &[Value]) -> Result<Value> {
    let size = value.as_str().map_or(0, str::len) + walk_all(args)?;
    budget::scan(size)?;
    match name {
        // Of all else Jinja's `attr` gives no items.
        "attr" if is_instance(value, "::Namespace") => {
            value.get_attr(&args.first().map_or_else(String::new, Value::to_string))
        }
        "attr" => Ok(Value::UNDEFINED),
        "center" | "replace" | "trim" => {
            let method = if name == "trim" { "strip" } else { name };
            methods::call(state, &print::text(value)?, method, args)
        }
        "e" | "escape" | "forceescape" => {
            let text = print::str(value)?;
            budget::bytes(5 * text.len())?;
            let signs = [("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\"", "&#34;"), ("'", "&#39;")];
            Ok(Value::from(signs.iter().fold(text, |text, (sign, entity)| text.replace(sign, entity))))
        }
        "format" => print::formatted(FormatStyle::Printf, &print::str(value)?, args),
        "indent" => indent(value, args),
        "int" | "float" => number(name, value, args),
        "join" => {
            let [separator, attribute] = bind(name, args, ["d", "attribute"])?;
            let separator = if is_given(&separator, args) { print::str(&separator)? } else { String::new() };
            print::join(&attributes(state, value, &attribute)?, &separator)
        }
        "list" => items(value).map(Value::from),
        "sort" => {
            let [reverse, case_sensitive, attribute] =
                bind(name, args, ["reverse", "case_sensitive", "attribute"])?;
            let sorted = sorted(keyed(state, value, &case_sensitive, &attribute)?, reverse.is_true())?;
            Ok(sorted.into_iter().map(|(_, item)| item).collect())
        }
        "string" | "safe" => print::str(value).map(Value::from),
        "sum" => {
            let [attribute, start] = bind(name, args, ["attribute", "start"])?;
            let start = if start.is_none() { Value::from(0) } else { start };
            let mut values = attributes(state, value, &attribute)?.into_iter();
            values.try_fold(start, |total, value| operators::arithmetic(&total, "+", &value))
        }
        "tojson" => print::tojson(value, args),
        "truncate" => {
            let names = ["length", "killwords", "end", "leeway"];
            let given = names.into_iter().zip(bind(name, args, names)?);
            let given: Kwargs = given.filter(|(_, value)| !value.is_none()).collect();
            budget::chars(size)?;
            native::filter(name, &[print::text(value)?, given.into()])
        }
        "unique" => {
            let [case_sensitive, attribute] = bind(name, args, ["case_sensitive", "attribute"])?;
            let keyed = keyed(state, value, &case_sensitive, &attribute)?;
            keyed.iter().try_for_each(|(key, _)| must_be_hashable(key))?;
            let mut seen = HashSet::new();
            let first = |(key, item)| if seen.insert(key) { Some(item) } else { None };
            Ok(keyed.into_iter().filter_map(first).collect())
        }
        _ => {
            let text = print::str(value)?;
            budget::chars(text.len())?;
            let words = text.split(|char: char| !char.is_alphanumeric() && char != '_');
            Ok(Value::from(words.filter(|word| !word.is_empty()).count()))
        }
    }
}

/// Whether the first argument is given, be it none.
fn is_given(first: &Value, args: &[Value]) -> bool {
    !first.is_none() || args.first().is_some_and(|first| !first.is_kwargs())
}

/// The values of an `attribute` of the items, such as `function.name` or `0`; the items themselves without one.
fn attributes(state: &mut State<'_, '_>, value: &Value, attribute: &Value) -> Result<Vec<Value>> {
    let items = items(value)?;
    if attribute.is_none() {
        return Ok(items);
    }
    // There is nothing under an undefined name.
    let name = if attribute.is_undefined() { Value::from("") } else { attribute.clone() };
    let named = Kwargs::from_iter([("attribute", name)]);
    paid(state, "map", Value::from(items), &[named.into()])?.try_iter()?.checked().collect()
}

/// Items with their sort keys: strings in lower case, unless case matters.
fn keyed(state: &mut State<'_, '_>, value: &Value, cased: &Value, attribute: &Value) -> Result<Pairs> {
    let keys = attributes(state, value, attribute)?.into_iter().map(|key| match key.as_str() {
        Some(text) if !cased.is_true() => budget::chars(text.len()).map(|()| text.to_lowercase().into()),
        _ => Ok(key),
    });
    keys.zip(items(value)?).map(|(key, item)| Ok((key?, item))).collect()
}

/// Sorts entries by key, stably. All keys must be comparable.
pub(super) fn sorted(mut items: Pairs, reverse: bool) -> Result<Pairs> {
    for (key, _) in &items {
        (0..=items.len().ilog2()).try_for_each(|_| walk(key).map(drop))?;
    }
    // Unlike `order` this is a total order, also of what holds NaN.
    items.sort_by(|(a, _), (b, _)| if reverse { b.cmp(a) } else { a.cmp(b) });
    for pair in items.windows(2) {
        operators::order(&pair[0].0, &pair[1].0)?;
    }
    Ok(items)
}

fn indent(value: &Value, args: &[Value]) -> Result<Value> {
    let [width, first, blank] = bind("indent", args, ["width", "first", "blank"])?;
    let indention = spaces("indent", &width, 4)?;
    let Some(value) = value.as_str() else {
        return fail(format!("indent takes a text, got {}", type_name(value)));
    };
    // A trailing line break begins another line.
    let value = format!("{value}\n");
    let lines = lines(&value, false);
    budget::elements(lines.len())?;
    budget::bytes(value.len().saturating_add(lines.len().saturating_mul(indention.len())))?;
    let indented = lines.into_iter().enumerate().map(|(index, line)| match index {
        0 if !first.is_true() => line.to_owned(),
        1.. if line.is_empty() && !blank.is_true() => line.to_owned(),
        _ => format!("{indention}{line}"),
    });
    Ok(Value::from(indented.collect::<Vec<_>>().join("\n")))
}

/// `int` and `float`: minijinja's, with Python's white space and underscores between digits.
fn number(name: &str, value: &Value, args: &[Value]) -> Result<Value> {
    let [default, base] = bind(name, args, ["default", "base"])?;
    must_be_defined(value)?;
    let digits = value.as_str().map(|text| Value::from(strip(text, None, true, true).replace('_', "")));
    let zero = if name == "int" { Value::from(0) } else { Value::from(0.0) };
    let default = if is_given(&default, args) { default } else { zero };
    let args = [digits.unwrap_or(value.clone()), default, base];
    native::filter(name, &args[..if args[2].is_none() { 2 } else { 3 }])
}
