//! Requests that run together, on the caller's thread: others may join them between two passes.

use std::sync::Arc;

use super::core::Engine;
use super::executor::Executor;
use super::output::GenerationOutput;
use super::queue::Interrupt;
use super::request::Request;
use super::slot::ModelRunner;
use rsgen_core::Result;
use rsgen_generation::GenerationPlan;
use rsgen_text::Tokenizer;

/// The requests of one caller, each with a number of the caller's.
///
/// As many run as the cache has room for; the others wait. No result depends on which run together. Dropping it
/// ends the requests.
pub struct Batch {
    engine: Arc<Engine>,
    tokenizer: Option<Tokenizer>,
    executor: Executor,
    running: Vec<Request>,
    /// The number of each, and its sequences.
    numbers: Vec<(usize, usize)>,
}

impl Batch {
    /// A batch without requests.
    pub fn new(engine: &Arc<Engine>, tokenizer: Option<&Tokenizer>) -> Self {
        Self {
            executor: Executor::new(engine),
            engine: Arc::clone(engine),
            tokenizer: tokenizer.cloned(),
            running: Vec::new(),
            numbers: Vec::new(),
        }
    }

    /// The number of requests that have not ended.
    pub fn len(&self) -> usize {
        self.running.len()
    }

    /// How many sequences the requests compute in a step.
    pub(super) fn num_sequences(&self) -> usize {
        self.numbers.iter().map(|(_, sequences)| sequences).sum()
    }

    /// Whether all requests have ended.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Adds a request. `draft` is the model of its drafts.
    ///
    /// # Errors
    /// `Capacity` when the cache can never have room for it.
    pub fn add(
        &mut self,
        number: usize,
        draft: Option<&Arc<ModelRunner>>,
        plan: GenerationPlan,
    ) -> Result<()> {
        let sequences = plan.prompts().len() * plan.sequences_each();
        self.running.push(Request::new(&self.engine, draft, plan, self.tokenizer.as_ref())?);
        self.numbers.push((number, sequences));
        Ok(())
    }

    /// Computes a pass. Returns the requests that have ended with it, each with its output or error.
    ///
    /// # Errors
    /// `Cancelled` when interrupted; `Fork`.
    pub fn step(
        &mut self,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<Vec<(usize, Result<GenerationOutput>)>> {
        self.executor.step(&self.engine, &mut self.running, interrupted)?;
        let mut ended = Vec::new();
        // From the back, so that removing one does not move the next.
        while let Some((index, result)) = self.executor.advanced.pop() {
            if result.is_err() || self.running[index].stepped.finished {
                let (request, (number, _)) = (self.running.remove(index), self.numbers.remove(index));
                let output = |()| GenerationOutput::new(request, self.tokenizer.as_ref());
                ended.push((number, result.map(output)));
            }
        }
        ended.reverse();
        Ok(ended)
    }

    /// Logs where the time of the passes since the last report went, if passes are timed.
    pub fn report(&mut self) {
        let timing = std::mem::replace(&mut self.executor.timing, self.engine.timing());
        self.engine.report(&timing);
    }
}
