//! `POST /rsgen/v1/generate`: `generate()` over HTTP, with transformers' names and defaults. It streams trace
//! events, or returns the whole output.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::decoding::{blamed, check_size, named, strategy, unbounded};
use super::fields::GENERATE;
use super::prompts::{self, EncodedPrompt, check_context};
use super::request::{Request, contradiction};
use super::usage::with_ignored;
use crate::engine::{GenerationOutput, Interrupt, TokenStream};
use crate::generator::{Generator, Prepared, Prompt};
use crate::serve::app::App;
use crate::serve::failure::Failure;
use crate::serve::json::Admitted;
use crate::serve::sse;
use crate::serve::work::{self, EVENTS_AHEAD};
use rsgen_core::error::Error;
use rsgen_generation::{GenerationConfig, GenerationMode};

/// Runs the strategy of the request.
pub(super) async fn generate(State(app): State<Arc<App>>, admitted: Admitted) -> Result<Response, Failure> {
    let Admitted { body, place, tenant } = admitted;
    let request = Request::new(&app, GENERATE, body)?.of(tenant);
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
    let ignored = request.ignored().to_vec();
    let head =
        json!({ "id": app.state.new_id("gen"), "system_fingerprint": app.fingerprint, "model": app.model });
    let unbounded = unbounded(&request);
    if !request.flag("stream").unwrap_or(true) {
        let held = place.clone();
        let generated = work::run(&app, place, move |generator, interrupted| {
            let output = prepare(generator, &request, interrupted)
                .and_then(|prepared| prepared.run(interrupted).map_err(|error| named(error, &request)));
            Ok(output)
        });
        let output = generated.await?.map_err(|failure| app.public(failure))?;
        app.state.metrics.finished(&held, &output);
        let mut answer = head.clone();
        answer["object"] = "rsgen.generation".into();
        if let Value::Object(fields) = value(&output)? {
            answer.as_object_mut().into_iter().for_each(|answer| answer.extend(fields.clone()));
        }
        for event in answer["events"].as_array_mut().into_iter().flatten() {
            add_head(event, &head);
        }
        return Ok(with_ignored(axum::Json(answer).into_response(), &ignored));
    }
    let prepared = work::run(&app, place.clone(), move |generator, interrupted| {
        let stream = prepare(generator, &request, interrupted)
            .and_then(|prepared| prepared.stream().map_err(|error| named(error, &request)));
        Ok(stream)
    });
    let stream = prepared.await?.map_err(|failure| app.public(failure))?;
    let (metrics, held) = (Arc::clone(&app.state.metrics), place.clone());
    let mut receiver = work::items(&app, place, EVENTS_AHEAD, move |interrupted, send| {
        metrics.finished(&held, &events(stream, interrupted, send)?);
        Ok(())
    });
    let response = sse::events(&app.state, move |events| async move {
        while let Some(event) = receiver.next().await {
            let mut event = event.map_err(|failure| blamed(failure, unbounded))?;
            add_head(&mut event, &head);
            events.send(&event).await;
        }
        Ok(())
    });
    Ok(with_ignored(response, &ignored))
}

/// Sends the events of a stream as they happen.
fn events(
    mut stream: TokenStream,
    interrupted: &mut Interrupt<'_>,
    send: &mut dyn FnMut(Value) -> rsgen_core::error::Result<()>,
) -> rsgen_core::error::Result<GenerationOutput> {
    let mut seq = 0;
    while let Some(event) = stream.event(seq, interrupted)? {
        let event = serde_json::to_value(event).map_err(|error| Error::internal(error.to_string()))?;
        send(event)?;
        seq += 1;
    }
    stream.into_output()
}

/// Adds the request to the `start` event, and replaces the path of the model by its name in the API.
fn add_head(event: &mut Value, head: &Value) {
    if event["type"] == "start" {
        for name in ["id", "system_fingerprint", "model"] {
            event[name] = head[name].clone();
        }
    }
}

fn value(output: &impl serde::Serialize) -> Result<Value, Failure> {
    serde_json::to_value(output).map_err(|error| Failure::internal(error.to_string()))
}

fn prepare<'a>(
    generator: &'a Generator,
    request: &Request,
    interrupted: &mut Interrupt<'_>,
) -> Result<Prepared<'a>, Failure> {
    let prompts = if prompts::is_chat(request)? { Vec::new() } else { prompts::given(request)? };
    let streams = request.flag("stream").unwrap_or(true);
    if streams && prompts.len() > 1 {
        let message = format!(
            "a stream has one prompt, but `prompt` holds {}; set `stream` to false, or make several requests",
            prompts.len()
        );
        return Err(contradiction("prompt", message));
    }
    let mut config = request.config(&[])?;
    let strategy = strategy(request)?;
    if let Some(strategy) = strategy {
        config = strategy.apply(&config, &GenerationConfig::new()).map_err(|error| named(error, request))?;
    }
    if streams {
        config.output_events = Some(true);
    }
    let merged = config.merged_over(generator.generation_config());
    let rows = merged.num_return_sequences.max(merged.num_beams).unwrap_or(1);
    check_size(prompts.len().max(1), rows)?;
    let prompts = if prompts.is_empty() {
        vec![prompts::encode_chat(generator, request, interrupted)?]
    } else {
        prompts::encode(generator, request, prompts, interrupted)?
    };
    check_context(generator, &prompts, config.max_new_tokens.unwrap_or(1), "max_new_tokens")?;
    let mut prompts: Vec<Prompt> =
        prompts.into_iter().map(|EncodedPrompt { ids, .. }| Prompt::Ids(ids)).collect();
    let mut call = match (prompts.pop(), prompts.is_empty()) {
        (Some(prompt), true) => generator.call(prompt),
        (last, _) => generator.call(prompts.into_iter().chain(last).collect::<Vec<_>>()),
    };
    if request.flag("use_assistant") == Some(false) {
        call = call.assistant(None);
    }
    if strategy.is_some_and(|strategy| strategy.mode == GenerationMode::AssistedDecoding) {
        call = call.assisted();
    }
    if let Some(salt) = request.cache_salt() {
        call = call.cache_salt(salt);
    }
    call.config(&config).prepare(true, interrupted).map_err(|error| named(error, request))
}
