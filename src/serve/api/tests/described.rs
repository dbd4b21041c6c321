//! What `/openapi.json` and the documentation say of the routes and their fields.

use serde_json::Value;

use super::super::fields::{self, CHAT, COMPLETIONS, GENERATE, Kind, RESPONSES, TRANSLATE};
use super::super::foreign;
use super::get;
use crate::serve::forms;
use crate::serve::gate::{LIVE, READY};
use crate::serve::routes::METRICS;
use rsgen_generation::GenerationConfig;

#[test]
fn the_description_of_the_api_has_every_route_and_field() {
    let (status, description) = get("/openapi.json");
    assert_eq!(status, 200);
    let source = [include_str!("../mod.rs"), include_str!("../../routes.rs")].concat();
    let literal = |rest: &str| rest.split_once('"').map(|(route, _)| route.replace("{*id}", "{id}"));
    let routes = source.split(".route(\"").skip(1).filter_map(literal);
    let routes: Vec<String> =
        routes.chain([LIVE, READY, METRICS, forms::TRANSLATE, forms::LANGUAGES].map(str::to_owned)).collect();
    assert_eq!(routes.len(), description["paths"].as_object().unwrap().len());
    for route in routes {
        assert!(description["paths"][&route].is_object(), "{route}");
    }
    for field in fields::FIELDS.iter() {
        assert!(!field.doc.is_empty(), "{}", field.name);
        assert_eq!(
            field.kind.refuses(&Value::Null).is_none(),
            field.kind == Kind::Unsupported,
            "{}",
            field.name
        );
    }
    for info in GenerationConfig::FIELDS {
        for route in [COMPLETIONS, CHAT, GENERATE, TRANSLATE] {
            let known = fields::of_route(route).any(|field| field.name == info.name);
            let of_outputs = info.name.starts_with("output_")
                || info.name == "return_dict_in_generate"
                || info.name == "top_logprobs";
            let of_texts = info.name == "target_prefix";
            assert!(known || (of_outputs || of_texts) && route & fields::OF_RSGEN == 0, "{}", info.name);
        }
    }
    for route in [COMPLETIONS, CHAT, RESPONSES, fields::MESSAGES, GENERATE, TRANSLATE, fields::LIBRETRANSLATE]
    {
        let mut names: Vec<_> = fields::of_route(route).map(|field| field.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "no field is there twice");
    }
}

/// The tables of `docs/server_fields.md`.
fn tables() -> String {
    let mut text =
        "| field | routes | value | default | sets | what it does |\n|---|---|---|---|---|---|\n".to_owned();
    let routes = |routes: fields::Routes| {
        let names = [
            (COMPLETIONS, "completions"),
            (CHAT, "chat"),
            (GENERATE, "generate"),
            (TRANSLATE, "translate"),
            (fields::LIBRETRANSLATE, "libretranslate"),
            (fields::EMBEDDINGS, "embeddings"),
            (fields::SCORE, "score"),
            (fields::RERANK, "rerank"),
            (RESPONSES, "responses"),
            (fields::MESSAGES, "messages"),
            (fields::COUNT_TOKENS, "count_tokens"),
            (fields::OLLAMA_CHAT, "ollama chat"),
            (fields::OLLAMA_GENERATE, "ollama generate"),
            (fields::OLLAMA_EMBED, "ollama embed"),
            (fields::OLLAMA_SHOW, "ollama show"),
            (fields::TOKENIZE, "tokenize"),
            (fields::DETOKENIZE, "detokenize"),
            (fields::TEMPLATE, "apply-template"),
        ];
        let names = names.iter().filter(|(route, _)| routes & route != 0).map(|(_, name)| *name);
        names.collect::<Vec<_>>().join(", ")
    };
    let (own, of_config) = fields::FIELDS.split_at(fields::own().count());
    for field in own {
        let fields::Field { name, default, sets, doc, .. } = field;
        let (routes, value) = (routes(field.routes), field.kind.describe());
        text.extend([format!("| `{name}` | {routes} | {value} | {default} | {sets} | {doc} |\n")]);
    }
    text += "\nRefused, unless their value is null or the one in brackets:\n";
    let foreign = foreign::fields().map(|(name, neutral, instead)| {
        let neutral: Vec<Value> = serde_json::from_str(neutral).unwrap();
        let neutral = neutral.first().map_or(String::new(), |value| format!(" ({value})"));
        let instead = if instead.is_empty() { String::new() } else { format!(", here `{instead}`") };
        format!("`{name}`{neutral}{instead}")
    });
    text += &foreign.collect::<Vec<_>>().join("; ");
    text += ".\n\nRefused beside a penalty, which looks at the whole text here, unless their value is null or the one in brackets:\n";
    let ranges = foreign::ranges().map(|(name, neutral, _)| {
        let neutral: Vec<Value> = serde_json::from_str(neutral).unwrap();
        format!("`{name}`{}", neutral.first().map_or(String::new(), |value| format!(" ({value})")))
    });
    text += &ranges.collect::<Vec<_>>().join("; ");
    text += ".\n\nFields of `GenerationConfig`, which every request that generates may have:\n\n";
    text += "| field | value | default | what it does |\n|---|---|---|---|\n";
    for field in of_config {
        let fields::Field { name, default, doc, .. } = field;
        text.extend([format!("| `{name}` | {} | {default} | {doc} |\n", field.kind.describe())]);
    }
    text
}

#[test]
fn docs_server_fields_has_the_generated_tables() {
    let path = format!("{}/docs/server_fields.md", env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(&path).unwrap();
    let (start, rest) = page.split_once("<!-- fields -->\n").unwrap();
    let (_, end) = rest.split_once("<!-- end -->").unwrap();
    let expected = format!("{start}<!-- fields -->\n{}<!-- end -->{end}", tables());
    if std::env::var_os("RSGEN_WRITE_DOCS").is_some() {
        std::fs::write(&path, &expected).unwrap();
        return;
    }
    assert!(page == expected, "docs/server_fields.md is old: run this test with RSGEN_WRITE_DOCS=1");
}
