//! Arguments of a call on an event loop that are converted beside it.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyDictMethods, PyList, PyString, PyTuple};

use super::abc::is_mapping;
use super::calls::{Arguments, Converted, Given, ON_LOOP};
use super::errors::to_python;
use super::generator::Generator;
use super::held::{Held, Slot};
use super::signals::cancellable;
use super::stream::TokenStream;
use rsgen::generator;
use rsgen_core::error::Error;

/// The most items of an argument that is converted on an event loop.
const MAX_ITEMS_ON_LOOP: usize = 1 << 12;

/// Arguments whose conversion would block an event loop for too long. The stream shows them to the collector.
pub(super) struct LargeArguments {
    prompt: Option<Arc<Slot>>,
    generation_config: Option<Arc<Slot>>,
    keywords: Option<Arc<Slot>>,
    pub(super) records_events: bool,
}

impl LargeArguments {
    /// `None` for arguments that are converted at once.
    pub(super) fn of(given: &Arguments<'_, '_>) -> PyResult<Option<Self>> {
        let Arguments { given: Given::Prompt(prompt), generation_config, keywords } = given else {
            return Ok(None);
        };
        let values = keywords.map(PyDictMethods::values);
        let values = values.iter().flatten().chain(prompt.cloned());
        if !values.into_iter().any(|value| num_items(&value, 0) > MAX_ITEMS_ON_LOOP) {
            return Ok(None);
        }
        let events = keywords.map(|keywords| keywords.get_item("output_events")).transpose()?.flatten();
        let records_events = match (events, generation_config) {
            (Some(given), _) => given.is_truthy()?,
            (None, Some(config)) => match config.getattr_opt("output_events")? {
                Some(given) => given.is_truthy()?,
                None => false,
            },
            (None, None) => false,
        };
        let keywords = keywords.map(PyDictMethods::copy).transpose()?;
        Ok(Some(Self {
            prompt: prompt.map(Slot::new),
            generation_config: generation_config.map(Slot::new),
            keywords: keywords.as_deref().map(Slot::new),
            records_events,
        }))
    }

    pub(super) fn held(&self) -> Held {
        let slots = [&self.prompt, &self.generation_config, &self.keywords];
        Held::new(slots.into_iter().flatten().cloned().collect())
    }

    /// Converts them, on a thread of their own, for this stream.
    pub(super) fn convert(
        self,
        py: Python<'_>,
        generator: &generator::Generator,
        stream: &TokenStream,
    ) -> PyResult<Converted> {
        let object = |slot: Option<Arc<Slot>>| {
            let object = slot.map(|slot| slot.get(py).ok_or_else(|| to_python(py, Error::cancelled())));
            object.transpose()
        };
        let (prompt, config) = (object(self.prompt)?, object(self.generation_config)?);
        let keywords = object(self.keywords)?.map(Bound::cast_into::<PyDict>).transpose()?;
        let arguments = Arguments {
            given: Given::Prompt(prompt.as_ref()),
            generation_config: config.as_ref(),
            keywords: keywords.as_ref(),
        };
        let convert = || Generator::convert(py, generator, &ON_LOOP, &arguments);
        let cancelled = Arc::clone(&stream.cancel.lock());
        let (call, held, reading) = cancellable(&cancelled, convert)?;
        stream.held.clear();
        stream.held.take(&held);
        stream.typed.set(reading);
        Ok(call)
    }
}

/// The items of an argument: those of a list and of the lists in it, such as the ids of an encoding, as far as they
/// are no more than what is too many. What has no length is none.
fn num_items(value: &Bound<'_, PyAny>, depth: usize) -> usize {
    const DEEPEST: usize = 3;
    if value.is_instance_of::<PyString>() {
        return 0;
    }
    let mut count = value.len().unwrap_or(0);
    if count > MAX_ITEMS_ON_LOOP || depth == DEEPEST {
        return count;
    }
    let is_list = value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>();
    let inner = match is_mapping(value) {
        Ok(true) => value.call_method0("values").and_then(|values| values.try_iter()),
        _ if is_list => value.try_iter(),
        _ => return count,
    };
    for item in inner.into_iter().flatten().flatten() {
        if count > MAX_ITEMS_ON_LOOP {
            break;
        }
        count += num_items(&item, depth + 1);
    }
    count
}
