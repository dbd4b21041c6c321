//! The routes: those of the API, and those about the server itself.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router, middleware};
use serde_json::{Value, json};

use super::api;
use super::app::App;
use super::failure::Failure;
use super::gate::{LIVE, READY, gate};
use super::keys::Tenant;
use super::metrics;
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
pub(super) fn mounted(app: &Arc<App>) -> Router {
    let layer = middleware::from_fn_with_state(Arc::clone(&app.state), gate);
    routes().layer(layer).with_state(Arc::clone(app))
}

/// All routes of a server.
pub(super) fn of_server(app: &Arc<App>) -> Router {
    let layer = middleware::from_fn_with_state(Arc::clone(&app.state), gate);
    let routes = if app.state.options.ui { routes().merge(ui::routes()) } else { routes() };
    routes.fallback(unknown).layer(layer).with_state(Arc::clone(app))
}

/// The routes while the model is loaded: alive, but not ready. The playground waits for it.
pub(super) fn while_loading(state: &Arc<ServerState>) -> Router {
    let layer = middleware::from_fn_with_state(Arc::clone(state), gate);
    let routes = if state.options.ui { ui::routes() } else { Router::new() };
    let routes = routes.route(LIVE, get(live)).method_not_allowed_fallback(wrong_method);
    routes.fallback(async || Failure::loading()).layer(layer)
}

fn routes() -> Router<Arc<App>> {
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
    State(app): State<Arc<App>>,
    Extension(tenant): Extension<Tenant>,
) -> Result<Json<Value>, Failure> {
    app.state.check_serving()?;
    if tenant.key.is_none() && !app.state.options.api_keys.is_empty() {
        return Ok(live().await);
    }
    let blocks = app.generator.engine().pool().stats();
    Ok(Json(json!({
        "status": "ok",
        "model": app.model,
        "running": app.state.places.num_running(),
        "waiting": app.state.places.num_waiting(),
        "free_blocks": blocks.available_blocks,
        "max_blocks": blocks.max_blocks,
    })))
}

async fn write_metrics(State(app): State<Arc<App>>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics::text(&app))
        .into_response()
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
