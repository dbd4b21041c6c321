//! `POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's protocol. A request is translated to one of
//! `/v1/chat/completions`; `conversation` does so, and `blocks` writes answers.

mod blocks;
mod conversation;
mod thinking;

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use self::blocks::Message;
use self::conversation::{NAMES, translated};
use self::thinking::Thinking;
use super::chat;
use super::fields::{COUNT_TOKENS, Field, Kind, MESSAGES, NAME, OBJECT, OBJECTS, Routes, field, integer};
use super::prompts;
use super::reasoning;
use super::request::Request;
use super::single::{Asked, Single, renamed};
use super::usage::with_ignored;
use crate::serve::app::App;
use crate::serve::failure::Failure;
use crate::serve::json::{Admitted, Body};
use crate::serve::sse::{self, NAMED_EVENTS};
use crate::serve::work;
use rsgen_generation::config::{FieldKind, MAX_COUNT, MAX_STOPS, MAX_TEXT};

const BOTH: Routes = MESSAGES | COUNT_TOKENS;
const SYSTEM: Kind =
    Kind::Of(FieldKind::AnyOf(&[FieldKind::TEXT, FieldKind::List(&FieldKind::Object, usize::MAX)]));
const STOPS: Kind = Kind::Of(FieldKind::List(&FieldKind::Text(1, MAX_TEXT), MAX_STOPS));

#[rustfmt::skip]
pub(super) const FIELDS: &[Field] = &[
    field(BOTH, "messages", OBJECTS, "required", "", "The conversation: turns of `user` and `assistant`, whose content is a text or blocks of the types `text`, `tool_use` and `tool_result`. The answer goes on with a last turn of `assistant`."),
    field(BOTH, "system", SYSTEM, "none", "", "The system prompt: a text, or blocks of the type `text`."),
    field(BOTH, "tools", OBJECTS, "none", "", "The tools that the template shows to the model, each with `name`, `description` and `input_schema`."),
    field(BOTH, "tool_choice", OBJECT, "{\"type\": \"auto\"}", "grammar", "`type` is `auto`, `any`, `none`, or `tool` with a `name`; `disable_parallel_tool_use` allows one call."),
    field(MESSAGES, "max_tokens", integer(1, MAX_COUNT), "required", "max_new_tokens", "The most new tokens."),
    field(MESSAGES, "stop_sequences", STOPS, "none", "", "Texts that end the answer, which ends before them."),
    field(MESSAGES, "output_config", OBJECT, "none", "json_schema", "`format` with the type `json_schema` and a `schema` says what the answer is."),
    field(BOTH, "thinking", OBJECT, "disabled", "thinking_token_budget", "`{\"type\": \"enabled\", \"budget_tokens\": …}` lets the model think, for so many tokens at most; `adaptive` without a limit. `display: \"omitted\"` leaves the text of the thinking out. An error if the model has no form of thinking."),
    field(MESSAGES, "metadata", OBJECT, "none", "", "Accepted without effect."),
    field(MESSAGES, "service_tier", NAME, "none", "", "Accepted without effect."),
    field(MESSAGES, "container", Kind::Unsupported, "none", "", "Not supported."),
    field(MESSAGES, "mcp_servers", Kind::Unsupported, "none", "", "Not supported."),
];

/// Answers a conversation.
pub(super) async fn messages(admitted: Admitted) -> Result<Response, Failure> {
    let Asked { app, request, place, ignored, model } = Asked::new(MESSAGES, admitted)?;
    let streams = request.is("stream");
    let (request, thinking) = understood(&app, request)?;
    let mut answer = Single::begin(&app, request, place, (&chat::FORM, NAMES)).await?;
    let mut message = Message::new(app.state.new_id("msg"), model, thinking);
    let response = if streams {
        sse::stream(&app.state, &NAMED_EVENTS, move |events| async move {
            // What was cached is known with the first token.
            while let Some(piece) = answer.next().await? {
                for event in message.events(&piece, answer.counts) {
                    events.send_named(event["type"].as_str().unwrap_or_default(), &event).await;
                }
            }
            Ok(())
        })
    } else {
        while let Some(piece) = answer.next().await? {
            message.events(&piece, answer.counts);
        }
        Json(message.whole(answer.counts)).into_response()
    };
    Ok(with_ignored(response, &ignored))
}

/// Counts the tokens of a conversation.
pub(super) async fn count_tokens(Body { app, fields, _busy }: Body) -> Result<Response, Failure> {
    let request = Request::new(&app, COUNT_TOKENS, fields)?;
    let ignored = request.ignored().to_vec();
    let (request, _) = understood(&app, request)?;
    let counted = work::prepare(&app, move |generator, interrupted| {
        Ok(prompts::encode_chat(generator, &request, interrupted).map(|prompt| prompt.ids.len()))
    });
    let count = counted.await?.map_err(|failure| renamed(app.public(failure), NAMES))?;
    let answer: Value = json!({ "input_tokens": count });
    Ok(with_ignored(Json(answer).into_response(), &ignored))
}

/// The request to `/v1/chat/completions` that a request means, and what its answer shows of the thinking.
fn understood(app: &App, request: Request) -> Result<(Request, Thinking), Failure> {
    let understood = Thinking::of(request.get("thinking")).and_then(|(thinking, _)| {
        let request = translated(request)?;
        if thinking != Thinking::Hidden {
            reasoning::require(&app.generator, &request, "thinking")?;
        }
        Ok((request, thinking))
    });
    understood.map_err(|failure| renamed(failure, NAMES))
}
