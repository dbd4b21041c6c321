//! Runs a list of requests to the end on the caller's thread.

use std::sync::Arc;
use std::time::Instant;

use super::batch::Batch;
use super::core::Engine;
use super::estimate;
use super::output::GenerationOutput;
use super::queue::Interrupt;
use super::slot::ModelRunner;
use rsgen_core::{Error, Result};
use rsgen_generation::GenerationPlan;
use rsgen_text::Tokenizer;

/// The most requests that run together.
const MAX_TOGETHER: usize = 256;

/// Runs every plan as a request of its own and returns their outputs in the same order.
///
/// As many run together as the cache has room for; the others wait. No result depends on which run together.
/// `draft` is the model of their drafts. `finished` receives each output with its index as soon as it is
/// ready; an error that it returns stops the work.
///
/// # Errors
/// `Capacity` when all answers together may not fit into the available memory. The first error of any
/// request, with its index if there are several. The other requests end.
pub fn run(
    engine: &Arc<Engine>,
    draft: Option<&Arc<ModelRunner>>,
    tokenizer: Option<&Tokenizer>,
    plans: Vec<GenerationPlan>,
    interrupted: &mut Interrupt<'_>,
    finished: &mut dyn FnMut(usize, &GenerationOutput) -> Result<()>,
) -> Result<Vec<GenerationOutput>> {
    engine.check_process()?;
    estimate::check(engine, draft.map(|draft| &**draft), &plans, MAX_TOGETHER)?;
    let mut outputs: Vec<Option<GenerationOutput>> = plans.iter().map(|_| None).collect();
    let many = outputs.len() > 1;
    let named = |error: Error, index| if many { error.of_prompt("prompt", index) } else { error };
    let (mut waiting, mut waits) = (plans.into_iter().enumerate(), Vec::new());
    let (mut batch, started) = (Batch::new(engine, tokenizer), Instant::now());
    loop {
        while batch.len() < MAX_TOGETHER {
            let Some((index, plan)) = waiting.next() else { break };
            waits.push(started.elapsed());
            batch.add(index, draft, plan).map_err(|error| named(error, index))?;
        }
        if batch.is_empty() {
            break;
        }
        for (index, result) in batch.step(interrupted)? {
            let output = outputs[index].insert(result.map_err(|error| named(error, index))?);
            output.timings.first_token += waits[index];
            output.timings.total += waits[index];
            finished(index, output)?;
        }
    }
    batch.report();
    outputs
        .into_iter()
        .collect::<Option<_>>()
        .ok_or_else(|| Error::internal("a request ended without an output"))
}
