//! `POST /v1/responses`, `GET` and `DELETE /v1/responses/{id}`, and `GET /v1/responses/{id}/input_items`: OpenAI's Responses API.
//! A request is translated to one of `/v1/chat/completions`; `conversation` and `items` do so, `output` writes answers, and
//! `store` keeps them.

mod conversation;
mod items;
mod output;
mod store;

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{Uri, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use serde_json::{Value, json};

use self::conversation::NAMES;
use self::output::Reply;
use self::store::Kept;
pub(in crate::serve) use self::store::Store;
use super::chat;
use super::fields::{BOOL, Field, Kind, NAME, OBJECT, OBJECTS, RESPONSES, TEXT, field, integer};
use super::single::{Asked, Single, renamed};
use super::usage::with_ignored;
use crate::serve::failure::Failure;
use crate::serve::gate::caught;
use crate::serve::json::{self, Admitted};
use crate::serve::keys::Tenant;
use crate::serve::models::Models;
use crate::serve::sse::{self, NUMBERED_EVENTS};
use rsgen_generation::config::{FieldKind, MAX_COUNT};

const INPUT: Kind =
    Kind::Of(FieldKind::AnyOf(&[FieldKind::TEXT, FieldKind::List(&FieldKind::Object, usize::MAX)]));
const CHOICE: Kind =
    Kind::Of(FieldKind::AnyOf(&[FieldKind::Word(&["auto", "none", "required"]), FieldKind::Object]));
const INCLUDE: Kind = Kind::Of(FieldKind::List(
    &FieldKind::Word(&[
        "code_interpreter_call.outputs",
        "computer_call_output.output.image_url",
        "file_search_call.results",
        "message.input_image.image_url",
        "message.output_text.logprobs",
        "reasoning.encrypted_content",
        "web_search_call.action.sources",
        "web_search_call.results",
    ]),
    16,
));

#[rustfmt::skip]
pub(super) const FIELDS: &[Field] = &[
    field(RESPONSES, "input", INPUT, "required", "", "What a user says, or the items of a conversation: messages, whose content is a text or parts that are texts, `function_call`, `function_call_output` and `reasoning`."),
    field(RESPONSES, "instructions", TEXT, "none", "", "The system prompt. It is not that of the response which this one goes on with."),
    field(RESPONSES, "previous_response_id", NAME, "none", "", "Goes on with a response that is kept: its items come before those of `input`."),
    field(RESPONSES, "store", BOOL, "true", "", "Whether the response is kept in memory, to go on with or to get."),
    field(RESPONSES, "tools", OBJECTS, "none", "", "The tools that the template shows to the model, of the type `function`, each with `name`, `description`, `parameters` and `strict`."),
    field(RESPONSES, "tool_choice", CHOICE, "\"auto\"", "grammar", "Whether the model calls tools: as it likes; none, and it is shown none; at least one; or the one that `{\"type\": \"function\", \"name\": …}` names."),
    field(RESPONSES, "parallel_tool_calls", BOOL, "true", "", "Whether an answer that has to call tools may make several calls."),
    field(RESPONSES, "text", OBJECT, "text", "json_schema", "`format` says what the answer is: of the type `text`, `json_object`, or `json_schema` with a `schema`. `verbosity` is `medium`."),
    field(RESPONSES, "reasoning", OBJECT, "none", "", "`effort` is a variable of the template, and `none` asks it for no thinking; what the model thinks is an item of its own, so `summary` has no effect."),
    field(RESPONSES, "max_output_tokens", integer(1, MAX_COUNT), "the rest of the context", "max_new_tokens", "The most new tokens, thinking included."),
    field(RESPONSES, "metadata", OBJECT, "none", "", "Up to 16 pairs of texts, which the response has again."),
    field(RESPONSES, "include", INCLUDE, "none", "", "Accepted without effect: what the words of the API name is not there. `message.output_text.logprobs` is not supported."),
    field(RESPONSES, "truncation", Kind::Of(FieldKind::Word(&["auto", "disabled"])), "\"disabled\"", "", "`disabled`; `auto` is not supported."),
    field(RESPONSES, "background", BOOL, "false", "", "`false`; responses are made while their clients wait."),
    field(RESPONSES, "top_logprobs", integer(0, 20), "0", "", "0; `/v1/chat/completions` has log-probabilities."),
    field(RESPONSES, "max_tool_calls", integer(1, MAX_COUNT), "none", "", "Accepted without effect: it is about tools that run on the server."),
    field(RESPONSES, "stream_options", OBJECT, "none", "", "Accepted without effect."),
    field(RESPONSES, "user", NAME, "none", "", "Accepted without effect, as are the next four."),
    field(RESPONSES, "safety_identifier", NAME, "none", "", "Accepted without effect."),
    field(RESPONSES, "prompt_cache_key", NAME, "none", "", "Accepted without effect: equal beginnings of prompts are always shared."),
    field(RESPONSES, "prompt_cache_retention", NAME, "none", "", "Accepted without effect."),
    field(RESPONSES, "service_tier", NAME, "none", "", "Accepted without effect."),
    field(RESPONSES, "conversation", Kind::Unsupported, "none", "", "Not supported: `previous_response_id` goes on with a response."),
    field(RESPONSES, "prompt", Kind::Unsupported, "none", "", "Not supported."),
];

/// Answers a conversation.
pub(super) async fn create(admitted: Admitted) -> Result<Response, Failure> {
    let owner = admitted.tenant.clone();
    let Asked { app, request, place, ignored, model } = Asked::new(RESPONSES, admitted)?;
    let streams = request.is("stream");
    let asked = conversation::asked(&app, &owner, request, &model);
    let conversation::Asked { request, response, id, kept } =
        asked.map_err(|failure| renamed(failure, NAMES))?;
    let mut answer = Single::begin(&app, request, place, (&chat::FORM, NAMES)).await?;
    let mut reply = Reply::new(response);
    let shared = Arc::clone(&app.state);
    let keep = move |reply: &Reply| {
        let Some(input) = kept else { return };
        let output: Vec<String> = reply.output().iter().map(Value::to_string).collect();
        let response = reply.whole().to_string();
        let kept = Kept { response: response.into(), input: input.into(), output: output.join(",").into() };
        shared.responses.keep(&owner, &id, kept);
    };
    let response = if streams {
        let state = Arc::clone(&app.state);
        sse::stream(&app.state, &NUMBERED_EVENTS, move |events| async move {
            for event in reply.begin() {
                events.send_named(event["type"].as_str().unwrap_or_default(), &event).await;
            }
            let mut keep = Some(keep);
            let written = async {
                while let Some(piece) = answer.next().await? {
                    let written = reply.events(&piece, answer.counts);
                    // Whoever reads the last event may go on with the response.
                    if let Some(keep) = keep.take_if(|_| piece.finish.is_some()) {
                        keep(&reply);
                    }
                    for event in written {
                        events.send_named(event["type"].as_str().unwrap_or_default(), &event).await;
                    }
                }
                Ok::<_, Failure>(())
            };
            if let Err(failure) = caught(&state, written).await.and_then(|written| written) {
                for event in reply.failed(&failure) {
                    events.send_named(event["type"].as_str().unwrap_or_default(), &event).await;
                }
            }
            Ok(())
        })
    } else {
        while let Some(piece) = answer.next().await? {
            reply.events(&piece, answer.counts);
        }
        keep(&reply);
        Json(reply.whole()).into_response()
    };
    Ok(with_ignored(response, &ignored))
}

/// A response that is kept.
pub(super) async fn get(
    State(models): State<Arc<Models>>,
    Extension(owner): Extension<Tenant>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, Failure> {
    if parameter(&uri, "stream").is_some_and(|value| value != "false") {
        let message = "`stream` must be false: a response that is kept has ended; leave it out";
        return Err(Failure::unsupported("stream", message));
    }
    let kept = found(&models, &owner, &id)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], kept.response.to_string()).into_response())
}

/// Forgets a response that is kept.
pub(super) async fn delete(
    State(models): State<Arc<Models>>,
    Extension(owner): Extension<Tenant>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    if !models.state.responses.remove(&owner, &id) {
        return Err(unknown(&id));
    }
    Ok(Json(json!({ "id": id, "object": "response", "deleted": true })))
}

/// The items that a response which is kept answers, a page at a time.
pub(super) async fn input_items(
    State(models): State<Arc<Models>>,
    Extension(owner): Extension<Tenant>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Json<Value>, Failure> {
    let limit = match parameter(&uri, "limit").map(|limit| limit.parse::<usize>()) {
        None => 20,
        Some(Ok(limit @ 1..=100)) => limit,
        Some(_) => return Err(Failure::invalid("limit", "`limit` must be an integer from 1 to 100")),
    };
    let is_rising = match parameter(&uri, "order").as_deref() {
        None | Some("desc") => false,
        Some("asc") => true,
        Some(_) => return Err(Failure::invalid("order", "`order` must be \"asc\" or \"desc\"")),
    };
    let kept = found(&models, &owner, &id)?;
    let mut fields = json::kept(&models.state, "items", &kept.input)?;
    let Some(Value::Array(mut items)) = fields.map.remove("items") else {
        return Err(Failure::internal("the items of a response are no list"));
    };
    if !is_rising {
        items.reverse();
    }
    if let Some(after) = parameter(&uri, "after") {
        let Some(place) = items.iter().position(|item| item["id"] == after) else {
            let message =
                "`after` must be the id of an item of this response; leave it out for the first ones";
            return Err(Failure::invalid("after", message));
        };
        items.drain(..=place);
    }
    let has_more = items.len() > limit;
    items.truncate(limit);
    let id_of = |item: Option<&Value>| item.map_or(Value::Null, |item| item["id"].clone());
    let (first, last) = (id_of(items.first()), id_of(items.last()));
    let list =
        json!({ "object": "list", "data": items, "first_id": first, "last_id": last, "has_more": has_more });
    Ok(Json(list))
}

fn found(models: &Models, owner: &Tenant, id: &str) -> Result<Kept, Failure> {
    models.state.responses.get(owner, id).ok_or_else(|| unknown(id))
}

fn unknown(id: &str) -> Failure {
    let message = format!(
        "there is no response {id:?}: it was made with `store: false`, deleted, pushed out by newer ones, or before the server was \
         started"
    );
    Failure::not_found("not_found", message)
}

/// A parameter of a path.
fn parameter(uri: &Uri, name: &str) -> Option<String> {
    let pairs = form_urlencoded::parse(uri.query()?.as_bytes());
    pairs.into_iter().find(|(given, _)| given == name).map(|(_, value)| value.into_owned())
}
