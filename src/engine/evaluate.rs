//! Scores given tokens: the logits at each position, and the log-probability and rank of each token.

use super::core::{Engine, Interrupt};
use super::timing;
use crate::cache::SequenceCache;
use crate::error::{Error, Result};
use crate::kernels::{Work, log_sum_exp};
use crate::model::{ForwardBatch, ForwardOutput, PassKind, Row, RowInput, Stage};
use crate::types::{RowOutputs, TokenId};

/// The tokens of a pass. Bounds the memory for logits, which are read before the next pass.
const CHUNK: usize = 128;

/// How well the model predicts a token of a text from those before it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenScore {
    /// The token.
    pub token_id: TokenId,
    /// Its log-probability, in nats; 0 for the first token, which nothing predicts.
    pub logprob: f32,
    /// Its place among all tokens of the vocabulary by probability: 1 for the most likely one and all that are equally
    /// likely; 0 for the first token.
    pub rank: usize,
}

impl Engine {
    /// The logits after each token, `[token_ids.len(), vocab_size]`.
    ///
    /// # Errors
    /// When the tokens do not fit the vocabulary, the context or the cache, or when interrupted; `Numerical` when logits
    /// are NaN or infinity.
    pub fn logits(&self, token_ids: &[TokenId], interrupted: &mut Interrupt<'_>) -> Result<Vec<f32>> {
        let vocab_size = self.model().vocab_size();
        let mut all = Vec::with_capacity(token_ids.len() * vocab_size);
        self.for_each_chunk(token_ids, interrupted, |first, logits| {
            for (place, row) in logits.chunks_exact(vocab_size).enumerate() {
                if let Some(&bad) = row.iter().find(|logit| logit.is_nan() || **logit == f32::INFINITY) {
                    return Err(not_finite(first + place, bad));
                }
            }
            all.extend_from_slice(logits);
            Ok(())
        })?;
        Ok(all)
    }

    /// The log-probability of each token given those before it, in nats; 0 for the first one, which nothing predicts.
    ///
    /// # Errors
    /// As for [`Engine::logits`].
    pub fn token_logprobs(&self, token_ids: &[TokenId], interrupted: &mut Interrupt<'_>) -> Result<Vec<f32>> {
        let mut logprobs = vec![0.0];
        self.for_each_prediction(token_ids, interrupted, |_, _, logprob| {
            logprobs.push(logprob);
        })?;
        logprobs.truncate(token_ids.len());
        Ok(logprobs)
    }

    /// The log-probability and the rank of each token given those before it.
    ///
    /// # Errors
    /// As for [`Engine::logits`].
    pub fn token_scores(
        &self,
        token_ids: &[TokenId],
        interrupted: &mut Interrupt<'_>,
    ) -> Result<Vec<TokenScore>> {
        let first = token_ids.first().map(|&token_id| TokenScore { token_id, logprob: 0.0, rank: 0 });
        let mut scores: Vec<TokenScore> = first.into_iter().collect();
        self.for_each_prediction(token_ids, interrupted, |logits, token_id, logprob| {
            let logit = logits[token_id.index()];
            let rank = 1 + logits.iter().filter(|&&other| other > logit).count();
            scores.push(TokenScore { token_id, logprob, rank });
        })?;
        Ok(scores)
    }

    /// Calls `take` with each token but the first: the logits that predict it, the token, and its log-probability.
    fn for_each_prediction(
        &self,
        token_ids: &[TokenId],
        interrupted: &mut Interrupt<'_>,
        mut take: impl FnMut(&[f32], TokenId, f32),
    ) -> Result<()> {
        let (vocab_size, isa) = (self.model().vocab_size(), self.workers().isa());
        self.for_each_chunk(token_ids, interrupted, |first, logits| {
            for (place, row) in logits.chunks_exact(vocab_size).enumerate() {
                let Some(&next) = token_ids.get(first + place + 1) else { break };
                let normalizer = log_sum_exp(isa, row);
                if !normalizer.is_finite() {
                    return Err(not_finite(first + place, normalizer));
                }
                take(row, next, row[next.index()] - normalizer);
            }
            Ok(())
        })
    }

    /// Computes the tokens as one prompt, in chunks; `take` gets the index of a chunk's first token and its logits.
    fn for_each_chunk(
        &self,
        token_ids: &[TokenId],
        interrupted: &mut Interrupt<'_>,
        mut take: impl FnMut(usize, &[f32]) -> Result<()>,
    ) -> Result<()> {
        let vocab_size = self.model().vocab_size();
        if let Some(position) = token_ids.iter().position(|token| token.index() >= vocab_size) {
            return Err(Error::input(format!(
                "the ids must be in the model's vocabulary, 0 to {}, got {} at position {position}; was the text encoded by \
                 another tokenizer?",
                vocab_size - 1,
                token_ids[position]
            )));
        }
        let reservation = self.pool().reserve(crate::cache::blocks_for(token_ids.len()))?;
        let mut sequence = SequenceCache::within(&reservation);
        let (mut out, mut timing) = (ForwardOutput::default(), self.timing());
        for (chunk_index, chunk) in token_ids.chunks(CHUNK).enumerate() {
            let first = chunk_index * CHUNK;
            timing.start();
            timing.pass(PassKind::Prompt, chunk.len());
            let rows: Vec<Row> = chunk
                .iter()
                .enumerate()
                .map(|(i, &token)| Row {
                    input: RowInput::Token(token),
                    table: 0,
                    position: first + i,
                    rope_seq_len: token_ids.len(),
                    last_layer: None,
                    outputs: RowOutputs::LOGITS,
                })
                .collect();
            let copy = sequence.append(chunk.len())?;
            let batch = ForwardBatch { rows: &rows, tables: &[sequence.table()], embeddings: &[] };
            timing.lap(Stage::Prepare, Work::default);
            self.pass(&batch, copy.as_slice(), &mut timing, interrupted, &mut out)?;
            take(first, &out.logits)?;
            timing.lap(Stage::Search, Work::default);
        }
        timing::report(self, &timing);
        Ok(())
    }
}

#[cold]
fn not_finite(position: usize, found: f32) -> Error {
    Error::numerical(format!(
        "the model's logits after token {position} hold NaN or infinity (found {found}); its weights may be damaged, or \
         compute_dtype too narrow for them"
    ))
}
