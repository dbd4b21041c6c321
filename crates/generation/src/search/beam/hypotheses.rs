//! The finished sequences of transformers' older beam search: a bounded list of the best.

use rsgen_core::{FinishReason, TokenId};

use super::super::super::config::EarlyStopping;
use super::trace::Trace;

/// A finished sequence.
#[derive(Debug, Clone)]
pub(super) struct Hypothesis {
    /// The sum of its log-probabilities, divided by the power of its length.
    pub(super) score: f64,
    /// The generated tokens, without an end-of-sequence token.
    pub(super) tokens: Vec<TokenId>,
    pub(super) trace: Trace,
    pub(super) finish: FinishReason,
}

/// The settings of a list of hypotheses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// The most hypotheses in the list.
    pub(super) capacity: usize,
    pub(super) length_penalty: f64,
    pub(super) early_stopping: EarlyStopping,
    /// The most tokens that can be generated.
    pub(super) most_tokens: usize,
}

/// The best finished sequences of a prompt, or of a group of its beams.
#[derive(Debug, Clone)]
pub(super) struct Hypotheses {
    rules: Rules,
    /// Named as in transformers.
    beams: Vec<Hypothesis>,
    worst: f64,
}

impl Hypotheses {
    pub(super) fn new(rules: Rules) -> Self {
        Self { rules, beams: Vec::new(), worst: 1e9 }
    }

    /// Takes a sequence of `generated` tokens, an end-of-sequence token included, whose log-probabilities sum
    /// to `sum`, if it is among the best.
    pub(super) fn add(
        &mut self,
        sum: f32,
        generated: usize,
        tokens: Vec<TokenId>,
        trace: Trace,
        finish: FinishReason,
    ) {
        let score = f64::from(sum) / (generated as f64).powf(self.rules.length_penalty);
        if self.beams.len() >= self.rules.capacity && score <= self.worst {
            return;
        }
        self.beams.push(Hypothesis { score, tokens, trace, finish });
        if self.beams.len() <= self.rules.capacity {
            self.worst = self.worst.min(score);
            return;
        }
        let lowest =
            (0..self.beams.len()).min_by(|&a, &b| self.beams[a].score.total_cmp(&self.beams[b].score));
        self.beams.remove(lowest.unwrap_or(0));
        self.worst = self.beams.iter().map(|hypothesis| hypothesis.score).fold(f64::INFINITY, f64::min);
    }

    /// Whether the list is final. `best` is the highest sum of this step's candidates, each of `generated`
    /// tokens.
    pub(super) fn is_done(&self, best: f32, generated: usize) -> bool {
        if self.beams.len() < self.rules.capacity {
            return false;
        }
        let length = match self.rules.early_stopping {
            EarlyStopping::True => return true,
            EarlyStopping::Never if self.rules.length_penalty > 0.0 => self.rules.most_tokens,
            EarlyStopping::False | EarlyStopping::Never => generated,
        };
        self.worst >= f64::from(best) / (length as f64).powf(self.rules.length_penalty)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Hypothesis> {
        self.beams.iter()
    }

    pub(super) fn into_vec(self) -> Vec<Hypothesis> {
        self.beams
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        Rules { capacity: 2, length_penalty: 1.0, early_stopping: EarlyStopping::False, most_tokens: 10 }
    }

    fn add(list: &mut Hypotheses, sum: f32, generated: usize) {
        list.add(sum, generated, vec![TokenId(generated as u32)], Trace::default(), FinishReason::Eos);
    }

    fn scores(list: &Hypotheses) -> Vec<f64> {
        list.beams.iter().map(|hypothesis| hypothesis.score).collect()
    }

    #[test]
    fn the_best_are_kept_and_the_first_of_the_lowest_goes() {
        let mut list = Hypotheses::new(rules());
        add(&mut list, -4.0, 2);
        add(&mut list, -6.0, 3);
        assert_eq!(scores(&list), [-2.0, -2.0]);
        add(&mut list, -2.0, 1);
        assert_eq!(list.beams.len(), 2, "equal to the worst is not better");
        assert_eq!(list.beams[0].tokens, [TokenId(2)]);
        add(&mut list, -3.0, 3);
        assert_eq!(scores(&list), [-2.0, -1.0]);
        assert_eq!(list.beams[0].tokens, [TokenId(3)]);
    }

    #[test]
    fn a_full_list_is_done_by_its_rule() {
        let done = |early_stopping, length_penalty, best, generated| {
            let mut list = Hypotheses::new(Rules { length_penalty, early_stopping, ..rules() });
            assert!(!list.is_done(-100.0, 1), "a list that is not full is not done");
            add(&mut list, -4.0, 2);
            add(&mut list, -6.0, 2);
            list.is_done(best, generated)
        };
        assert!(done(EarlyStopping::True, 1.0, 0.0, 1));
        assert!(done(EarlyStopping::False, 1.0, -9.0, 3), "-9 / 3 does not beat -3");
        assert!(!done(EarlyStopping::False, 1.0, -9.0, 4));
        assert!(!done(EarlyStopping::Never, 1.0, -9.0, 3), "-9 / 10 would beat -3");
        assert!(done(EarlyStopping::Never, 0.0, -9.0, 3));
    }
}
