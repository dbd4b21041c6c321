//! The sequences that a search extends in each step, with their KV sequence, unconditional sequences and
//! processor state.
//!
//! Shared by all searches, from the prompts to the processed scores. Each prompt is computed once and forked
//! for its further sequences, and so are the unconditional sequences that processors request. The search
//! decides which token a sequence gets, when it ends, and which becomes a copy of which.

use std::sync::Arc;

use rsgen_core::memory::{self, recycled};
use rsgen_core::{Error, Result, ResultExt, RowOutputs, SeqId, TokenId};

use super::super::layer_states::LayerStates;
use super::super::logits::{ProcessContext, ProcessorStates, RowContext, ScoreRows, UnconditionalLogits};
use super::super::plan::{GenerationPlan, PlannedPrompt};
use super::details::watched;
use super::states::StatesReader;
use super::step_logits::log_sum_exps;
use super::step_logits::{LogitsScratch, Scores, StepLogits};
use super::{ModelRole, PromptInputs, SearchInputs, SearchResults};

/// The sequences of a request.
#[expect(clippy::struct_field_names, reason = "`each` alone would say nothing")]
pub(super) struct Sequences {
    /// Prompt by prompt, the same number each.
    sequences: Vec<Sequence>,
    sequences_each: usize,
    prompt_len: usize,
    /// The outputs of the newest token, and of the last one of a prompt.
    outputs: RowOutputs,
    /// The outputs of the other rows of a prompt.
    prompt_outputs: RowOutputs,
    /// The number of completed steps.
    step: usize,
    /// The requests of the last `wants`.
    requested: RequestedRows,
    next_seq: u32,
    /// KV sequences that have ended since the last `wants`.
    ended: Vec<SeqId>,
    /// For each prompt, which sequences become copies of which, as indices among the prompt's sequences.
    parents: Vec<Option<Vec<usize>>>,
    /// Scratch, empty between calls.
    contexts: Vec<RowContext<'static>>,
}

/// A row of a search.
pub(super) struct Sequence {
    pub(super) prompt_index: usize,
    /// The prompt, padding included, and the generated tokens.
    pub(super) ids: Vec<TokenId>,
    /// Whether the sequence has not ended.
    pub(super) active: bool,
    /// `None` before the sequence has been forked from its prompt.
    seq: Option<SeqId>,
    /// For each processor the unconditional sequence that runs beside the sequence.
    unconditional: Vec<Option<SeqId>>,
    states: ProcessorStates,
}

/// The requested rows of logits: first one per main row, then those of the unconditional sequences.
#[derive(Default)]
struct RequestedRows {
    /// Prompts in the first step, then active sequences.
    main: usize,
    /// For each main row and each processor, the index of its unconditional sequence's logits among all
    /// unconditional ones.
    unconditional: Vec<Option<usize>>,
    /// The number of logits rows; 0 when nothing is requested.
    total: usize,
}

/// The group of beams that rows belong to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Group<'a> {
    pub(super) index: usize,
    /// The tokens chosen in this step, `[num_prompts, num_beams]`, filled in by earlier groups.
    pub(super) current_tokens: &'a [TokenId],
}

impl Sequences {
    /// `sequences_each` sequences for each prompt, whose newest rows deliver `outputs`, logits among them.
    pub(super) fn new(plan: &GenerationPlan, sequences_each: usize, outputs: RowOutputs) -> Self {
        let sequences = plan
            .prompts
            .iter()
            .enumerate()
            .flat_map(|(prompt_index, prompt)| {
                (0..sequences_each).map(move |_| Sequence {
                    prompt_index,
                    ids: prompt.input_ids.clone(),
                    active: true,
                    seq: None,
                    unconditional: vec![None; plan.processors.len()],
                    states: plan.processors.new_states(),
                })
            })
            .collect();
        Self {
            sequences,
            sequences_each,
            prompt_len: plan.config.prompt_len,
            outputs: outputs.and(plan.config.layer_outputs),
            prompt_outputs: plan.config.layer_outputs,
            step: 0,
            requested: RequestedRows::default(),
            next_seq: 0,
            ended: Vec::new(),
            parents: vec![None; plan.prompts.len()],
            contexts: Vec::new(),
        }
    }

    /// Requests outputs for every token of the prompts.
    pub(super) fn with_prompt_outputs(self, prompt_outputs: RowOutputs) -> Self {
        Self { prompt_outputs: self.prompt_outputs.and(prompt_outputs), ..self }
    }

    pub(super) fn len(&self) -> usize {
        self.sequences.len()
    }

    pub(super) fn sequence(&self, index: usize) -> &Sequence {
        &self.sequences[index]
    }

    /// The generated tokens of a sequence.
    pub(super) fn tokens(&self, index: usize) -> &[TokenId] {
        &self.sequences[index].ids[self.prompt_len..]
    }

    /// The number of completed steps.
    pub(super) fn step(&self) -> usize {
        self.step
    }

    /// Requests the prompts, or the newest tokens of the active sequences.
    pub(super) fn wants(&mut self, plan: &GenerationPlan, inputs: &mut SearchInputs) {
        if self.step == 0 {
            self.want_prompts(plan, inputs);
        } else {
            if self.step == 1 {
                self.fork_prompts(inputs);
            } else {
                self.reorder_sequences(inputs);
            }
            for seq in self.ended.drain(..) {
                inputs.release(seq);
            }
            self.want_tokens(inputs);
        }
    }

    fn want_prompts(&mut self, plan: &GenerationPlan, inputs: &mut SearchInputs) {
        let mut next_seq = self.next_seq;
        let mut prompt = |prompt: PromptInputs<'_>, source, within: RowOutputs, last: RowOutputs| {
            let seq = SeqId(next_seq);
            next_seq += 1;
            inputs.create_for(ModelRole::Target, seq, source);
            inputs.prompt_inputs(seq, prompt, within, last);
            seq
        };
        for (sequences, planned) in self.sequences.chunks_mut(self.sequences_each).zip(&plan.prompts) {
            let source = plan.source_of(sequences[0].prompt_index);
            sequences[0].seq = Some(prompt(planned.inputs(), source, self.prompt_outputs, self.outputs));
        }
        let (main, mut others) = (plan.prompts.len(), 0);
        self.requested.unconditional.clear();
        for (sequences, planned) in self.sequences.chunks_mut(self.sequences_each).zip(&plan.prompts) {
            let rows =
                planned.unconditional.iter().zip(&mut sequences[0].unconditional).map(|(tokens, seq)| {
                    let tokens = PromptInputs::Tokens(tokens.as_ref()?);
                    *seq = Some(prompt(tokens, None, RowOutputs::NONE, RowOutputs::LOGITS));
                    others += 1;
                    Some(others - 1)
                });
            self.requested.unconditional.extend(rows);
        }
        self.next_seq = next_seq;
        (self.requested.main, self.requested.total) = (main, main + others);
    }

    /// Gives every further sequence of a prompt its own KV sequences, as copies of the first one's.
    fn fork_prompts(&mut self, inputs: &mut SearchInputs) {
        // Earlier reorders do not matter: all sequences equal the prompt.
        self.parents.fill(None);
        for sequences in self.sequences.chunks_mut(self.sequences_each) {
            let Some((first, further)) = sequences.split_first_mut() else { continue };
            for sequence in further.iter_mut().filter(|sequence| sequence.active) {
                let mut fork = |parent: SeqId| {
                    let child = SeqId(self.next_seq);
                    self.next_seq += 1;
                    inputs.fork(parent, child);
                    child
                };
                sequence.seq = first.seq.map(&mut fork);
                sequence.unconditional =
                    first.unconditional.iter().map(|parent| parent.map(&mut fork)).collect();
            }
        }
    }

    fn reorder_sequences(&mut self, inputs: &mut SearchInputs) {
        for (sequences, parents) in self.sequences.chunks(self.sequences_each).zip(&mut self.parents) {
            let Some(parents) = parents.take() else { continue };
            let running = || sequences.iter().zip(&parents).filter(|(sequence, _)| sequence.active);
            let mut reorder = |seq_id: &dyn Fn(&Sequence) -> Option<SeqId>| {
                let seqs: Option<Vec<SeqId>> = running().map(|(sequence, _)| seq_id(sequence)).collect();
                let from: Option<Vec<SeqId>> =
                    running().map(|(_, &parent)| seq_id(&sequences[parent])).collect();
                if let (Some(seqs), Some(from)) = (seqs, from) {
                    inputs.reorder(seqs, from);
                }
            };
            reorder(&|sequence| sequence.seq);
            for processor in 0..sequences[0].unconditional.len() {
                reorder(&|sequence| sequence.unconditional[processor]);
            }
        }
    }

    fn want_tokens(&mut self, inputs: &mut SearchInputs) {
        let Self { sequences, requested, .. } = self;
        let going_on = || sequences.iter().filter(|sequence| sequence.active);
        let newest = |sequence: &Sequence| sequence.ids.last().copied().unwrap_or_default();
        let mut main = 0;
        for sequence in going_on() {
            if let Some(seq) = sequence.seq {
                inputs.token(seq, newest(sequence), self.outputs);
                main += 1;
            }
        }
        let mut others = 0;
        requested.unconditional.clear();
        for sequence in going_on() {
            requested.unconditional.extend(sequence.unconditional.iter().map(|seq| {
                inputs.token((*seq)?, newest(sequence), RowOutputs::LOGITS);
                others += 1;
                Some(others - 1)
            }));
        }
        (requested.main, requested.total) = (main, main + others);
    }

    /// The logits that the last `wants` requested, one row for each active sequence. In the first step those
    /// of a prompt are copied for all its sequences.
    pub(super) fn logits<'a>(
        &mut self,
        plan: &GenerationPlan,
        results: SearchResults<'a>,
        scratch: &'a mut LogitsScratch,
    ) -> Result<StepLogits<'a>> {
        let vocab_size = plan.config.vocab_size;
        let total = std::mem::take(&mut self.requested.total);
        if total == 0 {
            return Err(Error::internal("a search was advanced without wants"));
        }
        let states = self.states(plan, &results)?;
        let SearchResults { logits, vocab_size: given, layer_logits, .. } = results;
        if given != vocab_size || logits.len() != total * vocab_size {
            return Err(Error::internal(format!(
                "a search asked for {total} rows of {vocab_size} logits and was given {} logits in rows of {given}",
                logits.len(),
            )));
        }
        let (main, unconditional_logits) = logits.split_at_mut(self.requested.main * vocab_size);
        let LogitsScratch { sequences, main_rows, normalizers } = scratch;
        log_sum_exps(plan.config.isa, main, vocab_size, plan.processors.takes_invalid_logits(), normalizers)
            .context(|| format!("step {}", self.step))?;
        sequences.clear();
        sequences.extend((0..self.sequences.len()).filter(|&sequence| self.sequences[sequence].active));
        let first = self.step == 0;
        main_rows.clear();
        main_rows.extend(
            sequences
                .iter()
                .enumerate()
                .map(|(row, &sequence)| if first { self.sequences[sequence].prompt_index } else { row }),
        );
        let scores = if first && self.sequences_each > 1 {
            let mut expanded = Vec::new();
            memory::reserve(&mut expanded, main_rows.len() * vocab_size, "logits")?;
            for &row in &*main_rows {
                expanded.extend_from_slice(&main[row * vocab_size..][..vocab_size]);
            }
            Scores::Expanded(expanded)
        } else {
            Scores::Given(main)
        };
        self.step += 1;
        let watched = if plan.config.output_events && !plan.config.mode.has_beams() {
            scores.chunks_exact(vocab_size).map(|row| watched(plan.config.isa, row)).collect::<Result<_>>()?
        } else {
            Vec::new()
        };
        Ok(StepLogits {
            scores,
            sequences,
            normalizers,
            layer_logits,
            main_rows,
            unconditional_logits,
            states,
            watched,
        })
    }

    /// What the layers computed for each main row.
    fn states(&self, plan: &GenerationPlan, results: &SearchResults<'_>) -> Result<Vec<Arc<LayerStates>>> {
        let RowOutputs { hidden_states, attentions, .. } = plan.config.layer_outputs;
        if plan.config.layer_outputs.is_none() {
            return Ok(Vec::new());
        }
        let mut reader = StatesReader::new(results, !hidden_states.is_empty(), attentions);
        if self.step == 0 {
            let of_prompt = |prompt: &PlannedPrompt| {
                let states = reader.next(0..prompt.inputs().len(), prompt.source_len())?;
                Ok(Arc::new(LayerStates { prompt_mask: prompt.mask.clone(), ..states }))
            };
            return plan.prompts.iter().map(of_prompt).collect();
        }
        let active = self.sequences.iter().filter(|sequence| sequence.active);
        active
            .map(|sequence| {
                let new_tokens = sequence.ids.len() - plan.config.prompt_len;
                let prompt = &plan.prompts[sequence.prompt_index];
                let end = prompt.inputs().len() + new_tokens;
                Ok(Arc::new(reader.next(end - 1..end, prompt.source_len())?))
            })
            .collect()
    }

    /// Applies the processors to all rows of a step.
    pub(super) fn process(&mut self, plan: &GenerationPlan, logits: &mut StepLogits<'_>) -> Result<()> {
        self.process_some(plan, logits, 0..logits.sequences.len(), Group::default())
    }

    /// Applies the processors to some consecutive rows of a step.
    pub(super) fn process_some(
        &mut self,
        plan: &GenerationPlan,
        logits: &mut StepLogits<'_>,
        range: std::ops::Range<usize>,
        group: Group<'_>,
    ) -> Result<()> {
        if plan.processors.is_empty() {
            return Ok(());
        }
        let vocab_size = plan.config.vocab_size;
        let unconditional_each = plan.processors.len();
        // Beam groups are processed one at a time, as if there were no others. The candidates of contrastive
        // search are sequences too, but only one of them is the row.
        let rows_each =
            if plan.config.num_beams > 1 { plan.config.num_beams } else { plan.config.num_return_sequences };
        let group_size = rows_each / plan.config.num_beam_groups;
        let num_rows = plan.prompts.len() * group_size;
        let before = group.index * group_size;
        let wanted = &logits.sequences[range.clone()];
        let mut rows: Vec<RowContext<'_>> = recycled(std::mem::take(&mut self.contexts));
        for (index, sequence) in self.sequences.iter_mut().enumerate() {
            let Ok(row) = wanted.binary_search(&index) else { continue };
            let main_row = logits.main_rows[range.start + row];
            rows.push(RowContext {
                input_ids: &sequence.ids,
                prompt_len: plan.config.prompt_len,
                padding_len: plan.prompts[sequence.prompt_index].padding_len,
                prompt_index: sequence.prompt_index,
                row_index: sequence.prompt_index * group_size + index % self.sequences_each % rows_each
                    - before,
                unconditional: UnconditionalLogits {
                    rows: &self.requested.unconditional[main_row * unconditional_each..]
                        [..unconditional_each],
                    logits: logits.unconditional_logits,
                    vocab_size,
                },
                isa: plan.config.isa,
                states: Some(&mut sequence.states),
                processor_index: 0,
            });
        }
        let scores = &mut logits.scores[range.start * vocab_size..range.end * vocab_size];
        let mut context = ProcessContext {
            num_rows,
            beam_group: group.index,
            current_tokens: group.current_tokens,
            watched: logits.watched.get_mut(range).unwrap_or_default(),
            ..ProcessContext::new(rows)
        };
        plan.processors.process(&mut ScoreRows::new(scores, vocab_size), &mut context)?;
        self.contexts = recycled(context.rows);
        Ok(())
    }

    /// Appends a token to a sequence.
    pub(super) fn push(&mut self, sequence: usize, token: TokenId) {
        self.sequences[sequence].ids.push(token);
    }

    /// Ends a sequence; its KV sequences are released.
    pub(super) fn end(&mut self, sequence: usize) {
        let sequence = &mut self.sequences[sequence];
        sequence.active = false;
        self.ended.extend(sequence.seq.iter().chain(sequence.unconditional.iter().flatten()));
    }

    /// Makes sequence `i` of a prompt a copy of the former sequence `parents[i]`.
    pub(super) fn reorder(&mut self, prompt_index: usize, parents: Vec<usize>) {
        debug_assert_eq!(parents.len(), self.sequences_each);
        if parents.iter().enumerate().all(|(index, &parent)| index == parent) {
            return;
        }
        let sequences = &mut self.sequences[prompt_index * self.sequences_each..][..self.sequences_each];
        let copies: Vec<_> = parents
            .iter()
            .map(|&parent| (sequences[parent].ids.clone(), sequences[parent].states.fork()))
            .collect();
        for (sequence, (ids, states)) in sequences.iter_mut().zip(copies) {
            (sequence.ids, sequence.states) = (ids, states);
        }
        self.parents[prompt_index] = Some(parents);
    }

    /// The ids of each sequence, with its prompt.
    pub(super) fn into_ids(self) -> impl Iterator<Item = (usize, Vec<TokenId>)> {
        self.sequences.into_iter().map(|sequence| (sequence.prompt_index, sequence.ids))
    }
}
