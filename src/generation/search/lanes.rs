//! Lanes: the rows that a search computes in each step, each with its sequence, its companions and the memory of
//! its processors.
//!
//! What every search shares, from asking for the prompts to processed scores: each prompt is computed once and
//! forked for its further lanes, and so are the companions that processors ask for. Which token a lane gets, when
//! it ends and which lane becomes a copy of which is the search's own part.

use crate::error::{Error, Result, ResultExt};
use crate::memory::recycled;
use crate::types::{RowOutputs, SeqId, TokenId};

use super::super::logits::{Companions, ProcessContext, ProcessorStates, RowContext, ScoreRows};
use super::super::numerics::log_sum_exp;
use super::super::plan::GenerationPlan;
use super::{ModelResults, SearchInputs, SearchResults};

/// The lanes of a request.
#[expect(clippy::struct_field_names, reason = "`each` alone would say nothing")]
pub(super) struct Lanes {
    /// Prompt by prompt, the same number each.
    lanes: Vec<Lane>,
    lanes_each: usize,
    /// What a row of the newest tokens is to deliver, and the last of a prompt.
    outputs: RowOutputs,
    /// What the other rows of a prompt are to deliver.
    prompt_outputs: RowOutputs,
    /// The number of steps that have been taken.
    step: usize,
    /// What the last `wants` asked for.
    asked: Asked,
    next_seq: u32,
    /// Sequences of lanes that have ended since the last `wants`.
    ended: Vec<SeqId>,
    /// For each prompt, which lanes become copies of which: places among the prompt's lanes.
    parents: Vec<Option<Vec<usize>>>,
    /// Scratch, empty between calls.
    contexts: Vec<RowContext<'static>>,
}

/// A row of a search.
pub(super) struct Lane {
    pub(super) prompt_index: usize,
    /// The prompt, padding included, and the generated tokens.
    pub(super) ids: Vec<TokenId>,
    /// Whether the lane goes on.
    pub(super) active: bool,
    /// `None` before the lane has been forked from its prompt.
    seq: Option<SeqId>,
    /// For each processor the companion that runs beside the lane.
    companions: Vec<Option<SeqId>>,
    states: ProcessorStates,
}

/// The logits rows that were asked for: first one per main row, then those of the companions.
#[derive(Default)]
struct Asked {
    /// Prompts in the first step, then lanes that go on.
    main: usize,
    /// For each main row and each processor the place of the companion's logits among those of companions.
    companions: Vec<Option<usize>>,
    /// The number of logits rows; 0 when nothing is asked for.
    total: usize,
}

/// The memory of the logits of a step, which steps reuse.
#[derive(Default)]
pub(super) struct LaneScratch {
    expanded: Vec<f32>,
    lanes: Vec<usize>,
    main_rows: Vec<usize>,
    normalizers: Vec<f32>,
}

/// The logits of a step.
pub(super) struct LaneLogits<'a> {
    /// One row for each lane that goes on, `[lanes, vocab_size]`.
    pub(super) scores: &'a mut [f32],
    /// Their lanes.
    pub(super) lanes: &'a [usize],
    /// The log-sum-exp of each main row.
    normalizers: &'a [f32],
    /// Logits of inner layers, by main row.
    pub(super) layer_logits: &'a [f32],
    /// For each lane its main row: in the first step one for each prompt.
    pub(super) main_rows: &'a [usize],
    companion_logits: &'a [f32],
}

/// The group of beams that rows belong to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Group<'a> {
    pub(super) index: usize,
    /// The tokens chosen in this step, `[num_prompts, num_beams]`, as far as earlier groups have chosen.
    pub(super) current_tokens: &'a [TokenId],
}

impl LaneLogits<'_> {
    /// Makes log-probabilities of the logits.
    pub(super) fn normalize(&mut self, vocab_size: usize) {
        for (row, &main_row) in self.scores.chunks_exact_mut(vocab_size).zip(self.main_rows) {
            let normalizer = self.normalizers[main_row];
            for score in row {
                *score -= normalizer;
            }
        }
    }

    /// The log-sum-exp of the row at a place.
    pub(super) fn normalizer(&self, place: usize) -> f32 {
        self.normalizers[self.main_rows[place]]
    }
}

impl Lanes {
    /// `lanes_each` lanes for each prompt, whose newest rows deliver `outputs`, logits among them.
    pub(super) fn new(plan: &GenerationPlan, lanes_each: usize, outputs: RowOutputs) -> Self {
        let lanes = plan
            .prompts
            .iter()
            .enumerate()
            .flat_map(|(prompt_index, prompt)| {
                (0..lanes_each).map(move |_| Lane {
                    prompt_index,
                    ids: prompt.input_ids.clone(),
                    active: true,
                    seq: None,
                    companions: vec![None; plan.processors.len()],
                    states: plan.processors.new_states(),
                })
            })
            .collect();
        Self {
            lanes,
            lanes_each,
            outputs,
            prompt_outputs: RowOutputs::NONE,
            step: 0,
            asked: Asked::default(),
            next_seq: 0,
            ended: Vec::new(),
            parents: vec![None; plan.prompts.len()],
            contexts: Vec::new(),
        }
    }

    /// Lanes whose prompts deliver something at every token.
    pub(super) fn with_prompt_outputs(self, prompt_outputs: RowOutputs) -> Self {
        Self { prompt_outputs, ..self }
    }

    pub(super) fn len(&self) -> usize {
        self.lanes.len()
    }

    pub(super) fn lane(&self, index: usize) -> &Lane {
        &self.lanes[index]
    }

    /// The number of steps that have been taken.
    pub(super) fn step(&self) -> usize {
        self.step
    }

    /// Asks for the prompts, or for the newest tokens of the lanes that go on.
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
        let mut prompt = |tokens: &[TokenId], within: RowOutputs, last: RowOutputs| {
            let seq = SeqId(next_seq);
            next_seq += 1;
            inputs.create(seq);
            inputs.prompt(seq, tokens, within, last);
            seq
        };
        for (lanes, planned) in self.lanes.chunks_mut(self.lanes_each).zip(&plan.prompts) {
            lanes[0].seq = Some(prompt(&planned.tokens, self.prompt_outputs, self.outputs));
        }
        let (main, mut others) = (plan.prompts.len(), 0);
        self.asked.companions.clear();
        for (lanes, planned) in self.lanes.chunks_mut(self.lanes_each).zip(&plan.prompts) {
            let places = planned.companions.iter().zip(&mut lanes[0].companions).map(|(tokens, seq)| {
                *seq = Some(prompt(tokens.as_ref()?, RowOutputs::NONE, RowOutputs::LOGITS));
                others += 1;
                Some(others - 1)
            });
            self.asked.companions.extend(places);
        }
        self.next_seq = next_seq;
        (self.asked.main, self.asked.total) = (main, main + others);
    }

    /// Gives every further lane of a prompt its own sequences, as copies of the first one's.
    fn fork_prompts(&mut self, inputs: &mut SearchInputs) {
        // Which lane became a copy of which does not matter yet: they are all the prompt.
        self.parents.fill(None);
        for lanes in self.lanes.chunks_mut(self.lanes_each) {
            let Some((first, further)) = lanes.split_first_mut() else { continue };
            for lane in further.iter_mut().filter(|lane| lane.active) {
                let mut fork = |parent: SeqId| {
                    let child = SeqId(self.next_seq);
                    self.next_seq += 1;
                    inputs.fork(parent, child);
                    child
                };
                lane.seq = first.seq.map(&mut fork);
                lane.companions = first.companions.iter().map(|parent| parent.map(&mut fork)).collect();
            }
        }
    }

    fn reorder_sequences(&mut self, inputs: &mut SearchInputs) {
        for (lanes, parents) in self.lanes.chunks(self.lanes_each).zip(&mut self.parents) {
            let Some(parents) = parents.take() else { continue };
            let running = || lanes.iter().zip(&parents).filter(|(lane, _)| lane.active);
            let mut reorder = |sequence: &dyn Fn(&Lane) -> Option<SeqId>| {
                let seqs: Option<Vec<SeqId>> = running().map(|(lane, _)| sequence(lane)).collect();
                let from: Option<Vec<SeqId>> =
                    running().map(|(_, &parent)| sequence(&lanes[parent])).collect();
                if let (Some(seqs), Some(from)) = (seqs, from) {
                    inputs.reorder(seqs, from);
                }
            };
            reorder(&|lane| lane.seq);
            for place in 0..lanes[0].companions.len() {
                reorder(&|lane| lane.companions[place]);
            }
        }
    }

    fn want_tokens(&mut self, inputs: &mut SearchInputs) {
        let Self { lanes, asked, .. } = self;
        let going_on = || lanes.iter().filter(|lane| lane.active);
        let newest = |lane: &Lane| lane.ids.last().copied().unwrap_or_default();
        let mut main = 0;
        for lane in going_on() {
            if let Some(seq) = lane.seq {
                inputs.token(seq, newest(lane), self.outputs);
                main += 1;
            }
        }
        let mut others = 0;
        asked.companions.clear();
        for lane in going_on() {
            asked.companions.extend(lane.companions.iter().map(|seq| {
                inputs.token((*seq)?, newest(lane), RowOutputs::LOGITS);
                others += 1;
                Some(others - 1)
            }));
        }
        (asked.main, asked.total) = (main, main + others);
    }

    /// The logits that the last `wants` asked for, one row for each lane that goes on: in the first step those of
    /// a prompt serve all its lanes, copied for each.
    pub(super) fn logits<'a>(
        &mut self,
        plan: &GenerationPlan,
        results: SearchResults<'a>,
        scratch: &'a mut LaneScratch,
    ) -> Result<LaneLogits<'a>> {
        let vocab_size = plan.vocab_size;
        let total = std::mem::take(&mut self.asked.total);
        if total == 0 {
            return Err(Error::internal("a search was advanced without wants"));
        }
        let ModelResults { logits, vocab_size: given, layer_logits, .. } = results.target;
        if given != vocab_size || logits.len() != total * vocab_size {
            return Err(Error::internal(format!(
                "a search asked for {total} rows of {vocab_size} logits and was given {} logits in rows of {given}",
                logits.len(),
            )));
        }
        let (main, companion_logits) = logits.split_at_mut(self.asked.main * vocab_size);
        let LaneScratch { expanded, lanes, main_rows, normalizers } = scratch;
        log_sum_exps(main, vocab_size, plan.processors.takes_invalid_logits(), normalizers)
            .context(|| format!("step {}", self.step))?;
        lanes.clear();
        lanes.extend((0..self.lanes.len()).filter(|&lane| self.lanes[lane].active));
        let first = self.step == 0;
        main_rows.clear();
        main_rows.extend(
            lanes
                .iter()
                .enumerate()
                .map(|(place, &lane)| if first { self.lanes[lane].prompt_index } else { place }),
        );
        let scores = if first && self.lanes_each > 1 {
            expanded.clear();
            for &row in &*main_rows {
                expanded.extend_from_slice(&main[row * vocab_size..][..vocab_size]);
            }
            &mut expanded[..]
        } else {
            main
        };
        self.step += 1;
        Ok(LaneLogits { scores, lanes, normalizers, layer_logits, main_rows, companion_logits })
    }

    /// Applies the processors to all rows of a step.
    pub(super) fn process(&mut self, plan: &GenerationPlan, logits: &mut LaneLogits<'_>) -> Result<()> {
        self.process_some(plan, logits, 0..logits.lanes.len(), Group::default())
    }

    /// Applies the processors to some neighbouring rows of a step.
    pub(super) fn process_some(
        &mut self,
        plan: &GenerationPlan,
        logits: &mut LaneLogits<'_>,
        places: std::ops::Range<usize>,
        group: Group<'_>,
    ) -> Result<()> {
        if plan.processors.is_empty() {
            return Ok(());
        }
        let vocab_size = plan.vocab_size;
        let companions_each = plan.processors.len();
        // Beam groups are processed one at a time, as if there were no others.
        // The candidates of contrastive search are lanes too, of which one is the row.
        let rows_each = if plan.num_beams > 1 { plan.num_beams } else { plan.num_return_sequences() };
        let group_size = rows_each / plan.num_beam_groups;
        let num_rows = plan.prompts.len() * group_size;
        let before = group.index * group_size;
        let wanted = &logits.lanes[places.clone()];
        let mut rows: Vec<RowContext<'_>> = recycled(std::mem::take(&mut self.contexts));
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            let Ok(place) = wanted.binary_search(&index) else { continue };
            let main_row = logits.main_rows[places.start + place];
            rows.push(RowContext {
                prompt_len: plan.prompt_len,
                padding_len: plan.prompts[lane.prompt_index].padding_len,
                prompt_index: lane.prompt_index,
                row_index: lane.prompt_index * group_size + index % self.lanes_each % rows_each - before,
                companions: Companions {
                    rows: &self.asked.companions[main_row * companions_each..][..companions_each],
                    logits: logits.companion_logits,
                    vocab_size,
                },
                states: Some(&mut lane.states),
                ..RowContext::of_prompt(&lane.ids)
            });
        }
        let scores = &mut logits.scores[places.start * vocab_size..places.end * vocab_size];
        let mut context = ProcessContext {
            num_rows,
            beam_group: group.index,
            current_tokens: group.current_tokens,
            ..ProcessContext::new(rows)
        };
        plan.processors.process(&mut ScoreRows::new(scores, vocab_size), &mut context)?;
        self.contexts = recycled(context.rows);
        Ok(())
    }

    /// Appends a token to a lane.
    pub(super) fn push(&mut self, lane: usize, token: TokenId) {
        self.lanes[lane].ids.push(token);
    }

    /// Ends a lane; its sequences are released.
    pub(super) fn end(&mut self, lane: usize) {
        let lane = &mut self.lanes[lane];
        lane.active = false;
        self.ended.extend(lane.seq.iter().chain(lane.companions.iter().flatten()));
    }

    /// The lanes of a prompt become copies of others of its lanes: lane `i` of what lane `parents[i]` was before.
    pub(super) fn reorder(&mut self, prompt_index: usize, parents: Vec<usize>) {
        debug_assert_eq!(parents.len(), self.lanes_each);
        if parents.iter().enumerate().all(|(place, &parent)| place == parent) {
            return;
        }
        let lanes = &mut self.lanes[prompt_index * self.lanes_each..][..self.lanes_each];
        let copies: Vec<_> =
            parents.iter().map(|&parent| (lanes[parent].ids.clone(), lanes[parent].states.fork())).collect();
        for (lane, (ids, states)) in lanes.iter_mut().zip(copies) {
            (lane.ids, lane.states) = (ids, states);
        }
        self.parents[prompt_index] = Some(parents);
    }

    /// The ids of a lane, given up.
    pub(super) fn into_ids(self) -> impl Iterator<Item = (usize, Vec<TokenId>)> {
        self.lanes.into_iter().map(|lane| (lane.prompt_index, lane.ids))
    }
}

/// Writes the log-sum-exp of each row of the model's own logits, which must be numbers unless a processor makes them such,
/// to `out`.
fn log_sum_exps(logits: &[f32], vocab_size: usize, any_logits: bool, out: &mut Vec<f32>) -> Result<()> {
    out.clear();
    for row in logits.chunks_exact(vocab_size) {
        let normalizer = log_sum_exp(row);
        if !normalizer.is_finite() && !any_logits {
            return Err(Error::numerical(format!(
                "the model's logits hold NaN or infinity (their log-sum-exp is {normalizer}); its weights \
                 may be damaged, or compute_dtype too narrow for them"
            )));
        }
        out.push(normalizer);
    }
    Ok(())
}
