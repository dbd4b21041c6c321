//! Scores of texts: the probability and rank of each token, given those before it.
//!
//! A score depends on no batch, so what texts of a call share ([`Plan`]) changes no bit.

use std::cell::RefCell;
use std::collections::VecDeque;

use super::core::Engine;
use super::estimate::ScoredTexts;
use super::evaluate::{Evaluated, EvaluatedText, TextOutputs};
use super::queue::Interrupt;
use super::score_plan::{Part, Plan, Scores};
use rsgen_core::{Error, Result, RowOutputs, TokenId};
use rsgen_generation::output::top_logprobs;
use rsgen_kernels::log_sum_exp;

/// How well the model predicts a token of a text from those before it.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenScore {
    /// The token.
    pub token_id: TokenId,
    /// Its log-probability, in nats; 0 for the first token, which nothing predicts.
    pub logprob: f32,
    /// Its rank in the vocabulary by probability: 1 for the most likely token and its ties; 0 for the first
    /// token.
    pub rank: usize,
    /// The most probable tokens at its position with their log-probabilities, the most probable first. Empty
    /// for the first token, and unless requested.
    pub top_logprobs: Vec<(TokenId, f32)>,
}

impl Engine {
    /// Scores the tokens of texts given those before them. Texts share passes and beginnings, which changes no
    /// score.
    ///
    /// `done` receives the scores of each text in order, with its index, or the error of a text that cannot
    /// be scored. An error that `done` returns stops the work.
    ///
    /// # Errors
    /// The error of `done`; `Cancelled` when interrupted; `Fork`.
    pub fn score_texts(
        &self,
        texts: impl Iterator<Item = Result<EvaluatedText>>,
        num_top_logprobs: usize,
        interrupted: &mut Interrupt<'_>,
        done: &mut dyn FnMut(usize, Result<Vec<TokenScore>>) -> Result<()>,
    ) -> Result<()> {
        let mut memory = ScoredTexts::default();
        let mut texts = texts.map(|text| {
            let text = text?;
            if text.token_ids.is_empty() {
                return Err(Error::input("a text must have at least one token, got none"));
            }
            memory.add(&text.token_ids, num_top_logprobs)?;
            // Others may begin with it only if it can be computed.
            self.check_text(&text, text.token_ids.len() - 1)?;
            Ok(text)
        });
        // Planning, evaluating and handing over poll.
        let interrupted = RefCell::new(interrupted);
        let (plan, numbers) = (RefCell::new(Plan::default()), 1 + num_top_logprobs);
        let is_shared = self.prefix_caching && !self.model().keys_depend_on_length();
        let mut planned: VecDeque<Result<Evaluated>> = VecDeque::new();
        let planned = std::iter::from_fn(|| {
            while planned.is_empty() {
                let window = Plan::window(&mut texts, numbers);
                if window.is_empty() {
                    return None;
                }
                let added = plan.borrow_mut().add(window, is_shared, numbers, &mut *interrupted.borrow_mut());
                planned = added.unwrap_or_else(|error| VecDeque::from([Err(error)]));
            }
            planned.pop_front()
        });
        let take = |scores: &mut Scores, outputs: TextOutputs<'_>| {
            let part = plan.borrow().part_of(outputs.index);
            part.map_or(Ok(()), |part| self.take_scores(scores, &part, &outputs, num_top_logprobs))
        };
        let mut hand_over = || {
            while let Some((index, scores)) = { plan.borrow_mut().next() } {
                done(index, scores)?;
                if (interrupted.borrow_mut())() {
                    return Err(Error::cancelled());
                }
            }
            Ok(())
        };
        let mut ended = |_, scores: Result<Scores>| {
            plan.borrow_mut().end(scores);
            hand_over()
        };
        let mut interrupted = || (interrupted.borrow_mut())();
        self.evaluate(planned, RowOutputs::LOGITS, &mut interrupted, take, &mut ended)?;
        hand_over()
    }

    /// Adds the scores of the tokens that follow rows from `first` on.
    fn take_scores(
        &self,
        scores: &mut Scores,
        part: &Part,
        &TextOutputs { first, rows, .. }: &TextOutputs<'_>,
        num_top_logprobs: usize,
    ) -> Result<()> {
        let (vocab_size, isa) = (self.model().vocab_size(), self.workers().isa());
        for (offset, logits) in rows.logits.chunks_exact(vocab_size).enumerate() {
            let row = first + offset;
            if scores.not_finite.is_some() {
                return Ok(());
            }
            let normalizer = log_sum_exp(isa, logits);
            if !normalizer.is_finite() {
                scores.not_finite = Some((row, normalizer));
                return Ok(());
            }
            let most_probable = match num_top_logprobs {
                0 => Vec::new(),
                count => top_logprobs(isa, logits, count)?,
            };
            let score = |token_id: TokenId| {
                let logit = logits[token_id.index()];
                let rank = 1 + logits.iter().filter(|&&other| other > logit).count();
                let top_logprobs = most_probable.clone();
                TokenScore { token_id, logprob: logit - normalizer, rank, top_logprobs }
            };
            let (own, others) = part.tokens_after(row);
            scores.tokens.push(score(own));
            scores.others.extend(others.into_iter().map(|token| ((row + 1, token), score(token))));
        }
        Ok(())
    }
}
