//! The steps of a caller's requests: hands their rows in, waits for passes, and advances the searches.

use super::core::Engine;
use super::queue::{Caller, Interrupt};
use super::request::Request;
use rsgen_core::Result;
use rsgen_kernels::Work;
use rsgen_model::{Stage, Timing};

/// Runs the requests of one caller.
pub(super) struct Executor {
    pub(super) timing: Timing,
    /// The requests whose search advanced or failed in the last step, with the result.
    pub(super) advanced: Vec<(usize, Result<()>)>,
    caller: Caller,
    /// Memory that their searches borrow one after another.
    sums: Vec<f32>,
}

impl Executor {
    /// For the requests of one call.
    pub(super) fn new(engine: &Engine) -> Self {
        Self { timing: engine.timing(), advanced: Vec::new(), caller: engine.caller(), sums: Vec::new() }
    }

    /// Waits until rows of some of the requests are computed, and advances those.
    ///
    /// # Errors
    /// `Cancelled` when interrupted; `Fork`.
    pub(super) fn step(
        &mut self,
        engine: &Engine,
        requests: &mut [Request],
        interrupted: &mut Interrupt<'_>,
    ) -> Result<()> {
        self.timing.start();
        self.advanced.clear();
        for request in &mut *requests {
            request.hand_in(&self.caller);
        }
        self.timing.lap(Stage::Prepare, Work::default);
        engine.wait(&self.caller, &mut self.timing, interrupted)?;
        for (index, request) in requests.iter_mut().enumerate() {
            match request.advance(&mut self.sums) {
                Ok(false) => {}
                Ok(true) => self.advanced.push((index, Ok(()))),
                Err(error) => self.advanced.push((index, Err(error))),
            }
        }
        // Another leader may compute the next step while the caller reads this one: at most one step ahead.
        for (index, result) in &self.advanced {
            if result.is_ok() && !requests[*index].stepped.finished {
                requests[*index].hand_in(&self.caller);
            }
        }
        self.timing.lap(Stage::Search, Work::default);
        Ok(())
    }
}
