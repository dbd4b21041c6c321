//! One step: the next rows of all requests, computed in one pass.

use super::batching::{PassRows, ResultsFront};
use super::core::{Engine, Interrupt};
use super::request::Request;
use crate::cache::BlockTable;
use crate::error::Result;
use crate::kernels::Work;
use crate::memory::recycled;
use crate::model::{ForwardBatch, ForwardOutput, PassKind, Stage, Timing};

/// The most rows of a pass. More rows read the weights less often, but let everything else wait longer: an interrupt is
/// looked at between operations, and one operation of 256 rows of a billion parameters takes about a tenth of a second on
/// one thread.
const MAX_ROWS: usize = 256;

/// Takes steps, one after the other, in memory that they share.
pub(super) struct Stepper {
    pub(super) timing: Timing,
    /// What became of each request whose search has advanced or failed in the last step.
    pub(super) advanced: Vec<(usize, Result<()>)>,
    out: ForwardOutput,
    pass: PassRows,
    taken: Vec<Taken>,
    /// Empty between steps.
    tables: Vec<&'static BlockTable>,
}

/// What a request has added to a pass.
struct Taken {
    request: usize,
    rows: usize,
    tables: usize,
}

impl Stepper {
    /// For the requests of one call.
    pub(super) fn new(engine: &Engine) -> Self {
        Self {
            timing: engine.timing(),
            advanced: Vec::new(),
            out: ForwardOutput::default(),
            pass: PassRows::default(),
            taken: Vec::new(),
            tables: Vec::new(),
        }
    }

    /// Computes the next rows of the requests, beginning with request `first` and as many as fit into a pass. Returns the
    /// request to begin the next step with.
    ///
    /// An error of the pass itself, such as an interrupt, concerns all requests.
    pub(super) fn step(
        &mut self,
        engine: &Engine,
        requests: &mut [Request],
        first: usize,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<usize> {
        let Self { timing, advanced, out, pass, taken, tables } = self;
        timing.start();
        pass.clear();
        taken.clear();
        advanced.clear();
        let order = (first..requests.len()).chain(0..first);
        let mut next = first;
        for index in order {
            let budget = MAX_ROWS - pass.rows.len();
            if budget == 0 {
                next = index;
                break;
            }
            requests[index].prepare()?;
            let tables = pass.used.len();
            let rows = requests[index].add_rows(budget, pass)?;
            taken.push(Taken { request: index, rows, tables: pass.used.len() - tables });
        }

        let mut of_pass = recycled(std::mem::take(tables));
        let mut used = &pass.used[..];
        for taken in &*taken {
            let (own, others) = used.split_at(taken.tables);
            of_pass.extend(requests[taken.request].tables(own));
            used = others;
        }
        timing.pass(if pass.has_prompt { PassKind::Prompt } else { PassKind::Step }, pass.rows.len());
        timing.lap(Stage::Prepare, Work::default);
        let batch = ForwardBatch { rows: &pass.rows, tables: &of_pass, embeddings: &pass.embeddings };
        engine.pass(&batch, &pass.copies, timing, interrupted, out)?;
        *tables = recycled(of_pass);

        let mut results = ResultsFront {
            logits: &mut out.logits,
            hidden_states: &mut out.hidden_states,
            layer_logits: &mut out.layer_logits,
            vocab_size: engine.model().vocab_size(),
            hidden_size: engine.model().hidden_size(),
        };
        for taken in taken {
            match requests[taken.request].take(taken.rows, &mut results) {
                Ok(false) => {}
                Ok(true) => advanced.push((taken.request, Ok(()))),
                Err(error) => advanced.push((taken.request, Err(error))),
            }
        }
        timing.lap(Stage::Search, Work::default);
        Ok(next)
    }
}
