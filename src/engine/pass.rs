//! A pass for all waiting requests: the leader composes a batch, computes it once, and delivers the results.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::batching::{BatchBuilder, PassOutputs};
use super::budget::Pace;
use super::compose::{Composer, Contribution, Task, Waits};
use super::pass_logits::PassLogits;
use super::queue::{Interrupt, Queue, WaitingRows};
use super::residents::Residents;
use super::slot::{ModelRunner, Slots};
use super::sync::{Instant, Mutex};
use rsgen_core::{Error, ErrorKind, Result};
use rsgen_generation::search::ModelRole;
use rsgen_generation::{PassSeconds, StepCost};
use rsgen_kernels::Work;
use rsgen_model::{EncodeOutput, ForwardOutput, PassKind, Stage, Timing};

/// How long an interrupted leader continues a pass that others wait for.
const GRACE: Duration = Duration::from_millis(100);

/// Combines the rows of all requests into passes.
pub(super) struct Scheduler {
    /// The rows that wait for a pass of any model.
    pub(super) queue: Arc<Queue>,
    /// The requests that may hold blocks.
    pub(super) residents: Residents,
    /// The models.
    pub(super) slots: Slots,
    /// Locked for the whole of a pass.
    state: Mutex<PassState>,
}

/// The working memory of a pass, handed from leader to leader.
#[derive(Default)]
struct PassState {
    builder: BatchBuilder,
    waiting: Vec<WaitingRows>,
    contributions: Vec<Contribution>,
    out: ForwardOutput,
    /// The logits of passes whose requests are all of one caller.
    shared: PassLogits,
    encoded: EncodeOutput,
    pace: Pace,
    /// How long passes of the engine's own model take, without rows of prompts.
    seconds: PassSeconds,
    /// The models whose last pass has failed: each request has a pass of its own there.
    failed: Vec<Weak<ModelRunner>>,
    /// Scratch: the tasks of the waiting requests; empty between passes.
    tasks: Vec<(Arc<ModelRunner>, Task)>,
    /// Scratch: the requests that wait for the chosen model.
    waits: Waits,
    /// The number of the pass.
    number: u64,
    /// The task of the last pass.
    last: Task,
}

/// A composed batch, whose rows are in the [`BatchBuilder`].
struct Batch {
    runner: Arc<ModelRunner>,
    task: Task,
    prompt_rows: usize,
}

impl Scheduler {
    /// A scheduler with an empty queue.
    pub(super) fn new(slots: Slots) -> Self {
        let (queue, residents, state) = Default::default();
        Self { queue, residents, slots, state }
    }

    /// Computes one pass of waiting rows, and marks the served entries in the queue. False when no rows could
    /// be computed, because no request has room in the cache.
    ///
    /// # Errors
    /// `Cancelled` when the leader is interrupted: the rows wait for the next one.
    pub(super) fn lead(
        &self,
        leader: u64,
        timing: &mut Timing,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<bool> {
        let mut state = self.state.lock();
        state.waiting.clear();
        self.queue.waiting(&mut state.waiting);
        let result = self.pass(&mut state, leader, timing, interrupted);
        // Drops the last handles of requests that have ended meanwhile, which frees their blocks.
        state.waiting.clear();
        result
    }

    fn pass(
        &self,
        state: &mut PassState,
        leader: u64,
        timing: &mut Timing,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<bool> {
        let start = Instant::now();
        state.number += 1;
        let Some(Batch { runner, task, prompt_rows }) = self.batch(state) else { return Ok(false) };
        let (computed, was_interrupted) = self.compute(state, &runner, task, leader, timing, interrupted);
        match computed {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Cancelled => return Err(error),
            Err(error) => {
                state.fail(&self.queue, &runner, error);
                return Ok(true);
            }
        }
        let elapsed = start.elapsed();
        if task == Task::default() {
            state.pace.add(elapsed, state.builder.rows.len(), prompt_rows);
            if state.builder.is_whole_step() {
                state.seconds.add(state.builder.rows.len(), elapsed.as_secs_f64());
            }
        }
        self.queue.took(elapsed);
        state.deliver(&self.queue, &runner, task, leader, elapsed);
        timing.lap(Stage::Search, Work::default);
        if was_interrupted { Err(Error::cancelled()) } else { Ok(true) }
    }

    /// Chooses a task and collects rows for it. The tasks take turns, so that a long prompt of one model does
    /// not block the other, and sources do not block next tokens. `None` when no request has room.
    fn batch(&self, state: &mut PassState) -> Option<Batch> {
        let mut tasks = std::mem::take(&mut state.tasks);
        for waiting in &state.waiting {
            let mut rows = waiting.rows.lock();
            rows.adopt_sources();
            let (runner, task) = (rows.runner(), rows.task());
            let is_same =
                |other: &(Arc<ModelRunner>, Task)| other.0.is_same(runner) && other.1.encodes == task.encodes;
            if !tasks.iter().any(is_same) {
                tasks.push((Arc::clone(runner), task));
            }
        }
        tasks.sort_by_key(|(_, task)| task.turns_after(state.last));
        let batch = tasks.drain(..).find_map(|(runner, task)| {
            let prompt_rows = self.compose(state, &runner, task);
            (!state.contributions.is_empty()).then_some(Batch { runner, task, prompt_rows })
        });
        state.tasks = tasks;
        state.last = batch.as_ref()?.task;
        batch
    }

    /// Computes the batch. Returns the outcome, and whether the leader was interrupted meanwhile: it
    /// continues for a while when others wait for the pass.
    fn compute(
        &self,
        state: &mut PassState,
        runner: &ModelRunner,
        task: Task,
        leader: u64,
        timing: &mut Timing,
        interrupted: &mut Interrupt<'_>,
    ) -> (Result<()>, bool) {
        let PassState { builder, waiting, contributions, out, shared, encoded, .. } = state;
        let kind = match task.role {
            _ if task.encodes => PassKind::Encoder,
            ModelRole::Draft => PassKind::Draft,
            ModelRole::Target if builder.has_prompt => PassKind::Prompt,
            ModelRole::Target => PassKind::Step,
        };
        timing.pass(kind, builder.num_rows());
        timing.lap(Stage::Prepare, Work::default);
        let has_others = contributions.iter().any(|part| waiting[part.waiting].caller != leader);
        let mut since: Option<Instant> = None;
        let mut polled = || {
            if since.is_none() && interrupted() {
                since = Some(Instant::now());
            }
            since.is_some_and(|since| !has_others || since.elapsed() >= GRACE)
        };
        if let [part] = &contributions[..] {
            waiting[part.waiting].rows.lock().lend(out);
        } else {
            let free = shared.take();
            if free.capacity() > out.logits.capacity() {
                out.logits = free;
            }
        }
        let mut copied = || contributions.iter().for_each(|part| waiting[part.waiting].rows.lock().copied());
        let computed = catch_unwind(AssertUnwindSafe(|| {
            if task.encodes {
                runner.encode(&self.slots, builder, timing, &mut polled, encoded)
            } else {
                runner.forward(&self.slots, builder, &mut copied, timing, &mut polled, out)
            }
        }));
        let computed = computed.unwrap_or_else(|_| Err(Error::internal("a pass of the model panicked")));
        (computed, since.is_some())
    }

    /// Collects rows for a model. Returns the number of prompt rows.
    fn compose(&self, state: &mut PassState, runner: &ModelRunner, task: Task) -> usize {
        let PassState { builder, waiting, contributions, pace, failed, number, waits, .. } = state;
        let is_same =
            |failed: &Weak<ModelRunner>| failed.upgrade().is_some_and(|failed| failed.is_same(runner));
        waits.find(waiting, (runner, task), *number, &self.queue);
        let composer = Composer {
            queue: &self.queue,
            residents: &self.residents,
            waiting,
            task,
            pass: *number,
            is_alone: failed.iter().any(is_same),
            builder,
            contributions,
            without_room: None,
        };
        composer.compose(waits, pace)
    }
}

impl PassState {
    /// Moves the results and the cost of the step to the requests. Those of the leader alone, who reads them now, share
    /// the logits; others might hold all of them as long as they like.
    fn deliver(&mut self, queue: &Queue, runner: &ModelRunner, task: Task, leader: u64, elapsed: Duration) {
        let Self { waiting, contributions, out, shared, encoded, builder, seconds, .. } = self;
        let cost = StepCost { waited: 0.0, sequences: builder.num_sequences(), seconds: *seconds };
        if task.encodes {
            let mut taken = [0; 2];
            for part in &*contributions {
                let WaitingRows { number, rows, .. } = &waiting[part.waiting];
                let of_pass = (elapsed, builder.num_rows());
                let result = rows.lock().take_sources(encoded, &mut taken, of_pass);
                if result.is_err() {
                    queue.done(*number, result, false);
                }
            }
            return self
                .failed
                .retain(|failed| failed.upgrade().is_some_and(|failed| !failed.is_same(runner)));
        }
        let is_one = contributions.len() == 1;
        let is_shared = !is_one && contributions.iter().all(|part| waiting[part.waiting].caller == leader);
        let shared = is_shared.then(|| shared.share(std::mem::take(&mut out.logits)));
        let mut outputs = PassOutputs::new(out, runner.model(), builder, is_one).sharing(shared);
        for part in &*contributions {
            let WaitingRows { number, rows, .. } = &waiting[part.waiting];
            let mut rows = rows.lock();
            rows.cost = cost;
            let taken = rows.take(part.rows, &mut outputs);
            let (is_complete, is_streamed) = (rows.is_complete(), rows.is_streamed);
            drop(rows);
            if taken.is_err() || is_complete {
                queue.done(*number, taken, is_streamed);
            }
        }
        // The pass of another model does not clear a failure.
        self.failed.retain(|failed| failed.upgrade().is_some_and(|failed| !failed.is_same(runner)));
    }

    /// Handles a failed pass: a single request fails; several are retried, each in a pass of its own.
    fn fail(&mut self, queue: &Queue, runner: &Arc<ModelRunner>, error: Error) {
        match &self.contributions[..] {
            [part] => queue.done(self.waiting[part.waiting].number, Err(error), false),
            _ => self.failed.push(Arc::downgrade(runner)),
        }
    }
}
