//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use super::answer::{AnswerSettings, Piece, finish_reason};
use super::fields::CHAT;
use super::generation::{self, Form};
use super::prompts;
use super::request::Request;
use crate::serve::app::App;
use crate::serve::failure::Failure;
use crate::serve::json::Admitted;

static FORM: Form = Form {
    route: CHAT,
    id: "chatcmpl",
    object: "chat.completion",
    chunk: "chat.completion.chunk",
    check,
    num_prompts: |_| 1,
    prompts: |generator, request, interrupted| {
        Ok(vec![prompts::encode_chat(generator, request, interrupted)?])
    },
    choice,
    first: |index| Some(part(index, &json!({ "role": "assistant", "content": "" }))),
    delta,
};

/// Replies to a conversation.
pub(super) async fn chat(State(app): State<Arc<App>>, admitted: Admitted) -> Result<Response, Failure> {
    generation::answer(app, admitted, &FORM).await
}

fn check(request: &Request) -> Result<(), Failure> {
    if request.get("messages").is_none() {
        return Err(request.missing("messages", "a list of messages"));
    }
    Ok(())
}

fn choice(settings: &AnswerSettings, index: usize, piece: &Piece) -> Value {
    json!({
        "index": index,
        "message": { "role": "assistant", "content": piece.text, "refusal": null },
        "logprobs": settings.logprobs.map(|_| settings.names.chat(&piece.tokens)),
        "finish_reason": piece.finish.map(finish_reason),
        "stop_reason": piece.stop_reason,
    })
}

/// The chunks for a piece of a reply, and for its end.
fn delta(settings: &AnswerSettings, index: usize, piece: &Piece) -> Vec<Value> {
    let mut parts = Vec::new();
    if !piece.text.is_empty() || !piece.tokens.is_empty() || piece.finish.is_none() {
        let mut content = part(index, &json!({ "content": piece.text }));
        content["logprobs"] = settings.logprobs.map(|_| settings.names.chat(&piece.tokens)).into();
        parts.push(content);
    }
    if let Some(finish) = piece.finish {
        let mut end = part(index, &json!({}));
        end["finish_reason"] = finish_reason(finish).into();
        end["stop_reason"] = piece.stop_reason.clone();
        parts.push(end);
    }
    parts
}

fn part(index: usize, delta: &Value) -> Value {
    json!({ "index": index, "delta": delta, "logprobs": null, "finish_reason": null })
}
