//! Scores of texts: the probability and rank of each token, given those before it.
//!
//! Texts of a call share what they begin with, in whatever order they come: it is computed and scored once, for the
//! first of them. A later text begins in the cache blocks of the first, and takes its scores. A score depends on no
//! batch, so this changes no bit.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::rc::Rc;

use super::core::Engine;
use super::estimate::ScoredTexts;
use super::evaluate::{Evaluated, EvaluatedText, TextOutputs, not_finite};
use super::queue::Interrupt;
use rsgen_core::{Error, Result, RowOutputs, TokenId};
use rsgen_generation::output::top_logprobs;
use rsgen_kernels::log_sum_exp;

/// The most numbers whose scores are remembered in a call, for later texts that begin with them.
const MOST_KNOWN: usize = 1 << 20;

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

/// The scores of a text's tokens, up to the first that is not finite.
#[derive(Default)]
struct Scores {
    tokens: Vec<TokenScore>,
    /// The position that has logits which are not finite, and what was found.
    not_finite: Option<(usize, f32)>,
}

/// The scores of a text, once they are there; `None` if it could not be computed.
type Shared = Rc<OnceCell<Option<Scores>>>;

/// The scores of an earlier text, of which the first tokens have none.
#[derive(Clone)]
struct Known {
    scores: Shared,
    num_given: usize,
}

/// A text of a call, in order.
struct Planned {
    /// The text that it begins with, and the number of their common tokens.
    beginning: Option<(Shared, usize)>,
    /// The first tokens, which have no scores: the first of all, or those of the kept cache that it continues.
    given: Vec<TokenId>,
    is_continuation: bool,
    scores: Shared,
}

/// The texts of a call: those whose scores are still to come, and what later ones can begin with.
#[derive(Default)]
struct Texts {
    /// `None` for one that cannot be scored.
    planned: VecDeque<Option<Planned>>,
    known: BTreeMap<Rc<[TokenId]>, Known>,
    /// The known texts, the oldest first.
    order: VecDeque<Rc<[TokenId]>>,
    /// The numbers that their scores take.
    size: usize,
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
        let (all, mut memory) = (RefCell::new(Texts::default()), ScoredTexts::default());
        let texts = texts.map(|text| {
            let checked = text.and_then(|text| {
                if text.token_ids.is_empty() {
                    return Err(Error::input("a text must have at least one token, got none"));
                }
                memory.add(&text.token_ids, num_top_logprobs)?;
                // Others may begin with it only if it can be computed.
                self.check_text(&text, text.token_ids.len() - 1)?;
                Ok(text)
            });
            let mut all = all.borrow_mut();
            let is_shared = self.prefix_caching && !self.model().keys_depend_on_length();
            let planned = checked.map(|text| all.plan(text, is_shared, 1 + num_top_logprobs));
            planned.inspect_err(|_| all.planned.push_back(None))
        });
        let take = |scores: &mut Scores, outputs: TextOutputs<'_>| {
            self.take_scores(scores, &outputs, num_top_logprobs)
        };
        let mut done = |index, own: Result<Scores>| {
            let planned = all.borrow_mut().planned.pop_front().flatten();
            let scores = match (own, planned) {
                (Ok(own), Some(planned)) => planned.join(own),
                (own, planned) => {
                    planned.map(|planned| planned.scores.set(None));
                    own.map(|own| own.tokens)
                }
            };
            done(index, scores)
        };
        self.evaluate(texts, RowOutputs::LOGITS, interrupted, take, &mut done)
    }

    /// Adds the scores of the tokens that follow rows from `first` on.
    fn take_scores(
        &self,
        scores: &mut Scores,
        &TextOutputs { token_ids, first, rows, .. }: &TextOutputs<'_>,
        num_top_logprobs: usize,
    ) -> Result<()> {
        let (vocab_size, isa) = (self.model().vocab_size(), self.workers().isa());
        for (offset, (row, &token_id)) in
            rows.logits.chunks_exact(vocab_size).zip(&token_ids[first + 1..]).enumerate()
        {
            let normalizer = log_sum_exp(isa, row);
            if scores.not_finite.is_some() {
                return Ok(());
            }
            if !normalizer.is_finite() {
                scores.not_finite = Some((first + offset, normalizer));
                return Ok(());
            }
            let logit = row[token_id.index()];
            let rank = 1 + row.iter().filter(|&&other| other > logit).count();
            let top_logprobs = match num_top_logprobs {
                0 => Vec::new(),
                count => top_logprobs(isa, row, count)?,
            };
            scores.tokens.push(TokenScore { token_id, logprob: logit - normalizer, rank, top_logprobs });
        }
        Ok(())
    }
}

impl Texts {
    /// What is to be computed of a text: the rows that predict tokens which no earlier text has.
    fn plan(&mut self, text: EvaluatedText, is_shared: bool, numbers: usize) -> Evaluated {
        let tokens = &*text.token_ids;
        // Targets share the blocks of their source instead.
        let is_shared = is_shared && text.source.is_none();
        let beginning = if is_shared { self.longest(tokens) } else { None };
        let scores = Shared::default();
        let num_given = text.kept_len().max(1);
        let beginning = beginning.filter(|(known, len)| known.num_given == num_given && *len >= num_given);
        let beginning = beginning.map(|(known, len)| (known.scores, len));
        let shared = beginning.as_ref().map_or(num_given, |(_, len)| *len);
        if is_shared && shared < tokens.len() {
            let known = Known { scores: Rc::clone(&scores), num_given };
            self.remember(tokens.into(), known, numbers);
        }
        let (given, is_continuation) = (tokens[..num_given].to_vec(), text.kept.is_some());
        self.planned.push_back(Some(Planned { beginning, given, is_continuation, scores }));
        let wanted = shared - 1..tokens.len() - 1;
        Evaluated { text, wanted, is_shared, source_outputs: RowOutputs::NONE }
    }

    /// The known text with the longest common beginning, and its number of tokens.
    fn longest(&self, tokens: &[TokenId]) -> Option<(Known, usize)> {
        let before =
            self.known.range::<[TokenId], _>((Bound::Unbounded, Bound::Included(tokens))).next_back();
        let after = self.known.range::<[TokenId], _>((Bound::Excluded(tokens), Bound::Unbounded)).next();
        let common =
            |known: &[TokenId]| known.iter().zip(tokens).take_while(|(one, other)| one == other).count();
        let found = [before, after].into_iter().flatten().map(|(text, known)| (known, common(text)));
        let (known, len) = found.max_by_key(|(_, len)| *len)?;
        (len > 0).then(|| (known.clone(), len))
    }

    fn remember(&mut self, tokens: Rc<[TokenId]>, known: Known, numbers: usize) {
        self.size += tokens.len() * numbers;
        self.known.insert(Rc::clone(&tokens), known);
        self.order.push_back(tokens);
        while self.size > MOST_KNOWN
            && let Some(oldest) = self.order.pop_front()
        {
            self.size -= oldest.len() * numbers;
            self.known.remove(&oldest);
        }
    }
}

impl Planned {
    /// The scores of a text, of which `own` is what no earlier text has.
    ///
    /// # Errors
    /// `Numerical` where a score is not finite; `Capacity` when its beginning could not be computed.
    fn join(self, own: Scores) -> Result<Vec<TokenScore>> {
        let mut all = Scores { tokens: Vec::new(), not_finite: own.not_finite };
        if let Some((beginning, len)) = &self.beginning {
            let Some(Some(beginning)) = beginning.get() else {
                return Err(Error::capacity(
                    "the text that it shares its beginning with could not be computed; score it in a call of its own",
                ));
            };
            all.tokens.extend(beginning.tokens.iter().take(*len).cloned());
            if all.tokens.len() < *len {
                all.not_finite = beginning.not_finite;
            }
        } else {
            let unscored =
                |token_id| TokenScore { token_id, logprob: 0.0, rank: 0, top_logprobs: Vec::new() };
            all.tokens.extend(self.given.iter().copied().map(unscored));
        }
        if self.beginning.as_ref().is_none_or(|(_, len)| all.tokens.len() == *len) {
            all.tokens.extend(own.tokens);
        }
        let result = match all.not_finite {
            Some((position, found)) => Err(not_finite(position, found)),
            None if self.is_continuation => Ok(all.tokens[self.given.len()..].to_vec()),
            None => Ok(all.tokens.clone()),
        };
        // Nobody else sets it.
        let _ = self.scores.set(Some(all));
        result
    }
}
