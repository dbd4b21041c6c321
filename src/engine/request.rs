//! A running request: its search, its cached sequences, and its rows that are not computed yet.

use std::time::{Duration, Instant};

use super::batching::{BatchBuilder, OutputCursor};
use super::core::Engine;
use super::sequence::{Sequence, insert_recomputed};
use super::slot::DraftModel;
use super::trace::{Recorder, TimedEvent};
use crate::cache::{BLOCK_TOKENS, BlockTable, ReorderPlan, Reservation, SharedPool, blocks_for};
use crate::error::{Error, Result, ResultExt};
use crate::generation::plan::PlannedPrompt;
use crate::generation::search::{self, ModelRole, SequenceOp};
use crate::generation::{
    DraftSource, GenerationPlan, Search, SearchInputs, SearchOutput, SearchResults, SearchStep,
};
use crate::memory;
use crate::model::{CausalLm, ForwardOutput, Row};
use crate::types::{SeqId, TokenId};

/// A search with its sequences. Dropping it stops the work and returns its cache blocks.
pub(super) struct Request {
    search: Box<dyn Search>,
    /// By [`SeqId`].
    sequences: Vec<Option<Sequence>>,
    cache: RequestCache,
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

/// The cache blocks of a request, of each of its models.
pub(super) struct RequestCache {
    target: ModelCache,
    draft: Option<ModelCache>,
}

/// The cache blocks of a request for one model.
struct ModelCache {
    reservation: Reservation,
    /// See [`CausalLm::longrope_threshold`].
    longrope_threshold: Option<usize>,
}

/// The most cache blocks that a request can need, by model.
#[derive(Clone, Copy)]
pub(super) struct RequestBlocks {
    pub(super) target: usize,
    pub(super) draft: usize,
}

impl RequestBlocks {
    pub(super) fn of(engine: &Engine, draft: Option<&DraftModel>, plan: &GenerationPlan) -> Self {
        let threshold = engine.model().longrope_threshold();
        let (target, source) = (blocks_at_most(plan, threshold), plan.draft().map(|draft| draft.source));
        match (source, draft) {
            (Some(DraftSource::Model), Some(draft)) => {
                Self { target, draft: draft_blocks_at_most(plan, draft.model().longrope_threshold()) }
            }
            (Some(DraftSource::EarlyExit { .. }), _) => {
                Self { target: target + draft_blocks_at_most(plan, threshold), draft: 0 }
            }
            _ => Self { target, draft: 0 },
        }
    }
}

impl RequestCache {
    /// Reserves the most blocks that a request can need, of both models or of none, so that it cannot run out later and
    /// never waits for a block while it holds others.
    ///
    /// # Errors
    /// When the cache has not enough free blocks.
    pub(super) fn reserve(
        engine: &Engine,
        draft: Option<&DraftModel>,
        plan: &GenerationPlan,
    ) -> Result<Self> {
        let blocks = RequestBlocks::of(engine, draft, plan);
        let reserve = |pool: &SharedPool, blocks: usize, model: &dyn CausalLm| {
            let longrope_threshold = model.longrope_threshold();
            pool.reserve(blocks).map(|reservation| ModelCache { reservation, longrope_threshold })
        };
        let target = reserve(engine.pool(), blocks.target, engine.model())?;
        let draft = draft.filter(|_| blocks.draft > 0).map(|draft| {
            reserve(draft.pool(), blocks.draft, draft.model()).context(|| {
                format!("the assistant, which shares the {} bytes of the KV cache", engine.kv_cache_bytes())
            })
        });
        Ok(Self { target, draft: draft.transpose()? })
    }

    /// The blocks for a model.
    fn of(&self, model: ModelRole) -> Result<&ModelCache> {
        let cache = match model {
            ModelRole::Target => Some(&self.target),
            ModelRole::Draft => self.draft.as_ref(),
        };
        cache.ok_or_else(|| Error::internal("a search uses a draft model, but its plan names none"))
    }
}

impl Request {
    /// Starts a request without computing anything.
    pub(super) fn new(plan: GenerationPlan, cache: RequestCache) -> Self {
        Self {
            chunk: plan.prefill_chunk_size().unwrap_or(usize::MAX),
            prompts: plan.prompts().to_vec(),
            search: search::build(plan),
            sequences: Vec::new(),
            cache,
            inputs: SearchInputs::default(),
            stepped: SearchStep::default(),
            positions: Vec::new(),
            ends: Vec::new(),
            computed: 0,
            collected: ForwardOutput::default(),
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

    /// Asks the search for its next rows once its last ones are computed. Returns the model of the rows.
    pub(super) fn prepare(&mut self) -> Result<ModelRole> {
        if self.computed < self.inputs.rows.len() {
            return Ok(self.role());
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
        self.assign_positions()?;
        Ok(self.role())
    }

    /// The model of the requested rows.
    fn role(&self) -> ModelRole {
        self.inputs.rows.first().map_or_else(ModelRole::default, |row| row.model)
    }

    /// Adds at most `budget` rows to a batch and returns their number.
    pub(super) fn add_rows(&mut self, budget: usize, builder: &mut BatchBuilder) -> Result<usize> {
        let most = budget.min(self.chunk).min(self.inputs.rows.len() - self.computed);
        let range = self.computed..self.computed + most;
        let (first_table, first_copy) = (builder.used.len(), builder.copies.len());
        let mut count = 0;
        for (wanted, row_position) in self.inputs.rows[range.clone()].iter().zip(&self.positions[range]) {
            let sequence = live(&mut self.sequences, wanted.seq)?;
            if row_position.position == 0 && sequence.len() > 0 {
                // The sequence is recomputed from here; earlier rows and copies of this batch still need its old tokens.
                if builder.used[first_table..].contains(&wanted.seq) || builder.copies.len() > first_copy {
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
        let results = if at_once {
            SearchResults::of_logits(part.logits, part.vocab_size)
                .with_hidden_states(part.hidden_states, part.hidden_size)
                .with_layer_logits(part.layer_logits)
        } else {
            SearchResults::of_logits(&mut self.collected.logits, part.vocab_size)
                .with_hidden_states(&self.collected.hidden_states, part.hidden_size)
                .with_layer_logits(&mut self.collected.layer_logits)
        };
        self.stepped.clear();
        self.search.advance(results, &mut self.stepped)?;
        if !self.stepped.events.is_empty() {
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
                let ModelCache { reservation, longrope_threshold } = self.cache.of(model)?;
                let sequence = Sequence::within(model, reservation, *longrope_threshold);
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
        let role = self.role();
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
            row_position.rope_seq_len = prompt_end.map_or(0, |(_, end)| end);
        }
        insert_recomputed(
            &mut self.inputs.rows,
            &mut self.positions,
            &self.sequences,
            self.cache.of(role)?.longrope_threshold,
        );
        Ok(())
    }
}

fn live(sequences: &mut [Option<Sequence>], seq: SeqId) -> Result<&mut Sequence> {
    let sequence = sequences.get_mut(seq.index()).and_then(Option::as_mut);
    sequence.ok_or_else(|| Error::internal(format!("a search names sequence {seq}, which does not exist")))
}

/// The most blocks that the rows of a request can need, with their unconditional sequences.
fn blocks_at_most(plan: &GenerationPlan, longrope_threshold: Option<usize>) -> usize {
    let rows = plan.sequences_each();
    let prompts = plan.prompts().iter().enumerate().map(|(index, prompt)| {
        let new_tokens = plan.max_new_tokens(index);
        let of_prompt = |tokens: &[TokenId]| blocks_of(tokens.len(), new_tokens, rows, longrope_threshold);
        of_prompt(prompt.tokens()) + prompt.unconditional().map(of_prompt).sum::<usize>()
    });
    prompts.sum()
}

/// The most blocks that the draft sequences of a request can need.
fn draft_blocks_at_most(plan: &GenerationPlan, longrope_threshold: Option<usize>) -> usize {
    let Some(draft) = plan.draft() else { return 0 };
    let rows = draft.sequences_each;
    let prompts = plan.prompts().iter().enumerate().map(|(index, prompt)| {
        let len = plan.draft_len(index);
        // Translated prompts are not shared.
        let tokens = if draft.is_translated { 0 } else { prompt.tokens().len().min(len) };
        blocks_of(tokens, len - tokens, rows, longrope_threshold)
    });
    prompts.sum()
}

/// The most blocks of the sequences that continue a prompt: its full blocks once, all later blocks for each sequence.
/// Sequences that are recomputed share no blocks.
fn blocks_of(tokens: usize, new_tokens: usize, rows: usize, longrope_threshold: Option<usize>) -> usize {
    let switches = longrope_threshold.is_some_and(|above| tokens <= above && above < tokens + new_tokens);
    let shared = if switches { 0 } else { tokens / BLOCK_TOKENS };
    let own = blocks_for(tokens + new_tokens) - shared;
    // While a shared last block is copied, its source still exists.
    shared + own * rows + usize::from(rows > 1)
}
