//! A running request: its search, its cached sequences, and its rows that are not computed yet.

use std::time::{Duration, Instant};

use super::batching::{BatchBuilder, OutputCursor};
use super::core::Engine;
use super::sequence::{Sequence, insert_recomputed};
use super::trace::{Recorder, TimedEvent};
use crate::cache::{BLOCK_TOKENS, BlockTable, ReorderPlan, Reservation, blocks_for};
use crate::error::{Error, Result};
use crate::generation::plan::PlannedPrompt;
use crate::generation::search::{self, ModelResults, ModelRole, SequenceOp};
use crate::generation::{GenerationPlan, Search, SearchInputs, SearchOutput, SearchResults, SearchStep};
use crate::memory;
use crate::model::{ForwardOutput, Row};
use crate::types::SeqId;

/// A search with its sequences. Dropping it stops the work and returns its cache blocks.
pub(super) struct Request {
    search: Box<dyn Search>,
    /// By [`SeqId`].
    sequences: Vec<Option<Sequence>>,
    reservation: Reservation,
    /// See [`CausalLm::longrope_threshold`](crate::model::CausalLm::longrope_threshold).
    longrope_threshold: Option<usize>,
    inputs: SearchInputs,
    /// The results of the last step.
    stepped: SearchStep,
    /// The position of each requested row.
    positions: Vec<RowPosition>,
    /// Scratch: the ends of the sequences with the rows positioned so far.
    ends: Vec<usize>,
    /// How many of the requested rows are computed.
    computed: usize,
    /// The results of rows that earlier passes of this step computed.
    collected: ForwardOutput,
    /// The most rows of this request in one pass.
    chunk: usize,
    vocab_size: usize,
    /// A beam search emits no tokens before its end, but its first token counts from the first step.
    has_beams: bool,
    prompts: Vec<PlannedPrompt>,
    started: Instant,
    first_token: Option<Duration>,
    /// With `output_events`.
    recorder: Option<Recorder>,
}

/// The position of a row; see [`Row`].
#[derive(Clone, Copy)]
pub(super) struct RowPosition {
    pub(super) position: usize,
    pub(super) rope_seq_len: usize,
}

impl Request {
    /// Reserves the most cache blocks that a request can need, so that it cannot run out later.
    ///
    /// # Errors
    /// When the cache has not enough free blocks.
    pub(super) fn reserve(engine: &Engine, plan: &GenerationPlan) -> Result<Reservation> {
        engine.pool().reserve(Self::blocks(engine, plan))
    }

    /// The most cache blocks that a request can need.
    pub(super) fn blocks(engine: &Engine, plan: &GenerationPlan) -> usize {
        blocks_at_most(plan, engine.model().longrope_threshold())
    }

    /// Starts a request without computing anything.
    pub(super) fn new(engine: &Engine, plan: GenerationPlan, reservation: Reservation) -> Self {
        Self {
            chunk: plan.prefill_chunk_size().unwrap_or(usize::MAX),
            prompts: plan.prompts().to_vec(),
            has_beams: plan.mode().has_beams(),
            search: search::build(plan),
            sequences: Vec::new(),
            reservation,
            longrope_threshold: engine.model().longrope_threshold(),
            inputs: SearchInputs::default(),
            stepped: SearchStep::default(),
            positions: Vec::new(),
            ends: Vec::new(),
            computed: 0,
            collected: ForwardOutput::default(),
            vocab_size: engine.model().vocab_size(),
            started: Instant::now(),
            first_token: None,
            recorder: None,
        }
    }

    /// Records its events.
    pub(super) fn recorded_by(self, recorder: Option<Recorder>) -> Self {
        Self { recorder, ..self }
    }

    /// The events so far; `None` when none are recorded.
    pub(super) fn events(&self) -> Option<&[TimedEvent]> {
        self.recorder.as_ref().map(Recorder::events)
    }

    /// The prompts.
    pub(super) fn prompts(&self) -> &[PlannedPrompt] {
        &self.prompts
    }

    /// The time from the start to the first token, and to now.
    pub(super) fn elapsed(&self) -> (Duration, Duration) {
        let now = self.started.elapsed();
        (self.first_token.unwrap_or(now), now)
    }

    /// Asks the search for its next rows once its last ones are computed.
    pub(super) fn prepare(&mut self) -> Result<()> {
        if self.computed < self.inputs.rows.len() {
            return Ok(());
        }
        self.inputs.clear();
        self.search.wants(&mut self.inputs);
        let mut ops = std::mem::take(&mut self.inputs.ops);
        for op in ops.drain(..) {
            self.change_sequences(op)?;
        }
        self.inputs.ops = ops;
        self.computed = 0;
        self.collected.logits.clear();
        self.collected.hidden_states.clear();
        self.collected.layer_logits.clear();
        self.assign_positions()
    }

    /// Adds at most `budget` rows to a batch and returns their number.
    pub(super) fn add_rows(&mut self, budget: usize, builder: &mut BatchBuilder) -> Result<usize> {
        let most = budget.min(self.chunk).min(self.inputs.rows.len() - self.computed);
        let range = self.computed..self.computed + most;
        let first_table = builder.used.len();
        let mut count = 0;
        for (wanted, row_position) in self.inputs.rows[range.clone()].iter().zip(&self.positions[range]) {
            let sequence = live(&mut self.sequences, wanted.seq)?;
            if row_position.position == 0 && sequence.len() > 0 {
                // The sequence is recomputed from here; earlier rows of this batch still need its old tokens.
                if builder.used[first_table..].contains(&wanted.seq) {
                    break;
                }
                sequence.truncate(0);
            }
            builder.copies.extend(sequence.append(&wanted.input, row_position.rope_seq_len)?);
            count += 1;
            let known = builder.used[first_table..].iter().rposition(|&seq| seq == wanted.seq);
            let table = known.map_or(builder.used.len(), |index| first_table + index);
            if known.is_none() {
                builder.used.push(wanted.seq);
            }
            builder.has_prompt |= wanted.is_prompt;
            let input = builder.input(&wanted.input);
            builder.rows.push(Row {
                input,
                table,
                position: row_position.position,
                rope_seq_len: row_position.rope_seq_len,
                last_layer: wanted.last_layer,
                outputs: wanted.outputs,
            });
        }
        Ok(count)
    }

    /// The block tables of some of its sequences.
    pub(super) fn tables<'a>(&'a self, used: &'a [SeqId]) -> impl Iterator<Item = &'a BlockTable> {
        used.iter().filter_map(|seq| self.sequences[seq.index()].as_ref()).map(Sequence::table)
    }

    /// Reads the results of its next `count` rows. Once it has all results of the step it advances the search and returns
    /// true; see [`Request::stepped`].
    pub(super) fn take(&mut self, count: usize, outputs: &mut OutputCursor<'_>) -> Result<bool> {
        let part = outputs.next(&self.inputs.rows[self.computed..self.computed + count]);
        self.computed += count;
        let complete = self.computed == self.inputs.rows.len();
        let at_once = complete && self.computed == count;
        if !at_once {
            let ForwardOutput { logits, hidden_states, layer_logits } = &mut self.collected;
            memory::extend(logits, part.logits, "logits")?;
            memory::extend(hidden_states, part.hidden_states, "hidden states")?;
            memory::extend(layer_logits, part.layer_logits, "logits")?;
        }
        if !complete {
            return Ok(false);
        }
        let target = if at_once {
            ModelResults::of_logits(part.logits, self.vocab_size)
                .with_hidden_states(part.hidden_states, part.hidden_size)
                .with_layer_logits(part.layer_logits)
        } else {
            ModelResults::of_logits(&mut self.collected.logits, self.vocab_size)
                .with_hidden_states(&self.collected.hidden_states, part.hidden_size)
                .with_layer_logits(&mut self.collected.layer_logits)
        };
        self.stepped.clear();
        self.search.advance(SearchResults::of_target(target), &mut self.stepped)?;
        if self.has_beams || !self.stepped.events.is_empty() {
            self.first_token.get_or_insert_with(|| self.started.elapsed());
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.step(&self.stepped, self.started.elapsed())?;
        }
        Ok(true)
    }

    /// The results of the last step of the search.
    pub(super) fn stepped(&self) -> &SearchStep {
        &self.stepped
    }

    /// The output so far, and what has recorded its events. The sequences return their blocks.
    pub(super) fn finish(self) -> (SearchOutput, Option<Recorder>) {
        (self.search.finish(), self.recorder)
    }

    fn change_sequences(&mut self, op: SequenceOp) -> Result<()> {
        match op {
            SequenceOp::Create { seq, model } => {
                check_target(model)?;
                let sequence = Sequence::within(&self.reservation, self.longrope_threshold);
                self.put(seq, sequence)
            }
            SequenceOp::Fork { parent, child } => {
                let fork = live(&mut self.sequences, parent)?.fork();
                self.put(child, fork)
            }
            SequenceOp::Truncate { seq, len } => {
                live(&mut self.sequences, seq)?.truncate(len);
                Ok(())
            }
            SequenceOp::Release { seq } => {
                live(&mut self.sequences, seq)?;
                self.sequences[seq.index()] = None;
                Ok(())
            }
            SequenceOp::Reorder { seqs, parents } => self.reorder(&seqs, &parents),
        }
    }

    /// Replaces each of `seqs` by a copy of its parent, all at once.
    fn reorder(&mut self, seqs: &[SeqId], parents: &[SeqId]) -> Result<()> {
        let unknown = || Error::internal("a reorder names a parent that is not among its sequences");
        let indices =
            parents.iter().map(|parent| seqs.iter().position(|seq| seq == parent).ok_or_else(unknown));
        let plan = ReorderPlan::new(&indices.collect::<Result<Vec<_>>>()?, seqs.len())?;
        let mut current = Vec::with_capacity(seqs.len());
        for &seq in seqs {
            live(&mut self.sequences, seq)?;
            current.extend(self.sequences[seq.index()].take());
        }
        for (&seq, sequence) in seqs.iter().zip(plan.apply_with(current, Sequence::fork)) {
            self.put(seq, sequence)?;
        }
        Ok(())
    }

    fn put(&mut self, seq: SeqId, sequence: Sequence) -> Result<()> {
        if self.sequences.len() <= seq.index() {
            self.sequences.resize_with(seq.index() + 1, || None);
        }
        match self.sequences[seq.index()].replace(sequence) {
            None => Ok(()),
            Some(_) => Err(Error::internal(format!("a search creates sequence {seq}, which exists already"))),
        }
    }

    /// Assigns each requested row its position and its RoPE sequence length.
    fn assign_positions(&mut self) -> Result<()> {
        let Self { inputs, sequences, positions, ends, .. } = self;
        ends.clear();
        ends.extend(sequences.iter().map(|sequence| sequence.as_ref().map_or(0, Sequence::len)));
        positions.clear();
        for wanted in &inputs.rows {
            check_target(wanted.model)?;
            live(sequences, wanted.seq)?;
            let end = &mut ends[wanted.seq.index()];
            positions.push(RowPosition { position: *end, rope_seq_len: *end + 1 });
            *end += 1;
        }
        for (wanted, row_position) in inputs.rows.iter().zip(positions) {
            if wanted.is_prompt {
                row_position.rope_seq_len = ends[wanted.seq.index()];
            }
        }
        insert_recomputed(
            &mut self.inputs.rows,
            &mut self.positions,
            &self.sequences,
            self.longrope_threshold,
        );
        Ok(())
    }
}

fn live(sequences: &mut [Option<Sequence>], seq: SeqId) -> Result<&mut Sequence> {
    let sequence = sequences.get_mut(seq.index()).and_then(Option::as_mut);
    sequence.ok_or_else(|| Error::internal(format!("a search names sequence {seq}, which does not exist")))
}

fn check_target(model: ModelRole) -> Result<()> {
    match model {
        ModelRole::Target => Ok(()),
        _ => Err(Error::internal("a search wants rows of a draft model, but the engine has none")),
    }
}

/// The most blocks that a request can need: the full blocks of a prompt once, all later blocks for each sequence.
/// Sequences that are recomputed share no blocks.
fn blocks_at_most(plan: &GenerationPlan, longrope_threshold: Option<usize>) -> usize {
    let rows = plan.sequences_each();
    let of_prompt = |tokens: usize, new_tokens: usize| {
        let switches = longrope_threshold.is_some_and(|above| tokens <= above && above < tokens + new_tokens);
        let shared = if switches { 0 } else { tokens / BLOCK_TOKENS };
        let own = blocks_for(tokens + new_tokens) - shared;
        // While a shared last block is copied, its source still exists.
        shared + own * rows + usize::from(rows > 1)
    };
    let prompts = plan.prompts().iter().enumerate().map(|(index, prompt)| {
        let new_tokens = plan.max_new_tokens(index);
        let unconditional =
            prompt.unconditional().map(|unconditional| of_prompt(unconditional.len(), new_tokens));
        of_prompt(prompt.tokens().len(), new_tokens) + unconditional.sum::<usize>()
    });
    prompts.sum()
}
