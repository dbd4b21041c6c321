//! Which rows a pass computes: next tokens before prompts, the oldest request first, and a share for short
//! prompts.

use super::batching::BatchBuilder;
use super::budget::{MAX_ROWS, MIN_PROMPT_ROWS, Pace};
use super::queue::{Queue, WaitingRows};
use super::residents::{Residents, Room};
use super::slot::ModelRunner;
use rsgen_core::ErrorKind;
use rsgen_generation::search::ModelRole;

/// The most rows of sources in a pass while somebody reads a stream.
const MAX_STREAMED_ROWS: usize = MAX_ROWS / 4;

/// Those who wait for a model; as they were in the last pass, between passes.
#[derive(Default)]
pub(super) struct Waits {
    /// Those without rows of a prompt, by their places among all who wait, in the order in which they are
    /// served.
    steps: Vec<(u64, usize)>,
    /// The passes that these began in.
    began: Vec<u64>,
    /// Those with rows of a prompt, the oldest first.
    prompts: Vec<WaitingPrompt>,
    /// Whether somebody reads a stream meanwhile.
    has_stream: bool,
}

/// A prompt that waits.
struct WaitingPrompt {
    age: u64,
    /// The pass before which it arrived.
    came: u64,
    /// The rows that are left.
    left: usize,
    index: usize,
}

/// What a pass computes, and for which model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Task {
    pub(super) role: ModelRole,
    /// Whether it encodes sources, instead of computing rows of the decoder.
    pub(super) encodes: bool,
}

impl Task {
    /// The tasks take turns in this order.
    fn number(self) -> usize {
        2 * (self.role as usize) + usize::from(self.encodes)
    }

    /// How many tasks have their turn between the `last` one and this.
    pub(super) fn turns_after(self, last: Self) -> usize {
        (self.number() + 3 - last.number()) % 4
    }
}

/// The rows of one request in a pass.
pub(super) struct Contribution {
    pub(super) waiting: usize,
    pub(super) rows: usize,
}

impl Waits {
    /// Finds those among `waiting` who wait for a task of a model.
    pub(super) fn find(
        &mut self,
        waiting: &[WaitingRows],
        (runner, task): (&ModelRunner, Task),
        pass: u64,
        queue: &Queue,
    ) {
        let Self { steps, began, prompts, has_stream } = self;
        steps.clear();
        began.clear();
        prompts.clear();
        *has_stream = queue.is_streaming();
        for (index, waiting) in waiting.iter().enumerate() {
            let mut rows = waiting.rows.lock();
            if !rows.runner().is_same(runner) || rows.task().encodes != task.encodes {
                continue;
            }
            if rows.is_prompt() {
                let came = *rows.came.get_or_insert(pass);
                prompts.push(WaitingPrompt { age: rows.age, came, left: rows.rows_left(), index });
            } else {
                began.push(*rows.began.get_or_insert(pass));
                *has_stream |= rows.is_streamed;
                // Requests that found no room go first, before others take it again.
                steps.push((if rows.is_blocked { rows.age } else { u64::MAX }, index));
            }
        }
        steps.sort_unstable();
        prompts.sort_unstable_by_key(|prompt| prompt.age);
    }

    /// The most rows of prompts in a pass: as many as fit, unless a stream waits for next tokens in it.
    fn most_prompt_rows(&mut self, pace: &Pace, has_steps: bool) -> usize {
        if !(self.has_stream && has_steps) {
            return MAX_ROWS;
        }
        let Self { steps, began, prompts, .. } = self;
        began.sort_unstable();
        let later = |prompt: &WaitingPrompt| began.len() - began.partition_point(|&pass| pass <= prompt.came);
        pace.prompt_rows(prompts.len(), steps.len(), prompts.iter().map(later).sum())
    }
}

/// Adds rows of those who wait to a pass.
pub(super) struct Composer<'a> {
    pub(super) queue: &'a Queue,
    pub(super) residents: &'a Residents,
    pub(super) waiting: &'a [WaitingRows],
    pub(super) task: Task,
    /// The number of the pass.
    pub(super) pass: u64,
    /// Whether each request has a pass of its own.
    pub(super) is_alone: bool,
    pub(super) builder: &'a mut BatchBuilder,
    pub(super) contributions: &'a mut Vec<Contribution>,
    /// The age of the oldest request that found no room. Younger ones find none either.
    pub(super) without_room: Option<u64>,
}

impl Composer<'_> {
    /// Collects the rows of a pass. Returns the number of rows of prompts.
    pub(super) fn compose(mut self, waits: &mut Waits, pace: &Pace) -> usize {
        self.builder.clear();
        self.contributions.clear();
        if self.task.encodes {
            return self.compose_sources(waits);
        }
        let step_rows = if waits.prompts.is_empty() { MAX_ROWS } else { MAX_ROWS - MIN_PROMPT_ROWS };
        for &(_, index) in &waits.steps {
            self.add(index, step_rows);
        }
        let before = self.builder.rows.len();
        let prompt_rows = waits.most_prompt_rows(pace, before > 0);
        self.add_prompts(&mut waits.prompts, before, prompt_rows);
        self.builder.rows.len() - before
    }

    /// Collects whole sources: the oldest whatever its length, then short ones first.
    fn compose_sources(&mut self, waits: &mut Waits) -> usize {
        let limit = if waits.has_stream { MAX_STREAMED_ROWS } else { MAX_ROWS };
        let Some((oldest, others)) = waits.prompts.split_first_mut() else { return 0 };
        self.add(oldest.index, limit);
        others.sort_by_key(|source| source.left);
        for source in &*others {
            self.add(source.index, limit);
        }
        self.builder.num_rows()
    }

    /// Adds up to `prompt_rows` rows of prompts to the `before` rows. A short prompt does not wait for long
    /// ones before it: a quarter of the rows goes to the shortest. The others have the rest, the oldest
    /// first.
    fn add_prompts(&mut self, prompts: &mut [WaitingPrompt], before: usize, prompt_rows: usize) {
        let Some((oldest, others)) = prompts.split_first_mut() else { return };
        let all = MAX_ROWS.min(before + prompt_rows);
        others.sort_by_key(|prompt| prompt.left);
        let num_short = others.iter().take_while(|prompt| prompt.left < prompt_rows / 4).count();
        let (short, long) = others.split_at_mut(num_short);
        for prompt in &*short {
            self.add(prompt.index, all.min(before + prompt_rows / 4));
        }
        self.add(oldest.index, all);
        long.sort_by_key(|prompt| prompt.age);
        for prompt in &*long {
            self.add(prompt.index, all);
        }
    }

    /// Adds rows of one request until the pass has `limit`. Where the cache has no room for them, others make
    /// it, or they wait.
    fn add(&mut self, index: usize, limit: usize) {
        let WaitingRows { number, rows: shared, .. } = &self.waiting[index];
        let budget = limit.saturating_sub(self.builder.num_rows());
        if budget == 0 || (self.is_alone && !self.contributions.is_empty()) {
            return;
        }
        let (mut rows, mut is_last) = (shared.lock(), false);
        loop {
            let error = match rows.add_rows(self.task, budget, self.builder) {
                Ok(0) if rows.is_complete() => return self.queue.done(*number, Ok(()), false),
                Ok(0) => return,
                Ok(added) => {
                    rows.last_pass = self.pass;
                    return self.contributions.push(Contribution { waiting: index, rows: added });
                }
                Err(error) => error,
            };
            if error.kind() == ErrorKind::Capacity {
                if self.without_room.is_some_and(|oldest| rows.age > oldest) {
                    return;
                }
                match self.residents.make_room(shared, rows.age, self.pass) {
                    Room::Made => continue,
                    Room::Later => return self.without_room = Some(rows.age),
                    // Other requests may have returned blocks since.
                    Room::Never if !is_last => {
                        is_last = true;
                        continue;
                    }
                    Room::Never => {}
                }
            }
            return self.queue.done(*number, Err(error), false);
        }
    }
}
