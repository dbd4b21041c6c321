//! Ollama's protocol: `/api/chat`, `/api/generate`, `/api/embed`, `/api/show`, `/api/tags`, `/api/ps` and `/api/version`. Requests
//! are translated to those of OpenAI's routes; `conversation` and `options` do so, and `lines` writes answers.

mod conversation;
mod lines;
mod models;
mod options;

use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use serde_json::{Map, Value, json};

use self::lines::Reply;
pub(super) use self::models::{ps, show, tags, version};
use self::options::NAMES;
use super::embeddings::{Vectors, of_input};
use super::fields::{
    BOOL, CHAT, COMPLETIONS, EMBEDDINGS, Field, Kind, MAX_INPUTS, NAME, OBJECT, OBJECTS, OLLAMA_CHAT,
    OLLAMA_EMBED, OLLAMA_GENERATE, OLLAMA_SHOW, Routes, TEXT, field, integer,
};
use super::generation::Form;
use super::reasoning;
use super::request::Request;
use super::single::{Asked, Single, renamed};
use super::text::Text;
use super::usage::with_ignored;
use super::{chat as openai_chat, completions};
use crate::serve::app::App;
use crate::serve::failure::Failure;
use crate::serve::json::{Admitted, Fields};
use crate::serve::models::TAG;
use crate::serve::options::idle_time;
use crate::serve::sse::{self, JSON_LINES};
use crate::serve::work;
use rsgen_generation::config::{FieldKind, MAX_COUNT};

const GENERATING: Routes = OLLAMA_CHAT | OLLAMA_GENERATE;
const FORMAT: Kind = Kind::Of(FieldKind::AnyOf(&[FieldKind::TEXT, FieldKind::Object]));
const ALIVE: Kind = Kind::Of(FieldKind::AnyOf(&[FieldKind::TEXT, FieldKind::NUMBER]));
const THINK: Kind = Kind::Of(FieldKind::AnyOf(&[FieldKind::Bool, FieldKind::TEXT]));
const INPUT: Kind = Kind::Of(FieldKind::OneOrMany(&FieldKind::TEXT, MAX_INPUTS));
const IMAGES: Kind = Kind::Of(FieldKind::List(&FieldKind::TEXT, usize::MAX));

#[rustfmt::skip]
pub(super) const FIELDS: &[Field] = &[
    field(OLLAMA_CHAT, "messages", OBJECTS, "none", "", "The conversation: `role`, `content`, and `tool_calls` or `tool_name`. Without one the answer says that the model is loaded."),
    field(OLLAMA_GENERATE, "prompt", TEXT, "none", "", "The text of a user, which the model's template makes the prompt of. Without one the answer says that the model is loaded."),
    field(OLLAMA_GENERATE, "system", TEXT, "none", "", "The system prompt."),
    field(OLLAMA_GENERATE, "raw", BOOL, "false", "", "Takes the prompt as it is, without a template."),
    field(OLLAMA_GENERATE, "images", IMAGES, "none", "", "None: the model reads text alone."),
    field(OLLAMA_GENERATE, "suffix", Kind::Unsupported, "none", "", "Not supported."),
    field(OLLAMA_GENERATE, "template", Kind::Unsupported, "none", "", "Not supported: clients cannot bring a template."),
    field(OLLAMA_GENERATE, "context", Kind::Unsupported, "none", "", "Not supported: send the conversation to `/api/chat`."),
    field(OLLAMA_CHAT, "tools", OBJECTS, "none", "", "The tools that the template shows to the model."),
    field(GENERATING, "format", FORMAT, "text", "json_schema", "`json` for any JSON object, or a JSON schema."),
    field(GENERATING | OLLAMA_EMBED, "options", OBJECT, "none", "", "`num_predict`, `temperature` (0.8), `top_k` (40), `top_p` (0.9), `min_p`, `typical_p`, `repeat_penalty`, `presence_penalty`, `frequency_penalty`, `seed` and `stop`, and every other field of `GenerationConfig`. `num_ctx` and what concerns the machine have no effect."),
    field(GENERATING, "stream", BOOL, "true", "", "Sends the answer as lines of JSON while it is generated."),
    field(GENERATING, "think", THINK, "what the template does", "chat_template_kwargs", "Whether the model thinks, or how much: `low`, `medium` or `high`. What it thinks is `thinking`, beside what it says. An error if it is to think and has no form of it."),
    field(GENERATING | OLLAMA_EMBED, "keep_alive", ALIVE, "none", "", "How long the model stays loaded without a request, as in `5m`, seconds, or below 0 for ever; 0 unloads it. Without effect where one model is served, which stays."),
    field(OLLAMA_EMBED, "input", INPUT, "required", "", "A text, or a list of up to 2048."),
    field(OLLAMA_EMBED, "truncate", BOOL, "true", "truncate_prompt_tokens", "Cuts a text after the tokens that the context holds; otherwise it is an error."),
    field(OLLAMA_EMBED, "dimensions", integer(1, MAX_COUNT), "all", "", "Keeps so many of the first numbers of each vector, before it is divided by its length."),
    field(OLLAMA_SHOW, "verbose", BOOL, "false", "", "Accepted without effect."),
    field(OLLAMA_SHOW, "name", NAME, "none", "", "The same as `model`, as older clients call it."),
];

/// A prompt as it is, whose answer is as long as that of a chat.
static RAW: Form = Form { route: CHAT, ..completions::FORM };

/// Puts the fields of the route together that a request is translated to.
type Translate = fn(&Request, &mut Map<String, Value>) -> Result<(), Failure>;

/// How a request is answered: the field with what the model says, the route that it is translated to, and how.
struct Protocol {
    content: &'static str,
    route: Routes,
    form: &'static Form,
    translate: Translate,
}

/// Replies to a conversation.
pub(super) async fn chat(admitted: Admitted) -> Result<Response, Failure> {
    let asked = asked(OLLAMA_CHAT, admitted)?;
    if asked.request.get("messages").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        return Ok(loaded(&asked, lines::MESSAGE));
    }
    let translate = conversation::add;
    let protocol = Protocol { content: lines::MESSAGE, route: CHAT, form: &openai_chat::FORM, translate };
    answer(asked, protocol).await
}

/// Answers a prompt.
pub(super) async fn generate(admitted: Admitted) -> Result<Response, Failure> {
    let asked = asked(OLLAMA_GENERATE, admitted)?;
    if asked.request.text("prompt").is_none_or(str::is_empty) {
        return Ok(loaded(&asked, lines::RESPONSE));
    }
    let content = lines::RESPONSE;
    let has_template = asked.app.generator.chat_templates().choose(None, false).is_ok();
    let protocol = if has_template && !asked.request.is("raw") {
        let translate = conversation::add_prompt;
        Protocol { content, route: CHAT, form: &openai_chat::FORM, translate }
    } else {
        Protocol { content, route: COMPLETIONS, form: &RAW, translate: conversation::add_raw }
    };
    answer(asked, protocol).await
}

async fn answer(asked: Asked, protocol: Protocol) -> Result<Response, Failure> {
    let Asked { app, mut request, place, mut ignored, model } = asked;
    let Protocol { content, route, form, translate } = protocol;
    let streams = request.flag("stream").unwrap_or(true);
    let think = request.get("think").cloned().unwrap_or_default();
    let mut fields = Map::new();
    fields.insert("stream".to_owned(), streams.into());
    translate(&request, &mut fields)?;
    options::add(&request, &mut fields, app.state.options.strict_api, &mut ignored)?;
    request.take();
    let request = request.translated(route, fields).map_err(|failure| renamed(failure, NAMES))?;
    if think == true || think.is_string() {
        if route != CHAT {
            let message = "`think` needs a template, which this prompt is without; leave it out";
            return Err(Failure::unsupported("think", message));
        }
        reasoning::require(&app.generator, &request, "think")?;
    }
    let mut reply = Reply::new(model, content, place.arrived(), think != false);
    let mut answer = Single::begin(&app, request, place, (form, NAMES)).await?;
    let response = if streams {
        sse::stream(&app.state, &JSON_LINES, move |events| async move {
            while let Some(piece) = answer.next().await? {
                for line in reply.lines(&piece, answer.counts) {
                    events.send_line(&line).await;
                }
            }
            Ok(())
        })
    } else {
        let mut whole = None;
        while let Some(piece) = answer.next().await? {
            for line in reply.lines(&piece, answer.counts) {
                whole = Some(lines::joined(whole, line, content));
            }
        }
        Json(whole).into_response()
    };
    Ok(with_ignored(response, &ignored))
}

/// The answer to a request that only loads the model, or unloads it.
fn loaded(asked: &Asked, content: &'static str) -> Response {
    let time = asked.request.get("keep_alive").map(keep_alive);
    let reason = if matches!(time, Some(Ok(Some(Duration::ZERO)))) { "unload" } else { "load" };
    let line = lines::last(&asked.model, content, reason);
    with_ignored(Json(line).into_response(), &asked.ignored)
}

/// Checks a body. A name may end as Ollama's do.
fn asked(route: Routes, mut admitted: Admitted) -> Result<Asked, Failure> {
    untag(&admitted.app, &mut admitted.fields);
    let asked = Asked::new(route, admitted)?;
    if let (Some(time), Some(lease)) = (asked.request.get("keep_alive"), &asked.app.lease) {
        lease.keep_alive(keep_alive(time)?);
    }
    Ok(asked)
}

/// How long a model stays after the request: a number of seconds, or a text such as `5m`; for ever if it is negative.
fn keep_alive(time: &Value) -> Result<Option<Duration>, Failure> {
    let text = time.as_str().map_or_else(|| time.to_string(), str::to_owned);
    idle_time(&text)
        .map_err(|rule| Failure::invalid("keep_alive", format!("`keep_alive`: {rule}, but is {time}")))
}

/// Takes the tag off the name of the model, where no adapter is called so.
fn untag(app: &App, fields: &mut Fields) {
    if let Some(Value::String(name)) = fields.map.get_mut("model")
        && let Some(own) = name.strip_suffix(TAG).filter(|own| !own.is_empty())
        && !app.generator.has_adapter(&TAG[1..])
        && *name != app.model
    {
        *name = own.to_owned();
    }
}

/// The head of an answer with vectors.
#[derive(Serialize)]
struct Head<'a> {
    model: &'a str,
    total_duration: u64,
    load_duration: u64,
}

/// Answers with the vectors of texts.
pub(super) async fn embed(admitted: Admitted) -> Result<Response, Failure> {
    let Asked { app, mut request, place, ignored, model } = asked(OLLAMA_EMBED, admitted)?;
    if request.get("input").is_none() {
        return Err(request.missing("input", "a text, or a list of texts"));
    }
    let cuts = request.flag("truncate").unwrap_or(true);
    let given = request.take();
    let mut fields: Map<_, _> =
        given.into_iter().filter(|(name, _)| ["input", "dimensions"].contains(&name.as_str())).collect();
    if cuts {
        fields.insert("truncate_prompt_tokens".to_owned(), json!(-1));
        fields.insert("truncation_side".to_owned(), json!("right"));
    }
    let request = request.translated(EMBEDDINGS, fields)?.at(&place);
    let arrived = place.arrived();
    let answered = work::run(&app, place, move |generator, interrupted| {
        Ok(of_input(generator, &request, interrupted).and_then(|Vectors { all, num_tokens }| {
            let head = Head { model: &model, total_duration: lines::nanoseconds(arrived), load_duration: 0 };
            let mut text = Text::begin(&head, "embeddings")?;
            all.iter().try_for_each(|vector| text.item(vector))?;
            text.end("prompt_eval_count", &num_tokens)
        }))
    });
    let text = answered
        .await?
        .map_err(|failure| app.public(failure).renamed("truncate_prompt_tokens", "truncate"))?;
    Ok(with_ignored(text.into_response(), &ignored))
}
