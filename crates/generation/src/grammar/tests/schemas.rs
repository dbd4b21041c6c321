//! Every keyword of JSON Schema and of `OpenAPI`: followed, without effect, or refused.

use serde_json::{Value, json};

use super::super::keywords::{KEYWORDS, Keyword};
use super::{config, context, is_accepted, plan, refusal};

/// `followed`: a keyword, a schema, texts that it accepts, and texts that it rejects. `refused`: a keyword, a
/// schema, and the place and a part of the message. `malformed`: a schema, and what a value must be.
fn table(name: &str) -> Vec<Vec<Value>> {
    let rows: Value = serde_json::from_str(include_str!("schemas.json")).unwrap();
    let rows = rows[name].as_array().unwrap();
    rows.iter().map(|row| row.as_array().unwrap().clone()).collect()
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap())
}

/// What llguidance says, and users of schemas should not read.
const FOREIGN: [&str; 12] = [
    "Unimplemented",
    "lookaround",
    "Expected",
    "Unsatisfiable",
    "not found",
    "regex ",
    "RegexAst",
    "lenient",
    "coerce",
    "Unknown",
    "Invalid",
    "panic",
];

/// The keywords of JSON Schema 2020-12, by the vocabularies of its meta-schema.
const DRAFT_2020_12: [(&str, &[&str]); 8] = [
    (
        "core",
        &[
            "$anchor",
            "$comment",
            "$defs",
            "$dynamicAnchor",
            "$dynamicRef",
            "$id",
            "$ref",
            "$schema",
            "$vocabulary",
        ],
    ),
    (
        "applicator",
        &[
            "additionalProperties",
            "allOf",
            "anyOf",
            "contains",
            "dependentSchemas",
            "else",
            "if",
            "items",
            "not",
            "oneOf",
            "patternProperties",
            "prefixItems",
            "properties",
            "propertyNames",
            "then",
        ],
    ),
    ("unevaluated", &["unevaluatedItems", "unevaluatedProperties"]),
    (
        "validation",
        &[
            "const",
            "dependentRequired",
            "enum",
            "exclusiveMaximum",
            "exclusiveMinimum",
            "maxContains",
            "maxItems",
            "maxLength",
            "maxProperties",
            "maximum",
            "minContains",
            "minItems",
            "minLength",
            "minProperties",
            "minimum",
            "multipleOf",
            "pattern",
            "required",
            "type",
            "uniqueItems",
        ],
    ),
    ("meta-data", &["default", "deprecated", "description", "examples", "readOnly", "title", "writeOnly"]),
    ("format", &["format"]),
    ("content", &["contentEncoding", "contentMediaType", "contentSchema"]),
    ("deprecated", &["$recursiveAnchor", "$recursiveRef", "definitions", "dependencies"]),
];

#[test]
fn each_keyword_of_2020_12_is_in_the_table() {
    for (vocabulary, names) in DRAFT_2020_12 {
        for name in names {
            assert!(KEYWORDS.iter().any(|(known, _)| known == name), "{vocabulary}: {name}");
        }
    }
}

/// Whatever a keyword has for a value, alone and beside each type.
#[test]
fn any_value_of_any_keyword_is_taken_or_refused_with_its_place() {
    let values = json!([
        null, true, false, 0, -1, 3, 1.5, 1e300, "", "a", "(", "#", "#/a", [], [3], ["a"], [{}], [[]], {}, {"a": 3}, {"a": {}},
        {"(": {}}, {"a": ["b"]}, {"type": "integer"}, {"const": 3}
    ]);
    let (context, mut refused) = (context(), 0);
    for (name, keyword) in KEYWORDS {
        for value in values.as_array().unwrap() {
            let schema = json!({"type": "object", "properties": {"a/b": {"items": {name: value}}}});
            let Err(error) = plan(&config().json_schema(schema), &context) else { continue };
            let message = error.to_string();
            assert_ne!(keyword, Keyword::Annotation, "{name}: {message}");
            let place = "at `#/properties/a~1b/items";
            assert!(message.contains("`json_schema`") && message.contains(place), "{name}: {message}");
            let remedy =
                ["; correct it", "; leave it out", "; simplify it", "where a schema must be", "must be"];
            assert!(remedy.iter().any(|remedy| message.contains(remedy)), "{name}: {message}");
            assert!(FOREIGN.iter().all(|foreign| !message.contains(foreign)), "{name}: {message}");
            refused += 1;
        }
    }
    assert!(refused > 400, "{refused}");
}

#[test]
fn each_keyword_is_followed_or_annotates_or_is_refused() {
    let (followed, refused) = (table("followed"), table("refused"));
    for (name, keyword) in KEYWORDS {
        let is_followed = followed.iter().any(|row| row[0] == name);
        let is_refused = refused.iter().any(|row| row[0] == name);
        match keyword {
            Keyword::Annotation => assert!(!is_followed && !is_refused, "{name}"),
            Keyword::Refused => assert!(is_refused && !is_followed, "{name}"),
            _ => assert!(is_followed, "{name} has no example"),
        }
    }
}

#[test]
fn keywords_that_are_followed_accept_and_reject() {
    for row in table("followed") {
        let [keyword, schema, accepted, rejected] = &row[..] else { panic!("{row:?}") };
        let config = config().json_schema(schema.clone());
        assert!(accepted != &json!([]) && rejected != &json!([]), "{row:?}");
        for text in texts(accepted) {
            assert!(is_accepted(&config, text), "{keyword}: {schema} rejects {text}");
        }
        for text in texts(rejected) {
            assert!(!is_accepted(&config, text), "{keyword}: {schema} accepts {text}");
        }
    }
}

#[test]
fn annotations_change_nothing() {
    let formats = [
        "int32",
        "int64",
        "double",
        "float",
        "phone",
        "password",
        "binary",
        "byte",
        "path",
        "file-path",
        "json-string",
        "uri-reference",
        "iri",
        "regex",
        "json-pointer",
        "uuid4",
        "unknown",
        "custom",
    ];
    let known = KEYWORDS.iter().filter(|(_, keyword)| *keyword == Keyword::Annotation);
    let names = known.map(|(name, _)| (*name, json!({"type": "null"})));
    let others = ["x-order", "markdownDescription", "errorMessage", "if-then", "enumNames", "propertyOrder"];
    let others = others.map(|name| (name, json!(["a"])));
    let neutral = [
        ("uniqueItems", json!(false)),
        ("dependentRequired", json!({})),
        ("unevaluatedProperties", json!({})),
        ("not", json!(false)),
        ("then", json!({"type": "null"})),
        ("minContains", json!(2)),
    ];
    let formats = formats.map(|name| ("format", json!(name)));
    for (name, value) in names.chain(others).chain(neutral).chain(formats) {
        let config = config().json_schema(json!({"type": ["integer", "string"], name: value}));
        assert!(
            is_accepted(&config, "7") && is_accepted(&config, "\"a\"") && !is_accepted(&config, "null"),
            "{name}"
        );
    }
}

#[test]
fn what_cannot_be_followed_is_refused_with_its_place() {
    let mut all = Vec::new();
    for row in table("refused") {
        let [keyword, schema, place, part] = &row[..] else { panic!("{row:?}") };
        let message = refusal(&config().json_schema(schema.clone()));
        let at = format!("at `{}`", place.as_str().unwrap());
        assert!(message.contains(part.as_str().unwrap()) && message.contains(&at), "{keyword}: {message}");
        all.push(message);
    }
    for row in table("malformed") {
        let message = refusal(&config().json_schema(json!({ "items": row[0] })));
        assert!(message.contains(row[1].as_str().unwrap()) && message.contains("at `#/items"), "{message}");
        all.push(message);
    }
    for message in all {
        assert!(FOREIGN.iter().all(|foreign| !message.contains(foreign)), "{message}");
    }
}

#[test]
fn one_of_several_schemas_that_no_value_satisfies_leaves_the_others() {
    let schema = json!({"anyOf": [{"type": "null"}, {"type": "string", "minLength": 5, "maxLength": 3}]});
    assert!(is_accepted(&config().json_schema(schema), "null"));
}

/// `tools/golden/pydantic_schemas.py` says how they were made.
#[test]
fn the_schemas_of_pydantic_accept_what_pydantic_writes() {
    let models: Vec<Value> = serde_json::from_str(include_str!("pydantic.json")).unwrap();
    for model in models {
        let (name, config) = (&model["name"], config().json_schema(model["schema"].clone()));
        if let Some(part) = model["refused"].as_str() {
            let message = refusal(&config);
            assert!(
                message.contains(part) && message.contains("at `#/properties/field"),
                "{name}: {message}"
            );
            continue;
        }
        for text in texts(&model["accepted"]) {
            assert!(is_accepted(&config, text), "{name} rejects {text}: {}", model["schema"]);
        }
        for text in texts(&model["rejected"]) {
            assert!(!is_accepted(&config, text), "{name} accepts {text}: {}", model["schema"]);
        }
    }
}
