//! The models as Ollama lists and describes them.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

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
use crate::serve::work;
use rsgen_text::ChatOptions;

/// The version of the server.
pub(in super::super) async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}

/// The model, alone and with each of its adapters.
pub(in super::super) async fn tags(State(app): State<Arc<App>>) -> Json<Value> {
    let bytes = app.generator.engine().model().weight_bytes();
    let adapters = app.generator.adapters().into_iter();
    let adapters = adapters.map(|(name, bytes)| (format!("{}:{name}", app.model), bytes));
    let models = std::iter::once((app.model.clone(), bytes)).chain(adapters).map(|(name, bytes)| {
        json!({
            "name": name,
            "model": name,
            "modified_at": modified(&app),
            "size": bytes,
            "digest": app.fingerprint.trim_start_matches("fp_"),
            "details": details(&app, if name == app.model { "" } else { &app.model }),
        })
    });
    Json(json!({ "models": models.collect::<Vec<_>>() }))
}

/// The model of a name.
pub(in super::super) async fn show(
    State(app): State<Arc<App>>,
    Body { mut fields, _busy }: Body,
) -> Result<Response, Failure> {
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
            "modified_at": modified(&shared),
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
fn modified(app: &App) -> String {
    timestamp(UNIX_EPOCH + Duration::from_secs(app.state.created))
}
