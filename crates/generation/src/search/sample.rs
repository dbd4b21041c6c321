//! Multinomial sampling: a token drawn from the softmax of the processed scores, with torch's random numbers.

use rsgen_core::{Error, Message, Result, RowOutputs, TokenId, message};
use rsgen_kernels::{Isa, TorchRng, maximum, softmax};

use super::super::plan::GenerationPlan;
use super::super::random_state::Rng;
use super::rows::{RowSearch, TokenChoice};

/// transformers' sampling of a plan. All rows of the request share one generator.
pub(super) fn sample_search(mut plan: GenerationPlan) -> RowSearch<Draw> {
    let seed = *plan.config.seed.get_or_insert_with(TorchRng::entropy_seed);
    let choice = Draw::new(seed, &plan);
    RowSearch::new(plan, choice, RowOutputs::LOGITS)
}

/// Draws a token.
pub(super) struct Draw {
    isa: Isa,
    rng: Rng,
    /// Scratch, as long as the scores.
    probabilities: Vec<f32>,
    /// The sources of the scores, for errors.
    sources: Message,
}

impl Draw {
    pub(super) fn new(seed: u64, plan: &GenerationPlan) -> Self {
        let mut rng = Rng::new(seed, plan.config.random_state.as_ref());
        (0..plan.config.num_draws_before).for_each(|_| rng.skip_multinomial(plan.config.vocab_size));
        Self {
            isa: plan.config.isa,
            rng,
            probabilities: vec![0.0; plan.config.vocab_size],
            sources: plan.processors.sources(),
        }
    }

    /// The softmax of processed scores, of the model or of an assistant; [`draw`](Self::draw) draws from what
    /// it then holds.
    ///
    /// # Errors
    /// When the scores are no distribution.
    pub(super) fn softmax(&mut self, scores: &[f32]) -> Result<&mut [f32]> {
        let largest = maximum(self.isa, scores);
        if largest == f32::NEG_INFINITY {
            return Err(Error::numerical(
                message!("every token has been removed, so none can be drawn; loosen ")
                    .then(self.sources.clone()),
            ));
        }
        if !largest.is_finite() {
            return Err(Error::numerical(
                message!("the processed scores hold {largest}, so no token can be drawn; check ")
                    .then(self.sources.clone()),
            ));
        }
        self.probabilities.clear();
        self.probabilities.extend_from_slice(scores);
        softmax(self.isa, &mut self.probabilities);
        Ok(&mut self.probabilities)
    }

    /// Draws a token from the probabilities of the last [`softmax`](Self::softmax).
    pub(super) fn draw(&mut self) -> TokenId {
        TokenId(self.rng.draw(&self.probabilities) as u32)
    }

    /// [`draw`](Self::draw) with the numbers of another generator.
    pub(super) fn draw_with(&self, rng: &mut TorchRng) -> TokenId {
        TokenId(rng.draw(&self.probabilities) as u32)
    }

    /// The probabilities that it draws from.
    pub(super) fn probabilities(&self) -> &[f32] {
        &self.probabilities
    }

    /// One element of `torch.rand`.
    pub(super) fn rand(&mut self) -> f32 {
        self.rng.rand_f32()
    }
}

impl TokenChoice for Draw {
    fn choose(&mut self, scores: &[f32]) -> Result<TokenId> {
        self.softmax(scores)?;
        Ok(self.draw())
    }

    /// torch samples for all rows of a batch, ended or not.
    fn skip_row(&mut self, vocab_size: usize) {
        self.rng.skip_multinomial(vocab_size);
    }
}
