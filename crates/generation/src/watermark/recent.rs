//! An LRU cache of expensive tables that depend on settings alone, shared by requests.

use std::sync::Arc;

use rsgen_core::{Mutex, Result};

/// How many values are kept.
const KEPT: usize = 2;

/// The latest values by their keys.
pub(super) struct Recent<K, V>(Mutex<Vec<(K, Arc<V>)>>);

impl<K: PartialEq + Clone, V> Recent<K, V> {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// The value of a key, which `make` computes without the lock if it is absent.
    pub(super) fn get(&self, key: &K, make: impl FnOnce() -> Result<V>) -> Result<Arc<V>> {
        let find = |kept: &mut Vec<(K, Arc<V>)>| {
            let index = kept.iter().position(|(known, _)| known == key)?;
            // The latest is the last.
            kept[index..].rotate_left(1);
            kept.last().map(|(_, value)| Arc::clone(value))
        };
        if let Some(value) = find(&mut self.0.lock()) {
            return Ok(value);
        }
        let made = Arc::new(make()?);
        let mut kept = self.0.lock();
        if let Some(value) = find(&mut kept) {
            return Ok(value);
        }
        let oldest = (kept.len() >= KEPT).then(|| kept.remove(0));
        kept.push((key.clone(), Arc::clone(&made)));
        drop(kept);
        drop(oldest);
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_values_are_made_once_and_the_others_go() {
        let recent = Recent::new();
        let made = std::cell::Cell::new(0);
        let get = |key: u32| {
            let make = || {
                made.set(made.get() + 1);
                Ok(key * 10)
            };
            *recent.get(&key, make).unwrap()
        };
        assert_eq!([1, 2, 1].map(get), [10, 20, 10]);
        assert_eq!(made.get(), 2);
        // 2 is older than 1 now.
        assert_eq!([3, 1].map(get), [30, 10]);
        assert_eq!(made.get(), 3);
        assert_eq!(get(2), 20);
        assert_eq!(made.get(), 4);
    }
}
