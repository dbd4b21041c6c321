//! Jinja's filters, by name. Those that need a browser, a line width or chance (`urlize`, `xmlattr`, `wordwrap`,
//! `pprint`, `random`) are not there.

mod numbers;
mod select;
mod sequences;
mod strings;

use super::arguments::Arguments;
use super::failure::{Failure, Result};
use super::interpreter::Interpreter;
use super::json::tojson;
use super::value::Value;

/// A filter: a value and arguments become a value.
type Filter = fn(&mut Interpreter<'_>, &Value, &Arguments) -> Result<Value>;

/// All filters, by name.
const FILTERS: &[(&str, Filter)] = &[
    ("abs", numbers::abs),
    ("attr", select::attr),
    ("batch", sequences::batch),
    ("capitalize", strings::capitalize),
    ("center", strings::center),
    ("count", sequences::length),
    ("d", select::default),
    ("default", select::default),
    ("dictsort", sequences::dictsort),
    ("e", strings::escape),
    ("escape", strings::escape),
    ("filesizeformat", numbers::filesizeformat),
    ("first", sequences::first),
    ("float", numbers::float),
    ("forceescape", strings::escape),
    ("format", strings::format),
    ("groupby", sequences::groupby),
    ("indent", strings::indent),
    ("int", numbers::int),
    ("items", sequences::items),
    ("join", strings::join),
    ("last", sequences::last),
    ("length", sequences::length),
    ("list", sequences::list),
    ("lower", strings::lower),
    ("map", select::map),
    ("max", sequences::max),
    ("min", sequences::min),
    ("reject", select::reject),
    ("rejectattr", select::rejectattr),
    ("replace", strings::replace),
    ("reverse", sequences::reverse),
    ("round", numbers::round),
    ("safe", strings::string),
    ("select", select::select),
    ("selectattr", select::selectattr),
    ("slice", sequences::slice),
    ("sort", sequences::sort),
    ("string", strings::string),
    ("striptags", strings::striptags),
    ("sum", numbers::sum),
    ("title", strings::title),
    ("tojson", |interpreter, value, arguments| tojson(interpreter, value, arguments)),
    ("trim", strings::trim),
    ("truncate", strings::truncate),
    ("unique", sequences::unique),
    ("upper", strings::upper),
    ("urlencode", strings::urlencode),
    ("wordcount", strings::wordcount),
];

/// The filter of a name.
pub(super) fn find(name: &str) -> Option<Filter> {
    let place = FILTERS.binary_search_by_key(&name, |(name, _)| name).ok()?;
    Some(FILTERS[place].1)
}

/// Applies a filter.
pub(super) fn apply(
    interpreter: &mut Interpreter<'_>,
    name: &str,
    value: &Value,
    arguments: &Arguments,
) -> Result<Value> {
    match find(name) {
        Some(filter) => filter(interpreter, value, arguments),
        None => Err(Failure::new(format!("there is no filter `{name}`"))),
    }
}

/// What an `attribute` such as `function.name` or `0` leads to; the item itself without one.
fn by_attribute(interpreter: &mut Interpreter<'_>, item: &Value, attribute: Option<&Value>) -> Result<Value> {
    match attribute {
        None | Some(Value::None) => Ok(item.clone()),
        Some(Value::Str(path)) => {
            let mut value = item.clone();
            for part in path.split('.') {
                let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
                let key = match part.parse() {
                    Ok(number) if is_number => Value::Int(number),
                    _ => interpreter.budget.text(part)?,
                };
                value = interpreter.item(&value, &key)?;
            }
            Ok(value)
        }
        Some(key) => interpreter.item(item, key),
    }
}

/// A text in lower case, unless case matters.
fn folded(interpreter: &Interpreter<'_>, value: Value, case_sensitive: bool) -> Result<Value> {
    match value {
        Value::Str(text) if !case_sensitive => interpreter.budget.text(text.to_lowercase()),
        other => Ok(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_found_by_their_names() {
        assert!(FILTERS.is_sorted_by_key(|(name, _)| name));
        assert!(FILTERS.iter().all(|(name, _)| find(name).is_some()));
        assert!(find("urlize").is_none());
    }
}
