//! The rows that a request wants computed, with the sequences that they continue.
//!
//! The caller of the request fills it in for each step. The leader of a pass changes the sequences, takes
//! rows and stores the results. Between steps nobody holds its lock, so that a leader can preempt a request
//! that nobody reads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::batching::{BatchBuilder, CacheCopy, PassOutputs};
use super::blocks::RequestCache;
use super::compose::Task;
use super::pass_logits::LogitsPart;
use super::preemption::Preemption;
use super::sequence::{RowPosition, Sequence, insert_recomputed};
use super::slot::ModelRunner;
use super::sources::Sources;
use rsgen_core::{Error, Mutex, Result, SeqId};
use rsgen_generation::search::ModelRole;
use rsgen_generation::{SearchInputs, StepCost};
use rsgen_model::{ForwardOutput, WeightedAdapters};

/// Shared by the caller of a request and the leader of a pass.
pub(super) type SharedRows = Arc<Mutex<PendingRows>>;

/// The sequences of a request, and its rows that are to be computed.
pub(super) struct PendingRows {
    /// The order of arrival; lower is older.
    pub(super) age: u64,
    /// Whether somebody waits for each token.
    pub(super) is_streamed: bool,
    pub(super) cache: RequestCache,
    pub(super) sources: Sources,
    /// The adapters of its rows.
    pub(super) adapters: Option<WeightedAdapters>,
    /// By [`SeqId`].
    pub(super) sequences: Vec<Option<Sequence>>,
    /// The operations and rows of this step, as the search requested them.
    pub(super) inputs: SearchInputs,
    /// Whether the operations have been performed, and the rows have positions.
    is_placed: bool,
    /// The position of each row.
    pub(super) positions: Vec<RowPosition>,
    /// Scratch: the ends of the sequences with the rows positioned so far.
    ends: Vec<usize>,
    /// How many of the rows have slots in the cache: more than are computed after a pass that was
    /// interrupted.
    pub(super) appended: usize,
    /// How many of the rows are computed.
    pub(super) computed: usize,
    /// Copies that the next pass has to make before it writes.
    pub(super) copies: Vec<CacheCopy>,
    /// The most rows of this request in one pass.
    chunk: usize,
    /// The length of a text that is handed in by parts; see
    /// [`Row::rope_seq_len`](rsgen_model::Row::rope_seq_len).
    text_len: Option<usize>,
    /// The results of the computed rows.
    results: ForwardOutput,
    /// Their logits, if a pass shares them.
    part: Option<LogitsPart>,
    /// Whether it takes such: whoever waits for them reads them at once.
    takes_parts: bool,
    /// Scratch: the sequences of the rows in a pass.
    used: Vec<SeqId>,
    /// Scratch: the prompts whose sources they see.
    used_sources: Vec<usize>,
    /// The tokens of prompts that other requests had computed.
    pub(super) cached_prompt_tokens: usize,
    /// Its part of the encoder passes that had sources of it.
    pub(super) encoder_time: Duration,
    pub(super) preemption: Preemption,
    /// The last pass that it had rows in.
    pub(super) last_pass: u64,
    /// The pass that it first waited for with a prompt, and with a next token.
    pub(super) came: Option<u64>,
    pub(super) began: Option<u64>,
    /// Whether the last pass had no room for it.
    pub(super) is_blocked: bool,
    /// The cost of a step, as of the last pass.
    pub(super) cost: StepCost,
    last_active: Instant,
    /// Dropped last, after the blocks.
    pub(super) holds: Arc<()>,
}

impl PendingRows {
    /// Without sequences and rows.
    pub(super) fn new(cache: RequestCache, age: u64, chunk: Option<usize>) -> Self {
        Self {
            age,
            is_streamed: false,
            cache,
            sources: Sources::default(),
            adapters: None,
            sequences: Vec::new(),
            inputs: SearchInputs::default(),
            is_placed: true,
            positions: Vec::new(),
            ends: Vec::new(),
            appended: 0,
            computed: 0,
            copies: Vec::new(),
            chunk: chunk.unwrap_or(usize::MAX),
            text_len: None,
            results: ForwardOutput::default(),
            part: None,
            takes_parts: false,
            used: Vec::new(),
            used_sources: Vec::new(),
            cached_prompt_tokens: 0,
            encoder_time: Duration::ZERO,
            preemption: Preemption::default(),
            last_pass: 0,
            came: None,
            began: None,
            is_blocked: false,
            cost: StepCost::default(),
            last_active: Instant::now(),
            holds: Arc::default(),
        }
    }

    /// With the adapters of its rows.
    pub(super) fn with_adapters(mut self, adapters: Option<WeightedAdapters>) -> Self {
        self.adapters = adapters;
        self
    }

    /// For a search, which reads its part of the logits that the requests of a call share.
    pub(super) fn of_search(mut self) -> Self {
        self.takes_parts = true;
        self
    }

    /// For a text of `len` tokens that is handed in by parts.
    pub(super) fn of_text(mut self, len: usize) -> Self {
        self.text_len = Some(len);
        self
    }

    /// Begins a step: `want` fills in the empty inputs, and `results` lends its memory.
    pub(super) fn begin(&mut self, mut results: ForwardOutput, want: impl FnOnce(&mut SearchInputs)) {
        self.inputs.clear();
        want(&mut self.inputs);
        (self.is_placed, self.appended, self.computed) = (false, 0, 0);
        results.clear();
        self.results = results;
        self.last_active = Instant::now();
    }

    /// Lends the memory of its results to a pass of its rows alone, so that the two do not take it twice.
    pub(super) fn lend(&mut self, out: &mut ForwardOutput) {
        if self.results.is_empty() && out.logits.capacity() < self.results.logits.capacity() {
            std::mem::swap(&mut self.results, out);
            self.results.clear();
        }
    }

    /// Takes the results of the step.
    pub(super) fn take_results(&mut self) -> ForwardOutput {
        std::mem::take(&mut self.results)
    }

    /// Takes the logits of the step, if a pass shares them: the results have none then.
    pub(super) fn take_part(&mut self) -> Option<LogitsPart> {
        self.part.take()
    }

    /// Whether all rows of the step are computed.
    pub(super) fn is_complete(&self) -> bool {
        self.is_placed && self.computed == self.inputs.rows.len()
    }

    /// The model of the next rows.
    pub(super) fn role(&self) -> ModelRole {
        if let Some((seq, _)) = self.preemption.lost().next() {
            return self.sequences[seq.index()]
                .as_ref()
                .map_or_else(ModelRole::default, |sequence| sequence.model);
        }
        self.inputs.rows.first().map_or_else(ModelRole::default, |row| row.model)
    }

    /// What it waits for: the next rows, or the encoder first.
    pub(super) fn task(&self) -> Task {
        let role = self.role();
        Task { role, encodes: self.sources.are_missing(role) }
    }

    /// The runner of the next rows.
    pub(super) fn runner(&self) -> &Arc<ModelRunner> {
        self.cache.runner(self.role())
    }

    /// Whether the next row belongs to a prompt, or to tokens that are computed again.
    pub(super) fn is_prompt(&self) -> bool {
        self.preemption.is_preempted()
            || self.task().encodes
            || self.preemption.num_lost() > 0
            || self.inputs.rows.get(self.computed).is_some_and(|row| row.is_prompt)
    }

    /// How many rows of the step are left.
    pub(super) fn rows_left(&self) -> usize {
        if self.preemption.is_preempted() {
            usize::MAX
        } else if self.task().encodes {
            self.sources.rows_left(self.role())
        } else {
            self.preemption.num_lost() + self.inputs.rows.len() - self.computed
        }
    }

    /// Adds at most `budget` rows to a batch for a task and returns their number; to one of sources, whole
    /// sources.
    ///
    /// # Errors
    /// `Capacity` when there is no room for a single row; it can be retried.
    pub(super) fn add_rows(
        &mut self,
        task: Task,
        budget: usize,
        builder: &mut BatchBuilder,
    ) -> Result<usize> {
        let role = task.role;
        self.preemption.begin_pass(0);
        self.is_blocked = true;
        // Only at the start. Later, restoring its sequences takes the blocks that they had.
        if self.sequences.is_empty() {
            self.cache.admit()?;
        }
        self.preemption.restore(&mut self.cache, &mut self.sequences, &mut self.sources)?;
        self.is_blocked = false;
        if self.task() != task {
            return Ok(0);
        }
        if task.encodes {
            return self.add_sources(role, budget, builder);
        }
        let budget = budget.min(self.chunk);
        let mut used = std::mem::take(&mut self.used);
        used.clear();
        self.used_sources.clear();
        let added = if self.preemption.num_lost() > 0 {
            self.add_lost(role, budget, &mut used, builder)
        } else {
            self.add_wanted(budget, &mut used, builder)
        };
        for &seq in &used {
            builder.push_table(live(&mut self.sequences, seq)?.table());
        }
        for &prompt in &self.used_sources {
            builder.push_source_table(self.sources.table(role, prompt));
        }
        if !used.is_empty() {
            builder.copies.extend_from_slice(&self.copies);
        }
        self.used = used;
        added
    }

    /// Adds rows that the search wants. `used` receives their sequences.
    fn add_wanted(
        &mut self,
        budget: usize,
        used: &mut Vec<SeqId>,
        builder: &mut BatchBuilder,
    ) -> Result<usize> {
        self.place()?;
        let mut added = Ok(0);
        for index in self.computed..self.computed.saturating_add(budget) {
            // There may be fewer rows than before: adopted ones are removed.
            let Some(seq) = self.inputs.rows.get(index).map(|row| row.seq) else { break };
            if used.last() != Some(&seq) {
                self.push_text(index, builder);
                if !self.adopt(index, builder)? {
                    break;
                }
            }
            match self.append(index, used) {
                Ok(true) => {}
                Err(error) if index == self.computed => {
                    self.is_blocked = true;
                    added = Err(error);
                    break;
                }
                // It waits for the next pass, or for blocks that the rows before it may free.
                Ok(false) | Err(_) => break,
            }
            let wanted = &self.inputs.rows[index];
            let source = live(&mut self.sequences, wanted.seq)?.source();
            let sources = (source, &mut self.used_sources);
            builder.push_row(wanted, self.positions[index], used, sources, self.adapters.as_ref());
            added = Ok(index + 1 - self.computed);
        }
        self.push_text(self.computed + added.as_ref().map_or(0, |&added| added), builder);
        added
    }

    /// Adds rows of tokens that are computed again: all of one model, since a pass computes for one. `used`
    /// receives their sequences.
    fn add_lost(
        &mut self,
        role: ModelRole,
        budget: usize,
        used: &mut Vec<SeqId>,
        builder: &mut BatchBuilder,
    ) -> Result<usize> {
        let Self { preemption, sequences, used_sources, adapters, .. } = self;
        let mut count = 0;
        for (seq, position) in preemption.lost().take(budget) {
            let sequence = live(sequences, seq)?;
            if sequence.model != role {
                break;
            }
            let (wanted, row_position) = sequence.recomputed(seq, position);
            let sources = (sequence.source(), &mut *used_sources);
            builder.push_row(&wanted, row_position, used, sources, adapters.as_ref());
            count += 1;
        }
        preemption.begin_pass(count);
        Ok(count)
    }

    /// Preempts the request: frees all its blocks, which are computed again when its turn comes.
    pub(super) fn preempt(&mut self) {
        self.publish_all();
        if self.sequences.is_empty() {
            // It has not begun, and will be admitted again.
            self.sources.clear();
            self.cache.give_back();
            self.copies.clear();
            return;
        }
        self.preemption.preempt(&mut self.cache, &mut self.sequences, &mut self.sources);
        self.copies.clear();
    }

    /// Whether it holds or has reserved blocks.
    pub(super) fn holds_blocks(&self) -> bool {
        let mut sequences = self.sequences.iter().flatten();
        !self.preemption.is_preempted()
            && (self.cache.is_admitted()
                || sequences.any(|sequence| sequence.len() > 0)
                || self.sources.hold_blocks())
    }

    /// Whether it cannot be preempted, because its blocks depend on tokens that have left the cache.
    pub(super) fn keeps_blocks(&self) -> bool {
        self.cache.sinks.is_some()
    }

    /// How long nobody has asked for its next tokens.
    pub(super) fn idle_for(&self) -> Duration {
        if self.is_complete() { self.last_active.elapsed() } else { Duration::ZERO }
    }

    /// Gives a row its slot, unless it has one. False when it must wait for the next pass: `used` are the
    /// sequences of this pass.
    fn append(&mut self, index: usize, used: &[SeqId]) -> Result<bool> {
        if index < self.appended {
            return Ok(true);
        }
        let (wanted, row_position) = (&self.inputs.rows[index], self.positions[index]);
        let sequence = live(&mut self.sequences, wanted.seq)?;
        if row_position.position < sequence.len() {
            // Earlier rows of this pass still need its old tokens.
            if used.contains(&wanted.seq) {
                return Ok(false);
            }
            if row_position.position > 0 {
                // Its oldest tokens make room; copies are made in their order.
                self.copies.extend(sequence.make_room()?.map(CacheCopy::Shift));
            } else if self.copies.is_empty() {
                // It is recomputed from here.
                sequence.truncate(0);
            } else {
                return Ok(false);
            }
        }
        let copy = sequence.append(wanted, row_position.rope_seq_len)?;
        self.copies.extend(copy.map(CacheCopy::Block));
        self.appended += 1;
        Ok(true)
    }

    /// Forgets the copies of its rows, which have been made.
    pub(super) fn copied(&mut self) {
        self.copies.clear();
    }

    /// Takes the results of its next `count` rows.
    ///
    /// # Errors
    /// `Capacity` when there is no memory for them.
    pub(super) fn take(&mut self, count: usize, outputs: &mut PassOutputs<'_>) -> Result<()> {
        if self.preemption.end_pass() {
            return Ok(());
        }
        self.publish_prompts(count);
        let taken = self.computed..self.computed + count;
        self.computed += count;
        let takes_part = self.takes_parts && !self.is_streamed && taken == (0..self.inputs.rows.len());
        let (rows, positions) = (&self.inputs.rows[taken.clone()], &self.positions[taken]);
        self.part = outputs.take(rows, positions, &mut self.results, takes_part)?;
        Ok(())
    }

    /// Performs the operations of the step and gives its rows their positions, once.
    fn place(&mut self) -> Result<()> {
        if self.is_placed {
            return Ok(());
        }
        let mut ops = std::mem::take(&mut self.inputs.ops);
        for op in ops.drain(..) {
            self.change_sequences(op)?;
        }
        self.inputs.ops = ops;
        // After the operations, the tokens that are left of the last step are computed and final.
        self.sequences.iter_mut().flatten().for_each(Sequence::publish_full);
        self.assign_positions()?;
        self.is_placed = true;
        Ok(())
    }

    /// Assigns each requested row its position and its RoPE sequence length.
    fn assign_positions(&mut self) -> Result<()> {
        let role = self.role();
        let text_len = self.text_len;
        let Self { inputs, sequences, positions, ends, .. } = self;
        ends.clear();
        ends.extend(sequences.iter().map(|sequence| sequence.as_ref().map_or(0, Sequence::len)));
        positions.clear();
        for wanted in &inputs.rows {
            let sequence = live(sequences, wanted.seq)?;
            if wanted.model != role || sequence.model != role {
                return Err(Error::internal(
                    "a search wants rows of two models, or of a sequence of another model",
                ));
            }
            let end = &mut ends[wanted.seq.index()];
            *end = sequence.next_position(*end);
            positions.push(RowPosition { position: *end, rope_seq_len: *end + 1 });
            *end += 1;
        }
        // Candidates after a prompt do not count as part of it.
        let mut prompt_end: Option<(SeqId, usize)> = None;
        for (wanted, row_position) in inputs.rows.iter().zip(positions).rev().filter(|(row, _)| row.is_prompt)
        {
            if prompt_end.is_none_or(|(seq, _)| seq != wanted.seq) {
                prompt_end = Some((wanted.seq, row_position.position + 1));
            }
            row_position.rope_seq_len = text_len.unwrap_or(prompt_end.map_or(0, |(_, end)| end));
        }
        insert_recomputed(
            &mut self.inputs.rows,
            &mut self.positions,
            &self.sequences,
            self.cache.runner(role).model().longrope_threshold(),
        );
        Ok(())
    }
}

pub(super) fn live(sequences: &mut [Option<Sequence>], seq: SeqId) -> Result<&mut Sequence> {
    let sequence = sequences.get_mut(seq.index()).and_then(Option::as_mut);
    sequence.ok_or_else(|| Error::internal(format!("a search names sequence {seq}, which does not exist")))
}
