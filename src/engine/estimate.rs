//! Estimates the peak memory of requests, and compares it with the available memory before they start.
//!
//! Estimates are for the longest answers that the limits of a request allow.

use super::blocks::RequestBlocks;
use super::budget::MAX_ROWS;
use super::core::Engine;
use super::run::max_sequences;
use super::slot::ModelRunner;
use rsgen_core::{Error, Message, Result, TokenId, message};
use rsgen_generation::GenerationPlan;
use rsgen_model::cache::SharedPool;
use rsgen_model::weights::memory_limit;

/// Smaller requests are not checked: reading the available memory takes as long as a step of a small model.
const SMALL: u64 = 8 << 20;

/// The bytes of a token of a row: ids, log-probability, beam index and text, in the search and in the answer.
const TOKEN_BYTES: u64 = 64;

/// A list in a list: its pointer, length and capacity, and the overhead of its allocation.
const LIST_BYTES: u64 = 40;

/// The events of a token: its alternatives with their texts.
const EVENT_BYTES: u64 = 1200;

/// A node in the tree of beams, in an event and in the table of nodes.
const NODE_BYTES: u64 = 200;

/// The fields that make answers large.
const LARGE: [&str; 6] = [
    "output_scores",
    "output_logits",
    "output_hidden_states",
    "output_attentions",
    "output_events",
    "top_logprobs",
];

/// The estimated bytes of requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Estimate {
    /// The most tokens of a row.
    new_tokens: usize,
    rows: usize,
    /// Scores, logits and top log-probabilities of each step.
    scores: u64,
    /// Prompts and generated tokens.
    tokens: u64,
    /// The sequences of a step, of all requests.
    sequences: usize,
    /// Logits of a step, of all requests.
    step: u64,
    /// Blocks of the KV cache, of the model and of the draft model.
    blocks: usize,
    draft_blocks: usize,
    /// Which of the large fields are set.
    large: [bool; LARGE.len()],
}

impl Estimate {
    /// The estimate of a request; `draft` is the model of its drafts.
    pub fn of(engine: &Engine, draft: Option<&ModelRunner>, plan: &GenerationPlan) -> Self {
        let vocab_bytes = plan.config().vocab_size as u64 * 4;
        let listed = |is_listed: bool, bytes: u64| if is_listed { bytes + LIST_BYTES } else { 0 };
        let of_step = listed(plan.config().output_scores, vocab_bytes)
            .saturating_add(listed(plan.config().output_logits, vocab_bytes))
            .saturating_add(listed(
                plan.output_events(),
                EVENT_BYTES + NODE_BYTES * plan.candidates_each() as u64,
            ))
            .saturating_add(listed(
                plan.config().num_top_logprobs > 0,
                plan.config().num_top_logprobs as u64 * 8,
            ));
        let rows = plan.sequences_each() as u64;
        let kept_rows = if plan.mode().has_beams() { rows } else { plan.num_return_sequences() as u64 };
        let outputs = plan.config().layer_outputs;
        let large = [
            plan.config().output_scores,
            plan.config().output_logits,
            !outputs.hidden_states.is_empty(),
            outputs.attentions,
            plan.output_events(),
            plan.config().num_top_logprobs > 0,
        ];
        let sequences = plan.prompts().len() * plan.sequences_each();
        let mut estimate = Self { rows: plan.num_rows(), sequences, large, ..Self::default() };
        for (index, prompt) in plan.prompts().iter().enumerate() {
            let new_tokens = plan.max_new_tokens(index);
            let steps = kept_rows.saturating_mul(new_tokens as u64);
            let positions = prompt.input_ids().len().max(prompt.inputs().len()) + new_tokens;
            let tokens = rows.saturating_mul(positions as u64);
            estimate.new_tokens = estimate.new_tokens.max(new_tokens);
            estimate.scores = estimate.scores.saturating_add(states_bytes(engine, plan, index, kept_rows));
            let of_prompt = if plan.output_events() { prompt.tokens().len() as u64 * TOKEN_BYTES } else { 0 };
            estimate.scores =
                estimate.scores.saturating_add(steps.saturating_mul(of_step)).saturating_add(of_prompt);
            estimate.tokens = estimate.tokens.saturating_add(tokens.saturating_mul(TOKEN_BYTES));
        }
        // The results of the pass, and a copy before processors or for the accumulated scores of beams.
        let copies = if plan.mode().has_beams() { 3 } else { 2 };
        estimate.step = (rows * plan.prompts().len() as u64).saturating_mul(vocab_bytes * copies);
        // The unconditional sequences of each row.
        let beside: Vec<u64> =
            plan.prompts().iter().map(|prompt| prompt.unconditional().count() as u64).collect();
        let unconditional = rows.saturating_mul(beside.iter().sum());
        estimate.step = estimate.step.saturating_add(unconditional.saturating_mul(vocab_bytes));
        // Candidates keep their probabilities, and their logits if a step takes several passes.
        let candidates = beside.iter().enumerate().map(|(index, beside)| {
            rows.saturating_mul(1 + beside).saturating_mul(plan.num_candidates(index) as u64)
        });
        let candidates = candidates.fold(0_u64, u64::saturating_add);
        let is_drawn = plan.seed().is_some() && plan.draft().is_some();
        let kept = u64::from(is_drawn) + u64::from(candidates.saturating_add(rows) > MAX_ROWS as u64);
        estimate.step = estimate.step.saturating_add(candidates.saturating_mul(vocab_bytes * kept));
        let RequestBlocks { target, draft } = RequestBlocks::of(&engine.slots().target, draft, plan);
        (estimate.blocks, estimate.draft_blocks) = (target, draft);
        estimate
    }

    /// Of this and other requests.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            large: std::array::from_fn(|field| self.large[field] || other.large[field]),
            new_tokens: self.new_tokens.max(other.new_tokens),
            rows: self.rows + other.rows,
            sequences: self.sequences.saturating_add(other.sequences),
            scores: self.scores.saturating_add(other.scores),
            tokens: self.tokens.saturating_add(other.tokens),
            step: self.step.saturating_add(other.step),
            blocks: self.blocks.saturating_add(other.blocks),
            draft_blocks: self.draft_blocks.saturating_add(other.draft_blocks),
        }
    }

    /// Refuses so many requests if they may not fit into the available memory, their computation and their
    /// answers together.
    ///
    /// # Errors
    /// `Capacity`, with the sizes and the fields to change.
    pub(super) fn check(self, engine: &Engine, draft: Option<&ModelRunner>, count: usize) -> Result<()> {
        let together = max_sequences(engine).div_ceil((self.sequences / count.max(1)).max(1)).min(count);
        let step = self.step / count.max(1) as u64 * together as u64;
        let cache = draft.map_or(0, |draft| new_bytes(draft.pool(), self.draft_blocks));
        let cache = cache.saturating_add(new_bytes(engine.pool(), self.blocks));
        let total = self.scores.saturating_add(self.tokens).saturating_add(step).saturating_add(cache);
        if total < SMALL {
            return Ok(());
        }
        let Some(available) = memory_limit().filter(|available| total > available.value) else {
            return Ok(());
        };
        let large = LARGE.into_iter().zip(self.large).filter(|(_, is_set)| *is_set).map(|(name, _)| name);
        let names = || Message::names(large.clone());
        let (mut of_scores, mut remedy) = (Message::default(), Message::default());
        if self.large.contains(&true) {
            of_scores = message!((", {} of them for ", self.scores)).then(names());
            remedy = message!(", or leave out ").then(names());
        }
        let rows = format!(
            "{} rows of up to {} new tokens may take {total} bytes of memory",
            self.rows, self.new_tokens
        );
        let rest = message!(
            (", but {} are available ({}); lower ", available.value, available.reason)
            {max_new_tokens} ", " {num_return_sequences} " or " {num_beams} ", give fewer prompts at a time"
        );
        Err(Error::capacity(Message::from(rows).then(of_scores).then(rest).then(remedy)))
    }
}

/// The bytes of the hidden states and attention weights of a prompt and its rows: the outputs of passes, the
/// kept ones, and the arrays of an answer, which repeat the prompt's for each row.
fn states_bytes(engine: &Engine, plan: &GenerationPlan, prompt_index: usize, rows: u64) -> u64 {
    let outputs = plan.config().layer_outputs;
    if outputs.is_none() {
        return 0;
    }
    let shape = engine.model().layer_shape();
    let (prompt, new) = (plan.prompts()[prompt_index].inputs().len(), plan.max_new_tokens(prompt_index));
    let (prompt, new, rows) = (prompt as u128, new as u128, u128::from(rows));
    let hidden = if outputs.hidden_states.is_empty() { 0 } else { shape.hidden_len() as u128 };
    let weights = if outputs.attentions { shape.attention_len(0) as u128 } else { 0 };
    let source = plan.prompts()[prompt_index].source_len() as u128;
    let of_prompt = (2 + rows) * (prompt * hidden + prompt * (prompt + source) * weights);
    let of_steps = 2 * rows * (new * hidden + (new * (prompt + source) + new * (new + 1) / 2) * weights);
    let of_source = engine.model().encoder().map_or(0, |encoder| {
        let shape = encoder.layer_shape();
        let hidden = if hidden == 0 { 0 } else { shape.hidden_len() as u128 };
        let weights = if weights == 0 { 0 } else { shape.attention_len(0) as u128 };
        3 * (source * hidden + source * source * weights)
    });
    u64::try_from(of_prompt.saturating_add(of_steps).saturating_add(of_source).saturating_mul(4))
        .unwrap_or(u64::MAX)
}

/// The bytes that a pool takes from the system for so many more blocks.
fn new_bytes(pool: &SharedPool, blocks: usize) -> u64 {
    let stats = pool.stats();
    // Blocks that other requests have returned are reused.
    let grown = stats.num_blocks.saturating_sub(stats.used_blocks + stats.reserved_blocks);
    let new_blocks = blocks.min(stats.available_blocks).saturating_sub(grown) as u64;
    new_blocks.saturating_mul(pool.capacity().layout().bytes_per_block() as u64)
}

/// Checks the memory for the scores of texts, again whenever they have grown much.
#[derive(Default)]
pub(super) struct ScoredTexts {
    /// The bytes since the last comparison.
    bytes: u64,
}

impl ScoredTexts {
    /// Adds a text of these tokens.
    ///
    /// # Errors
    /// `Capacity` when its scores do not fit.
    pub(super) fn add(&mut self, token_ids: &[TokenId], num_top_logprobs: usize) -> Result<()> {
        let each = TOKEN_BYTES + LIST_BYTES + 8 * num_top_logprobs as u64;
        let bytes = each.saturating_mul(token_ids.len() as u64);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes < SMALL {
            return Ok(());
        }
        self.bytes = 0;
        match memory_limit().filter(|available| bytes > available.value) {
            None => Ok(()),
            Some(available) => Err(Error::capacity(message!(
                ("the scores of {} tokens with {num_top_logprobs} ", token_ids.len()) {top_logprobs}
                (" each take {bytes} bytes, but {} are available ({}); lower ",
                 available.value, available.reason)
                {top_logprobs} ", or score the text in parts"
            ))),
        }
    }
}
