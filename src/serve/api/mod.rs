//! The routes of the API: parsing of requests, and the format of answers.
//!
//! `fields` is the table of all fields; `request` checks a body against it, `decoding` makes a configuration
//! of it, and `generation` runs it. One file for each kind of route.

mod answer;
mod anthropic;
mod chat;
mod completions;
mod decoding;
mod embeddings;
mod fields;
mod foreign;
mod generate;
mod generation;
mod logprobs;
mod messages;
mod models;
mod ollama;
mod openapi;
mod prompts;
mod reasoning;
mod request;
mod responses;
mod score;
mod single;
mod stop;
mod structure;
#[cfg(all(test, feature = "bundled"))]
mod tests;
mod text;
mod tokens;
mod tools;
mod translate;
mod usage;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use super::forms;
use super::models::Models;
pub(super) use messages::Forms;
pub(super) use responses::Store;
pub(super) use usage::IGNORED;

/// The routes that need the model.
pub(super) fn routes() -> Router<Arc<Models>> {
    Router::new()
        .route("/v1/completions", post(completions::completions))
        .route("/v1/chat/completions", post(chat::chat))
        .route("/v1/responses", post(responses::create))
        .route("/v1/responses/{id}", get(responses::get).delete(responses::delete))
        .route("/v1/responses/{id}/input_items", get(responses::input_items))
        .route("/v1/embeddings", post(embeddings::embeddings))
        .route("/v1/score", post(score::score))
        .route("/v1/rerank", post(score::rerank))
        .route("/v1/messages", post(anthropic::messages))
        .route("/v1/messages/count_tokens", post(anthropic::count_tokens))
        .route("/api/chat", post(ollama::chat))
        .route("/api/generate", post(ollama::generate))
        .route("/api/embed", post(ollama::embed))
        .route("/api/show", post(ollama::show))
        .route("/api/tags", get(ollama::tags))
        .route("/api/ps", get(ollama::ps))
        .route("/api/version", get(ollama::version))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*id}", get(models::get))
        .route("/rsgen/v1/generate", post(generate::generate))
        .route("/rsgen/v1/translate", post(translate::translate))
        .route(forms::TRANSLATE, post(translate::libretranslate))
        .route(forms::LANGUAGES, get(translate::languages))
        .route(forms::DETECT, post(translate::detect))
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route("/tokenizer_info", get(tokens::tokenizer_info))
        .route("/apply-template", post(tokens::apply_template))
        .route("/openapi.json", get(openapi::openapi))
}
