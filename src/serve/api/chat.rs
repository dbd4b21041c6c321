//! `POST /v1/chat/completions`.

use axum::response::Response;
use serde_json::{Value, json};

use super::answer::{AnswerSettings, Choice, Content, Piece};
use super::fields::CHAT;
use super::generation::{self, Form};
use super::logprobs::Logprobs;
use super::prompts;
use super::reasoning;
use super::request::Request;
use super::tools;
use crate::serve::failure::Failure;
use crate::serve::json::Admitted;

pub(super) static FORM: Form = Form {
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
    first: |index| Some(Choice::new(index, Content::Delta(json!({ "role": "assistant", "content": "" })))),
    delta,
};

/// Replies to a conversation.
pub(super) async fn chat(admitted: Admitted) -> Result<Response, Failure> {
    generation::answer(admitted, &FORM).await
}

fn check(request: &Request) -> Result<(), Failure> {
    if request.get("messages").is_none() {
        return Err(request.missing("messages", "a list of messages"));
    }
    Ok(())
}

fn choice<'a>(settings: &'a AnswerSettings, index: usize, piece: &'a Piece) -> Choice<'a> {
    let mut message = json!({ "role": "assistant", "content": piece.text, "refusal": null });
    reasoning::add(&mut message, &piece.reasoning);
    if piece.text.is_empty() && !piece.reasoning.is_empty() {
        message["content"] = Value::Null;
    }
    if let Some(calls) = tools::calls(&piece.calls) {
        if piece.text.is_empty() {
            message["content"] = Value::Null;
        }
        message["tool_calls"] = calls;
    }
    let logprobs = logprobs(settings, piece);
    Choice { logprobs, ..Choice::new(index, Content::Message(message)) }.ending(piece)
}

/// The chunks for a piece of a reply, and for its end.
fn delta<'a>(settings: &'a AnswerSettings, index: usize, piece: &'a Piece) -> Vec<Choice<'a>> {
    let mut parts = Vec::new();
    let says_nothing = piece.text.is_empty() && piece.calls.is_empty();
    if !piece.reasoning.is_empty() {
        parts.push(Choice::new(index, Content::Delta(reasoning::delta(&piece.reasoning))));
    }
    if !piece.text.is_empty()
        || parts.is_empty() && (!piece.tokens.is_empty() || piece.finish.is_none() && says_nothing)
    {
        parts.push(Choice::new(index, Content::Delta(json!({ "content": piece.text }))));
    }
    if let Some(part) = parts.last_mut() {
        part.logprobs = logprobs(settings, piece);
    }
    parts.extend(
        piece.calls.iter().filter_map(tools::delta).map(|call| Choice::new(index, Content::Delta(call))),
    );
    if piece.finish.is_some() {
        parts.push(Choice::new(index, Content::Delta(json!({}))).ending(piece));
    }
    parts
}

fn logprobs<'a>(settings: &'a AnswerSettings, piece: &'a Piece) -> Option<Logprobs<'a>> {
    settings.logprobs.map(|_| Logprobs::Chat(&settings.names, &piece.tokens))
}
