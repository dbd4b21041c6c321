//! Runs a list of requests to the end on the caller's thread.

use std::sync::Arc;
use std::time::Instant;

use super::batch::Batch;
use super::budget::MAX_ROWS;
use super::core::Engine;
use super::estimate::Estimate;
use super::output::GenerationOutput;
use super::queue::Interrupt;
use super::slot::ModelRunner;
use rsgen_core::{Error, Result};
use rsgen_generation::GenerationPlan;
use rsgen_text::Tokenizer;

/// The sequences that run together: as many as a pass has rows. With more it would compute no faster, and each holds
/// its logits and its part of the cache. Beside an encoder half of them are as fast: of the few layers of a decoder
/// there, the words are most of the work.
pub(super) fn max_sequences(engine: &Engine) -> usize {
    if engine.model().encoder().is_some() { MAX_ROWS / 2 } else { MAX_ROWS }
}

/// Runs every plan as a request of its own and returns their outputs in the same order; those that there are,
/// with the error that ended the work.
///
/// As many run together as a pass has use for and the cache has room for; the others wait. No result depends on which run together.
/// `draft` is the model of their drafts, and `memory` what all may take. `finished` receives each output with
/// its index as soon as it is ready; an error that it returns stops the work.
///
/// The error is `Capacity` when all answers together may not fit into the available memory, or else the first
/// of any request, with its index if there are several. The other requests end.
pub fn run(
    engine: &Arc<Engine>,
    draft: Option<&Arc<ModelRunner>>,
    tokenizer: Option<&Tokenizer>,
    memory: Estimate,
    plans: &mut dyn ExactSizeIterator<Item = Result<GenerationPlan>>,
    interrupted: &mut Interrupt<'_>,
    finished: &mut dyn FnMut(usize, &GenerationOutput) -> Result<()>,
) -> (Vec<Option<GenerationOutput>>, Result<()>) {
    let count = plans.len();
    let mut outputs: Vec<Option<GenerationOutput>> = (0..count).map(|_| None).collect();
    let named = |error: Error, index| if count > 1 { error.of_prompt("prompt", index) } else { error };
    let mut run = || {
        engine.check_process()?;
        memory.check(engine, draft.map(|draft| &**draft), count)?;
        let (mut waiting, mut waits) = (plans.enumerate(), Vec::with_capacity(count));
        let most = max_sequences(engine);
        let (mut batch, started) = (Batch::new(engine, tokenizer), Instant::now());
        loop {
            while batch.num_sequences() < most {
                let Some((index, plan)) = waiting.next() else { break };
                waits.push(started.elapsed());
                plan.and_then(|plan| batch.add(index, draft, plan)).map_err(|error| named(error, index))?;
            }
            if batch.is_empty() {
                batch.report();
                return Ok(());
            }
            let mut failed = None;
            for (index, result) in batch.step(interrupted)? {
                match result {
                    Ok(output) => {
                        let output = outputs[index].insert(output);
                        output.timings.first_token += waits[index];
                        output.timings.total += waits[index];
                        if failed.is_none() {
                            failed = finished(index, output).err();
                        }
                    }
                    Err(error) => failed = failed.or(Some(named(error, index))),
                }
            }
            failed.map_or(Ok(()), Err)?;
        }
    };
    let result = run();
    (outputs, result)
}
