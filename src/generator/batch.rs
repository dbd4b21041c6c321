//! Calls that run together, and that others join while they run.

use super::{Generator, Prepared};
use crate::engine::Batch;
use rsgen_core::{Error, Result};

impl Generator {
    /// A batch for calls that begin at any time: see [`Prepared::join`].
    pub fn batch(&self) -> Batch {
        Batch::new(&self.shared.engine, self.shared.tokenizer.as_ref())
    }
}

impl Prepared<'_> {
    /// Adds the call to a batch of the same generator, under a number of the caller's.
    ///
    /// # Errors
    /// When there are several independent prompts, or when the cache can never have room.
    pub fn join(mut self, batch: &mut Batch, number: usize) -> Result<()> {
        match (self.plans.pop(), self.plans.is_empty() && self.cut.is_none()) {
            (Some(plan), true) => batch.add(number, self.draft.as_ref(), plan),
            _ => Err(Error::input("a row has one prompt; make a row of each")),
        }
    }
}
