//! Random numbers that go on from call to call, as those of `torch.Generator` do.
//!
//! A search draws from a copy of the state, and hands it back when it is dropped: after its last draw, also of a
//! stream that was left.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use rsgen_core::Mutex;
use rsgen_kernels::TorchRng;

/// The state of a generator of random numbers. Clones share it.
#[derive(Clone, Debug)]
pub struct RandomState(Arc<Mutex<TorchRng>>);

impl RandomState {
    /// The state after `torch.manual_seed(seed)`.
    pub fn manual_seed(seed: u64) -> Self {
        Self::new(TorchRng::manual_seed(seed))
    }

    /// A state of its own.
    pub fn new(rng: TorchRng) -> Self {
        Self(Arc::new(Mutex::new(rng)))
    }

    /// A copy of the generator as it is now.
    pub fn get(&self) -> TorchRng {
        self.0.lock().clone()
    }

    /// Goes on from the state of this generator.
    pub fn set(&self, rng: TorchRng) {
        *self.0.lock() = rng;
    }

    /// A seed for a request of a list, whose requests draw independently of each other.
    pub fn next_seed(&self) -> u64 {
        self.0.lock().next_u32().into()
    }
}

/// The generator of a search.
#[derive(Debug)]
pub(crate) struct Rng {
    rng: TorchRng,
    /// Where its state is handed back.
    origin: Option<RandomState>,
}

impl Rng {
    /// That of a seed, or one that goes on from a state.
    pub(crate) fn new(seed: u64, origin: Option<&RandomState>) -> Self {
        let rng = origin.map_or_else(|| TorchRng::manual_seed(seed), RandomState::get);
        Self { rng, origin: origin.cloned() }
    }
}

impl Deref for Rng {
    type Target = TorchRng;

    fn deref(&self) -> &TorchRng {
        &self.rng
    }
}

impl DerefMut for Rng {
    fn deref_mut(&mut self) -> &mut TorchRng {
        &mut self.rng
    }
}

impl Drop for Rng {
    fn drop(&mut self) {
        if let Some(origin) = self.origin.take() {
            origin.set(self.rng.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_search_goes_on_where_the_last_one_ended() {
        let (state, mut plain) = (RandomState::manual_seed(7), TorchRng::manual_seed(7));
        for draws in [3, 0, 700] {
            let mut rng = Rng::new(99, Some(&state));
            for _ in 0..draws {
                assert_eq!(rng.next_u32(), plain.next_u32());
            }
        }
        assert_eq!(Rng::new(7, None).next_u32(), TorchRng::manual_seed(7).next_u32());
        assert_eq!(state.get().next_u32(), plain.next_u32());
    }
}
