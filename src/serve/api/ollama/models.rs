//! The models as Ollama lists and describes them.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::super::fields::OLLAMA_SHOW;
use super::super::prompts::context;
use super::super::request::Request;
use super::super::usage::with_ignored;
use super::lines::timestamp;
use crate::serve::app::App;
use crate::serve::failure::Failure;
use crate::serve::json::Body;
use crate::serve::models::{Entry, Models, Status};
use crate::serve::state::ServerState;
use crate::serve::work;
use rsgen_text::ChatOptions;

/// What stands for no end, in the time that a model has left.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The version of the server.
pub(in super::super) async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}

/// The models, each alone and with each of its adapters.
pub(in super::super) async fn tags(State(models): State<Arc<Models>>) -> Json<Value> {
    let tags = |(entry, status): &(&Entry, Status)| {
        let described: Vec<Value> = ids(entry, status.app())
            .into_iter()
            .map(|(name, bytes)| described(&models, entry, status.app(), &name, bytes))
            .collect();
        described
    };
    Json(json!({ "models": models.all().iter().flat_map(tags).collect::<Vec<_>>() }))
}

/// The models that are loaded.
pub(in super::super) async fn ps(State(models): State<Arc<Models>>) -> Json<Value> {
    let loaded = models.all().into_iter().filter_map(|(entry, status)| match status {
        Status::Loaded(app, ends) => {
            let bytes = app.generator.engine().model().weight_bytes();
            let mut model = described(&models, entry, Some(&app), &entry.name, bytes);
            let left = ends.map_or(FOR_EVER, |ends| ends.saturating_duration_since(Instant::now()));
            model["expires_at"] = timestamp(SystemTime::now() + left).into();
            model["size_vram"] = 0.into();
            model["context_length"] = context(&app.generator).into();
            Some(model)
        }
        _ => None,
    });
    Json(json!({ "models": loaded.collect::<Vec<_>>() }))
}

/// The names of a model, alone and with each of its adapters, and the bytes of each.
fn ids(entry: &Entry, app: Option<&Arc<App>>) -> Vec<(String, usize)> {
    let adapters = match app {
        Some(app) => app.generator.adapters(),
        None => entry.adapters.iter().map(|name| (name.clone(), 0)).collect(),
    };
    let bytes = app.map_or(entry.bytes as usize, |app| app.generator.engine().model().weight_bytes());
    let adapters = adapters.into_iter().map(|(name, bytes)| (format!("{}:{name}", entry.name), bytes));
    std::iter::once((entry.name.clone(), bytes)).chain(adapters).collect()
}

/// A model as lists have it. Of one that is not loaded little is known.
fn described(models: &Models, entry: &Entry, app: Option<&Arc<App>>, name: &str, bytes: usize) -> Value {
    let parent = if name == entry.name { "" } else { &entry.name };
    json!({
        "name": name,
        "model": name,
        "modified_at": modified(&models.state),
        "size": bytes,
        "digest": app.map_or("", |app| app.fingerprint.trim_start_matches("fp_")),
        "details": app.map_or_else(|| json!({ "parent_model": parent }), |app| details(app, parent)),
    })
}

/// The model of a name.
pub(in super::super) async fn show(Body { app, mut fields, _busy }: Body) -> Result<Response, Failure> {
    if !fields.map.contains_key("model")
        && let Some(name) = fields.map.remove("name")
    {
        fields.map.insert("model".to_owned(), name);
    }
    super::untag(&app, &mut fields);
    let request = Request::new(&app, OLLAMA_SHOW, fields)?;
    let ignored = request.ignored().to_vec();
    let (parser, shared) = (request.tool_parser.clone(), Arc::clone(&app));
    let described = work::prepare(&app, move |generator, interrupted| {
        let mut capabilities = vec!["completion", "embedding"];
        let function = json!({ "name": "tool", "parameters": { "type": "object", "properties": {} } });
        let tool = json!({ "type": "function", "function": function });
        let options = ChatOptions { tools: Some(vec![tool]), ..ChatOptions::default() };
        if let Ok(Some(_)) = generator.tool_use(&options, parser.as_deref(), interrupted) {
            capabilities.push("tools");
        }
        if let Ok(Some(_)) = generator.reasoning(&ChatOptions::default(), request.reasoning_parser.as_deref())
        {
            capabilities.push("thinking");
        }
        let (model, config) = (generator.engine().model(), generator.config());
        let template = generator.chat_templates().choose(None, false).ok();
        let kind = &config.architecture;
        let parent = request.adapter.as_ref().map_or("", |_| &*shared.model);
        Ok(json!({
            "modelfile": format!("FROM {}\n", request.model(&shared)),
            "parameters": "",
            "template": template.map(|template| template.source().to_owned()).unwrap_or_default(),
            "details": details(&shared, parent),
            "model_info": {
                "general.architecture": kind,
                "general.basename": shared.model,
                format!("{kind}.context_length"): context(generator),
                format!("{kind}.embedding_length"): model.hidden_size(),
                format!("{kind}.block_count"): model.num_layers(),
                format!("{kind}.vocab_size"): model.vocab_size(),
            },
            "capabilities": capabilities,
            "modified_at": modified(&shared.state),
        }))
    });
    Ok(with_ignored(Json(described.await?).into_response(), &ignored))
}

fn details(app: &App, parent: &str) -> Value {
    let recipe = app.generator.recipe();
    let text = |name: &str| recipe.get(name).and_then(Value::as_str).unwrap_or_default();
    let is_gguf = text("model").to_ascii_lowercase().ends_with(".gguf");
    let family = &app.generator.config().architecture;
    json!({
        "parent_model": parent,
        "format": if is_gguf { "gguf" } else { "safetensors" },
        "family": family,
        "families": [family],
        "parameter_size": "",
        "quantization_level": text("dtype"),
    })
}

/// When the server was started.
fn modified(state: &ServerState) -> String {
    timestamp(UNIX_EPOCH + Duration::from_secs(state.created))
}
