//! `GET /openapi.json`: the API in the form of `OpenAPI` 3.1, made from the table of fields.

use axum::Json;
use serde_json::{Map, Value, json};

use super::fields::{
    self, CHAT, COMPLETIONS, COUNT_TOKENS, DETOKENIZE, EMBEDDINGS, Field, GENERATE, LIBRETRANSLATE, MESSAGES,
    OLLAMA_CHAT, OLLAMA_EMBED, OLLAMA_GENERATE, OLLAMA_SHOW, RERANK, RESPONSES, Routes, SCORE, TEMPLATE,
    TOKENIZE, TRANSLATE,
};
use super::usage::IGNORED;
use crate::serve::forms;
use crate::serve::gate::{LIVE, READY};
use crate::serve::json::Named;
use crate::serve::routes::METRICS;
use crate::serve::shapes::{self, Shape};

/// A route that takes a body: its path, name and summary, its route, the fields that it requires, those that
/// an answer always has, with their types, and whether it streams.
type Operation = (
    &'static str,
    &'static str,
    &'static str,
    Routes,
    &'static [&'static str],
    &'static [(&'static str, &'static str)],
    bool,
);

#[rustfmt::skip]
const OPERATIONS: &[Operation] = &[
    ("/v1/completions", "createCompletion", "Continues prompts.", COMPLETIONS, &["prompt"], COMPLETION, true),
    ("/v1/chat/completions", "createChatCompletion", "Replies to a conversation.", CHAT, &["messages"], COMPLETION, true),
    ("/v1/responses", "createResponse", "Answers a conversation, and keeps the response to go on with.", RESPONSES, &["input"], RESPONSE, true),
    ("/v1/embeddings", "createEmbedding", "The vectors of texts.", EMBEDDINGS, &["input"], LIST, false),
    ("/v1/score", "score", "How alike pairs of texts are: the cosine of their vectors.", SCORE, &[], LIST, false),
    ("/v1/rerank", "rerank", "Orders documents by how alike they are to a query.",
     RERANK, &["query", "documents"], &[("id", "string"), ("model", "string"), ("results", "array"), ("usage", "object")], false),
    (shapes::MESSAGES, "createMessage", "Replies to a conversation, as Anthropic's API does.",
     MESSAGES, &["messages", "max_tokens"], &[("id", "string"), ("content", "array"), ("usage", "object")], true),
    ("/v1/messages/count_tokens", "countTokens", "The tokens of a conversation, as Anthropic's API counts them.",
     COUNT_TOKENS, &["messages"], &[("input_tokens", "integer")], false),
    ("/api/chat", "ollamaChat", "Replies to a conversation, as Ollama does.",
     OLLAMA_CHAT, &[], &[("model", "string"), ("created_at", "string"), ("message", "object"), ("done", "boolean")], true),
    ("/api/generate", "ollamaGenerate", "Answers a prompt, as Ollama does.",
     OLLAMA_GENERATE, &[], &[("model", "string"), ("created_at", "string"), ("response", "string"), ("done", "boolean")], true),
    ("/api/embed", "ollamaEmbed", "The vectors of texts, as Ollama answers them.",
     OLLAMA_EMBED, &["input"], &[("model", "string"), ("embeddings", "array"), ("prompt_eval_count", "integer")], false),
    ("/api/show", "ollamaShow", "The model, as Ollama describes it.",
     OLLAMA_SHOW, &[], &[("details", "object"), ("model_info", "object"), ("capabilities", "array")], false),
    ("/rsgen/v1/generate", "generate", "Generates with transformers' names and defaults; its events tell how each token was found.",
     GENERATE, &[], &[("id", "string"), ("model", "string"), ("rows", "array"), ("usage", "object")], true),
    ("/rsgen/v1/translate", "translate", "Translates with a model that has an encoder, with transformers' names and defaults.",
     TRANSLATE, &["texts"], &[("id", "string"), ("model", "string"), ("rows", "array"), ("usage", "object")], true),
    (forms::TRANSLATE, "libreTranslate", "Translates as LibreTranslate does; the body may be a form, too.",
     LIBRETRANSLATE, &["q", "source", "target"], &[], false),
    ("/tokenize", "tokenize", "The tokens of a text or of a conversation.",
     TOKENIZE, &[], &[("count", "integer"), ("max_model_len", "integer"), ("tokens", "array")], false),
    ("/detokenize", "detokenize", "The text of tokens.", DETOKENIZE, &["tokens"], &[("prompt", "string")], false),
    ("/apply-template", "applyTemplate", "The prompt that the model's template makes of a conversation.",
     TEMPLATE, &["messages"], &[("prompt", "string")], false),
];

const RESPONSE: &[(&str, &str)] = &[
    ("id", "string"),
    ("object", "string"),
    ("created_at", "integer"),
    ("status", "string"),
    ("model", "string"),
    ("output", "array"),
];

const LIST: &[(&str, &str)] = &[
    ("id", "string"),
    ("object", "string"),
    ("created", "integer"),
    ("model", "string"),
    ("data", "array"),
    ("usage", "object"),
];

const COMPLETION: &[(&str, &str)] = &[
    ("id", "string"),
    ("object", "string"),
    ("created", "integer"),
    ("model", "string"),
    ("system_fingerprint", "string"),
    ("choices", "array"),
    ("usage", "object"),
];

/// The schemas of errors: as OpenAI writes them, as LibreTranslate and Ollama do, and as Anthropic does.
const ERROR: &str = "Error";
const PLAIN_ERROR: &str = "PlainError";
const ANTHROPIC_ERROR: &str = "AnthropicError";

/// The statuses of errors, with what they mean.
const ERRORS: &[(&str, &str)] = &[
    ("400", "A field breaks a rule; `param` names it."),
    ("401", "The API key is missing or wrong."),
    ("403", "The `Host` or `Origin` of the request is not allowed."),
    ("404", "There is no such model or route."),
    ("405", "The route has no such method."),
    ("408", "The body did not arrive in time."),
    ("413", "The body is too large."),
    ("415", "The body is not JSON."),
    ("429", "The key has as many requests as it may have; `Retry-After` says when to come again."),
    ("500", "A defect of the server."),
    ("503", "The server is full, loading its model or shutting down; `Retry-After` says when to come again."),
];

/// Describes the API, with the token ids of the model.
pub(super) async fn openapi(Named(app): Named) -> Json<Value> {
    let mut description = describe(app.generator.engine().model().vocab_size().saturating_sub(1));
    if !app.state.options.api_keys.is_empty() {
        description["security"] = json!([{ "key": [] }]);
    }
    Json(description)
}

/// `last` is the greatest token id.
fn describe(last: usize) -> Value {
    let mut paths = Map::new();
    for operation in OPERATIONS {
        paths.insert(operation.0.to_owned(), json!({ "post": post(operation, last) }));
    }
    for (path, name, summary, answer) in READS {
        let answer = if *path == forms::LANGUAGES { json!({ "type": "array" }) } else { object(answer) };
        let mut get =
            json!({ "operationId": name, "summary": summary, "responses": responses(path, &answer, false) });
        if path.contains("{id}") {
            get["parameters"] = json!([{ "name": "id", "in": "path", "required": true, "schema": { "type": "string", "minLength": 1 } }]);
        }
        match *path {
            RESPONSE_ITEMS => {
                if let Some(parameters) = get["parameters"].as_array_mut() {
                    parameters.extend(page());
                }
            }
            METRICS => {
                let text = json!({ "schema": { "type": "string" } });
                get["responses"]["200"]["content"] = json!({ "text/plain": text });
            }
            LIVE | READY => get["security"] = json!([]),
            _ => {}
        }
        let mut methods = json!({ "get": get });
        if *path == ONE_RESPONSE {
            let answer = object(&[("id", "string"), ("object", "string"), ("deleted", "boolean")]);
            methods["delete"] = json!({
                "operationId": "deleteResponse",
                "summary": "Forgets a response that is kept.",
                "parameters": methods["get"]["parameters"],
                "responses": responses(path, &answer, false),
            });
        }
        paths.insert((*path).to_owned(), methods);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "rsgen",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "OpenAI's API for one model, with every decoding strategy of transformers' `generate()`.",
            "license": { "name": env!("CARGO_PKG_LICENSE") },
        },
        "paths": paths,
        "components": {
            "schemas": {
                ERROR: error(),
                PLAIN_ERROR: object(&[("error", "string")]),
                ANTHROPIC_ERROR: object(&[("type", "string"), ("error", "object")]),
            },
            "securitySchemes": { "key": { "type": "http", "scheme": "bearer" } },
        },
    })
}

/// The parameters of a list that is read page by page.
fn page() -> [Value; 3] {
    let limit = json!({ "type": "integer", "minimum": 1, "maximum": 100 });
    let order = json!({ "type": "string", "enum": ["asc", "desc"] });
    [("limit", limit), ("order", order), ("after", json!({ "type": "string" }))]
        .map(|(name, schema)| json!({ "name": name, "in": "query", "schema": schema }))
}

/// A route without a body: path, name, summary, fields of the answer.
type Read = (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)]);

const ONE_RESPONSE: &str = "/v1/responses/{id}";
const RESPONSE_ITEMS: &str = "/v1/responses/{id}/input_items";

const READS: &[Read] = &[
    (ONE_RESPONSE, "retrieveResponse", "A response that is kept.", RESPONSE),
    (
        RESPONSE_ITEMS,
        "listInputItems",
        "The items that a response which is kept answers.",
        &[("object", "string"), ("data", "array"), ("has_more", "boolean")],
    ),
    ("/v1/models", "listModels", "The models.", &[("object", "string"), ("data", "array")]),
    (
        "/v1/models/{id}",
        "retrieveModel",
        "A model.",
        &[
            ("id", "string"),
            ("object", "string"),
            ("created", "integer"),
            ("status", "object"),
            ("meta", "object"),
        ],
    ),
    (
        forms::LANGUAGES,
        "languages",
        "The languages of a model that translates, as LibreTranslate lists them.",
        &[],
    ),
    (
        "/tokenizer_info",
        "tokenizerInfo",
        "The special tokens and the chat template.",
        &[("vocab_size", "integer")],
    ),
    ("/health", "health", "Whether the server takes requests, and how busy it is.", HEALTH),
    (READY, "ready", "The same; without a key only whether.", &[("status", "string")]),
    (LIVE, "live", "Whether the process lives.", &[("status", "string")]),
    (METRICS, "metrics", "Counters and times in Prometheus' text format.", &[]),
    ("/api/tags", "ollamaTags", "The models, as Ollama lists them.", &[("models", "array")]),
    ("/api/ps", "ollamaPs", "The models that are loaded, as Ollama lists them.", &[("models", "array")]),
    (
        "/api/version",
        "ollamaVersion",
        "The version of the server, as Ollama tells it.",
        &[("version", "string")],
    ),
    ("/version", "version", "The version of the server.", &[("version", "string")]),
    ("/openapi.json", "openapi", "This description.", &[("openapi", "string"), ("paths", "object")]),
];

const HEALTH: &[(&str, &str)] = &[
    ("status", "string"),
    ("model", "string"),
    ("models", "object"),
    ("running", "integer"),
    ("waiting", "integer"),
    ("free_blocks", "integer"),
    ("max_blocks", "integer"),
];

fn post(&(path, name, summary, route, required, answer, streams): &Operation, last: usize) -> Value {
    let properties: Map<String, Value> = fields::of_route(route)
        .map(|field| (field.name.to_owned(), property(field, required, last)))
        .collect();
    let body = json!({ "schema": { "type": "object", "properties": properties, "required": required } });
    let mut content = json!({ "application/json": body });
    if forms::is_path(path) {
        content["application/x-www-form-urlencoded"] = body;
    }
    json!({
        "operationId": name,
        "summary": summary,
        "requestBody": { "required": true, "content": content },
        "responses": responses(path, &object(answer), streams),
    })
}

fn property(field: &Field, required: &[&str], last: usize) -> Value {
    let mut schema = field.kind.schema(last);
    if required.contains(&field.name)
        && let Some(kind) = schema["type"].as_array().and_then(|kinds| kinds.first()).cloned()
    {
        schema["type"] = kind;
    }
    let default =
        if field.default.is_empty() { String::new() } else { format!(" Default: {}.", field.default) };
    let sets = if field.sets.is_empty() { String::new() } else { format!(" Sets: {}.", field.sets) };
    schema["description"] = format!("{}{default}{sets}", field.doc).into();
    schema
}

fn object(fields: &[(&str, &str)]) -> Value {
    let properties: Map<_, _> =
        fields.iter().map(|(name, kind)| ((*name).to_owned(), json!({ "type": kind }))).collect();
    let names: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
    json!({ "type": "object", "properties": properties, "required": names })
}

fn responses(path: &str, answer: &Value, streams: bool) -> Value {
    let mut content = json!({ "application/json": { "schema": answer } });
    if streams {
        // Version 3.1 has no schema for the events of a stream.
        let kind =
            if path.starts_with(shapes::OLLAMA) { "application/x-ndjson" } else { "text/event-stream" };
        content[kind] = json!({});
    }
    let ignored = json!({ "schema": { "type": "string" }, "description": "The fields that had no effect." });
    let mut responses = Map::new();
    responses.insert(
        "200".to_owned(),
        json!({ "description": "The answer.", "headers": { IGNORED: ignored }, "content": content }),
    );
    let error = match Shape::of(path) {
        Shape::OpenAi => ERROR,
        Shape::Plain => PLAIN_ERROR,
        Shape::Anthropic => ANTHROPIC_ERROR,
    };
    for (status, description) in ERRORS {
        let schema = json!({ "$ref": format!("#/components/schemas/{error}") });
        let content = json!({ "application/json": { "schema": schema } });
        responses.insert((*status).to_owned(), json!({ "description": description, "content": content }));
    }
    Value::Object(responses)
}

fn error() -> Value {
    let text = json!({ "type": ["string", "null"] });
    json!({
        "type": "object",
        "required": ["error"],
        "properties": { "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": { "message": { "type": "string" }, "type": { "type": "string" }, "param": text, "code": text },
        } },
    })
}
