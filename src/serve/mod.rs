//! The model over HTTP: OpenAI's API, every strategy of `generate()`, metrics and health.
//!
//! [`router`] gives the routes to a service that has its own server. [`Server`] is the one of `rsgen serve`: it adds
//! limits of connections, API keys, and an end that waits for the requests that run.
//!
//! Each running request has a blocking thread that computes, and a bounded channel to the connection that answers. When
//! the client leaves, the connection drops its end, which the thread checks every few milliseconds, also within a long
//! prompt; then the request's part of the KV cache is free.

mod api;
mod app;
mod connections;
mod failure;
mod json;
mod options;
mod places;
mod sse;
mod work;

use std::sync::Arc;

use axum::Router;

pub use options::{Secret, ServeOptions};

use crate::error::Result;
use crate::generator::Generator;
use app::App;

/// The routes of the API with default options, to mount in a service: limits of requests and bodies hold, but who may
/// call them is the service's affair.
pub fn router(generator: Generator) -> Router {
    routes(Arc::new(App::new(generator, ServeOptions::default())))
}

/// [`router`] with options.
///
/// # Errors
/// `Config` when an option breaks its rule.
pub fn router_with(generator: Generator, options: ServeOptions) -> Result<Router> {
    options.check()?;
    Ok(routes(Arc::new(App::new(generator, options))))
}

fn routes(app: Arc<App>) -> Router {
    api::routes().with_state(app)
}
