//! `GET /v1/models` and `GET /v1/models/{id}`: the one model that is served, alone and with each of its adapters.

use std::path::Path;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path as PathOf, State};
use rsgen_generation::Strategy;
use serde_json::{Map, Value, json};

use super::prompts::context;
use super::request::adapter;
use crate::serve::app::{App, model_name};
use crate::serve::failure::Failure;

/// The bundled models in the Python package.
const PACKAGE: &str = "rsgen/models";
/// The options that may name a bundled model, its name, and what stands for it.
const BUNDLED: [(&str, &str, Option<&str>); 2] =
    [("model", "story-3m", None), ("assistant", "story-draft", Some("draft"))];

/// The models.
pub(super) async fn list(State(app): State<Arc<App>>) -> Json<Value> {
    let adapters = app.generator.adapters().into_iter().map(|(name, bytes)| of_adapter(&app, &name, bytes));
    let all: Vec<Value> = std::iter::once(describe(&app)).chain(adapters).collect();
    Json(json!({ "object": "list", "data": all }))
}

/// The model of an id.
pub(super) async fn get(
    State(app): State<Arc<App>>,
    PathOf(id): PathOf<String>,
) -> Result<Json<Value>, Failure> {
    if id == app.model {
        return Ok(Json(describe(&app)));
    }
    let name = adapter(&app, &id)?;
    let bytes = app.generator.adapters().into_iter().find(|(other, _)| *other == name);
    Ok(Json(of_adapter(&app, &name, bytes.map_or(0, |(_, bytes)| bytes))))
}

/// The model with an adapter.
fn of_adapter(app: &App, name: &str, bytes: usize) -> Value {
    json!({
        "id": format!("{}:{name}", app.model),
        "object": "model",
        "created": app.state.created,
        "owned_by": "rsgen",
        "root": app.model,
        "parent": app.model,
        "max_model_len": context(&app.generator),
        "meta": { "weight_bytes": bytes },
    })
}

fn describe(app: &App) -> Value {
    let (config, engine) = (app.generator.config(), app.generator.engine());
    let model = engine.model();
    let strategies: Map<_, _> =
        Strategy::ALL.iter().map(|strategy| (strategy.name.to_owned(), strategy.doc.into())).collect();
    json!({
        "id": app.model,
        "object": "model",
        "created": app.state.created,
        "owned_by": "rsgen",
        "root": app.model,
        "parent": null,
        "max_model_len": context(&app.generator),
        "meta": {
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
        },
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
