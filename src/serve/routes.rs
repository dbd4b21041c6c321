//! The routes: those of the API, and those about the server itself.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router, middleware};
use serde_json::{Map, Value, json};

use super::api;
use super::failure::Failure;
use super::gate::{LIVE, READY, gate};
use super::keys::Tenant;
use super::metrics;
use super::models::Models;
use super::state::ServerState;
use super::ui;
use rsgen_core::error::Result;

pub(super) const METRICS: &str = "/metrics";

/// Routes of OpenAI's API that this server does not support.
const FOREIGN: [&str; 11] = [
    "assistants",
    "audio",
    "batches",
    "containers",
    "evals",
    "files",
    "fine_tuning",
    "images",
    "moderations",
    "realtime",
    "vector_stores",
];

/// The routes to mount in another service, which answers unknown paths itself.
pub(super) fn mounted(models: &Arc<Models>) -> Router {
    let layer = middleware::from_fn_with_state(Arc::clone(&models.state), gate);
    routes().layer(layer).with_state(Arc::clone(models))
}

/// All routes of a server.
pub(super) fn of_server(models: &Arc<Models>) -> Router {
    let layer = middleware::from_fn_with_state(Arc::clone(&models.state), gate);
    let routes = if models.state.options.ui { routes().merge(ui::routes()) } else { routes() };
    routes.fallback(unknown).layer(layer).with_state(Arc::clone(models))
}

/// The routes while the model is loaded: alive, but not ready. The playground waits for it.
pub(super) fn while_loading(state: &Arc<ServerState>) -> Router {
    let layer = middleware::from_fn_with_state(Arc::clone(state), gate);
    let routes = if state.options.ui { ui::routes() } else { Router::new() };
    let routes = routes.route(LIVE, get(live)).method_not_allowed_fallback(wrong_method);
    routes.fallback(async || Failure::loading()).layer(layer)
}

fn routes() -> Router<Arc<Models>> {
    api::routes()
        .route("/health", get(health))
        .route(LIVE, get(live))
        .route(READY, get(health))
        .route("/version", get(async || Json(json!({ "version": env!("CARGO_PKG_VERSION") }))))
        .route(METRICS, get(write_metrics))
        .method_not_allowed_fallback(wrong_method)
}

async fn live() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// The readiness and the load of the server; the load only for those who have a key, where one is needed.
async fn health(
    State(models): State<Arc<Models>>,
    Extension(tenant): Extension<Tenant>,
) -> Result<Json<Value>, Failure> {
    let state = &models.state;
    state.check_serving()?;
    if tenant.key.is_none() && !state.options.api_keys.is_empty() {
        return Ok(live().await);
    }
    let all = models.all();
    let loaded = all.iter().filter_map(|(_, status)| status.app());
    let blocks: Vec<_> = loaded.map(|app| app.generator.engine().pool().stats()).collect();
    let states: Map<_, _> =
        all.iter().map(|(entry, status)| (entry.name.clone(), status.as_str().into())).collect();
    Ok(Json(json!({
        "status": "ok",
        "model": models.names()[0],
        "models": states,
        "running": state.places.num_running(),
        "waiting": state.places.num_waiting(),
        "free_blocks": blocks.iter().map(|blocks| blocks.available_blocks).sum::<usize>(),
        "max_blocks": blocks.iter().map(|blocks| blocks.max_blocks).sum::<usize>(),
    })))
}

async fn write_metrics(State(models): State<Arc<Models>>) -> Response {
    let text = metrics::text(&models.state, &models.all());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

async fn wrong_method(method: Method, uri: Uri) -> Failure {
    Failure::refused(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        format!("{method} is not a method of {}; the header `allow` names those it has", uri.path()),
    )
}

async fn unknown(uri: Uri) -> Failure {
    let path = uri.path();
    let resource = path.strip_prefix("/v1/").and_then(|rest| rest.split('/').next());
    let hint = match resource {
        Some(resource) if FOREIGN.contains(&resource) => {
            "rsgen generates text: use /v1/completions or /v1/chat/completions"
        }
        _ => "/openapi.json describes all paths",
    };
    Failure::not_found("not_found", format!("there is no path {path}; {hint}"))
}
