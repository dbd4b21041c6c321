//! The candidates of a step of beam search: the most probable continuations, or sampled ones.

use rsgen_core::{Error, Result, TokenId, memory};
use rsgen_kernels::torch_sort::{descending_order, topk};
use rsgen_kernels::{maximum, softmax};

use super::super::super::config::Compat;
use super::super::super::random_state::Rng;
use super::super::super::resolved::ResolvedConfig;

/// A beam of the next step.
#[derive(Debug, Clone)]
pub(super) struct Continuation {
    /// The beam that it continues, among those of its group.
    pub(super) parent: usize,
    pub(super) token: TokenId,
    pub(super) score: f32,
}

/// The number of candidates of a step, of `all` continuations of `num_beams` beams.
pub(super) fn count(config: &ResolvedConfig, num_beams: usize, all: usize) -> usize {
    (2.max(1 + config.eos_token_ids.len()) * num_beams).min(all)
}

/// Finds the candidates of steps, with the random generator of beam sampling. All prompts of a request share
/// one.
pub(super) struct Candidates {
    rng: Option<Rng>,
    /// The scores of all continuations of the last beams, in [memory that is lent](super::super::Search::sums).
    pub(super) accumulated: Vec<f32>,
    /// Scratch memory.
    probabilities: Vec<f32>,
}

impl Candidates {
    /// Samples if the configuration has a seed.
    pub(super) fn new(config: &ResolvedConfig) -> Self {
        let rng = config.seed.map(|seed| Rng::new(seed, config.random_state.as_ref()));
        Self { rng, accumulated: Vec::new(), probabilities: Vec::new() }
    }

    /// Whether candidates are drawn.
    pub(super) fn are_drawn(&self) -> bool {
        self.rng.is_some()
    }

    /// `max(2, 1 + eos tokens) * num_beams` continuations of beams with these scores, best first; with
    /// `compat="5.23"`, drawn ones in the order of drawing: each an index into `processed`, `[num_beams, vocab_size]`, with its score.
    ///
    /// # Errors
    /// `Numerical` when the scores hold NaN, or when no token is left to draw.
    pub(super) fn of(
        &mut self,
        config: &ResolvedConfig,
        processed: &[f32],
        beams: impl ExactSizeIterator<Item = f32>,
    ) -> Result<Vec<(usize, f32)>> {
        let Self { rng, accumulated, probabilities } = self;
        let count = count(config, beams.len(), processed.len());
        accumulated.clear();
        memory::reserve(accumulated, processed.len(), "scores")?;
        for (row, beam) in processed.chunks_exact(config.vocab_size).zip(beams) {
            accumulated.extend(row.iter().map(|score| score + beam));
        }
        let largest = maximum(config.isa, accumulated);
        if largest.is_nan() {
            return Err(Error::numerical("the processed scores hold NaN, so they have no order"));
        }
        let indices: Vec<usize> = match rng {
            None => topk(config.isa, accumulated, count)?.into_iter().map(|index| index as usize).collect(),
            Some(_) if largest == f32::NEG_INFINITY => {
                return Err(Error::numerical(
                    "every token of every beam has been removed, so none can be drawn; loosen the logits processors",
                ));
            }
            Some(rng) => {
                probabilities.clear();
                memory::extend(probabilities, accumulated, "probabilities")?;
                softmax(config.isa, probabilities);
                let drawn = rng.multinomial(config.isa, probabilities, count)?;
                let scores: Vec<f32> = drawn.iter().map(|&index| accumulated[index]).collect();
                match config.fields.compat {
                    Some(Compat::V5_23) => drawn,
                    _ => descending_order(&scores).into_iter().map(|rank| drawn[rank as usize]).collect(),
                }
            }
        };
        Ok(indices.into_iter().map(|index| (index, accumulated[index])).collect())
    }

    /// Skips the random numbers of a step of `len` continuations.
    pub(super) fn skip(&mut self, len: usize) {
        if let Some(rng) = &mut self.rng {
            rng.skip_multinomial(len);
        }
    }
}
