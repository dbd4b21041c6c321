//! `POST /rsgen/v1/generate`: `generate()` over HTTP, with transformers' names and defaults. It streams trace
//! events, or returns the whole output. `/rsgen/v1/translate` answers in the same way.

use std::sync::Arc;

use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use serde_json::{Map, Value};

use super::decoding::{self, blamed, check_size, strategy, unbounded};
use super::fields::{GENERATE, Routes, TRANSLATE};
use super::prompts::{self, EncodedPrompt, check_context};
use super::request::Request;
use super::text::{Text, check_memory};
use super::translate;
use super::usage::with_ignored;
use crate::engine::trace::{GenerationEvent, TimedEvent};
use crate::engine::{GenerationOutput, Interrupt, TokenStream};
use crate::generator::{Call, Generator, Prepared};
use crate::serve::failure::Failure;
use crate::serve::json::Admitted;
use crate::serve::sse;
use crate::serve::work::{self, EVENTS_AHEAD};
use rsgen_generation::{GenerationConfig, GenerationMode, Strategy};

/// The event of a token takes as much text as so many alternatives.
const EVENT_ALTERNATIVES: usize = 12;

/// Runs the strategy of the request.
pub(super) async fn generate(admitted: Admitted) -> Result<Response, Failure> {
    answer(admitted, GENERATE).await
}

/// Answers a request to a route with transformers' names.
pub(super) async fn answer(admitted: Admitted, route: Routes) -> Result<Response, Failure> {
    let Admitted { app, fields, place, tenant } = admitted;
    let request = Request::new(&app, route, fields)?.of(tenant);
    for (name, why) in [
        ("output_scores", "a number for each token of the vocabulary in each step; set `top_logprobs`"),
        ("output_logits", "a number for each token of the vocabulary in each step; set `top_logprobs`"),
        ("output_hidden_states", "many numbers for each layer in each step; leave it out"),
        ("output_attentions", "many numbers for each layer in each step; leave it out"),
    ] {
        if request.is(name) {
            let message = format!("`{name}` is not sent over HTTP: {why}");
            return Err(Failure::unsupported(name, message));
        }
    }
    if route == TRANSLATE {
        translate::check(&app.generator)?;
    }
    let ignored = request.ignored().to_vec();
    let (kind, object) =
        if route == TRANSLATE { ("trans", "rsgen.translation") } else { ("gen", "rsgen.generation") };
    let head = [("id", app.state.new_id(kind)), ("system_fingerprint", app.fingerprint.clone())];
    let head: Map<_, _> = head.map(|(name, value)| (name.to_owned(), value.into())).into_iter().collect();
    let unbounded = unbounded(&request);
    let shared = Arc::clone(&app);
    if !is_stream(&request) {
        let held = place.clone();
        let generated = work::run(&app, place, move |generator, interrupted| {
            let output = prepare(generator, &request, interrupted).and_then(|prepared| {
                prepared.run(interrupted).map_err(|error| decoding::named(error, &request))
            });
            Ok(output.and_then(|mut output| {
                output.events.iter_mut().flatten().for_each(|event| named(event, &head, &shared.model));
                let (model, mut text) = (&*shared.model, Text::default());
                text.push(&Whole { head: &head, model, object, output: &output })?;
                Ok((text, output))
            }))
        });
        let (text, output) = generated.await?.map_err(|failure| app.public(failure))?;
        app.metrics.finished(&held, &output);
        return Ok(with_ignored(text.into_response(), &ignored));
    }
    let prepared = work::run(&app, place.clone(), move |generator, interrupted| {
        let stream = prepare(generator, &request, interrupted)
            .and_then(|prepared| prepared.stream().map_err(|error| decoding::named(error, &request)));
        Ok(stream)
    });
    let stream = prepared.await?.map_err(|failure| app.public(failure))?;
    let (metrics, held) = (Arc::clone(&app.metrics), place.clone());
    let mut receiver = work::items(&app, place, EVENTS_AHEAD, move |interrupted, send| {
        metrics.finished(&held, &events(stream, interrupted, send)?);
        Ok(())
    });
    let response = sse::events(&app.state, move |events| async move {
        while let Some(event) = receiver.next().await {
            let mut event = event.map_err(|failure| blamed(failure, unbounded))?;
            named(&mut event, &head, &shared.model);
            events.send(&event).await?;
        }
        Ok(())
    });
    Ok(with_ignored(response, &ignored))
}

/// The whole answer.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    head: &'a Map<String, Value>,
    model: &'a str,
    object: &'static str,
    #[serde(flatten)]
    output: &'a GenerationOutput,
}

/// The event of the start with what the answer says about the request, and without the path of the model.
fn named(event: &mut TimedEvent, head: &Map<String, Value>, model: &str) {
    if let GenerationEvent::Start(start) = &mut event.event {
        (start.model, start.request) = (model.to_owned(), head.clone());
    }
}

/// Sends the events of a stream as they happen.
fn events(
    mut stream: TokenStream,
    interrupted: &mut Interrupt<'_>,
    send: &mut dyn FnMut(TimedEvent) -> rsgen_core::error::Result<()>,
) -> rsgen_core::error::Result<GenerationOutput> {
    let mut seq = 0;
    while let Some(event) = stream.event(seq, interrupted)? {
        send(event.clone())?;
        seq += 1;
    }
    stream.into_output()
}

fn prepare<'a>(
    generator: &'a Generator,
    request: &Request,
    interrupted: &mut Interrupt<'_>,
) -> Result<Prepared<'a>, Failure> {
    if request.route() == TRANSLATE {
        return prepare_translation(generator, request, interrupted);
    }
    let prompts = if prompts::is_chat(request)? { Vec::new() } else { prompts::given(request)? };
    let streams = is_stream(request);
    if streams && prompts.len() > 1 {
        let message = format!(
            "a stream has one prompt, but `prompt` holds {}; set `stream` to false, or make several requests",
            prompts.len()
        );
        return Err(Failure::invalid("prompt", message));
    }
    let (config, strategy) = configured(request)?;
    prompts::check_glossary(generator, request, &config)?;
    let merged = config.merged_over(generator.generation_config());
    let rows = merged.num_return_sequences.max(merged.num_beams).unwrap_or(1);
    check_size(prompts.len().max(1), rows)?;
    let prompts = if prompts.is_empty() {
        vec![prompts::encode_chat(generator, request, interrupted)?]
    } else {
        prompts::encode(generator, request, prompts, interrupted)?
    };
    check_context(generator, &prompts, config.max_new_tokens.unwrap_or(1), "max_new_tokens")?;
    if !streams {
        check_answer(generator, &merged, prompts.len() * rows)?;
    }
    let call = match &prompts[..] {
        [prompt] => prompt.call(generator),
        prompts => EncodedPrompt::call_all(prompts, generator),
    };
    let mut call = assisted(call, request, strategy);
    if let Some(salt) = request.cache_salt() {
        call = call.cache_salt(salt);
    }
    if let Some(adapter) = request.adapter.clone() {
        call = call.adapter(adapter);
    }
    if let Some(trie) = request.catalogue.clone() {
        call = call.allowed_sequences(trie);
    }
    call.config(&config).prepare(true, interrupted).map_err(|error| decoding::named(error, request))
}

/// Prepares a translation.
fn prepare_translation<'a>(
    generator: &'a Generator,
    request: &Request,
    interrupted: &mut Interrupt<'_>,
) -> Result<Prepared<'a>, Failure> {
    let prompts = translate::texts(request, "texts")?;
    let splits = request.text("split").is_some();
    if splits && is_stream(request) {
        let message = "`stream` has no place beside `split`: sentences are put together when all have ended; leave out one of them";
        return Err(Failure::invalid("stream", message));
    }
    let (config, strategy) = configured(request)?;
    let call = generator.call(prompts).translation(request.text("source"), request.text("target"));
    let call = assisted(call, request, strategy);
    translate::prepare(generator, request, (call, &config), splits, interrupted)
}

fn is_stream(request: &Request) -> bool {
    request.flag("stream").unwrap_or(request.route() == GENERATE)
}

/// The configuration of a request, and the strategy that it names.
fn configured(request: &Request) -> Result<(GenerationConfig, Option<&'static Strategy>), Failure> {
    let mut config = request.config(&[])?;
    let strategy = strategy(request)?;
    if let Some(strategy) = strategy {
        config = strategy
            .apply(&config, &GenerationConfig::new())
            .map_err(|error| decoding::named(error, request))?;
    }
    if is_stream(request) {
        config.output_events = Some(true);
    }
    Ok((config, strategy))
}

/// The call with or without an assistant, as the request says.
fn assisted<'a>(mut call: Call<'a>, request: &Request, strategy: Option<&Strategy>) -> Call<'a> {
    if request.flag("use_assistant") == Some(false) {
        call = call.assistant(None);
    }
    if strategy.is_some_and(|strategy| strategy.mode == GenerationMode::AssistedDecoding) {
        call = call.assisted();
    }
    call
}

/// Refuses an answer of so many rows whose text may not fit into the available memory.
///
/// # Errors
/// As for [`check_memory`].
pub(super) fn check_answer(
    generator: &Generator,
    merged: &GenerationConfig,
    rows: usize,
) -> Result<(), Failure> {
    let length = merged.max_new_tokens.or(merged.max_length).unwrap_or(usize::MAX);
    let tokens = length.min(prompts::context(generator)).saturating_mul(rows);
    let of_events = if merged.output_events == Some(true) { EVENT_ALTERNATIVES } else { 0 };
    check_memory(tokens, tokens.saturating_mul(merged.top_logprobs.unwrap_or(0) + of_events))
}
