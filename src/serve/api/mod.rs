//! The routes of the API: what requests may say, and how answers look.

use std::sync::Arc;

use axum::Router;

use super::app::App;

/// The routes that need the model.
pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
}
