//! A list of requests, run to their end on the caller's thread.

use super::core::{Engine, Interrupt};
use super::output::GenerationOutput;
use super::request::Request;
use super::step::Stepper;
use super::timing;
use crate::error::{Error, ErrorKind, Result};
use crate::generation::GenerationPlan;
use crate::text::Tokenizer;

/// The most requests whose rows are computed together.
const MAX_TOGETHER: usize = 256;

/// Runs every plan as a request of its own and returns their outputs in the same order.
///
/// As many as the cache has room for run together; the others wait for their turn. No request's result depends on
/// which. `finished` gets each output as soon as it is there, with its place; when it returns an error, the work ends
/// with that.
///
/// # Errors
/// The first error of any request, with its place in the list if there are several. The others are given up.
pub fn run(
    engine: &Engine,
    tokenizer: Option<&Tokenizer>,
    plans: Vec<GenerationPlan>,
    interrupted: &mut Interrupt<'_>,
    finished: &mut dyn FnMut(usize, &GenerationOutput) -> Result<()>,
) -> Result<Vec<GenerationOutput>> {
    let mut outputs: Vec<Option<GenerationOutput>> = plans.iter().map(|_| None).collect();
    let many = outputs.len() > 1;
    let mut waiting = plans.into_iter().enumerate().peekable();
    // The requests that run, and their places in the list.
    let (mut running, mut places): (Vec<Request>, Vec<usize>) = Default::default();
    let mut stepper = Stepper::new(engine);
    let mut ended = Vec::new();
    let mut first = 0;
    loop {
        while running.len() < MAX_TOGETHER {
            let Some((_, plan)) = waiting.peek() else { break };
            let reservation = match Request::reserve(engine, plan) {
                Ok(reservation) => reservation,
                // It fits when others have ended, unless nothing runs.
                Err(error) if error.kind() == ErrorKind::Capacity && !running.is_empty() => break,
                Err(error) => return Err(error),
            };
            let Some((place, plan)) = waiting.next() else { break };
            running.push(Request::new(engine, plan, reservation));
            places.push(place);
        }
        if running.is_empty() {
            break;
        }
        let next = stepper.step(engine, &mut running, first, interrupted)?;
        ended.clear();
        for (index, result) in stepper.advanced.drain(..) {
            let place = places[index];
            result.map_err(|error| if many { error.context(format!("prompt {place}")) } else { error })?;
            if running[index].stepped().finished {
                ended.push(index);
            }
        }
        // From the back, so that the others stay where they are until then.
        ended.sort_unstable();
        for &index in ended.iter().rev() {
            let (request, place) = (running.remove(index), places.remove(index));
            finished(place, outputs[place].insert(GenerationOutput::new(request, tokenizer)))?;
        }
        first = next.saturating_sub(ended.iter().filter(|&&index| index < next).count());
        first = if first < running.len() { first } else { 0 };
    }
    timing::report(engine, &stepper.timing);
    outputs
        .into_iter()
        .collect::<Option<_>>()
        .ok_or_else(|| Error::internal("a request ended without an output"))
}
