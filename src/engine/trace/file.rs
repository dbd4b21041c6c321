//! [`Trace`]: the events of a call as one JSON document.

use serde::{Deserialize, Serialize};

use super::event::TimedEvent;
use crate::error::{Error, Result};

/// The version of the document. It grows when a field changes its meaning or is removed, not when one is added.
const SCHEMA_VERSION: u32 = 1;

/// The events of a call, to be kept in a file.
///
/// What `rsgen generate --json --output-events` writes is a trace too: further fields are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Trace {
    /// The version of the document, 1.
    pub schema_version: u32,
    /// The version of rsgen that wrote it.
    #[serde(default)]
    pub rsgen_version: String,
    /// The model: its folder, or the name of the bundled one.
    #[serde(default)]
    pub model: String,
    /// All events.
    pub events: Vec<TimedEvent>,
}

impl Trace {
    /// A trace of these events.
    pub fn new(model: &str, events: Vec<TimedEvent>) -> Self {
        let rsgen_version = env!("CARGO_PKG_VERSION").to_owned();
        Self { schema_version: SCHEMA_VERSION, rsgen_version, model: model.to_owned(), events }
    }

    /// The trace as JSON.
    ///
    /// # Errors
    /// `Internal`; never for events that rsgen has made.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|error| Error::internal(error.to_string()))
    }

    /// Reads a trace.
    ///
    /// # Errors
    /// `Input` when it is not one, or one of a later version.
    pub fn from_json(text: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct Version {
            schema_version: u32,
        }
        let not_one = |error: serde_json::Error| {
            Error::input(format!(
                "this is no trace ({error}); a trace comes from `save_trace`, or from `rsgen generate --json \
                 --output-events`"
            ))
        };
        let Version { schema_version } = serde_json::from_str(text).map_err(not_one)?;
        if schema_version != SCHEMA_VERSION {
            return Err(Error::input(format!(
                "the trace has `schema_version` {schema_version}, but this version of rsgen reads {SCHEMA_VERSION}; use the \
                 rsgen that wrote it, or a later one"
            )));
        }
        serde_json::from_str(text).map_err(not_one)
    }
}
