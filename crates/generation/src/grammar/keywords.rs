//! The keywords of JSON schemas: which have an effect, which have none, and which are refused.

use serde_json::{Map, Value, json};

use rsgen_core::error::{Error, Result};
use rsgen_core::escape;

/// Keywords of JSON Schema that llguidance does not follow.
const REFUSED: [&str; 18] = [
    "$dynamicAnchor",
    "$dynamicRef",
    "$recursiveAnchor",
    "$recursiveRef",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxContains",
    "minContains",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
];
/// Keywords that hold a schema, schemas in a list, and schemas by name.
const WITH_SCHEMA: [&str; 3] = ["additionalItems", "additionalProperties", "items"];
const WITH_LIST: [&str; 5] = ["allOf", "anyOf", "items", "oneOf", "prefixItems"];
const WITH_MAP: [&str; 4] = ["$defs", "definitions", "patternProperties", "properties"];
/// The most references: each takes a level of recursion in the worst case.
const MAX_REFERENCES: usize = 2_000;
/// The whitespace between the parts of a JSON text, where there is any. With more to choose from, small
/// models go on with whitespace for as long as they may.
const WHITESPACE: &str = r"\x20";

/// A date of the years 1000 to 9999, without the days that only leap years have.
const DATE: &str = r"^[1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))$";

/// A schema as llguidance takes it.
///
/// # Errors
/// `Config` for a keyword that is not supported, with its place.
pub(super) fn checked(schema: &Value) -> Result<Value> {
    let mut walk = Walk { root: schema, references: 0 };
    let mut schema = match walk.schema(schema, "#")? {
        Value::Bool(true) => Value::Object(Map::new()),
        schema => schema,
    };
    if let Value::Object(keywords) = &mut schema {
        let options = keywords.entry("x-guidance").or_insert_with(|| json!({}));
        if let Value::Object(options) = options
            && !options.contains_key("whitespace_flexible")
            && !options.contains_key("whitespace_pattern")
        {
            options.insert("whitespace_pattern".to_owned(), WHITESPACE.into());
        }
    }
    Ok(schema)
}

struct Walk<'a> {
    root: &'a Value,
    references: usize,
}

impl Walk<'_> {
    /// Checks a schema and those in it.
    fn schema(&mut self, schema: &Value, place: &str) -> Result<Value> {
        let Value::Object(keywords) = schema else { return Ok(schema.clone()) };
        let mut out = Map::new();
        for (keyword, value) in keywords {
            let inside = || format!("{place}/{}", keyword.replace('~', "~0").replace('/', "~1"));
            let keyword = keyword.as_str();
            if keyword == "uniqueItems" && *value == Value::Bool(false) {
                continue;
            }
            if REFUSED.contains(&keyword) {
                return Err(unsupported(&format!("the keyword `{keyword}`"), place));
            }
            let checked = match value {
                Value::Array(list) if WITH_LIST.contains(&keyword) => {
                    let each = list.iter().enumerate();
                    each.map(|(index, schema)| self.schema(schema, &format!("{}/{index}", inside())))
                        .collect::<Result<Value>>()?
                }
                Value::Object(map) if WITH_MAP.contains(&keyword) => {
                    let each = map.iter().map(|(name, schema)| {
                        let place = format!("{}/{name}", inside());
                        Ok((name.clone(), self.schema(schema, &place)?))
                    });
                    Value::Object(each.collect::<Result<_>>()?)
                }
                _ if WITH_SCHEMA.contains(&keyword) => self.schema(value, &inside())?,
                _ => value.clone(),
            };
            if keyword == "$ref" {
                self.references += 1;
            }
            let is_distinct =
                keyword == "oneOf" && !keywords.contains_key("anyOf") && self.is_distinct(value);
            out.insert(if is_distinct { "anyOf" } else { keyword }.to_owned(), checked);
        }
        if self.references > MAX_REFERENCES {
            return Err(Error::config(format!(
                "may have at most {MAX_REFERENCES} keywords `$ref`; simplify it"
            ))
            .about("json_schema"));
        }
        check_min_properties(keywords, place)?;
        // llguidance's own form lets February have 29 days in every year.
        if out.get("format").is_some_and(|format| format == "date") && !out.contains_key("pattern") {
            out.remove("format");
            out.insert("pattern".to_owned(), DATE.into());
        }
        Ok(Value::Object(out))
    }

    /// Whether no object is of two of these schemas, since a property that all require has another value in
    /// each: a discriminator. Then exactly one of them holds where any of them does.
    fn is_distinct(&self, schemas: &Value) -> bool {
        let Some(schemas) = schemas.as_array() else { return false };
        let options: Option<Vec<&Map<String, Value>>> =
            schemas.iter().map(|schema| self.object(schema)).collect();
        let Some(options) = options.filter(|options| !options.is_empty()) else { return false };
        let constant = |option: &Map<String, Value>, name: &str| {
            let requires = option.get("required")?.as_array()?.iter().any(|required| required == name);
            let property = option.get("properties")?.get(name)?.as_object()?;
            let one_of_enum = property.get("enum").and_then(Value::as_array).filter(|list| list.len() == 1);
            let value = property.get("const").or_else(|| one_of_enum.map(|list| &list[0]))?;
            // Numbers have several forms.
            value.as_str().filter(|_| requires).map(str::to_owned)
        };
        let names = options[0].get("properties").and_then(Value::as_object);
        names.into_iter().flat_map(Map::keys).any(|name| {
            let values: Option<Vec<String>> = options.iter().map(|option| constant(option, name)).collect();
            values.is_some_and(|mut values| {
                values.sort_unstable();
                values.windows(2).all(|pair| pair[0] != pair[1])
            })
        })
    }

    /// The schema of objects that this one is or refers to.
    fn object<'s>(&'s self, schema: &'s Value) -> Option<&'s Map<String, Value>> {
        let keywords = schema.as_object()?;
        let found = match keywords.get("$ref") {
            Some(reference) => self.root.pointer(reference.as_str()?.strip_prefix('#')?)?.as_object()?,
            None => keywords,
        };
        (found.get("type")? == "object").then_some(found)
    }
}

/// Nothing keeps a model from giving a name twice, and then fewer properties are there than were counted.
fn check_min_properties(keywords: &Map<String, Value>, place: &str) -> Result<()> {
    let Some(least) = keywords.get("minProperties").and_then(Value::as_u64) else { return Ok(()) };
    let required = keywords.get("required").and_then(Value::as_array).map_or(0, Vec::len);
    if least as usize <= required.max(1) {
        return Ok(());
    }
    Err(unsupported("`minProperties` beyond 1 and the number of `required` properties", place))
}

fn unsupported(what: &str, place: &str) -> Error {
    let place: String = place.chars().take(200).collect();
    Error::config(format!("has {what} at `{}`, which is not supported; leave it out", escape::name(&place)))
        .about("json_schema")
}
