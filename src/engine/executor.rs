//! Executes batches: the next rows of all requests, computed in one pass of each model.

use std::sync::Arc;

use super::batching::{BatchBuilder, OutputCursor};
use super::core::{Engine, Interrupt};
use super::request::Request;
use super::slot::DraftModel;
use crate::cache::BlockTable;
use crate::error::Result;
use crate::generation::search::ModelRole;
use crate::kernels::Work;
use crate::memory::recycled;
use crate::model::{ForwardBatch, ForwardOutput, PassKind, Stage, Timing};

/// The most rows of a pass. More rows read the weights less often, but make everything else wait longer: interrupts are
/// polled between operations, and one operation on 256 rows of a billion parameters takes about 0.1 s on one thread.
pub(super) const MAX_ROWS: usize = 256;

/// Builds and runs batches. Reuses its memory from step to step.
pub(super) struct BatchExecutor {
    pub(super) timing: Timing,
    /// The requests whose search advanced or failed in the last step, with the result.
    pub(super) advanced: Vec<(usize, Result<()>)>,
    /// The model that drafts for the requests.
    draft: Option<Arc<DraftModel>>,
    out: ForwardOutput,
    /// By [`ModelRole`].
    batches: [Batch; 2],
}

/// The rows of one model in a step.
#[derive(Default)]
struct Batch {
    builder: BatchBuilder,
    contributions: Vec<Contribution>,
    /// Empty between steps.
    tables: Vec<&'static BlockTable>,
}

/// The rows one request contributed to a batch.
struct Contribution {
    request: usize,
    rows: usize,
    tables: usize,
}

impl BatchExecutor {
    /// An executor for the requests of one call.
    pub(super) fn new(engine: &Engine, draft: Option<Arc<DraftModel>>) -> Self {
        Self {
            timing: engine.timing(),
            advanced: Vec::new(),
            draft,
            out: ForwardOutput::default(),
            batches: Default::default(),
        }
    }

    /// Computes the next rows of the requests, starting with request `first`, as many as fit into a pass of each model. A
    /// request has rows of one model. Returns the request that the next step starts with.
    ///
    /// # Errors
    /// An error of a pass itself, such as an interrupt: it ends all requests.
    pub(super) fn step(
        &mut self,
        engine: &Engine,
        requests: &mut [Request],
        first: usize,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<usize> {
        self.timing.start();
        self.advanced.clear();
        for batch in &mut self.batches {
            batch.builder.clear();
            batch.contributions.clear();
        }
        let order = (first..requests.len()).chain(0..first);
        let mut next = first;
        for index in order {
            let role = requests[index].prepare()?;
            let Batch { builder, contributions, .. } = &mut self.batches[role as usize];
            let budget = MAX_ROWS - builder.rows.len();
            if budget == 0 {
                next = index;
                break;
            }
            let tables = builder.used.len();
            let rows = requests[index].add_rows(budget, builder)?;
            contributions.push(Contribution { request: index, rows, tables: builder.used.len() - tables });
        }
        for role in [ModelRole::Draft, ModelRole::Target] {
            if !self.batches[role as usize].contributions.is_empty() {
                self.compute(role, engine, requests, interrupted)?;
            }
        }
        Ok(next)
    }

    /// Computes the batch of a model in one pass and hands the results to the requests.
    fn compute(
        &mut self,
        role: ModelRole,
        engine: &Engine,
        requests: &mut [Request],
        interrupted: &mut Interrupt<'_>,
    ) -> Result<()> {
        let Self { timing, advanced, draft, out, batches } = self;
        let Batch { builder, contributions, tables } = &mut batches[role as usize];
        let draft = draft.as_deref().filter(|_| role == ModelRole::Draft);
        let model = draft.map_or_else(|| engine.model(), DraftModel::model);
        let mut batch_tables = recycled(std::mem::take(tables));
        let mut used = &builder.used[..];
        for contribution in &*contributions {
            let (own, others) = used.split_at(contribution.tables);
            batch_tables.extend(requests[contribution.request].tables(own));
            used = others;
        }
        let kind = match role {
            ModelRole::Draft => PassKind::Draft,
            ModelRole::Target if builder.has_prompt => PassKind::Prompt,
            ModelRole::Target => PassKind::Step,
        };
        timing.pass(kind, builder.rows.len());
        timing.lap(Stage::Prepare, Work::default);
        let batch =
            ForwardBatch { rows: &builder.rows, tables: &batch_tables, embeddings: &builder.embeddings };
        engine.pass(draft, &batch, &builder.copies, timing, interrupted, out)?;
        *tables = recycled(batch_tables);

        let mut outputs = OutputCursor {
            logits: &mut out.logits,
            hidden_states: &mut out.hidden_states,
            layer_logits: &mut out.layer_logits,
            vocab_size: model.vocab_size(),
            hidden_size: model.hidden_size(),
        };
        for &mut Contribution { request, rows, .. } in contributions {
            match requests[request].take(rows, &mut outputs) {
                Ok(false) => {}
                Ok(true) => advanced.push((request, Ok(()))),
                Err(error) => advanced.push((request, Err(error))),
            }
        }
        timing.lap(Stage::Search, Work::default);
        Ok(())
    }
}
