//! Responses that are kept in memory, so that a later request can go on with one by its id.
//!
//! Each API key has a shelf of its own, so no key can read, remove or push out what another one has. A full shelf drops what
//! has not been used for longest. Texts are kept as JSON: their bytes are all that they take.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use crate::serve::keys::Tenant;
use crate::serve::options::ServeOptions;
use rsgen_core::sync::Mutex;

/// What an entry takes beside its texts.
const ENTRY_BYTES: usize = 512;

/// The responses of all keys.
#[derive(Debug)]
pub(in crate::serve) struct Store {
    shelves: Vec<Mutex<Shelf>>,
    /// The most responses of a shelf, and the most bytes.
    max_count: usize,
    max_bytes: usize,
}

#[derive(Debug, Default)]
struct Shelf {
    kept: HashMap<String, Entry>,
    bytes: usize,
    /// How often the shelf was used.
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    kept: Kept,
    /// When it was last used.
    used: u64,
}

/// A response that is kept.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    /// The response as it was sent.
    pub(super) response: Arc<str>,
    /// The items that it answers, those of earlier responses included, and its own, with commas between them.
    pub(super) input: Arc<str>,
    pub(super) output: Arc<str>,
}

impl Kept {
    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.response.len() + self.input.len() + self.output.len()
    }
}

impl Store {
    /// An empty store.
    pub(in crate::serve) fn new(options: &ServeOptions) -> Self {
        let keys = options.api_keys.len().max(1);
        Self {
            shelves: (0..keys).map(|_| Mutex::default()).collect(),
            max_count: options.max_stored_responses / keys,
            max_bytes: options.max_stored_bytes / keys,
        }
    }

    /// Keeps a response of this owner, if it is not too large.
    pub(super) fn keep(&self, owner: &Tenant, id: &str, kept: Kept) {
        let bytes = kept.bytes();
        let Some(shelf) = self.shelf(owner) else { return };
        if self.max_count == 0 || bytes > self.max_bytes {
            return;
        }
        let mut shelf = shelf.lock();
        shelf.remove(id);
        while shelf.kept.len() >= self.max_count || shelf.bytes + bytes > self.max_bytes {
            let oldest = shelf.kept.iter().min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(id, _)| id.clone()) else { break };
            shelf.remove(&oldest);
        }
        let used = shelf.tick();
        shelf.bytes += bytes;
        shelf.kept.insert(id.to_owned(), Entry { kept, used });
    }

    /// A response of this owner.
    pub(super) fn get(&self, owner: &Tenant, id: &str) -> Option<Kept> {
        let mut shelf = self.shelf(owner)?.lock();
        let used = shelf.tick();
        let entry = shelf.kept.get_mut(id)?;
        entry.used = used;
        Some(entry.kept.clone())
    }

    /// Forgets a response of this owner. Returns whether it was there.
    pub(super) fn remove(&self, owner: &Tenant, id: &str) -> bool {
        self.shelf(owner).is_some_and(|shelf| shelf.lock().remove(id))
    }

    fn shelf(&self, owner: &Tenant) -> Option<&Mutex<Shelf>> {
        self.shelves.get(owner.key.unwrap_or(0))
    }
}

impl Shelf {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn remove(&mut self, id: &str) -> bool {
        let removed = self.kept.remove(id);
        self.bytes -= removed.as_ref().map_or(0, |entry| entry.kept.bytes());
        removed.is_some()
    }
}

/// A new id, which nobody can guess: its digits are hashes under keys that the system drew.
pub(super) fn new_id() -> String {
    let secret = RandomState::new();
    format!("resp_{:016x}{:016x}", secret.hash_one(0u8), secret.hash_one(1u8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::keys::Keys;
    use crate::serve::options::Secret;
    use proptest::prelude::*;

    fn options(count: usize, bytes: usize, keys: usize) -> ServeOptions {
        ServeOptions {
            max_stored_responses: count,
            max_stored_bytes: bytes,
            api_keys: (0..keys).map(|key| Secret::new(format!("key {key}"))).collect(),
            ..ServeOptions::default()
        }
    }

    fn owners(options: &ServeOptions) -> Vec<Tenant> {
        let keys = Keys::new(&options.api_keys);
        options.api_keys.iter().map(|key| keys.owner(key.expose().as_bytes()).unwrap()).collect()
    }

    fn kept(len: usize) -> Kept {
        Kept { response: "r".repeat(len).into(), input: "".into(), output: "".into() }
    }

    #[test]
    fn no_key_reads_removes_or_pushes_out_what_another_one_has() {
        let options = options(4, usize::MAX, 2);
        let (store, owners) = (Store::new(&options), owners(&options));
        let [one, two] = &owners[..] else { panic!("two keys") };
        store.keep(one, "a", kept(1));
        assert!(store.get(two, "a").is_none() && !store.remove(two, "a"));
        for index in 0..100 {
            store.keep(two, &index.to_string(), kept(1));
        }
        assert!(store.get(one, "a").is_some());
        assert!(store.get(two, "97").is_none() && store.get(two, "98").is_some(), "two for each key");
        assert!(store.remove(one, "a") && !store.remove(one, "a"));
    }

    #[test]
    fn what_is_too_large_is_not_kept_and_pushes_nothing_out() {
        let owner = Tenant::default();
        let store = Store::new(&options(9, 2 * ENTRY_BYTES + 10, 0));
        store.keep(&owner, "a", kept(5));
        store.keep(&owner, "b", kept(ENTRY_BYTES + 11));
        assert!(store.get(&owner, "a").is_some() && store.get(&owner, "b").is_none());
        let none = Store::new(&options(0, usize::MAX, 0));
        none.keep(&owner, "a", kept(1));
        assert!(none.get(&owner, "a").is_none());
    }

    #[test]
    fn ids_are_distinct_and_long() {
        let mut ids: Vec<_> = (0..1000).map(|_| new_id()).collect();
        assert!(ids.iter().all(|id| id.len() == 37 && id.starts_with("resp_")));
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 1000);
    }

    proptest! {
        /// Against a list in the order of use.
        #[test]
        fn a_full_store_drops_what_was_not_used_for_longest(
            count in 1..5_usize,
            bytes in 1..4_usize,
            steps in proptest::collection::vec((0..3_u8, 0..6_u8, 0..900_usize), 0..60),
        ) {
            let (owner, most) = (Tenant::default(), bytes * 1000);
            let store = Store::new(&options(count, most, 0));
            let mut naive: Vec<(String, usize)> = Vec::new();
            for (step, id, len) in steps {
                let id = id.to_string();
                let place = naive.iter().position(|(other, _)| *other == id);
                match step {
                    0 => {
                        store.keep(&owner, &id, kept(len));
                        if len + ENTRY_BYTES <= most {
                            place.map(|place| naive.remove(place));
                            naive.push((id, len + ENTRY_BYTES));
                        }
                        while naive.len() > count || naive.iter().map(|(_, bytes)| bytes).sum::<usize>() > most {
                            naive.remove(0);
                        }
                    }
                    1 => {
                        prop_assert_eq!(store.get(&owner, &id).is_some(), place.is_some());
                        if let Some(place) = place {
                            let used = naive.remove(place);
                            naive.push(used);
                        }
                    }
                    _ => {
                        prop_assert_eq!(store.remove(&owner, &id), place.is_some());
                        place.map(|place| naive.remove(place));
                    }
                }
                let shelf = store.shelves[0].lock();
                prop_assert_eq!(shelf.kept.len(), naive.len());
                prop_assert_eq!(shelf.bytes, naive.iter().map(|(_, bytes)| bytes).sum::<usize>());
                prop_assert!(naive.iter().all(|(id, _)| shelf.kept.contains_key(id)));
            }
        }
    }
}
