//! The draws of plain sampling, for drafts of any length.
//!
//! Plain sampling draws the token of each step of each row with random numbers of its own: those of step 0
//! for all rows, then those of step 1, and so on. Here a token is drawn with the same numbers whenever its
//! turn comes. So the tokens are those of plain sampling with the same seed, whatever is drafted. A draft is
//! drawn with the numbers of the steps that it is for: where the assistant's probabilities are near the
//! model's, the same token comes out, and is accepted.

use std::collections::VecDeque;

use rsgen_core::{Result, TokenId};

use super::super::super::plan::GenerationPlan;
use super::super::sample::Draw;
use rsgen_kernels::TorchRng;

/// The most draws whose generators are kept, besides those of one step.
const MAX_KEPT: usize = 4096;

/// Draws the token of any step of any row.
pub(super) struct StepDraws {
    draw: Draw,
    num_rows: usize,
    vocab_size: usize,
    /// The generator before each draw, from draw `first` on: step by step, row by row.
    kept: VecDeque<TorchRng>,
    first: usize,
    /// The generator after the last of them.
    next: TorchRng,
}

impl StepDraws {
    pub(super) fn new(seed: u64, plan: &GenerationPlan) -> Self {
        let mut next = TorchRng::manual_seed(seed);
        (0..plan.config.num_draws_before).for_each(|_| next.skip_multinomial(plan.config.vocab_size));
        Self {
            draw: Draw::new(seed, plan),
            num_rows: plan.num_rows(),
            vocab_size: plan.config.vocab_size,
            kept: VecDeque::new(),
            first: 0,
            next,
        }
    }

    /// Draws the token of a step of a row from processed scores, and returns the probabilities too.
    ///
    /// # Errors
    /// When the scores are no distribution.
    pub(super) fn choose(
        &mut self,
        scores: &[f32],
        (step, row): (usize, usize),
    ) -> Result<(TokenId, &[f32])> {
        self.draw.softmax(scores)?;
        let index = step * self.num_rows + row - self.first;
        while self.kept.len() <= index {
            self.kept.push_back(self.next.clone());
            self.next.skip_multinomial(self.vocab_size);
        }
        let token = self.draw.draw_with(&mut self.kept[index].clone());
        Ok((token, self.draw.probabilities()))
    }

    /// Forgets the draws before a step, which all rows have reached.
    pub(super) fn forget_before(&mut self, step: usize) {
        while self.first < step * self.num_rows {
            // Skips unused draws.
            if self.kept.pop_front().is_none() {
                self.next.skip_multinomial(self.vocab_size);
            }
            self.first += 1;
        }
    }

    /// The most tokens that a row may draft in a step, so that few generators are kept: a row that is far
    /// ahead of others waits for them.
    pub(super) fn most_drafted(&self, step: usize) -> usize {
        (MAX_KEPT / self.num_rows).saturating_sub(step - self.first / self.num_rows)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::super::config::GenerationConfig;
    use super::super::super::super::plan::PlanContext;
    use super::super::super::super::prompt::PromptBatch;
    use super::super::super::rows::TokenChoice;
    use super::*;

    const ROWS: usize = 3;
    const VOCAB: usize = 9;

    fn scores(step: usize, row: usize) -> Vec<f32> {
        (0..VOCAB).map(|token| ((token * 7 + step * 5 + row * 3) % 11) as f32 / 4.0).collect()
    }

    #[test]
    fn the_tokens_are_those_of_plain_sampling_in_whatever_order_rows_go_on() {
        let config =
            GenerationConfig::new().do_sample(true).seed(5).num_return_sequences(ROWS).max_new_tokens(50);
        let prompt = PromptBatch::single(vec![TokenId(1)]).unwrap();
        let plan = GenerationPlan::new(&config, prompt, &PlanContext::new(VOCAB, 99)).unwrap();
        let mut plain = Draw::new(5, &plan);
        let steps: Vec<Vec<TokenId>> = (0..40)
            .map(|step| (0..ROWS).map(|row| plain.choose(&scores(step, row)).unwrap()).collect())
            .collect();

        let mut draws = StepDraws::new(5, &plan);
        let mut at = [0; ROWS];
        for round in 0..200_usize {
            let row = [0, 0, 1, 2, 1, 2, 2, 0][round % 8];
            for step in at[row]..(at[row] + 1 + round % 3).min(40) {
                let (token, _) = draws.choose(&scores(step, row), (step, row)).unwrap();
                assert_eq!(token, steps[step][row], "step {step}, row {row}");
            }
            at[row] = (at[row] + 1 + round % 2).min(40);
            draws.forget_before(*at.iter().min().unwrap());
            assert!(draws.kept.len() <= ROWS * (3 + at.iter().max().unwrap() - at.iter().min().unwrap()));
        }
        assert_eq!(at, [40; ROWS]);
        draws.forget_before(45);
        assert_eq!(draws.most_drafted(45), MAX_KEPT / ROWS);
        assert_eq!(draws.most_drafted(50), MAX_KEPT / ROWS - 5);
    }
}
