//! The output of a request: the tokens and texts of its rows, usage and timings.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::events::continued;
use super::kept::KeptCache;
use super::request::Request;
use super::stop_text::StopTexts;
use super::trace::{self, TimedEvent};
use rsgen_core::{Error, FinishReason, Result, TokenId, message};
use rsgen_generation::output::transition_scores;
use rsgen_generation::plan::PlannedPrompt;
use rsgen_generation::search::PromptInputs;
use rsgen_generation::{DraftStats, OutputRow, SequenceScores, SourceStates, TrieEntry};
use rsgen_text::Tokenizer;

/// The result of a request, or of several that were given as one list.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GenerationOutput {
    /// The rows: for each prompt its return sequences, the prompts in order.
    pub rows: Vec<GeneratedRow>,
    /// The scores of each sequence, as `output_scores`, `output_logits` and `top_logprobs` request them.
    /// Without beams the sequences are `rows`; with them, the beams of each prompt in turn.
    pub sequences: Vec<SequenceScores>,
    /// What the encoder computed of each source, with `output_hidden_states` or `output_attentions`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub source_states: Vec<Arc<SourceStates>>,
    /// The token that pads rows to equal length.
    pub pad_token_id: Option<TokenId>,
    /// The seed of each request that sampled.
    pub seeds: Vec<u64>,
    /// What became of drafts, in assisted decoding and prompt lookup; of all requests together.
    #[serde(default)]
    pub draft_stats: Option<DraftStats>,
    /// The entry of the catalogue that each row is, with `allowed_sequences`; `None` for a row that was cut before
    /// its end. With beams an entry is named once for each prompt, at its best row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<Vec<Option<TrieEntry>>>,
    /// Token counts.
    pub usage: Usage,
    /// Where the time went.
    pub timings: Timings,
    /// How each token was found, with `output_events`.
    #[serde(default)]
    pub events: Option<Vec<TimedEvent>>,
}

/// One generated sequence.
///
/// Two are equal when their tokens and texts are, whatever is kept of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GeneratedRow {
    /// The ids of the prompt as they were given, or healed, padding included.
    pub prompt_ids: Vec<TokenId>,
    /// The continuation.
    pub generated: OutputRow,
    /// Its text, without special tokens, a stop string included; `None` for a model without a tokenizer.
    pub text: Option<String>,
    /// Where the text of each token ends, in bytes; empty for a model without a tokenizer.
    #[serde(default)]
    pub text_ends: Vec<usize>,
    /// The beginning of `text` that no new token gives: what `token_healing` has added to the text of the prompt, or
    /// `target_prefix`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub healed: String,
    /// The prompt and the continuation, for a call that continues them. It keeps their blocks once it is
    /// [renewed](KeptCache::renew), or if the call [returns its cache](crate::generator::Call::return_cache).
    /// `None` when the row comes from a file, its prompt was embeddings, or the model has an encoder.
    #[serde(skip)]
    pub cache: Option<KeptCache>,
}

impl PartialEq for GeneratedRow {
    fn eq(&self, other: &Self) -> bool {
        let Self { prompt_ids, generated, text, text_ends, healed, cache: _ } = self;
        (prompt_ids, generated) == (&other.prompt_ids, &other.generated)
            && (text, text_ends, healed) == (&other.text, &other.text_ends, &other.healed)
    }
}

impl GeneratedRow {
    /// The text that each token adds; as many as the tokens, unless the model has no tokenizer.
    pub fn token_texts(&self) -> impl Iterator<Item = &str> {
        let text = self.text.as_deref().unwrap_or_default();
        let starts = std::iter::once(0).chain(self.text_ends.iter().copied());
        starts.zip(&self.text_ends).map(move |(start, &end)| text.get(start..end).unwrap_or_default())
    }
}

/// Token counts.
///
/// Two are equal when the counts of prompts and generated tokens are: what was cached depends on other calls.
#[derive(Debug, Clone, Copy, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompts, padding left out.
    pub prompt_tokens: usize,
    /// Of these, the tokens that earlier or simultaneous requests had computed already: see
    /// [`EngineOptions::prefix_caching`](super::EngineOptions::prefix_caching).
    #[serde(default)]
    pub cached_prompt_tokens: usize,
    /// Generated tokens of all rows.
    pub generated_tokens: usize,
}

impl PartialEq for Usage {
    fn eq(&self, other: &Self) -> bool {
        (self.prompt_tokens, self.generated_tokens) == (other.prompt_tokens, other.generated_tokens)
    }
}

/// Where the time of a request went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Timings {
    /// From the start to the first token; with beams, to the first that a stream gives.
    pub first_token: Duration,
    /// From the start to the end.
    pub total: Duration,
    /// What encoder passes took of it; of one with sources of several requests, the part of its tokens. Zero
    /// for models without an encoder, and for sources that were encoded before.
    #[serde(default)]
    pub encoder: Duration,
}

impl Timings {
    /// Computing the prompts: the time to the first token without what the encoder took.
    pub fn prefill(&self) -> Duration {
        self.first_token.saturating_sub(self.encoder)
    }
}

impl GenerationOutput {
    /// The output of a request that has ended or was cancelled.
    pub(super) fn new(request: Request, tokenizer: Option<&Tokenizer>) -> Self {
        let timings = request.timings();
        let prompts = request.prompts.clone();
        let prompt_tokens = prompts.iter().map(PlannedPrompt::num_tokens).sum();
        let cached_prompt_tokens = request.cached_prompt_tokens();
        let stops = request.stops.clone();
        let (keeper, source_states) = (request.keeper(), request.source_states());
        let (output, recorder) = request.finish();
        let generated_tokens = output.rows.iter().map(|row| row.token_ids.len()).sum();
        let usage = Usage { prompt_tokens, cached_prompt_tokens, generated_tokens };
        let events =
            recorder.map(|recorder| recorder.finish(&output.rows, output.entries.as_deref(), usage, timings));
        let mut rows = Vec::with_capacity(output.rows.len());
        for generated in output.rows {
            let prompt = &prompts[generated.prompt_index];
            let text = tokenizer.map(|tokenizer| text(tokenizer, prompt, &generated, stops.as_deref()));
            let (healed, text, text_ends) = match text {
                Some((healed, text, text_ends)) => (healed, Some(text), text_ends),
                None => (String::new(), None, Vec::new()),
            };
            let prompt_ids = prompt.input_ids().to_vec();
            let cache = match prompt.inputs() {
                PromptInputs::Tokens(tokens) if prompt.source().is_none() => {
                    keeper.keep([tokens, &generated.token_ids].concat())
                }
                _ => None,
            };
            rows.push(GeneratedRow { prompt_ids, generated, text, text_ends, healed, cache });
        }
        Self {
            rows,
            sequences: output.sequences,
            source_states,
            pad_token_id: output.pad_token_id,
            seeds: output.seed.into_iter().collect(),
            draft_stats: output.draft_stats,
            entries: output.entries,
            usage,
            timings,
            events,
        }
    }

    /// Joins the outputs of several requests; those that have none are prompts without rows.
    pub(crate) fn joined(mut outputs: Vec<Option<Self>>) -> Self {
        let mut all = Self {
            pad_token_id: outputs.iter().flatten().find_map(|output| output.pad_token_id),
            events: trace::joined(&mut outputs),
            ..Self::default()
        };
        let mut first_prompt = 0;
        for output in outputs {
            let Some(output) = output else {
                first_prompt += 1;
                continue;
            };
            let mut num_prompts = 0;
            for mut row in output.rows {
                num_prompts = num_prompts.max(row.generated.prompt_index + 1);
                row.generated.prompt_index += first_prompt;
                for sequence in &mut row.generated.beam_indices {
                    *sequence += all.sequences.len() as u32;
                }
                all.rows.push(row);
            }
            first_prompt += num_prompts;
            all.sequences.extend(output.sequences);
            all.source_states.extend(output.source_states);
            all.seeds.extend(output.seeds);
            if let Some(entries) = output.entries {
                all.entries.get_or_insert_default().extend(entries);
            }
            if let Some(stats) = output.draft_stats {
                all.draft_stats.get_or_insert_default().add(stats);
            }
            all.usage.prompt_tokens += output.usage.prompt_tokens;
            all.usage.cached_prompt_tokens += output.usage.cached_prompt_tokens;
            all.usage.generated_tokens += output.usage.generated_tokens;
            all.timings.first_token = all.timings.first_token.max(output.timings.first_token);
            all.timings.total = all.timings.total.max(output.timings.total);
            all.timings.encoder += output.timings.encoder;
        }
        all
    }

    /// The text of the first row, for a call that continues it; see `GeneratedRow::cache`.
    pub fn cache(&self) -> Option<&KeptCache> {
        self.rows.first()?.cache.as_ref()
    }

    /// The text of the first row; empty for a model without a tokenizer.
    pub fn text(&self) -> &str {
        self.rows.first().and_then(|row| row.text.as_deref()).unwrap_or_default()
    }

    /// The texts of all rows.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().map(|row| row.text.as_deref().unwrap_or_default())
    }

    /// For each token of a row, the most probable tokens at its position with their log-probabilities under
    /// the model's own logits, the most probable first; `None` without `top_logprobs`.
    ///
    /// The list is shorter than the row where a beam search appends an end-of-sequence token without choosing
    /// it.
    pub fn top_logprobs(&self, row: usize) -> Option<Vec<&[(TokenId, f32)]>> {
        let sequences = self.rows.get(row)?.generated.sequences(row);
        sequences
            .enumerate()
            .map(|(step, sequence)| {
                Some(&self.sequences.get(sequence)?.top_logprobs.as_ref()?.get(step)?[..])
            })
            .collect()
    }

    /// How each token of a row follows from the source, `[tokens, tokens of the source]`: the weights of its step's
    /// newest position in the last layer's attention to the source, averaged over all heads. `None` without an encoder
    /// and `output_attentions`.
    pub fn alignment(&self, row: usize) -> Option<Vec<Vec<f32>>> {
        let sequences = self.rows.get(row)?.generated.sequences(row);
        let of_step = |(step, sequence): (usize, usize)| {
            let states = self.sequences.get(sequence)?.layer_states.as_ref()?.get(step)?;
            let (last, heads) = (states.shape.num_layers().checked_sub(1)?, states.shape.num_heads);
            let mut mean = vec![0.0; states.source_len];
            for head in 0..heads {
                let weights = states.cross_attention(states.num_tokens.checked_sub(1)?, last, head)?;
                mean.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += weight / heads as f32);
            }
            Some(mean)
        };
        sequences.enumerate().map(of_step).collect()
    }

    /// The processed score of each token of each row, or with `normalize_logits` its log-softmax:
    /// transformers' method of that name. With beams their sum, divided by a power of the length, is the
    /// row's `score`.
    ///
    /// # Errors
    /// `Input` without `output_scores`.
    pub fn compute_transition_scores(&self, normalize_logits: bool) -> Result<Vec<Vec<f32>>> {
        if self.sequences.is_empty() || self.sequences.iter().any(|sequence| sequence.scores.is_none()) {
            return Err(Error::input(message!(
                "transition scores are made from the scores of every step, which were not kept; call with "
                {output_scores = true}
            )));
        }
        let rows = self.rows.iter().map(|row| &row.generated);
        Ok(transition_scores(rows, normalize_logits, |step, sequence| {
            self.sequences.get(sequence)?.scores.as_ref()?.get(step).map(Vec::as_slice)
        }))
    }

    /// The tokens of the first row.
    pub fn token_ids(&self) -> &[TokenId] {
        self.rows.first().map_or(&[], |row| &row.generated.token_ids)
    }
}

impl std::fmt::Display for GenerationOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

/// The text that healing has added to a prompt, or that of the target's prefix; that and the text that tokens add, and where that of each
/// token ends. Equals the joined texts of a stream.
fn text(
    tokenizer: &Tokenizer,
    prompt: &PlannedPrompt,
    generated: &OutputRow,
    stops: Option<&StopTexts>,
) -> (String, String, Vec<usize>) {
    let token_ids = &generated.token_ids;
    let (mut detokenizer, mut healed) = continued(tokenizer, prompt);
    let (mut text, mut ends) = (healed.clone(), Vec::with_capacity(token_ids.len()));
    for &token in token_ids {
        text.push_str(&detokenizer.push(token));
        ends.push(text.len());
    }
    text.push_str(&detokenizer.flush());
    if let Some(end) = ends.last_mut() {
        *end = text.len();
    }
    if let Some(stops) = stops.filter(|_| generated.finish_reason == FinishReason::Stop) {
        let before = stops.end_of(tokenizer, prompt, &healed);
        // The stop string ends in the last token.
        let known = if let [.., known, _] = ends[..] { known } else { 0 };
        let found = stops.find(&format!("{before}{text}"), before.len() + known);
        if let Some((start, _)) = found {
            text.truncate(start.saturating_sub(before.len()));
            healed.truncate(text.len());
            for end in &mut ends {
                *end = (*end).min(text.len());
            }
        }
    }
    (healed, text, ends)
}
