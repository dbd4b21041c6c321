//! `GET /v1/models` and `GET /v1/models/{id}`: the one model that is served.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use super::prompts::context;
use crate::serve::app::App;
use crate::serve::failure::Failure;

/// The models.
pub(super) async fn list(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!({ "object": "list", "data": [describe(&app)] }))
}

/// The model of an id.
pub(super) async fn get(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Json<Value>, Failure> {
    if id == app.model {
        return Ok(Json(describe(&app)));
    }
    let message = format!("the model {id:?} is not served here; it is {:?}", app.model);
    Err(Failure::not_found("model_not_found", message))
}

fn describe(app: &App) -> Value {
    let (config, engine) = (app.generator.config(), app.generator.engine());
    let model = engine.model();
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
            "generation_config": app.generator.generation_config().to_json(),
            "has_chat_template": app.generator.chat_templates().choose(None, false).is_ok(),
        },
    })
}
