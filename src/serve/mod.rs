//! The model over HTTP: OpenAI's API, every strategy of `generate()`, metrics and health.
//!
//! [`router`] gives the routes to a service that has its own server. [`Server`] is the server of
//! `rsgen serve`: it adds connection limits, API keys, and a graceful shutdown.
//!
//! Each running request has a blocking thread that computes, and a bounded channel to the connection that
//! answers. When the client leaves, the connection drops its end, which the thread checks every few
//! milliseconds, also within a long prompt; then the request's part of the KV cache is free.

mod api;
mod app;
mod batch;
mod connections;
mod cors;
mod defects;
mod failure;
mod forms;
mod gate;
mod hosts;
mod json;
mod keys;
mod metrics;
mod models;
mod options;
mod places;
mod record;
mod routes;
mod served;
mod server;
mod shapes;
mod shared_memory;
mod socket;
mod sse;
mod state;
mod tokens_per_minute;
#[cfg(feature = "otel")]
mod traces;
mod ui;
mod work;

use std::sync::Arc;

use axum::Router;

#[cfg(feature = "cli")]
pub(crate) use app::model_name;
pub use batch::{BATCH_URLS, BatchAnswer, BatchOptions, BatchRequest, run_batch};
pub use options::{LoadOnStartup, LogFormat, Secret, ServeOptions, idle_time};
#[cfg(feature = "cli")]
pub(crate) use record::TARGET as REQUEST_TARGET;
#[cfg(feature = "cli")]
pub(crate) use served::load_adapters;
pub use served::{ModelPath, ServedModel};
pub use server::{Loading, Running, Server};
pub use shared_memory::{check_loaded_on_startup, kv_cache_share};

use crate::generator::Generator;
use hosts::Rule;
use models::Models;
use rsgen_core::error::Result;
use state::ServerState;

/// The routes with default options, to mount in a service: the limits of requests and bodies hold, while
/// connections, keys and hosts are up to the service. The playground is not among them: its path is that of
/// the service's own page.
pub fn router(generator: Generator) -> Router {
    mounted(generator, ServeOptions::default(), Rule::Any)
}

/// [`router`] with options, of which keys and allowed hosts are checked if there are any.
///
/// # Errors
/// `Config` when an option breaks its rule.
pub fn router_with(generator: Generator, options: ServeOptions) -> Result<Router> {
    options.check()?;
    let hosts = if options.allowed_hosts.is_empty() { Rule::Any } else { Rule::of(&options, true, None) };
    Ok(mounted(generator, options, hosts))
}

fn mounted(generator: Generator, options: ServeOptions, hosts: Rule) -> Router {
    let state = Arc::new(ServerState::new(options, hosts));
    routes::mounted(&Models::one(state, generator))
}
