//! A list of requests, run to their end on the caller's thread.

use super::core::{Engine, Interrupt};
use super::output::GenerationOutput;
use super::request::Request;
use super::step::{Stepped, step};
use super::timing;
use crate::error::{Error, ErrorKind, Result};
use crate::generation::GenerationPlan;
use crate::model::ForwardOutput;
use crate::text::Tokenizer;

/// The most requests whose rows are computed together.
const MAX_TOGETHER: usize = 256;

/// Runs every plan as a request of its own and returns their outputs in the same order.
///
/// As many as the cache has room for run together; the others wait for their turn. No request's result depends on
/// which.
///
/// # Errors
/// The first error of any request, with its place in the list if there are several. The others are given up.
pub fn run(
    engine: &Engine,
    tokenizer: Option<&Tokenizer>,
    plans: Vec<GenerationPlan>,
    interrupted: &mut Interrupt<'_>,
) -> Result<Vec<GenerationOutput>> {
    let mut outputs: Vec<Option<GenerationOutput>> = plans.iter().map(|_| None).collect();
    let many = outputs.len() > 1;
    let mut waiting = plans.into_iter().enumerate().peekable();
    let mut running: Vec<(usize, Request)> = Vec::new();
    let (mut out, mut timing) = (ForwardOutput::default(), engine.timing());
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
            running
                .extend(waiting.next().map(|(index, plan)| (index, Request::new(engine, plan, reservation))));
        }
        if running.is_empty() {
            break;
        }
        let mut requests: Vec<&mut Request> = running.iter_mut().map(|(_, request)| request).collect();
        let Stepped { advanced, next } =
            step(engine, &mut requests, first, &mut out, &mut timing, interrupted)?;
        let mut finished = Vec::new();
        for (place, result) in advanced {
            let index = running[place].0;
            let named = |error: Error| if many { error.context(format!("prompt {index}")) } else { error };
            if result.map_err(named)?.finished {
                finished.push(place);
            }
        }
        // From the back, so that the places of the others stay valid.
        finished.sort_unstable();
        for &place in finished.iter().rev() {
            let (index, request) = running.remove(place);
            outputs[index] = Some(GenerationOutput::new(request, tokenizer));
        }
        first = next.saturating_sub(finished.iter().filter(|&&place| place < next).count());
        first = if first < running.len() { first } else { 0 };
    }
    timing::report(engine, &timing);
    outputs
        .into_iter()
        .collect::<Option<_>>()
        .ok_or_else(|| Error::internal("a request ended without an output"))
}
