//! Structured output as OpenAI's and vLLM's requests ask for it: as a schema, a regular expression or a
//! grammar of [`GenerationConfig`].

use serde_json::{Map, Value, json};

use super::request::Request;
use crate::serve::failure::Failure;
use rsgen_generation::{FieldValue, GenerationConfig};

/// The fields that this file reads.
pub(super) const FIELDS: &[&str] = &[
    "response_format",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_grammar",
    "guided_choice",
];

/// Sets the field of the configuration that the request asks for in another form.
///
/// # Errors
/// When a form is not known, and when the request asks for more than one.
pub(super) fn set(request: &Request, config: &mut GenerationConfig) -> Result<(), Failure> {
    let mut asked: Option<&str> =
        ["json_schema", "regex", "grammar"].into_iter().find(|name| config.get(name).is_some());
    for &field in FIELDS {
        let Some(value) = request.get(field) else { continue };
        let found = match field {
            "response_format" => response_format(value)?,
            "structured_outputs" => structured_outputs(value)?,
            "guided_json" => Some(("json_schema", value.clone())),
            "guided_regex" => Some(("regex", value.clone())),
            "guided_grammar" => Some(("grammar", value.clone())),
            _ => Some(("grammar", choice(field, value)?)),
        };
        let Some((name, value)) = found else { continue };
        if let Some(earlier) = asked {
            let message =
                format!("`{earlier}` and `{field}` both say what form an answer has; leave out one of them");
            return Err(Failure::invalid(field, message));
        }
        asked = Some(field);
        config.set(name, &FieldValue::from(value)).map_err(|error| Failure::of(field, &error))?;
    }
    Ok(())
}

/// OpenAI's `response_format`; `None` for plain text.
fn response_format(format: &Value) -> Result<Option<(&'static str, Value)>, Failure> {
    const NAME: &str = "response_format";
    match &format["type"] {
        Value::Null => Ok(None),
        kind if kind == "text" => Ok(None),
        // `value` is TGI's form, into which huggingface_hub rewrites OpenAI's.
        kind if kind == "json_object" => Ok(Some(match format.get("value") {
            Some(schema) if !schema.is_null() => ("json_schema", schema.clone()),
            _ => ("json_schema", json!({ "type": "object" })),
        })),
        kind if kind == "json_schema" => {
            let given = &format["json_schema"];
            match given.get("schema").or_else(|| given.get("json_schema")) {
                Some(schema) if !schema.is_null() => {
                    let mut schema = schema.clone();
                    if given["strict"] == true {
                        close(&mut schema);
                    }
                    Ok(Some(("json_schema", schema)))
                }
                _ => Err(Failure::invalid(
                    NAME,
                    "`response_format` of the type \"json_schema\" needs `json_schema: {\"schema\": …}`; add the schema",
                )),
            }
        }
        kind => Err(Failure::unsupported(
            NAME,
            format!(
                "`response_format` must be of the type \"text\", \"json_object\" or \"json_schema\", but is {}",
                FieldValue::from(kind.clone())
            ),
        )),
    }
}

/// The keywords by which schemas describe an object together.
const OTHERS: [&str; 5] = ["$ref", "allOf", "anyOf", "oneOf", "unevaluatedProperties"];

/// Closes the objects of a schema whose properties are listed, as OpenAI's strict mode wants them. Not those that
/// several schemas describe together: each of them speaks of some of the properties.
pub(super) fn close(schema: &mut Value) {
    let keywords = match schema {
        Value::Array(list) => return list.iter_mut().for_each(close),
        Value::Object(keywords) => keywords,
        _ => return,
    };
    if keywords.contains_key("properties") && !OTHERS.iter().any(|other| keywords.contains_key(*other)) {
        keywords.entry("additionalProperties").or_insert(Value::Bool(false));
    }
    for (keyword, value) in keywords {
        match (keyword.as_str(), value) {
            ("anyOf" | "oneOf" | "prefixItems" | "items" | "additionalProperties", value) => close(value),
            ("$defs" | "definitions" | "properties" | "patternProperties", Value::Object(map)) => {
                map.values_mut().for_each(close);
            }
            _ => {}
        }
    }
}

/// vLLM's `structured_outputs`: an object with one key that says the form, and perhaps options, which change
/// nothing here.
fn structured_outputs(value: &Value) -> Result<Option<(&'static str, Value)>, Failure> {
    const NAME: &str = "structured_outputs";
    const FORMS: [&str; 5] = ["json", "json_object", "regex", "grammar", "choice"];
    let empty = Map::new();
    let object = value.as_object().unwrap_or(&empty);
    let is_set = |form: &&str| object.get(*form).is_some_and(|value| !value.is_null() && *value != false);
    let forms: Vec<&str> = FORMS.into_iter().filter(is_set).collect();
    let [form] = forms[..] else {
        let message = format!(
            "`structured_outputs` must hold one of `{}`, but holds {}",
            FORMS.join("`, `"),
            if forms.is_empty() { "none".to_owned() } else { forms.join(" and ") }
        );
        return Err(Failure::invalid(NAME, message));
    };
    let value = object[form].clone();
    Ok(Some(match form {
        "json" => ("json_schema", value),
        "json_object" => ("json_schema", json!({ "type": "object" })),
        "regex" => ("regex", value),
        "grammar" => ("grammar", value),
        _ => ("grammar", choice(NAME, &value)?),
    }))
}

/// The grammar of one of several texts.
fn choice(field: &str, texts: &Value) -> Result<Value, Failure> {
    let quoted = |text: &Value| {
        text.as_str().filter(|text| !text.is_empty()).map(|text| Value::from(text).to_string())
    };
    let one = [texts.clone()];
    let texts = texts.as_array().map_or(&one[..], Vec::as_slice);
    let texts: Option<Vec<String>> = texts.iter().map(quoted).collect();
    let texts = texts.filter(|texts| !texts.is_empty()).ok_or_else(|| {
        Failure::invalid(field, format!("`{field}` must list the texts to choose from, none of them empty"))
    })?;
    Ok(format!("start: {}", texts.join(" | ")).into())
}
