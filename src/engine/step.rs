//! One step: the next rows of all requests, computed in one pass.

use super::batching::{PassRows, ResultsFront};
use super::core::{Engine, Interrupt};
use super::request::Request;
use crate::error::Result;
use crate::generation::SearchStep;
use crate::kernels::Work;
use crate::model::{ForwardBatch, ForwardOutput, PassKind, Stage, Timing};

/// The most rows of a pass. More rows read the weights less often, but let everything else wait longer: an interrupt is
/// looked at between operations, and one operation of 256 rows of a billion parameters takes about a tenth of a second on
/// one thread.
const MAX_ROWS: usize = 256;

/// What a step has brought.
pub(super) struct Stepped {
    /// What became of each request whose search has advanced or failed.
    pub(super) advanced: Vec<(usize, Result<SearchStep>)>,
    /// The request to begin the next step with.
    pub(super) next: usize,
}

/// Computes the next rows of the requests, beginning with request `first` and as many as fit into a pass. `out` is
/// memory that steps reuse, and `timing` a stopwatch that they share.
///
/// An error of the pass itself, such as an interrupt, concerns all requests.
pub(super) fn step(
    engine: &Engine,
    requests: &mut [&mut Request],
    first: usize,
    out: &mut ForwardOutput,
    timing: &mut Timing,
    interrupted: &mut Interrupt<'_>,
) -> Result<Stepped> {
    timing.start();
    let mut pass = PassRows::default();
    let mut taken: Vec<(usize, usize)> = Vec::new();
    let order = (first..requests.len()).chain(0..first);
    let mut next = first;
    for index in order {
        let budget = MAX_ROWS - pass.rows.len();
        if budget == 0 {
            next = index;
            break;
        }
        requests[index].prepare()?;
        let count = requests[index].add_rows(budget, &mut pass)?;
        taken.push((index, count));
    }

    let tables: Vec<_> =
        taken.iter().zip(&pass.used).flat_map(|(&(index, _), used)| requests[index].tables(used)).collect();
    timing.pass(if pass.has_prompt { PassKind::Prompt } else { PassKind::Step }, pass.rows.len());
    timing.lap(Stage::Prepare, Work::default);
    let batch = ForwardBatch { rows: &pass.rows, tables: &tables, embeddings: &pass.embeddings };
    engine.pass(&batch, &pass.copies, timing, interrupted, out)?;

    let mut results = ResultsFront {
        logits: &mut out.logits,
        hidden_states: &mut out.hidden_states,
        layer_logits: &mut out.layer_logits,
        vocab_size: engine.model().vocab_size(),
        hidden_size: engine.model().hidden_size(),
    };
    let mut advanced = Vec::with_capacity(taken.len());
    for (index, count) in taken {
        if let Some(step) = requests[index].take(count, &mut results).transpose() {
            advanced.push((index, step));
        }
    }
    timing.lap(Stage::Search, Work::default);
    Ok(Stepped { advanced, next })
}
