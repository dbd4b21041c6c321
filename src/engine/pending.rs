//! The rows that a request wants computed, with the sequences that they continue.
//!
//! The caller of the request fills it in for each step; whoever leads a pass changes the sequences, takes rows from it and
//! leaves the results. Between steps nobody holds its lock, so that the leader can also take the blocks of a request that
//! nobody reads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::batching::{BatchBuilder, OutputCursor};
use super::blocks::RequestCache;
use super::core::Engine;
use super::sequence::{Sequence, insert_recomputed};
use super::slot::{DraftModel, Slot};
use crate::cache::{BlockCopy, Preempted, SequenceCache};
use crate::error::{Error, Result};
use crate::generation::search::{ModelRole, WantedRow};
use crate::generation::{SearchInputs, StepCost};
use crate::memory;
use crate::model::{CausalLm, ForwardOutput, Row};
use crate::sync::Mutex;
use crate::types::SeqId;

/// Shared by the caller of a request and the leader of a pass.
pub(super) type SharedRows = Arc<Mutex<PendingRows>>;

/// The sequences of a request, and its rows that are to be computed.
pub(super) struct PendingRows {
    /// The place in the order of arrival: lower is older.
    pub(super) age: u64,
    /// Whether somebody waits for each token.
    pub(super) is_streamed: bool,
    pub(super) cache: RequestCache,
    /// By [`SeqId`].
    pub(super) sequences: Vec<Option<Sequence>>,
    /// What the search wants in this step.
    pub(super) inputs: SearchInputs,
    /// Whether the operations have been performed, and the rows have positions.
    is_placed: bool,
    /// The position of each row.
    pub(super) positions: Vec<RowPosition>,
    /// Scratch: the ends of the sequences with the rows positioned so far.
    ends: Vec<usize>,
    /// How many of the rows have slots in the cache: more than are computed after a pass that was interrupted.
    pub(super) appended: usize,
    /// How many of the rows are computed.
    pub(super) computed: usize,
    /// Copies that the next pass has to make before it writes.
    pub(super) copies: Vec<BlockCopy>,
    /// The most rows of this request in one pass.
    chunk: usize,
    /// The length of a text that is handed in by parts; see [`Row::rope_seq_len`].
    text_len: Option<usize>,
    /// The results of the computed rows.
    results: ForwardOutput,
    /// Scratch: the sequences of the rows in a pass.
    used: Vec<SeqId>,
    /// The tokens of prompts that other requests had computed.
    pub(super) cached_prompt_tokens: usize,
    /// The blocks that were taken away, by [`ModelRole`].
    preempted: [Option<Preempted>; 2],
    /// Cached tokens that must be computed again before anything else, in reverse order.
    pub(super) lost: Vec<(SeqId, usize)>,
    /// How many of the lost tokens are in the current pass.
    recomputing: usize,
    /// The last pass that it had rows in.
    pub(super) last_pass: u64,
    /// Whether the last pass had no room for it.
    pub(super) is_blocked: bool,
    /// What a step cost, as of that one.
    pub(super) cost: StepCost,
    last_active: Instant,
}

/// The position of a row; see [`Row`].
#[derive(Clone, Copy)]
pub(super) struct RowPosition {
    pub(super) position: usize,
    pub(super) rope_seq_len: usize,
}

impl PendingRows {
    /// Without sequences and rows.
    pub(super) fn new(cache: RequestCache, age: u64, chunk: Option<usize>) -> Self {
        Self {
            age,
            is_streamed: false,
            cache,
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
            used: Vec::new(),
            cached_prompt_tokens: 0,
            preempted: [None, None],
            lost: Vec::new(),
            recomputing: 0,
            last_pass: 0,
            is_blocked: false,
            cost: StepCost::default(),
            last_active: Instant::now(),
        }
    }

    /// Of a text of so many tokens, which is handed in by parts.
    pub(super) fn of_text(mut self, len: usize) -> Self {
        self.text_len = Some(len);
        self
    }

    /// Begins a step: `want` fills in the empty inputs, and `results` lends its memory.
    pub(super) fn begin(&mut self, mut results: ForwardOutput, want: impl FnOnce(&mut SearchInputs)) {
        self.inputs.clear();
        want(&mut self.inputs);
        (self.is_placed, self.appended, self.computed) = (false, 0, 0);
        results.logits.clear();
        results.hidden_states.clear();
        results.layer_logits.clear();
        self.results = results;
        self.last_active = Instant::now();
    }

    /// The results of the step; lets go of them.
    pub(super) fn take_results(&mut self) -> ForwardOutput {
        std::mem::take(&mut self.results)
    }

    /// Whether all rows of the step are computed.
    pub(super) fn is_complete(&self) -> bool {
        self.is_placed && self.computed == self.inputs.rows.len()
    }

    /// The model of the next rows.
    pub(super) fn role(&self) -> ModelRole {
        if let Some(&(seq, _)) = self.lost.last() {
            return self.sequences[seq.index()].as_ref().map_or_else(ModelRole::default, Sequence::model);
        }
        self.inputs.rows.first().map_or_else(ModelRole::default, |row| row.model)
    }

    /// Whether the next row belongs to a prompt, or to tokens that are computed again.
    pub(super) fn is_prompt(&self) -> bool {
        self.is_preempted()
            || !self.lost.is_empty()
            || self.inputs.rows.get(self.computed).is_some_and(|row| row.is_prompt)
    }

    /// How many rows of the step are left.
    pub(super) fn rows_left(&self) -> usize {
        if self.is_preempted() {
            usize::MAX
        } else {
            self.lost.len() + self.inputs.rows.len() - self.computed
        }
    }

    /// The draft model that the rows are for; `None` for the engine's own.
    pub(super) fn draft(&self) -> Option<&Arc<DraftModel>> {
        match self.role() {
            ModelRole::Target => None,
            ModelRole::Draft => self.cache.draft_model(),
        }
    }

    /// The slot that computes the rows.
    pub(super) fn slot<'a>(&'a self, engine: &'a Engine) -> &'a Slot {
        self.draft().map_or_else(|| engine.slot(), |draft| &draft.slot)
    }

    /// The model that computes the rows.
    pub(super) fn model<'a>(&'a self, engine: &'a Engine) -> &'a dyn CausalLm {
        self.draft().map_or_else(|| engine.model(), |draft| draft.model())
    }

    /// Adds at most `budget` rows to a batch for the model `role` and returns their number.
    ///
    /// # Errors
    /// `Capacity` when there is no room for a single one: it may be tried again.
    pub(super) fn add_rows(
        &mut self,
        role: ModelRole,
        budget: usize,
        builder: &mut BatchBuilder,
    ) -> Result<usize> {
        (self.recomputing, self.is_blocked) = (0, true);
        // Later it has its sequences: restoring them takes what they had, and not what it began with as well.
        if self.sequences.is_empty() {
            self.cache.admit()?;
        }
        self.restore()?;
        self.is_blocked = false;
        if self.role() != role {
            return Ok(0);
        }
        if !self.lost.is_empty() {
            return self.add_lost(budget, builder);
        }
        self.place()?;
        let most = budget.min(self.chunk);
        let first_table = builder.tables().len();
        let mut used = std::mem::take(&mut self.used);
        used.clear();
        let mut added = Ok(0);
        for index in self.computed..self.computed.saturating_add(most) {
            // There may be fewer rows than before: those that others had computed are left out.
            let Some(seq) = self.inputs.rows.get(index).map(|row| row.seq) else { break };
            if used.last() != Some(&seq) {
                self.push_text(index, builder);
                if !self.adopt(index, builder)? {
                    break;
                }
            }
            match self.append(index, &used) {
                Ok(true) => {}
                Err(error) if index == self.computed => {
                    self.is_blocked = true;
                    added = Err(error);
                    break;
                }
                // It waits for the next pass, or for room that those before it may leave.
                Ok(false) | Err(_) => break,
            }
            let (wanted, RowPosition { position, rope_seq_len }) =
                (&self.inputs.rows[index], self.positions[index]);
            let known = used.iter().rposition(|&seq| seq == wanted.seq);
            let table = first_table + known.unwrap_or(used.len());
            if known.is_none() {
                used.push(wanted.seq);
            }
            builder.has_prompt |= wanted.is_prompt;
            let input = builder.input(&wanted.input);
            let (last_layer, outputs) = (wanted.last_layer, wanted.outputs);
            builder.rows.push(Row { input, table, position, rope_seq_len, last_layer, outputs });
            added = Ok(index + 1 - self.computed);
        }
        self.push_text(self.computed + added.as_ref().map_or(0, |&added| added), builder);
        for &seq in &used {
            builder.push_table(live(&mut self.sequences, seq)?.table());
        }
        if !used.is_empty() {
            builder.copies.extend_from_slice(&self.copies);
        }
        self.used = used;
        added
    }

    /// Adds rows of tokens that are computed again.
    fn add_lost(&mut self, budget: usize, builder: &mut BatchBuilder) -> Result<usize> {
        let Self { lost, sequences, used, .. } = self;
        let first_table = builder.tables().len();
        // All of one model: a pass computes for one. Both models never lose theirs within a row of each other.
        let model =
            |seq: SeqId, sequences: &[Option<Sequence>]| sequences[seq.index()].as_ref().map(Sequence::model);
        let role = lost.last().and_then(|&(seq, _)| model(seq, sequences));
        used.clear();
        let next = lost.iter().rev().take(budget.min(self.chunk));
        let mut count = 0;
        for &(seq, position) in next {
            if model(seq, sequences) != role {
                break;
            }
            let (wanted, row_position) = live(sequences, seq)?.recomputed(seq, position);
            let known = used.iter().rposition(|&other| other == seq);
            let table = first_table + known.unwrap_or(used.len());
            if known.is_none() {
                used.push(seq);
            }
            let input = builder.input(&wanted.input);
            let RowPosition { position, rope_seq_len } = row_position;
            let WantedRow { last_layer, outputs, .. } = wanted;
            builder.rows.push(Row { input, table, position, rope_seq_len, last_layer, outputs });
            count += 1;
        }
        for &seq in &*used {
            builder.push_table(live(sequences, seq)?.table());
        }
        builder.has_prompt = true;
        self.recomputing = count;
        Ok(count)
    }

    /// Takes all its blocks, for others; they are computed again when its turn comes.
    pub(super) fn preempt(&mut self) {
        self.publish_all();
        for (role, preempted) in [ModelRole::Target, ModelRole::Draft].into_iter().zip(&mut self.preempted) {
            let Some(pool) = self.cache.pool(role).filter(|_| preempted.is_none()) else { continue };
            *preempted = Some(pool.preempt(of_model(&mut self.sequences, role)));
        }
        self.cache.give_back();
        self.copies.clear();
        self.lost.clear();
    }

    /// Gets its blocks back.
    ///
    /// # Errors
    /// `Capacity` while there are not enough.
    fn restore(&mut self) -> Result<()> {
        if !self.is_preempted() {
            return Ok(());
        }
        for role in [ModelRole::Target, ModelRole::Draft] {
            let Some(preempted) = self.preempted[role as usize].take() else { continue };
            match preempted.restore(of_model(&mut self.sequences, role)) {
                Ok(tokens) => {
                    let sequences = self.sequences.iter().enumerate();
                    let seqs: Vec<SeqId> = sequences
                        .filter(|(_, sequence)| sequence.as_ref().is_some_and(|own| own.model() == role))
                        .map(|(index, _)| SeqId(index as u32))
                        .collect();
                    let tokens = tokens.into_iter();
                    self.lost.extend(tokens.flat_map(|tokens| {
                        tokens.positions.map(|position| (seqs[tokens.sequence], position)).collect::<Vec<_>>()
                    }));
                }
                Err(error) => {
                    self.preempted[role as usize] = Some(preempted);
                    // Never holds blocks of one model while it waits for those of the other.
                    self.preempt();
                    return Err(error);
                }
            }
        }
        self.lost.reverse();
        Ok(())
    }

    fn is_preempted(&self) -> bool {
        self.preempted.iter().any(Option::is_some)
    }

    /// Whether it has blocks, or has set some aside.
    pub(super) fn holds_blocks(&self) -> bool {
        let mut sequences = self.sequences.iter().flatten();
        !self.is_preempted() && (self.cache.is_admitted() || sequences.any(|sequence| sequence.len() > 0))
    }

    /// How long nobody has asked for its next tokens.
    pub(super) fn idle_for(&self) -> Duration {
        if self.is_complete() { self.last_active.elapsed() } else { Duration::ZERO }
    }

    /// Gives a row its slot, unless it has one. False when it must wait for the next pass: `used` are the sequences of this
    /// pass.
    fn append(&mut self, index: usize, used: &[SeqId]) -> Result<bool> {
        if index < self.appended {
            return Ok(true);
        }
        let (wanted, row_position) = (&self.inputs.rows[index], self.positions[index]);
        let sequence = live(&mut self.sequences, wanted.seq)?;
        if row_position.position == 0 && sequence.len() > 0 {
            // The sequence is recomputed from here; earlier rows and copies of this pass still need its old tokens.
            if used.contains(&wanted.seq) || !self.copies.is_empty() {
                return Ok(false);
            }
            sequence.truncate(0);
        }
        self.copies.extend(sequence.append(wanted, row_position.rope_seq_len)?);
        self.appended += 1;
        Ok(true)
    }

    /// The copies of its rows have been made.
    pub(super) fn copied(&mut self) {
        self.copies.clear();
    }

    /// Takes the results of its next `count` rows.
    ///
    /// # Errors
    /// `Capacity` when there is no memory for them.
    pub(super) fn take(&mut self, count: usize, outputs: &mut OutputCursor<'_>) -> Result<()> {
        if self.took_lost() {
            return Ok(());
        }
        self.publish_prompts(count);
        let part = outputs.next(&self.inputs.rows[self.computed..self.computed + count]);
        self.computed += count;
        let ForwardOutput { logits, hidden_states, layer_logits } = &mut self.results;
        memory::extend(logits, part.logits, "logits")?;
        memory::extend(hidden_states, part.hidden_states, "hidden states")?;
        memory::extend(layer_logits, part.layer_logits, "logits")
    }

    /// [`PendingRows::take`] of a pass without other rows: exchanges the lists.
    pub(super) fn take_all(&mut self, count: usize, out: &mut ForwardOutput) {
        if self.took_lost() {
            return;
        }
        self.publish_prompts(count);
        self.computed += count;
        std::mem::swap(&mut self.results, out);
    }

    /// Whether the pass computed lost tokens, which have no results.
    fn took_lost(&mut self) -> bool {
        let count = std::mem::take(&mut self.recomputing);
        self.lost.truncate(self.lost.len() - count);
        count > 0
    }

    /// Whether no results of this step are there yet.
    pub(super) fn is_first(&self) -> bool {
        self.computed == 0
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
        // What is left of the last step is computed, and not taken back.
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
            if wanted.model != role || sequence.model() != role {
                return Err(Error::internal(
                    "a search wants rows of two models, or of a sequence of another model",
                ));
            }
            let end = &mut ends[wanted.seq.index()];
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
            self.cache.longrope_threshold(role)?,
        );
        Ok(())
    }
}

/// The caches of the sequences of a model.
fn of_model(sequences: &mut [Option<Sequence>], role: ModelRole) -> impl Iterator<Item = &mut SequenceCache> {
    let of_model = sequences.iter_mut().flatten().filter(move |sequence| sequence.model() == role);
    of_model.map(Sequence::cache_mut)
}

pub(super) fn live(sequences: &mut [Option<Sequence>], seq: SeqId) -> Result<&mut Sequence> {
    let sequence = sequences.get_mut(seq.index()).and_then(Option::as_mut);
    sequence.ok_or_else(|| Error::internal(format!("a search names sequence {seq}, which does not exist")))
}
