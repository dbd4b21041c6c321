//! [`Trace`]: the events of a call as one JSON document.

use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::event::{GenerationEvent, TimedEvent};
use rsgen_core::files::replace;
use rsgen_core::{Error, Result, escape};

/// The version of the document. It grows when a field changes its meaning or is removed, not when one is
/// added.
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
    pub fn new(events: Vec<TimedEvent>) -> Self {
        let model = events.iter().find_map(|event| match &event.event {
            GenerationEvent::Start(start) => Some(start.model.clone()),
            _ => None,
        });
        let rsgen_version = env!("CARGO_PKG_VERSION").to_owned();
        Self { schema_version: SCHEMA_VERSION, rsgen_version, model: model.unwrap_or_default(), events }
    }

    /// The trace as JSON.
    ///
    /// # Errors
    /// `Internal`; never for events that rsgen has made.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|error| Error::internal(error.to_string()))
    }

    /// Writes the trace to a file, which is replaced if it exists.
    ///
    /// # Errors
    /// `Load` when the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let json = self.to_json()?;
        let written = replace(path, |file| file.write_all(json.as_bytes()));
        written.map_err(|error| {
            let place = path.display().to_string();
            Error::load(format!("the trace {} cannot be written", escape::name(&place))).with_source(error)
        })
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
