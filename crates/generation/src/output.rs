//! The output of a search: the tokens of each row, the reason why it ended, and the requested scores.

use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use rsgen_core::{FinishReason, Result, TokenId, memory};
use rsgen_kernels::torch_reduce::kth_largest;
use rsgen_kernels::{Isa, log_sum_exp};

use super::exact;
use super::layer_states::LayerStates;
use super::resolved::ResolvedConfig;
use super::token_trie::{TokenTrie, TrieEntry};

/// The result of a search.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct SearchOutput {
    /// One entry per row: the rows of each prompt one after the other.
    pub rows: Vec<OutputRow>,
    /// The token that pads rows to equal length; `None` when neither `pad_token_id` nor `eos_token_id` is
    /// set.
    pub pad_token_id: Option<TokenId>,
    /// The seed of sampling; `None` without sampling.
    pub seed: Option<u64>,
    /// The scores of each sequence. Without beams the sequences are the rows of the result; with them, the
    /// beams of each prompt in turn.
    pub sequences: Vec<SequenceScores>,
    /// What became of drafts, in assisted decoding and prompt lookup.
    pub draft_stats: Option<DraftStats>,
    /// The entry of the catalogue that each row is; `None` for a row that was cut before its end. With beams an
    /// entry is named once for each prompt, at its best row.
    pub entries: Option<Vec<Option<TrieEntry>>>,
}

impl SearchOutput {
    pub(super) fn of(config: &ResolvedConfig, rows: Vec<OutputRow>, sequences: Vec<SequenceScores>) -> Self {
        let (pad_token_id, seed) =
            (config.pad_token_id, config.seed.filter(|_| config.random_state.is_none()));
        let entries = config.allowed_sequences.as_ref().map(|trie| entries(config, trie, &rows));
        Self { rows, pad_token_id, seed, sequences, draft_stats: None, entries }
    }
}

/// The entry that each row is.
fn entries(config: &ResolvedConfig, trie: &TokenTrie, rows: &[OutputRow]) -> Vec<Option<TrieEntry>> {
    let (mut named, forced) = (HashSet::new(), usize::from(config.forces_first()));
    let mut entry = |row: &OutputRow| {
        // Others were cut, even if they have all tokens of an entry.
        let ended = row.token_ids.get(forced..).filter(|_| row.finish_reason == FinishReason::Eos)?;
        let entry = trie.entry(ended)?;
        let is_new = !config.mode.has_beams() || named.insert((row.prompt_index, entry.index));
        is_new.then_some(entry)
    };
    rows.iter().map(&mut entry).collect()
}

/// What became of the drafts of a request, in assisted decoding and prompt lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DraftStats {
    /// Tokens that were drafted or looked up.
    pub drafted: u64,
    /// Of these, tokens that the model checked: the others lay beyond the last token that fits.
    pub verified: u64,
    /// Of these, tokens that became part of the output.
    pub accepted: u64,
    /// Checks: passes of the model over a row's newest token and its draft, which may be empty.
    pub rounds: u64,
}

impl DraftStats {
    /// The share of checked tokens that were accepted; `None` when none was checked.
    pub fn acceptance(&self) -> Option<f64> {
        (self.verified > 0).then(|| self.accepted as f64 / self.verified as f64)
    }

    /// Adds the figures of another request.
    pub fn add(&mut self, other: Self) {
        self.drafted += other.drafted;
        self.verified += other.verified;
        self.accepted += other.accepted;
        self.rounds += other.rounds;
    }
}

/// One row of a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OutputRow {
    /// The prompt that the row continues.
    pub prompt_index: usize,
    /// The generated tokens, an end-of-sequence token included, padding left out.
    pub token_ids: Vec<TokenId>,
    /// Why the row ended; `Cancelled` when the search was cancelled first.
    pub finish_reason: FinishReason,
    /// For each token its log-probability under the model's own logits.
    #[serde(with = "exact")]
    pub logprobs: Vec<f32>,
    /// With beams, the sum of the processed log-probabilities, divided by a power of the length:
    /// transformers' `sequences_scores`.
    #[serde(with = "exact")]
    pub score: Option<f32>,
    /// With beams, the sequence that each token was generated in; empty otherwise.
    pub beam_indices: Vec<u32>,
}

impl OutputRow {
    /// A row of a search without beams; `finish` is `None` if the search was cancelled first.
    pub(super) fn new(
        prompt_index: usize,
        token_ids: Vec<TokenId>,
        finish: Option<FinishReason>,
        logprobs: Vec<f32>,
    ) -> Self {
        let finish_reason = finish.unwrap_or(FinishReason::Cancelled);
        Self { prompt_index, token_ids, finish_reason, logprobs, score: None, beam_indices: Vec::new() }
    }

    /// A row that is made of several, one after the other: it ends as the first of them that no end-of-sequence
    /// token ended, its score is the sum of theirs, and nothing says in which beams its tokens were.
    pub fn joined<'a>(parts: impl Iterator<Item = &'a Self> + Clone) -> Self {
        let mut reasons = parts.clone().map(|part| part.finish_reason);
        Self {
            prompt_index: 0,
            finish_reason: reasons.find(|&reason| reason != FinishReason::Eos).unwrap_or(FinishReason::Eos),
            token_ids: parts.clone().flat_map(|part| part.token_ids.iter().copied()).collect(),
            logprobs: parts.clone().flat_map(|part| part.logprobs.iter().copied()).collect(),
            score: parts.map(|part| part.score).sum(),
            beam_indices: Vec::new(),
        }
    }

    /// The sequence that each token was chosen in; `row` is the index of this row.
    pub fn sequences(&self, row: usize) -> impl Iterator<Item = usize> {
        let of_beams = self.score.is_some();
        let count = if of_beams { self.beam_indices.len() } else { self.token_ids.len() };
        (0..count).map(move |step| if of_beams { self.beam_indices[step] as usize } else { row })
    }
}

/// The scores of a sequence in each step, `[vocab_size]` each. A sequence that ends early has fewer steps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SequenceScores {
    /// The processed scores that tokens were chosen from, with `output_scores`.
    #[serde(with = "exact")]
    pub scores: Option<Vec<Vec<f32>>>,
    /// The model's own logits, with `output_logits`.
    #[serde(with = "exact")]
    pub logits: Option<Vec<Vec<f32>>>,
    /// The most probable tokens under the model's own logits, each with its log-probability, the most
    /// probable first, with `top_logprobs`.
    pub top_logprobs: Option<Vec<Vec<(TokenId, f32)>>>,
    /// What the layers computed in each step, with `output_hidden_states` and `output_attentions`. Sequences
    /// share the first.
    #[serde(default)]
    pub layer_states: Option<Vec<Arc<LayerStates>>>,
    /// The length of each list of `top_logprobs`.
    #[serde(skip)]
    num_top_logprobs: usize,
}

impl SequenceScores {
    /// Empty lists for the scores that a request asks for.
    pub(super) fn of(config: &ResolvedConfig) -> Self {
        Self {
            scores: config.output_scores.then(Vec::new),
            logits: config.output_logits.then(Vec::new),
            top_logprobs: (config.num_top_logprobs > 0).then(Vec::new),
            layer_states: (!config.layer_outputs.is_none()).then(Vec::new),
            num_top_logprobs: config.num_top_logprobs,
        }
    }

    /// A copy of the alternatives of a step, or of the newest one; empty unless they are requested.
    pub(super) fn alternatives(&self, step: Option<usize>) -> Result<Vec<(TokenId, f32)>> {
        let steps = self.top_logprobs.as_deref().unwrap_or_default();
        let of_step = step.map_or(steps.last(), |step| steps.get(step));
        let (mut copied, of_step) = (Vec::new(), of_step.map(Vec::as_slice).unwrap_or_default());
        memory::extend(&mut copied, of_step, "log-probabilities")?;
        Ok(copied)
    }

    /// Records the processed scores of a step, if they are requested.
    pub(super) fn keep_scores(&mut self, scores: &[f32]) -> Result<()> {
        if let Some(kept) = &mut self.scores {
            kept.push(memory::copied(scores, "scores")?);
        }
        Ok(())
    }

    /// Records the states of the layers, if they are requested.
    pub(super) fn keep_states(&mut self, states: Option<&Arc<LayerStates>>) {
        if let Some((kept, states)) = self.layer_states.as_mut().zip(states) {
            kept.push(Arc::clone(states));
        }
    }

    /// Records the model's own logits and the top log-probabilities, as requested.
    pub(super) fn keep_logits(&mut self, isa: Isa, logits: &[f32]) -> Result<()> {
        if let Some(kept) = &mut self.logits {
            kept.push(memory::copied(logits, "logits")?);
        }
        if let Some(kept) = &mut self.top_logprobs {
            kept.push(top_logprobs(isa, logits, self.num_top_logprobs)?);
        }
        Ok(())
    }
}

/// The `count` most probable tokens with their log-probabilities, the lowest id first among equals. Leaves
/// out impossible tokens, and all tokens when the logits hold NaN or infinity.
///
/// # Errors
/// `Capacity` when there is no memory for them.
pub fn top_logprobs(isa: Isa, logits: &[f32], count: usize) -> Result<Vec<(TokenId, f32)>> {
    let mut top = Vec::new();
    let normalizer = log_sum_exp(isa, logits);
    if !normalizer.is_finite() {
        return Ok(top);
    }
    let count = count.min(logits.len());
    memory::reserve(&mut top, count, "log-probabilities")?;
    let least = kth_largest(isa, logits, count).max(f32::MIN);
    let above = logits.iter().filter(|&&logit| logit > least).count();
    // Any number of tokens may equal the last one.
    let mut equal = count.saturating_sub(above);
    for (token, &logit) in (0..).map(TokenId).zip(logits) {
        if logit > least || (logit == least && equal > 0) {
            equal -= usize::from(logit == least);
            top.push((token, logit - normalizer));
        }
    }
    top.sort_by(|a, b| b.1.total_cmp(&a.1));
    Ok(top)
}

/// The score of each token of each row, as in transformers' `compute_transition_scores`: the processed score,
/// or with `normalize_logits` its log-softmax. `scores` returns the scores of a sequence in a step,
/// `[vocab_size]`.
pub fn transition_scores<'a>(
    rows: impl Iterator<Item = &'a OutputRow>,
    normalize_logits: bool,
    scores: impl Fn(usize, usize) -> Option<&'a [f32]>,
) -> Vec<Vec<f32>> {
    let isa = Isa::fastest();
    let of_token = |step: usize, sequence: usize, token: &TokenId| {
        let scores = scores(step, sequence)?;
        let normalizer = if normalize_logits { log_sum_exp(isa, scores) } else { 0.0 };
        Some(scores.get(token.index())? - normalizer)
    };
    rows.enumerate()
        .map(|(index, row)| {
            let tokens = row.sequences(index).zip(&row.token_ids).enumerate();
            tokens.map(|(step, (sequence, token))| of_token(step, sequence, token).unwrap_or(0.0)).collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternatives_are_the_most_probable_tokens_in_order() {
        let logits = [1.0, 3.0, 2.0, 3.0, f32::NEG_INFINITY];
        let tokens = |count| {
            top_logprobs(Isa::fastest(), &logits, count)
                .unwrap()
                .iter()
                .map(|(token, _)| token.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(tokens(1), [1], "the lowest id of equals");
        assert_eq!(tokens(3), [1, 3, 2]);
        assert_eq!(tokens(9), [1, 3, 2, 0], "what is impossible is no alternative");
        let total: f32 =
            top_logprobs(Isa::fastest(), &logits, 9).unwrap().iter().map(|(_, logprob)| logprob.exp()).sum();
        assert!((total - 1.0).abs() < 1e-6, "{total}");
        assert_eq!(top_logprobs(Isa::fastest(), &[f32::NAN, 1.0], 1).unwrap(), []);
        let of_equals = top_logprobs(Isa::fastest(), &vec![0.5; 10_000], 3).unwrap();
        assert_eq!(of_equals.iter().map(|(token, _)| token.0).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(of_equals.capacity(), 3, "equal tokens take no memory");
    }

    #[test]
    fn outputs_come_back_from_json_with_numbers_that_json_has_not() {
        let row = OutputRow {
            prompt_index: 0,
            token_ids: vec![TokenId(3)],
            finish_reason: FinishReason::Eos,
            logprobs: vec![-0.1, f32::NEG_INFINITY],
            score: Some(f32::NEG_INFINITY),
            beam_indices: vec![1],
        };
        let text = serde_json::to_string(&row).unwrap();
        assert_eq!(serde_json::from_str::<OutputRow>(&text).unwrap(), row);
        let sequence =
            SequenceScores { scores: Some(vec![vec![0.1, f32::NEG_INFINITY]]), ..SequenceScores::default() };
        let text = serde_json::to_string(&sequence).unwrap();
        assert_eq!(serde_json::from_str::<SequenceScores>(&text).unwrap(), sequence);
    }
}
