//! Runs a list of requests to the end on the caller's thread.

use std::sync::Arc;
use std::time::Instant;

use super::core::Engine;
use super::estimate;
use super::executor::Executor;
use super::output::GenerationOutput;
use super::queue::Interrupt;
use super::request::Request;
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
    engine: &Engine,
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
    let mut waiting = plans.into_iter().enumerate();
    // The running requests, and their indices in the list.
    let (mut running, mut indices): (Vec<Request>, Vec<usize>) = Default::default();
    let mut executor = Executor::new(engine);
    let (mut ended, started) = (Vec::new(), Instant::now());
    loop {
        while running.len() < MAX_TOGETHER {
            let Some((index, plan)) = waiting.next() else { break };
            let named = |error: Error| if many { error.of_prompt("prompt", index) } else { error };
            running.push(Request::new(engine, draft, plan, tokenizer).map_err(named)?);
            indices.push(index);
        }
        if running.is_empty() {
            break;
        }
        executor.step(engine, &mut running, interrupted)?;
        ended.clear();
        for (index, result) in executor.advanced.drain(..) {
            let prompt = indices[index];
            result.map_err(|error| if many { error.of_prompt("prompt", prompt) } else { error })?;
            if running[index].stepped.finished {
                ended.push(index);
            }
        }
        // From the back, so that removing one does not move the next.
        for &index in ended.iter().rev() {
            let (request, prompt) = (running.remove(index), indices.remove(index));
            let waited = request.started().duration_since(started);
            let output = outputs[prompt].insert(GenerationOutput::new(request, tokenizer));
            output.timings.first_token += waited;
            output.timings.total += waited;
            finished(prompt, output)?;
        }
    }
    engine.report(&executor.timing);
    outputs
        .into_iter()
        .collect::<Option<_>>()
        .ok_or_else(|| Error::internal("a request ended without an output"))
}
