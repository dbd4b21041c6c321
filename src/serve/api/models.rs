//! `GET /v1/models` and `GET /v1/models/{id}`: the models that are served, each alone and with each of its adapters.

use std::path::Path;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path as PathOf, State};
use rsgen_generation::Strategy;
use serde_json::{Map, Value, json};

use super::prompts::context;
use crate::serve::app::{App, model_name};
use crate::serve::failure::Failure;
use crate::serve::models::{Entry, Models, Status, not_served};

/// The bundled models in the Python package.
const PACKAGE: &str = "rsgen/models";
/// The options that may name a bundled model, its name, and what stands for it.
const BUNDLED: [(&str, &str, Option<&str>); 2] =
    [("model", "story-3m", None), ("assistant", "story-draft", Some("draft"))];

/// The models.
pub(super) async fn list(State(models): State<Arc<Models>>) -> Json<Value> {
    Json(json!({ "object": "list", "data": all(&models) }))
}

/// The model of an id.
pub(super) async fn get(
    State(models): State<Arc<Models>>,
    PathOf(id): PathOf<String>,
) -> Result<Json<Value>, Failure> {
    let all = all(&models);
    let is = |model: &Value| {
        let own = model["id"].as_str().unwrap_or_default();
        let adapter = model["parent"].as_str().and_then(|base| own.strip_prefix(base)?.strip_prefix(':'));
        own == id || adapter == Some(&*id)
    };
    match all.iter().position(|model| model["id"] == *id).or_else(|| all.iter().position(is)) {
        Some(index) => Ok(Json(all[index].clone())),
        None => Err(not_served(&id, all.iter().filter_map(|model| model["id"].as_str().map(str::to_owned)))),
    }
}

/// Each model, followed by those with its adapters.
fn all(models: &Models) -> Vec<Value> {
    let described = |(entry, status): &(&Entry, Status)| {
        let adapters = match status.app() {
            Some(app) => app.generator.adapters(),
            None => entry.adapters.iter().map(|name| (name.clone(), 0)).collect(),
        };
        let base = described(models, entry, status);
        let adapted: Vec<Value> =
            adapters.iter().map(|(name, bytes)| of_adapter(&base, name, *bytes)).collect();
        std::iter::once(base).chain(adapted)
    };
    models.all().iter().flat_map(described).collect()
}

/// The model with an adapter.
fn of_adapter(base: &Value, name: &str, bytes: usize) -> Value {
    let mut model = base.clone();
    model["id"] = format!("{}:{name}", base["id"].as_str().unwrap_or_default()).into();
    model["parent"] = base["id"].clone();
    model["meta"] = json!({ "weight_bytes": bytes });
    model
}

/// A model, and whether it is loaded. Of one that is not little is known.
fn described(models: &Models, entry: &Entry, status: &Status) -> Value {
    json!({
        "id": entry.name,
        "object": "model",
        "created": models.state.created,
        "owned_by": "rsgen",
        "root": entry.name,
        "parent": null,
        "max_model_len": status.app().map(|app| context(&app.generator)),
        "status": { "value": status.as_str() },
        "meta": status.app().map_or_else(|| json!({ "weight_bytes": entry.bytes }), |app| describe(app)),
    })
}

fn describe(app: &App) -> Value {
    let (config, engine) = (app.generator.config(), app.generator.engine());
    let model = engine.model();
    let strategies: Map<_, _> =
        Strategy::ALL.iter().map(|strategy| (strategy.name.to_owned(), strategy.doc.into())).collect();
    json!({
        "architecture": config.architecture,
            "n_vocab": model.vocab_size(),
            "n_ctx_train": config.max_position_embeddings,
            "n_embd": model.hidden_size(),
            "n_layers": model.num_layers(),
            "weight_bytes": model.weight_bytes(),
            "isa": engine.workers().isa().name(),
            "has_assistant": app.generator.assistant().is_some(),
            "strategies": strategies,
            "generation_config": app.generator.generation_config().to_json(),
            "opened": opened(app),
            "has_chat_template": app.generator.chat_templates().choose(None, false).is_ok(),
    })
}

/// What opens the model again, for programs that are copied from the playground; `model` is null for the bundled one.
/// Of paths the last part alone leaves this machine.
fn opened(app: &App) -> Map<String, Value> {
    let mut recipe = app.generator.recipe().clone();
    let assistant = app.generator.assistant().and_then(|assistant| assistant.recipe().get("model"));
    recipe.extend(assistant.map(|model| ("assistant".to_owned(), model.clone())));
    for (option, folder, stands_for) in BUNDLED {
        if let Some(Value::String(name)) = recipe.get(option)
            && (name == folder || Path::new(name).ends_with(Path::new(PACKAGE).join(folder)))
        {
            recipe.insert(option.to_owned(), stands_for.into());
        }
    }
    if !app.state.is_private() {
        recipe.remove("cache_dir");
        for option in ["model", "adapter", "tokenizer", "assistant"] {
            if let Some(Value::String(name)) = recipe.get_mut(option) {
                *name = model_name(name);
            }
        }
    }
    recipe
}
