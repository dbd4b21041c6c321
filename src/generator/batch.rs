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
    pub fn join(self, batch: &mut Batch, number: usize) -> Result<()> {
        let plan = if self.cut.is_none() { self.plans.single() } else { None };
        let plan = plan.unwrap_or_else(|| Err(Error::input("a row has one prompt; make a row of each")))?;
        batch.add(number, self.draft.as_ref(), plan)
    }
}
