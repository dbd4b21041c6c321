//! The adapters that are loaded beside the model.

use std::collections::BTreeMap;
use std::sync::Arc;

use rsgen_core::{AdapterId, Error, Mutex, Result};
use rsgen_model::LoadedAdapter;

/// The adapters by their number. A running request holds its own, so that one can be removed at any time.
#[derive(Default)]
pub struct Adapters(Mutex<BTreeMap<AdapterId, Arc<LoadedAdapter>>>);

impl Adapters {
    /// Adds an adapter, so that requests can name it.
    pub fn add(&self, adapter: LoadedAdapter) -> Arc<LoadedAdapter> {
        let adapter = Arc::new(adapter);
        self.0.lock().insert(adapter.id(), Arc::clone(&adapter));
        adapter
    }

    /// Removes an adapter. Its memory goes back when the last request that runs with it has ended.
    pub fn remove(&self, id: AdapterId) {
        self.0.lock().remove(&id);
    }

    /// An adapter.
    ///
    /// # Errors
    /// `Input` when it has been removed.
    pub(super) fn get(&self, id: AdapterId) -> Result<Arc<LoadedAdapter>> {
        let found = self.0.lock().get(&id).cloned();
        found.ok_or_else(|| {
            Error::input("was unloaded before the request began; load it again").about("adapter")
        })
    }
}

/// The cache salt of requests with an adapter, whose keys and values are of no use to others.
pub(crate) fn salted(adapter: Option<AdapterId>, salt: Option<Arc<str>>) -> Option<Arc<str>> {
    let Some(AdapterId(id)) = adapter else { return salt };
    Some(format!("adapter {id}\n{}", salt.as_deref().unwrap_or_default()).into())
}
