//! References of a request to Python objects, visible to Python's cyclic garbage collector.
//!
//! The engine works with callbacks on any thread and behind its own locks, where the collector cannot look.
//! So a callback is held in a slot of its own, which both the engine and the Python object of the request
//! refer to: that object shows the collector what is in its slots, and empties them when it is collected.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};

use rsgen_core::sync::Mutex;

/// A slot with a Python object.
///
/// Its lock is only taken by threads that are attached to Python, and for a moment in which no Python code
/// runs. So the collector finds the same object each time it looks.
pub(super) struct Slot(Mutex<Option<Py<PyAny>>>);

/// The slots of one request or processor. Each slot has one owner that shows it to the collector, which
/// counts references.
pub(super) struct Held(Mutex<Vec<Arc<Slot>>>);

impl Slot {
    pub(super) fn new(object: &Bound<'_, PyAny>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(object.clone().unbind()))))
    }

    /// The object, unless the slot has been emptied.
    pub(super) fn get<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.0.lock().as_ref().map(|object| object.bind(py).clone())
    }
}

impl Held {
    pub(super) fn new(slots: Vec<Arc<Slot>>) -> Self {
        Self(Mutex::new(slots))
    }

    /// Takes the slots of another. Callers are attached to Python.
    pub(super) fn take(&self, other: &Self) {
        let slots = std::mem::take(&mut *other.0.lock());
        self.0.lock().extend(slots);
    }

    /// Shows the objects to the collector, which never waits for a lock.
    pub(super) fn traverse(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.traverse_by(&visit)
    }

    /// [`Held::traverse`], for several.
    pub(super) fn traverse_by(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Some(slots) = self.0.try_lock() else { return Ok(()) };
        slots.iter().filter_map(|slot| slot.0.try_lock()).try_for_each(|object| visit.call(&*object))
    }

    /// Empties the slots. Callers are attached to Python: what is dropped may run code.
    pub(super) fn clear(&self) {
        let slots = std::mem::take(&mut *self.0.lock());
        let objects: Vec<_> = slots.iter().map(|slot| slot.0.lock().take()).collect();
        drop(objects);
    }
}
