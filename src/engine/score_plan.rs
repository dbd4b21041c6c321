//! Which text of a call computes which rows: what texts have in common at their beginning is computed once.
//!
//! A row is computed after a beginning, and scores each token that follows this beginning in any of the texts. So a text
//! computes only rows after beginnings that no other text has. Long texts are planned first: a text that another one
//! begins with has no rows of its own then, nor has one that differs from another in its last token alone.

use std::cell::{Cell, OnceCell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{Bound, Range};
use std::rc::Rc;

use super::evaluate::{Evaluated, EvaluatedText, Follows, not_finite};
use super::queue::Interrupt;
use super::scores::TokenScore;
use rsgen_core::{Error, Result, RowOutputs, TokenId};

/// The most numbers of the scores of texts that are planned together, and that later texts find.
const MOST_NUMBERS: usize = 1 << 20;

/// The most texts that are planned together: what they need is dropped at once when the call is interrupted.
const MOST_TEXTS: usize = 1 << 13;

/// What the rows of one text have scored.
#[derive(Default)]
pub(super) struct Scores {
    /// The scores of the text's own tokens after its rows, up to the first row that is not finite.
    pub(super) tokens: Vec<TokenScore>,
    /// The scores of other texts' tokens, by their position.
    pub(super) others: BTreeMap<(usize, TokenId), TokenScore>,
    /// The row that has logits which are not finite, and what was found.
    pub(super) not_finite: Option<(usize, f32)>,
}

/// A text, and the rows that it computes: those from `first_row` on.
pub(super) struct Part {
    tokens: Rc<[TokenId]>,
    /// The first tokens, which have no scores: the first of all, or those of the kept cache that the text continues.
    num_given: usize,
    first_row: usize,
    /// The text that computes the rows before, with the same tokens up to there.
    before: Option<Rc<Part>>,
    /// The texts that it was planned with.
    window: usize,
    /// Its number in the call.
    number: usize,
    /// Its number among the texts with rows, once it has one.
    evaluation: Cell<Option<usize>>,
    /// The tokens of other texts that its rows score, by their position.
    others: RefCell<BTreeMap<usize, BTreeSet<TokenId>>>,
    /// `None` if it could not be computed.
    scores: OnceCell<Option<Scores>>,
}

impl Part {
    /// Nothing follows the last token, so it has no row.
    fn rows(&self) -> Range<usize> {
        self.first_row..self.tokens.len() - 1
    }

    /// The token of the text and those of others that the row scores.
    pub(super) fn tokens_after(&self, row: usize) -> (TokenId, BTreeSet<TokenId>) {
        (self.tokens[row + 1], self.others.borrow().get(&(row + 1)).cloned().unwrap_or_default())
    }

    /// Whether its rows score that token at that position.
    fn scores_token(&self, position: usize, token: TokenId) -> bool {
        self.tokens.get(position) == Some(&token)
            || self.others.borrow().get(&position).is_some_and(|others| others.contains(&token))
    }

    fn evaluated(&self, text: EvaluatedText, is_shared: bool) -> Evaluated {
        let is_shared = is_shared && text.source.is_none();
        let before = self.before.as_ref().and_then(|before| before.evaluation.get());
        let follows = before.map(|index| Follows { index, rows: self.first_row });
        Evaluated { text, wanted: self.rows(), is_shared, follows, source_outputs: RowOutputs::NONE }
    }

    /// The scores of all its tokens that are not given, and of the given ones too unless a kept cache holds them.
    ///
    /// # Errors
    /// `Numerical` where a row is not finite; `Capacity` when one could not be computed.
    fn all_scores(&self, is_continuation: bool) -> Result<Vec<TokenScore>> {
        let mut found: Vec<&[TokenScore]> = Vec::new();
        let mut bad = None;
        // The positions below are still to be found.
        let (mut part, mut end) = (self, self.tokens.len());
        loop {
            if end > part.first_row + 1 {
                let scores = part.computed()?;
                let own = end - part.first_row - 1;
                found.push(&scores.tokens[..own.min(scores.tokens.len())]);
                bad = scores.not_finite.filter(|_| scores.tokens.len() < own).or(bad);
                end = part.first_row + 1;
            }
            let Some(before) = part.before.as_deref() else { break };
            let position = part.first_row;
            if end > position && before.tokens.get(position) != Some(&self.tokens[position]) {
                let scores = before.computed()?;
                match scores.others.get(&(position, self.tokens[position])) {
                    Some(score) => found.push(std::slice::from_ref(score)),
                    None => bad = scores.not_finite.or(bad),
                }
                end = position;
            }
            part = before;
        }
        if let Some((row, found)) = bad {
            return Err(not_finite(row, found));
        }
        let given = if is_continuation { 0 } else { self.num_given };
        let unscored = |&token_id| TokenScore { token_id, logprob: 0.0, rank: 0, top_logprobs: Vec::new() };
        let given = self.tokens[..given].iter().map(unscored);
        Ok(given.chain(found.into_iter().rev().flatten().cloned()).collect())
    }

    fn computed(&self) -> Result<&Scores> {
        self.scores.get().and_then(Option::as_ref).ok_or_else(|| {
            Error::capacity(
                "the text that it shares its beginning with could not be computed; score it in a call of its own",
            )
        })
    }
}

/// A text of a call whose scores are still to be handed over.
#[derive(Default)]
struct Planned {
    /// `None` for one that cannot be scored.
    part: Option<Rc<Part>>,
    is_continuation: bool,
    /// How computing its own rows ended.
    outcome: Option<Result<()>>,
}

/// The texts of a call.
#[derive(Default)]
pub(super) struct Plan {
    /// Those whose scores are still to be handed over, in order, and the number of the first.
    texts: VecDeque<Planned>,
    handed_over: usize,
    /// The numbers of those whose rows are still to be computed, in the order of the computing.
    evaluations: VecDeque<usize>,
    num_evaluations: usize,
    windows: usize,
    /// Those that others can begin with.
    known: BTreeMap<Rc<[TokenId]>, Rc<Part>>,
    /// The known ones, the oldest first, and how many numbers their scores take.
    order: VecDeque<Rc<[TokenId]>>,
    size: usize,
}

impl Plan {
    /// Takes the next texts that are there already, or waits for one. `numbers` is how many the scores of a token take.
    pub(super) fn window(
        texts: &mut impl Iterator<Item = Result<EvaluatedText>>,
        numbers: usize,
    ) -> Vec<Result<EvaluatedText>> {
        let (count, mut size) = (texts.size_hint().0.clamp(1, MOST_TEXTS), 0);
        let mut window = Vec::new();
        while window.len() < count
            && size < MOST_NUMBERS
            && let Some(text) = texts.next()
        {
            size += text.as_ref().map_or(0, |text| text.token_ids.len() * numbers);
            window.push(text);
        }
        window
    }

    /// Plans the next texts of the call together. Returns those that have rows to compute, and the errors: in the order
    /// of the texts, but none before the one that computes its beginning.
    ///
    /// # Errors
    /// `Cancelled` when interrupted.
    pub(super) fn add(
        &mut self,
        window: Vec<Result<EvaluatedText>>,
        is_shared: bool,
        numbers: usize,
        interrupted: &mut Interrupt<'_>,
    ) -> Result<VecDeque<Result<Evaluated>>> {
        let mut poll = || if interrupted() { Err(Error::cancelled()) } else { Ok(()) };
        self.windows += 1;
        let first = self.handed_over + self.texts.len();
        let len = |text: &Result<EvaluatedText>| text.as_ref().map_or(0, |text| text.token_ids.len());
        let mut by_length: Vec<usize> = (0..window.len()).collect();
        by_length.sort_by_key(|&index| Reverse(len(&window[index])));
        let mut parts: Vec<Option<Rc<Part>>> = vec![None; window.len()];
        for index in by_length {
            poll()?;
            if let Ok(text) = &window[index] {
                parts[index] = Some(self.part(first + index, text, is_shared, numbers));
            }
        }
        for (text, part) in window.iter().zip(&parts) {
            let is_continuation = text.as_ref().is_ok_and(|text| text.kept.is_some());
            // One without rows ends when another has computed its beginning.
            let outcome = part.as_ref().filter(|part| part.rows().is_empty()).map(|_| Ok(()));
            self.texts.push_back(Planned { part: part.clone(), is_continuation, outcome });
        }
        let mut texts: Vec<Option<Result<EvaluatedText>>> = window.into_iter().map(Some).collect();
        let mut evaluated = VecDeque::new();
        for (index, part) in parts.iter().enumerate() {
            poll()?;
            let is_new = |part: &&Rc<Part>| part.number >= first && part.evaluation.get().is_none();
            let chain = std::iter::successors(part.as_ref(), |part| part.before.as_ref()).take_while(is_new);
            for part in chain.collect::<Vec<_>>().into_iter().rev().filter(|part| !part.rows().is_empty()) {
                if let Some(Ok(text)) = texts[part.number - first].take() {
                    part.evaluation.set(Some(self.next_evaluation(part.number)));
                    evaluated.push_back(Ok(part.evaluated(text, is_shared)));
                }
            }
            if let Some(Err(error)) = texts[index].take_if(|text| text.is_err()) {
                self.next_evaluation(first + index);
                evaluated.push_back(Err(error));
            }
        }
        Ok(evaluated)
    }

    fn next_evaluation(&mut self, number: usize) -> usize {
        self.evaluations.push_back(number);
        self.num_evaluations += 1;
        self.num_evaluations - 1
    }

    /// What is to be computed of a text.
    fn part(&mut self, number: usize, text: &EvaluatedText, is_shared: bool, numbers: usize) -> Rc<Part> {
        let tokens: Rc<[TokenId]> = text.token_ids[..].into();
        let num_given = text.kept_len().max(1);
        // Targets share the blocks of their source instead.
        let is_shared = is_shared && text.source.is_none();
        let known = if is_shared { self.longest(&tokens, num_given) } else { None };
        let (before, first_row) = match known {
            None => (None, num_given - 1),
            Some((part, common)) => self.after(part, &tokens, common.min(tokens.len() - 1), num_given),
        };
        let part = Rc::new(Part {
            tokens,
            num_given,
            first_row,
            before,
            window: self.windows,
            number,
            evaluation: Cell::default(),
            others: RefCell::default(),
            scores: OnceCell::new(),
        });
        if is_shared && !part.rows().is_empty() {
            self.remember(&part, numbers);
        }
        part
    }

    /// The text that computes the rows before those of a text, and the first of these. They have `common` tokens in common.
    fn after(
        &self,
        mut known: Rc<Part>,
        tokens: &[TokenId],
        common: usize,
        num_given: usize,
    ) -> (Option<Rc<Part>>, usize) {
        known = with_row(known, common - 1);
        let token = tokens[common];
        if !known.scores_token(common, token) {
            if known.window != self.windows {
                // Its logits are gone, so the last row is computed again.
                let before = (common > num_given).then(|| with_row(known, common - 2));
                return (before, common - 1);
            }
            known.others.borrow_mut().entry(common).or_default().insert(token);
        }
        (Some(known), common)
    }

    /// The known text with the longest common beginning, and its number of tokens: more than the given ones.
    fn longest(&self, tokens: &[TokenId], num_given: usize) -> Option<(Rc<Part>, usize)> {
        let before =
            self.known.range::<[TokenId], _>((Bound::Unbounded, Bound::Included(tokens))).next_back();
        let after = self.known.range::<[TokenId], _>((Bound::Excluded(tokens), Bound::Unbounded)).next();
        let common =
            |known: &[TokenId]| known.iter().zip(tokens).take_while(|(one, other)| one == other).count();
        let found = [before, after].into_iter().flatten().map(|(text, known)| (known, common(text)));
        let (known, common) = found.max_by_key(|(_, common)| *common)?;
        let is_usable = known.num_given == num_given && common >= num_given && tokens.len() > num_given;
        is_usable.then(|| (Rc::clone(known), common))
    }

    fn remember(&mut self, part: &Rc<Part>, numbers: usize) {
        self.size += part.tokens.len() * numbers;
        self.known.insert(Rc::clone(&part.tokens), Rc::clone(part));
        self.order.push_back(Rc::clone(&part.tokens));
        while self.size > MOST_NUMBERS
            && let Some(oldest) = self.order.pop_front()
        {
            self.size -= oldest.len() * numbers;
            self.known.remove(&oldest);
        }
    }

    /// The text whose rows are the `index`-th that are computed.
    pub(super) fn part_of(&self, index: usize) -> Option<Rc<Part>> {
        let ended = self.num_evaluations - self.evaluations.len();
        let number = self.evaluations.get(index - ended)?;
        self.texts[number - self.handed_over].part.clone()
    }

    /// Takes the scores of the rows that are computed next, or their error.
    pub(super) fn end(&mut self, scores: Result<Scores>) {
        let Some(number) = self.evaluations.pop_front() else { return };
        let text = &mut self.texts[number - self.handed_over];
        let (scores, outcome) = match scores {
            Ok(scores) => (Some(scores), Ok(())),
            Err(error) => (None, Err(error)),
        };
        if let Some(part) = &text.part {
            // Nobody else sets it.
            let _ = part.scores.set(scores);
        }
        text.outcome = Some(outcome);
    }

    /// The scores of the next text in order and its number, if they are there.
    pub(super) fn next(&mut self) -> Option<(usize, Result<Vec<TokenScore>>)> {
        let text = self.texts.front()?;
        let before = text.part.as_ref().and_then(|part| part.before.as_ref());
        if text.outcome.is_none() || before.is_some_and(|before| before.scores.get().is_none()) {
            return None;
        }
        let Planned { part, is_continuation, outcome } = self.texts.pop_front()?;
        self.handed_over += 1;
        let scores =
            outcome?.and_then(|()| part.map_or(Ok(Vec::new()), |part| part.all_scores(is_continuation)));
        Some((self.handed_over - 1, scores))
    }
}

/// The text that computes that row, which a text has or one before it.
fn with_row(mut part: Rc<Part>, row: usize) -> Rc<Part> {
    while row < part.first_row
        && let Some(before) = &part.before
    {
        part = Rc::clone(before);
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(tokens: &[u32]) -> EvaluatedText {
        tokens.iter().copied().map(TokenId).collect::<Vec<_>>().into()
    }

    /// The rows of texts that are planned together: where they begin, and how many there are.
    fn rows(plan: &mut Plan, texts: &[Vec<u32>]) -> Vec<Evaluated> {
        let planned = plan.add(texts.iter().map(|tokens| Ok(text(tokens))).collect(), true, 1, &mut || false);
        planned.unwrap().into_iter().collect::<Result<_>>().unwrap()
    }

    proptest! {
        #[test]
        fn a_row_is_computed_once_for_all_texts_with_the_tokens_before_it(
            texts in prop::collection::vec(prop::collection::vec(0_u32..3, 1..8), 0..40),
        ) {
            let evaluated = rows(&mut Plan::default(), &texts);
            let beginnings: BTreeSet<_> =
                texts.iter().flat_map(|text| (1..text.len()).map(|len| &text[..len])).collect();
            prop_assert_eq!(evaluated.iter().map(|text| text.wanted.len()).sum::<usize>(), beginnings.len());
            for (index, text) in evaluated.iter().enumerate() {
                let first = text.wanted.start;
                match text.follows {
                    None => prop_assert_eq!(first, 0),
                    Some(Follows { index: earlier, rows }) => {
                        prop_assert!(earlier < index && rows == first);
                        let earlier = &evaluated[earlier];
                        prop_assert_eq!(&earlier.text.token_ids[..first], &text.text.token_ids[..first]);
                        prop_assert!(earlier.wanted.contains(&(first - 1)));
                    }
                }
            }
        }

        // What has the logits of a row is gone, so the row after which a later text differs is computed again.
        #[test]
        fn a_text_that_is_planned_later_computes_at_most_a_row_more(
            texts in prop::collection::vec(prop::collection::vec(0_u32..3, 1..8), 0..40),
        ) {
            let (mut plan, mut before) = (Plan::default(), BTreeSet::new());
            for text in &texts {
                let found = rows(&mut plan, std::slice::from_ref(text));
                let new = (1..text.len()).filter(|&len| before.insert(text[..len].to_vec())).count();
                let computed: usize = found.iter().map(|text| text.wanted.len()).sum();
                prop_assert!((new..=new + 1).contains(&computed), "{computed} rows for {new} new ones");
            }
        }
    }

    #[test]
    fn texts_are_planned_together_as_far_as_they_are_there() {
        let all = [[1_u32, 2, 3], [1, 2, 4], [1, 2, 5]];
        let mut texts = all.iter().map(|tokens| Ok(text(tokens)));
        assert_eq!(Plan::window(&mut texts, 1).len(), 3);
        let mut texts = all.iter().map(|tokens| Ok(text(tokens))).filter(|_| true);
        assert_eq!(Plan::window(&mut texts, 1).len(), 1);
        let mut texts = all.iter().map(|tokens| Ok(text(tokens)));
        assert_eq!(Plan::window(&mut texts, MOST_NUMBERS / 4).len(), 2);
    }
}
