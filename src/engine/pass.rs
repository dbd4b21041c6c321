//! A pass for everybody who waits: the leader collects rows, computes them once, and leaves the results with each request.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::batching::{BatchBuilder, OutputCursor};
use super::core::{Engine, Interrupt};
use super::queue::{Queue, WaitingRows};
use super::residents::Room;
use super::slot::{DraftModel, PassMemory, Slot};
use crate::cache::BlockTable;
use crate::error::{Error, ErrorKind, Result};
use crate::generation::search::ModelRole;
use crate::generation::{PassSeconds, StepCost};
use crate::kernels::Work;
use crate::memory::recycled;
use crate::model::{ForwardBatch, ForwardContext, ForwardOutput, PassKind, Stage, Timing};

/// The most rows of a pass. More rows read the weights less often, but make everything else wait longer: interrupts are
/// polled between operations, and one operation on 256 rows of a billion parameters takes about 0.1 s on one thread.
pub(super) const MAX_ROWS: usize = 256;

/// The rows that prompts have in each pass, whatever else waits.
const MIN_PROMPT_ROWS: usize = 16;

/// How much longer than a step without a prompt a pass may take that somebody's next token waits for.
const SLOWDOWN: f64 = 2.5;

/// How long an interrupted leader goes on with a pass that others wait for.
const GRACE: Duration = Duration::from_millis(100);

/// What the leaders of passes need, one after the other.
#[derive(Default)]
pub(super) struct PassState {
    builder: BatchBuilder,
    waiting: Vec<WaitingRows>,
    contributions: Vec<Contribution>,
    out: ForwardOutput,
    /// Empty between passes.
    tables: Vec<&'static BlockTable>,
    pace: Pace,
    /// How long passes of the engine's own model take, without rows of prompts.
    seconds: PassSeconds,
    /// Whether each request has a pass of its own, because the last one has failed.
    is_alone: bool,
    /// The models of those who wait, while one is chosen; empty between passes.
    slots: Vec<(Option<Arc<DraftModel>>, ModelRole)>,
    /// Those who wait with and without rows of a prompt; as they were in the last pass.
    steps: Vec<(u64, usize)>,
    prompts: Vec<Waiting>,
    /// The number of the pass.
    number: u64,
    /// Whether the last pass was for the draft model.
    was_draft: bool,
}

/// A prompt that waits.
struct Waiting {
    age: u64,
    /// The rows that are left.
    left: usize,
    index: usize,
}

/// The rows of one request in a pass.
struct Contribution {
    waiting: usize,
    rows: usize,
}

/// How long passes take, in seconds.
#[derive(Default)]
struct Pace {
    /// A pass without rows of prompts.
    step: f64,
    /// What a row of a prompt adds.
    prompt_row: f64,
}

impl Pace {
    /// The rows of prompts that may join a pass that somebody's next token waits for.
    fn prompt_rows(&self) -> usize {
        if self.step == 0.0 || self.prompt_row == 0.0 {
            return 2 * MIN_PROMPT_ROWS;
        }
        let rows = self.step * (SLOWDOWN - 1.0) / self.prompt_row;
        (rows as usize / MIN_PROMPT_ROWS * MIN_PROMPT_ROWS).clamp(MIN_PROMPT_ROWS, MAX_ROWS)
    }

    fn add(&mut self, elapsed: Duration, rows: usize, prompt_rows: usize) {
        let blend = |average: &mut f64, new: f64| {
            *average = if *average == 0.0 { new } else { 0.8 * *average + 0.2 * new };
        };
        let elapsed = elapsed.as_secs_f64();
        if prompt_rows == 0 {
            blend(&mut self.step, elapsed);
        } else if prompt_rows >= MIN_PROMPT_ROWS {
            let steps = if rows > prompt_rows { self.step } else { 0.0 };
            blend(&mut self.prompt_row, (elapsed - steps).max(elapsed / 8.0) / prompt_rows as f64);
        }
    }
}

/// Computes a pass with rows of those who wait, and notes in the queue who is served. False when nobody's rows could be
/// computed, since none has room in the cache.
///
/// # Errors
/// `Cancelled` when the leader is interrupted: the rows wait for the next one.
pub(super) fn compute(
    engine: &Engine,
    queue: &Queue,
    leader: u64,
    timing: &mut Timing,
    interrupted: &mut Interrupt<'_>,
) -> Result<bool> {
    let mut state = engine.pass_state().lock();
    let state = &mut *state;
    state.waiting.clear();
    queue.waiting(&mut state.waiting);
    let streaming = queue.is_streaming();
    let result = state.pass(engine, queue, leader, streaming, timing, interrupted);
    // The handles of requests that have ended meanwhile: the last one gives blocks back.
    state.waiting.clear();
    result
}

impl PassState {
    fn pass(
        &mut self,
        engine: &Engine,
        queue: &Queue,
        leader: u64,
        streaming: bool,
        timing: &mut Timing,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<bool> {
        let start = Instant::now();
        self.number += 1;
        // The models take turns: a long prompt of one does not keep the other.
        let was_draft = self.was_draft;
        let mut slots = std::mem::take(&mut self.slots);
        slots.clear();
        for waiting in &self.waiting {
            let rows = waiting.rows.lock();
            let (draft, role) = (rows.draft(), rows.role());
            let is_same = |other: &Option<Arc<DraftModel>>| match (other, draft) {
                (Some(one), Some(other)) => Arc::ptr_eq(&one.slot, &other.slot),
                (one, other) => one.is_none() && other.is_none(),
            };
            if !slots.iter().any(|(other, _)| is_same(other)) {
                slots.push((draft.cloned(), role));
            }
        }
        slots.sort_by_key(|(draft, _)| draft.is_some() == was_draft);
        let mut chosen = None;
        for (draft, role) in slots.drain(..) {
            let slot = draft.as_ref().map_or_else(|| engine.slot(), |draft| &*draft.slot);
            let prompt_rows = self.compose(engine, queue, slot, role, streaming);
            if !self.contributions.is_empty() {
                chosen = Some((draft, role, prompt_rows));
                break;
            }
        }
        self.slots = slots;
        let Some((draft, role, prompt_rows)) = chosen else { return Ok(false) };
        let slot = draft.as_ref().map_or_else(|| engine.slot(), |draft| &*draft.slot);
        self.was_draft = draft.is_some();
        let kind = match role {
            ModelRole::Draft => PassKind::Draft,
            ModelRole::Target if self.builder.has_prompt => PassKind::Prompt,
            ModelRole::Target => PassKind::Step,
        };
        let num_rows = self.builder.rows.len();
        timing.pass(kind, num_rows);
        timing.lap(Stage::Prepare, Work::default);

        let (model, workers) = match &draft {
            None => (engine.model(), engine.workers()),
            Some(draft) => (draft.model(), &draft.workers),
        };
        let Self { builder, waiting, contributions, out, tables, .. } = self;
        let has_others = contributions.iter().any(|part| waiting[part.waiting].caller != leader);
        let mut since: Option<Instant> = None;
        let mut polled = || {
            if since.is_none() && interrupted() {
                since = Some(Instant::now());
            }
            since.is_some_and(|since| !has_others || since.elapsed() >= GRACE)
        };
        let mut batch_tables = recycled(std::mem::take(tables));
        batch_tables.extend(builder.tables());
        let batch =
            ForwardBatch { rows: &builder.rows, tables: &batch_tables, embeddings: &builder.embeddings };
        let forward = catch_unwind(AssertUnwindSafe(|| {
            let mut memory = slot.memory.lock();
            let PassMemory { store, scratch } = &mut *memory;
            engine.ensure(slot, store)?;
            for copy in &builder.copies {
                store.copy(copy);
            }
            for part in &*contributions {
                waiting[part.waiting].rows.lock().copied();
            }
            timing.lap(Stage::Cache, Work::default);
            let mut context = ForwardContext { workers, scratch, timing, interrupted: &mut polled };
            model.forward(&batch, store, &mut context, out)
        }));
        *tables = recycled(batch_tables);
        let forward = forward.unwrap_or_else(|_| Err(Error::internal("a pass of the model panicked")));
        if let Err(error) = forward {
            if error.kind() == ErrorKind::Cancelled {
                return Err(error);
            }
            self.fail(queue, error);
            return Ok(true);
        }
        let elapsed = start.elapsed();
        if role == ModelRole::Target {
            self.pace.add(elapsed, num_rows, prompt_rows);
            let is_whole = self.builder.rows.iter().all(|row| row.last_layer.is_none());
            if is_whole && !self.builder.has_prompt {
                self.seconds.add(num_rows, elapsed.as_secs_f64());
            }
        }
        queue.took(elapsed);
        self.deliver(queue, model.vocab_size(), model.hidden_size());
        timing.lap(Stage::Search, Work::default);
        if since.is_some() { Err(Error::cancelled()) } else { Ok(true) }
    }

    /// Collects rows for a model: first those that are no prompt's, in the order in which they were handed in, then those of
    /// prompts, the oldest request first, except for a share that goes to short ones. Returns the number of rows of prompts.
    fn compose(
        &mut self,
        engine: &Engine,
        queue: &Queue,
        slot: &Slot,
        role: ModelRole,
        streaming: bool,
    ) -> usize {
        let Self { builder, waiting, contributions, pace, is_alone, number: pass, steps, prompts, .. } = self;
        builder.clear();
        contributions.clear();
        steps.clear();
        prompts.clear();
        let mut has_stream = streaming;
        for (index, waiting) in waiting.iter().enumerate() {
            let rows = waiting.rows.lock();
            if !std::ptr::eq(rows.slot(engine), slot) {
                continue;
            }
            if rows.is_prompt() {
                prompts.push(Waiting { age: rows.age, left: rows.rows_left(), index });
            } else {
                has_stream |= rows.is_streamed;
                // What had no room goes first, before others take the room again.
                steps.push((if rows.is_blocked { rows.age } else { u64::MAX }, index));
            }
        }
        steps.sort_unstable();
        prompts.sort_unstable_by_key(|prompt| prompt.age);
        let mut add = |index: usize, limit: usize, builder: &mut BatchBuilder| {
            let WaitingRows { number, rows: shared, .. } = &waiting[index];
            let budget = limit.saturating_sub(builder.rows.len());
            if budget == 0 || (*is_alone && !contributions.is_empty()) {
                return;
            }
            let mut rows = shared.lock();
            loop {
                return match rows.add_rows(role, budget, builder) {
                    Ok(0) if rows.is_complete() => queue.done(*number, Ok(()), false),
                    Ok(0) => {}
                    Ok(added) => {
                        rows.last_pass = *pass;
                        contributions.push(Contribution { waiting: index, rows: added });
                    }
                    Err(error) if error.kind() == ErrorKind::Capacity => {
                        match engine.residents().make_room(shared, rows.age, *pass) {
                            Room::Made => continue,
                            Room::Later => {}
                            Room::Never => queue.done(*number, Err(error), false),
                        }
                    }
                    Err(error) => queue.done(*number, Err(error), false),
                };
            }
        };
        let step_rows = if prompts.is_empty() { MAX_ROWS } else { MAX_ROWS - MIN_PROMPT_ROWS };
        for &mut (_, index) in steps {
            add(index, step_rows, builder);
        }
        let before = builder.rows.len();
        let prompt_rows = if has_stream && before > 0 { pace.prompt_rows() } else { MAX_ROWS };
        let all = MAX_ROWS.min(before + prompt_rows);
        if let Some((oldest, others)) = prompts.split_first_mut() {
            // A short prompt does not wait for long ones before it: a quarter of the rows goes to the shortest.
            others.sort_by_key(|prompt| prompt.left);
            let is_short = |prompt: &&Waiting| prompt.left < prompt_rows / 4;
            let num_short = others.iter().take_while(is_short).count();
            let (short, long) = others.split_at_mut(num_short);
            for prompt in &*short {
                add(prompt.index, all.min(before + prompt_rows / 4), builder);
            }
            add(oldest.index, all, builder);
            long.sort_by_key(|prompt| prompt.age);
            for prompt in &*long {
                add(prompt.index, all, builder);
            }
        }
        builder.rows.len() - before
    }

    /// Leaves the results with the requests, and what the step cost.
    fn deliver(&mut self, queue: &Queue, vocab_size: usize, hidden_size: usize) {
        let Self { waiting, contributions, out, builder, seconds, .. } = self;
        let (sequences, seconds) = (builder.tables().len(), *seconds);
        let cost = StepCost { waited: 0.0, sequences, seconds };
        let is_single = contributions.len() == 1;
        let mut outputs = OutputCursor {
            logits: &mut out.logits,
            hidden_states: &mut out.hidden_states,
            layer_logits: &mut out.layer_logits,
            vocab_size,
            hidden_size,
        };
        for part in &*contributions {
            let WaitingRows { number, rows, .. } = &waiting[part.waiting];
            let mut rows = rows.lock();
            rows.cost = cost;
            let taken = if is_single && rows.is_first() {
                break;
            } else {
                rows.take(part.rows, &mut outputs)
            };
            let is_complete = rows.is_complete();
            let is_streamed = rows.is_streamed;
            drop(rows);
            if taken.is_err() || is_complete {
                queue.done(*number, taken, is_streamed);
            }
        }
        if let [part] = &contributions[..] {
            let WaitingRows { number, rows, .. } = &waiting[part.waiting];
            let mut rows = rows.lock();
            if rows.is_first() {
                rows.take_all(part.rows, out);
                let (is_complete, is_streamed) = (rows.is_complete(), rows.is_streamed);
                drop(rows);
                if is_complete {
                    queue.done(*number, Ok(()), is_streamed);
                }
            }
        }
        self.is_alone = false;
    }

    /// A pass has failed: the only request in it has failed, or each of them gets a pass of its own.
    fn fail(&mut self, queue: &Queue, error: Error) {
        match &self.contributions[..] {
            [part] => queue.done(self.waiting[part.waiting].number, Err(error), false),
            _ => self.is_alone = true,
        }
    }
}
