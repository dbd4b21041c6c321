//! Evaluation of given tokens: the logits at every position, and the probability and rank of each token of texts.

use std::collections::VecDeque;
use std::iter::Peekable;

use super::core::{Engine, Interrupt};
use super::estimate::ScoredTexts;
use super::timing;
use crate::cache::{BlockCopy, Reservation, SequenceCache, blocks_for};
use crate::error::{Error, ErrorKind, Result};
use crate::generation::output::top_logprobs;
use crate::kernels::{Work, log_sum_exp};
use crate::memory;
use crate::model::{ForwardBatch, ForwardOutput, PassKind, Row, RowInput, Stage};
use crate::types::{RowOutputs, TokenId};

/// The tokens of a pass. Bounds the memory for logits, which are read before the next pass.
const CHUNK: usize = 128;

/// How well the model predicts a token of a text from those before it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TokenScore {
    /// The token.
    pub token_id: TokenId,
    /// Its log-probability, in nats; 0 for the first token, which nothing predicts.
    pub logprob: f32,
    /// Its rank in the vocabulary by probability: 1 for the most likely token and its ties; 0 for the first token.
    pub rank: usize,
    /// The most probable tokens at its position with their log-probabilities, the most probable first. Empty for the
    /// first token, and unless requested.
    pub top_logprobs: Vec<(TokenId, f32)>,
}

/// A sequence under evaluation, with its results so far.
struct Evaluation<T> {
    token_ids: Vec<TokenId>,
    sequence: SequenceCache,
    /// Declared after `sequence`, which must return its blocks first.
    _reservation: Reservation,
    value: T,
}

impl Engine {
    /// Appends the logits after each token, `[token_ids.len(), vocab_size]`, to `out`.
    ///
    /// # Errors
    /// When the tokens do not fit the vocabulary, the context or the cache, or when interrupted; `Numerical` when logits
    /// are NaN or infinity.
    pub fn logits(
        &self,
        token_ids: &[TokenId],
        interrupted: &mut Interrupt<'_>,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        let vocab_size = self.model().vocab_size();
        memory::reserve(out, token_ids.len().saturating_mul(vocab_size), "logits")?;
        let take = |(): &mut (), _: &[TokenId], first: usize, logits: &[f32]| {
            for (offset, row) in logits.chunks_exact(vocab_size).enumerate() {
                if let Some(&bad) = row.iter().find(|logit| logit.is_nan() || **logit == f32::INFINITY) {
                    return Err(not_finite(first + offset, bad));
                }
            }
            out.extend_from_slice(logits);
            Ok(())
        };
        self.evaluate(std::iter::once(Ok(token_ids.to_vec())), interrupted, take, &mut |_, done| done)
    }

    /// Scores the tokens of texts given those before them. Texts share passes, which changes no score.
    ///
    /// `done` receives the scores of each text in order, with its index, or the error of a text that cannot be
    /// scored. An error that `done` returns stops the work.
    ///
    /// # Errors
    /// The error of `done`; `Cancelled` when interrupted; `Fork`.
    pub fn score_texts(
        &self,
        texts: impl Iterator<Item = Result<Vec<TokenId>>>,
        num_top_logprobs: usize,
        interrupted: &mut Interrupt<'_>,
        done: &mut dyn FnMut(usize, Result<Vec<TokenScore>>) -> Result<()>,
    ) -> Result<()> {
        let (vocab_size, isa) = (self.model().vocab_size(), self.workers().isa());
        let take = |scores: &mut Vec<TokenScore>, token_ids: &[TokenId], first: usize, logits: &[f32]| {
            if first == 0 {
                let token_id = token_ids[0];
                scores.push(TokenScore { token_id, logprob: 0.0, rank: 0, top_logprobs: Vec::new() });
            }
            let following = token_ids[first + 1..].iter();
            for (offset, (row, &token_id)) in logits.chunks_exact(vocab_size).zip(following).enumerate() {
                let normalizer = log_sum_exp(isa, row);
                if !normalizer.is_finite() {
                    return Err(not_finite(first + offset, normalizer));
                }
                let logit = row[token_id.index()];
                let rank = 1 + row.iter().filter(|&&other| other > logit).count();
                let top_logprobs = match num_top_logprobs {
                    0 => Vec::new(),
                    count => top_logprobs(isa, row, count)?,
                };
                scores.push(TokenScore { token_id, logprob: logit - normalizer, rank, top_logprobs });
            }
            Ok(())
        };
        let mut scored = ScoredTexts::default();
        let texts = texts.map(|text| {
            text.and_then(|token_ids| scored.add(&token_ids, num_top_logprobs).map(|()| token_ids))
        });
        self.evaluate(texts, interrupted, take, done)
    }

    /// Computes sequences, as many as fit in each pass. `take` receives the tokens of a sequence, the index where a
    /// chunk begins, and the logits of the chunk, and adds to the sequence's result; `done` receives the results in
    /// order.
    fn evaluate<T: Default>(
        &self,
        texts: impl Iterator<Item = Result<Vec<TokenId>>>,
        interrupted: &mut Interrupt<'_>,
        mut take: impl FnMut(&mut T, &[TokenId], usize, &[f32]) -> Result<()>,
        done: &mut dyn FnMut(usize, Result<T>) -> Result<()>,
    ) -> Result<()> {
        self.check_process()?;
        let vocab_size = self.model().vocab_size();
        let (mut out, mut timing) = (ForwardOutput::default(), self.timing());
        let mut texts = texts.peekable();
        let mut open: VecDeque<Result<Evaluation<T>>> = VecDeque::new();
        let (mut rows, mut copies, mut index) = (Vec::new(), Vec::new(), 0);
        loop {
            timing.start();
            rows.clear();
            copies.clear();
            // The tokens that each open sequence has in this pass.
            let mut counts = Vec::new();
            while rows.len() < CHUNK {
                if counts.len() == open.len() {
                    let Some(opened) = self.open_next(&mut texts, open.is_empty()) else { break };
                    match opened {
                        Err(error) if error.kind() == ErrorKind::Cancelled => return Err(error),
                        opened => open.push_back(opened),
                    }
                }
                let Ok(evaluation) = &mut open[counts.len()] else {
                    counts.push(0);
                    continue;
                };
                let table = counts.iter().filter(|&&count| count > 0).count();
                let before = rows.len();
                copies.extend(evaluation.add_rows(table, &mut rows)?);
                counts.push(rows.len() - before);
            }
            if open.is_empty() {
                break;
            }
            if !rows.is_empty() {
                timing.pass(PassKind::Prompt, rows.len());
                timing.lap(Stage::Prepare, Work::default);
                let in_pass = open.iter().zip(&counts).filter(|(_, count)| **count > 0);
                let tables: Vec<_> =
                    in_pass.filter_map(|(open, _)| Some(open.as_ref().ok()?.sequence.table())).collect();
                let batch = ForwardBatch { rows: &rows, tables: &tables, embeddings: &[] };
                self.pass(None, &batch, &copies, &mut timing, interrupted, &mut out)?;
            }
            let mut logits = &out.logits[..];
            for (open, count) in open.iter_mut().zip(counts) {
                let (Ok(evaluation), 1..) = (&mut *open, count) else { continue };
                let (own, others) = logits.split_at(count * vocab_size);
                logits = others;
                let first = evaluation.sequence.len() - count;
                if let Err(error) = take(&mut evaluation.value, &evaluation.token_ids, first, own) {
                    *open = Err(error);
                }
            }
            timing.lap(Stage::Search, Work::default);
            while let Some(first) = open.pop_front() {
                match first {
                    Ok(evaluation) if evaluation.sequence.len() < evaluation.token_ids.len() => {
                        open.push_front(Ok(evaluation));
                        break;
                    }
                    ended => done(index, ended.map(|evaluation| evaluation.value))?,
                }
                index += 1;
            }
        }
        timing::report(self, &timing);
        Ok(())
    }

    /// Reserves the cache of the next sequence. `None` at the end, and while the cache has no room for it.
    fn open_next<T: Default>(
        &self,
        texts: &mut Peekable<impl Iterator<Item = Result<Vec<TokenId>>>>,
        is_first: bool,
    ) -> Option<Result<Evaluation<T>>> {
        let reservation = match texts.peek()? {
            Ok(token_ids) => self.reserve_for(token_ids),
            Err(_) => Err(Error::internal("replaced by the error of the text")),
        };
        if !is_first && reservation.as_ref().is_err_and(|error| error.kind() == ErrorKind::Capacity) {
            return None;
        }
        let evaluation = texts.next()?.and_then(|token_ids| {
            let reservation = reservation?;
            let sequence = SequenceCache::within(&reservation);
            Ok(Evaluation { token_ids, sequence, _reservation: reservation, value: T::default() })
        });
        Some(evaluation)
    }

    fn reserve_for(&self, token_ids: &[TokenId]) -> Result<Reservation> {
        let vocab_size = self.model().vocab_size();
        if let Some(position) = token_ids.iter().position(|token| token.index() >= vocab_size) {
            return Err(Error::input(format!(
                "the ids must be in the model's vocabulary, 0 to {}, got {} at position {position}; was the text encoded by \
                 another tokenizer?",
                vocab_size - 1,
                token_ids[position]
            )));
        }
        self.pool().reserve(blocks_for(token_ids.len()))
    }
}

impl<T> Evaluation<T> {
    /// Adds the next rows, as many as fit into the pass.
    fn add_rows(&mut self, table: usize, rows: &mut Vec<Row>) -> Result<Option<BlockCopy>> {
        let first = self.sequence.len();
        let end = self.token_ids.len().min(first + CHUNK - rows.len());
        rows.extend((first..end).map(|position| Row {
            input: RowInput::Token(self.token_ids[position]),
            table,
            position,
            rope_seq_len: self.token_ids.len(),
            last_layer: None,
            outputs: RowOutputs::LOGITS,
        }));
        self.sequence.append(end - first)
    }
}

#[cold]
fn not_finite(position: usize, found: f32) -> Error {
    Error::numerical(format!(
        "the model's logits after token {position} hold NaN or infinity (found {found}); its weights may be damaged, or \
         compute_dtype too narrow for them"
    ))
}
