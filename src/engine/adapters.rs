//! The adapters that are loaded beside the model.

use std::collections::BTreeMap;
use std::sync::Arc;

use rsgen_core::{AdapterId, AdapterWeights, Error, Mutex, Result};
use rsgen_model::{LoadedAdapter, WeightedAdapters};

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

    /// The adapters of a request; `None` for the model alone.
    ///
    /// # Errors
    /// `Input` when one has been removed.
    pub(super) fn get(&self, weights: &AdapterWeights) -> Result<Option<WeightedAdapters>> {
        if weights.is_empty() {
            return Ok(None);
        }
        let all = self.0.lock();
        WeightedAdapters::find(weights, |id| all.get(&id).cloned()).map(Some).ok_or_else(|| {
            Error::input("was unloaded before the request began; load it again").about("adapter")
        })
    }
}

/// The cache salt of requests with adapters, whose keys and values are of no use to others.
///
/// A caller's own salt follows a line with the adapters, or an empty one, so that no salt can be that of others.
pub(crate) fn salted(adapters: &AdapterWeights, salt: Option<Arc<str>>) -> Option<Arc<str>> {
    match salt {
        None if adapters.is_empty() => None,
        None => Some(format!("adapters {adapters}").into()),
        Some(salt) => Some(format!("adapters {adapters}\n{salt}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callers_salt_is_never_that_of_adapters() {
        let one = AdapterWeights::new([(AdapterId(3), 0.5)]).unwrap();
        let none = AdapterWeights::default();
        let own = salted(&one, None).unwrap();
        assert_eq!(salted(&none, None), None);
        for salt in [Arc::clone(&own), "adapters 3*0.5\n".into(), "adapters ".into(), "".into()] {
            let given = salted(&none, Some(salt)).unwrap();
            assert_ne!(given, own);
            assert_ne!(Some(given), salted(&one, Some("".into())));
        }
        let other = AdapterWeights::new([(AdapterId(3), 0.25)]).unwrap();
        assert_ne!(salted(&other, None), salted(&one, None));
    }
}
