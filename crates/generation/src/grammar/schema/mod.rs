//! A JSON schema as llguidance takes it: every keyword that has an effect is checked and, where llguidance
//! knows it in another form, brought into that form; what annotates is left out. What cannot be followed is an
//! error that names the keyword and its place.

mod look_ahead;
mod names;
mod one_of;
mod references;

use std::borrow::Cow;

use serde_json::{Map, Number, Value, json};

use rsgen_core::error::{Error, Result};
use rsgen_core::escape;

use super::classes;
use super::keywords::{Keyword, keyword};
use references::refers;

/// The whitespace between the parts of a JSON text, where there is any. With more to choose from, small
/// models go on with whitespace for as long as they may.
const WHITESPACE: &str = r"\x20";

const DATE: &str = "[1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))";
const TIME: &str =
    r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?([zZ]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
/// The formats that llguidance follows. Its dates have years of 0 and a 29th of February in each, its times
/// the 60th second.
const FORMATS: [&str; 7] = ["duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"];
const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];
/// Keywords that apply other schemas to the same value.
const APPLICATORS: [&str; 4] = ["$ref", "allOf", "anyOf", "oneOf"];
/// Whole numbers beyond it are rounded.
const MAX_EXACT: u128 = 1 << 53;

/// A schema as llguidance takes it, with the options for its text.
///
/// # Errors
/// `Config` about `field` for a keyword that is not supported, and for one whose value is none, with its place.
pub(super) fn checked(schema: &Value, field: &'static str) -> Result<Value> {
    let mut checked = match part(schema, "#", field)? {
        Value::Object(keywords) => keywords,
        Value::Bool(true) => Map::new(),
        nothing => return Ok(nothing),
    };
    let mut options = schema.get("x-guidance").cloned().unwrap_or_else(|| json!({}));
    if let Value::Object(options) = &mut options {
        for option in ["item_separator", "key_separator", "whitespace_pattern"] {
            if let Some(Value::String(pattern)) = options.get_mut(option)
                && let Ok(ascii) = classes::ascii(pattern)
            {
                *pattern = ascii;
            }
        }
        if !options.contains_key("whitespace_flexible") && !options.contains_key("whitespace_pattern") {
            options.insert("whitespace_pattern".to_owned(), WHITESPACE.into());
        }
    }
    checked.insert("x-guidance".to_owned(), options);
    Ok(Value::Object(checked))
}

/// The schema at a place of another, with the schemas that it refers to.
///
/// # Errors
/// As for [`checked`].
pub(super) fn part(root: &Value, place: &str, field: &'static str) -> Result<Value> {
    let mut walk = Walk { root, field, references: 0, targets: Vec::new() };
    let mut checked = walk.schema(walk.at(place).unwrap_or(root), place)?;
    let mut definitions = Map::new();
    while let Some(target) = walk.targets.get(definitions.len()).cloned() {
        let schema = walk.schema(walk.at(&target).unwrap_or(root), &target)?;
        definitions.insert(definitions.len().to_string(), schema);
    }
    if let Value::Object(keywords) = &mut checked
        && !definitions.is_empty()
    {
        keywords.insert("$defs".to_owned(), definitions.into());
    }
    Ok(checked)
}

/// The places of the schemas in the one at a place, and of the one that it refers to.
pub(super) fn places(root: &Value, place: &str) -> Vec<String> {
    use Keyword as K;
    let walk = Walk { root, field: "", references: 0, targets: Vec::new() };
    let Some(Value::Object(keywords)) = walk.at(place) else { return Vec::new() };
    let mut found = Vec::new();
    for (name, value) in keywords {
        let inside = join(place, name);
        match (keyword(name), value) {
            (K::Schemas | K::SchemaOrList, Value::Array(list)) => {
                found.extend((0..list.len()).map(|index| format!("{inside}/{index}")));
            }
            (K::SchemasByName | K::SchemasByPattern, Value::Object(map)) => {
                found.extend(map.keys().map(|name| join(&inside, name)));
            }
            (K::Schema | K::SchemaOrList | K::Unevaluated, _) => found.push(inside),
            (K::Reference, Value::String(reference)) => found.extend(walk.resolve(reference)),
            _ => {}
        }
    }
    found
}

struct Walk<'a> {
    root: &'a Value,
    field: &'static str,
    references: usize,
    /// The places that are referred to; the first is `#/$defs/0` of what is written.
    targets: Vec<String>,
}

impl Walk<'_> {
    /// Checks a schema and those in it.
    fn schema(&mut self, schema: &Value, place: &str) -> Result<Value> {
        use Keyword as K;
        let keywords = match schema {
            Value::Object(keywords) => keywords,
            Value::Bool(_) => return Ok(schema.clone()),
            _ => {
                return Err(self.error(&format!(
                    "has {} at `{}`, where a schema must be: an object, true or false",
                    shown(schema),
                    shown_place(place)
                )));
            }
        };
        let mut out = Map::new();
        // What must hold besides.
        let mut also = Vec::new();
        for (name, value) in keywords {
            let inside = join(place, name);
            let wrong = |must: &str| {
                self.error(&format!(
                    "has the keyword `{name}` at `{}`, which must be {must}, but is {}; correct it",
                    shown_place(place),
                    shown(value)
                ))
            };
            let checked = match keyword(name) {
                K::Annotation | K::NamesOf | K::Nullable => continue,
                _ if has_no_effect(name, value, keywords) => continue,
                K::Not if is_true(value) => return Ok(Value::Bool(false)),
                K::Unique if !value.is_boolean() => return Err(wrong("true or false")),
                K::Refused | K::Not | K::Unique => {
                    return Err(self.unsupported(&format!("the keyword `{name}`"), place));
                }
                K::Id if place != "#" && !value.as_str().is_some_and(|id| id.starts_with('#')) => {
                    if refers(schema) {
                        return Err(self.unsupported("an address in `$id` around a `$ref`", place));
                    }
                    continue;
                }
                K::Id => continue,
                K::Schema if name == "additionalItems" => {
                    // It is about what a list of items leaves over.
                    if keywords.get("items").is_some_and(Value::is_array) {
                        out.insert("items".to_owned(), self.schema(value, &inside)?);
                    }
                    continue;
                }
                K::SchemaOrList if let Value::Array(list) = value => {
                    out.insert("prefixItems".to_owned(), self.list(list, &inside)?);
                    continue;
                }
                K::Schema | K::SchemaOrList => self.schema(value, &inside)?,
                K::Unevaluated => {
                    if let Some(other) = APPLICATORS.iter().find(|other| keywords.contains_key(**other)) {
                        return Err(
                            self.unsupported(&format!("the keyword `{name}` beside `{other}`"), place)
                        );
                    }
                    // All is evaluated where there is this keyword.
                    let rest = if name == "unevaluatedItems" { "items" } else { "additionalProperties" };
                    if !keywords.contains_key(rest) {
                        out.insert(rest.to_owned(), self.schema(value, &inside)?);
                    }
                    continue;
                }
                K::Schemas => {
                    let schemas = match value.as_array().filter(|list| !list.is_empty()) {
                        Some(list) => self.list(list, &inside)?,
                        None if name == "prefixItems" && value.is_array() => continue,
                        None => return Err(wrong("a list of schemas")),
                    };
                    if name == "oneOf" && self.is_distinct(value) {
                        also.push(json!({ "anyOf": schemas }));
                        continue;
                    }
                    schemas
                }
                K::SchemasByName | K::SchemasByPattern => {
                    let map = value.as_object().ok_or_else(|| wrong("an object of schemas"))?;
                    let mut schemas = Map::new();
                    for (key, schema) in map {
                        let place = join(&inside, key);
                        let checked = self.schema(schema, &place)?;
                        let key = match keyword(name) {
                            K::SchemasByPattern => self.pattern(key, &place)?,
                            _ => key.clone(),
                        };
                        schemas.insert(key, checked);
                    }
                    schemas.into()
                }
                K::Number | K::Divisor => match value.as_f64() {
                    Some(number) if keyword(name) == K::Divisor && !is_short(number) => {
                        return Err(wrong("a number above 0 with at most 8 digits"));
                    }
                    Some(number) => bound(name, value, number),
                    None => return Err(wrong("a number")),
                },
                K::Bound => match value.as_f64() {
                    Some(number) => bound(name, value, number),
                    None if value.is_boolean() => value.clone(),
                    None => return Err(wrong("a number")),
                },
                K::Count => match value.as_f64() {
                    Some(count) if count >= 0.0 && count.fract() == 0.0 && count <= f64::from(u32::MAX) => {
                        (count as u64).into()
                    }
                    _ => return Err(wrong("a whole number from 0 to 4294967295")),
                },
                K::Pattern => {
                    let pattern = value.as_str().ok_or_else(|| wrong("a regular expression"))?;
                    let (pattern, besides) = look_ahead::split(pattern);
                    also.extend(besides.into_iter().map(|pattern| json!({ "pattern": pattern })));
                    self.pattern(&pattern, place)?.into()
                }
                K::Format => {
                    let pattern = match value.as_str().ok_or_else(|| wrong("the name of a format"))? {
                        "date" => format!("^{DATE}$"),
                        "time" => format!("^{TIME}$"),
                        "date-time" => format!("^{DATE}[tT]{TIME}$"),
                        known if FORMATS.contains(&known) => {
                            out.insert(name.clone(), known.into());
                            continue;
                        }
                        _ => continue,
                    };
                    also.push(json!({ "pattern": pattern }));
                    continue;
                }
                K::Type => {
                    let is_type = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
                    let is_list =
                        value.as_array().is_some_and(|list| !list.is_empty() && list.iter().all(is_type));
                    if !is_type(value) && !is_list {
                        return Err(wrong(&format!("one of `{}`, or a list of them", TYPES.join("`, `"))));
                    }
                    value.clone()
                }
                K::Names => match value.as_array() {
                    Some(names) if names.iter().all(Value::is_string) => value.clone(),
                    _ => return Err(wrong("a list of names")),
                },
                K::Values => match value.as_array() {
                    Some(values) if !values.is_empty() => {
                        self.check_numbers(value, place)?;
                        value.clone()
                    }
                    _ => return Err(wrong("a list of values, at least one")),
                },
                K::Value => {
                    self.check_numbers(value, place)?;
                    value.clone()
                }
                K::Reference => {
                    let reference = value.as_str().ok_or_else(|| wrong("a text"))?;
                    let target = self.resolve(reference).ok_or_else(|| {
                        wrong("the place of another schema within this one, such as `#/$defs/name`")
                    })?;
                    self.refer(target)?
                }
            };
            out.insert(name.clone(), checked);
        }
        if keywords.get("nullable") == Some(&Value::Bool(true))
            && let Some(types) = out.get_mut("type")
        {
            let mut list = types.as_array().cloned().unwrap_or_else(|| vec![types.clone()]);
            list.extend((!list.contains(&"null".into())).then(|| "null".into()));
            *types = list.into();
        }
        if let Some(names) = keywords.get("propertyNames") {
            self.name(names, &mut out, place)?;
        }
        self.check_min_properties(keywords, place)?;
        if !also.is_empty() {
            if let Some(Value::Array(all)) = out.get_mut("allOf") {
                all.extend(also);
            } else {
                out.insert("allOf".to_owned(), also.into());
            }
        }
        Ok(Value::Object(out))
    }

    fn list(&mut self, list: &[Value], place: &str) -> Result<Value> {
        let each = list.iter().enumerate();
        each.map(|(index, schema)| self.schema(schema, &format!("{place}/{index}"))).collect()
    }

    /// A pattern as llguidance takes it.
    fn pattern(&self, pattern: &str, place: &str) -> Result<String> {
        classes::ascii(pattern).map_err(|why| {
            self.error(&format!(
                "has a regular expression at `{}` that cannot be followed: {why}; simplify it",
                shown_place(place)
            ))
        })
    }

    /// Nothing keeps a model from giving a name twice, and then fewer properties are there than were counted.
    fn check_min_properties(&self, keywords: &Map<String, Value>, place: &str) -> Result<()> {
        let Some(least) = keywords.get("minProperties").and_then(Value::as_u64) else { return Ok(()) };
        let required = keywords.get("required").and_then(Value::as_array).map_or(0, Vec::len);
        if least as usize <= required.max(1) {
            return Ok(());
        }
        Err(self.unsupported("`minProperties` beyond 1 and the number of `required` properties", place))
    }

    /// llguidance holds numbers as float64.
    fn check_numbers(&self, value: &Value, place: &str) -> Result<()> {
        match value {
            Value::Number(number)
                if number.as_i128().is_some_and(|number| number.unsigned_abs() > MAX_EXACT) =>
            {
                Err(self.unsupported("a value beyond 9007199254740992", place))
            }
            Value::Array(list) => list.iter().try_for_each(|value| self.check_numbers(value, place)),
            Value::Object(map) => map.values().try_for_each(|value| self.check_numbers(value, place)),
            _ => Ok(()),
        }
    }

    fn unsupported(&self, what: &str, place: &str) -> Error {
        self.error(&format!("has {what} at `{}`, which is not supported; leave it out", shown_place(place)))
    }

    fn error(&self, message: &str) -> Error {
        Error::config(message.to_owned()).about(self.field)
    }
}

/// Whether a keyword that could not be followed says nothing here.
fn has_no_effect(name: &str, value: &Value, keywords: &Map<String, Value>) -> bool {
    let has = |name: &str| keywords.contains_key(name);
    match name {
        "uniqueItems" => {
            *value == false || keywords.get("maxItems").and_then(Value::as_u64).is_some_and(|most| most <= 1)
        }
        "dependentRequired" | "dependentSchemas" | "dependencies" => {
            value.as_object().is_some_and(Map::is_empty)
        }
        "unevaluatedItems" | "unevaluatedProperties" => is_true(value),
        "not" => *value == false,
        "if" => !has("then") && !has("else"),
        "then" | "else" => !has("if"),
        "minContains" | "maxContains" => !has("contains"),
        _ => false,
    }
}

/// Whether a schema is one of everything.
fn is_true(schema: &Value) -> bool {
    *schema == true || schema.as_object().is_some_and(Map::is_empty)
}

/// A bound that llguidance, which holds it as a float64, does not round outwards.
fn bound(name: &str, value: &Value, number: f64) -> Value {
    if value.as_number().and_then(Number::as_i128).is_none_or(|whole| whole.unsigned_abs() <= MAX_EXACT) {
        return value.clone();
    }
    if name.ends_with("aximum") { number.next_down().into() } else { number.next_up().into() }
}

/// Whether llguidance can count with a divisor: it does so in 32 bits.
fn is_short(divisor: f64) -> bool {
    let text = divisor.to_string();
    let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let digits: String = text.chars().filter(|letter| *letter != '.').collect();
    decimals <= 8 && digits.parse::<u64>().is_ok_and(|digits| (1..100_000_000).contains(&digits))
}

fn join(place: &str, key: &str) -> String {
    format!("{place}/{}", key.replace('~', "~0").replace('/', "~1"))
}

pub(super) fn shown_place(place: &str) -> Cow<'_, str> {
    escape::name(place)
}

fn shown(value: &Value) -> String {
    let short: String = value.to_string().chars().take(60).collect();
    escape::name(&short).into_owned()
}
