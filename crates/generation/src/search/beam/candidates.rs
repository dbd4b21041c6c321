//! The candidates of a step of beam search: the most probable continuations, or sampled ones.

use rsgen_core::{Error, Result, TokenId, memory};
use rsgen_kernels::torch_sort::topk;
use rsgen_kernels::{Isa, TorchRng, maximum, softmax};

/// A beam of the next step.
#[derive(Debug, Clone)]
pub(super) struct Continuation {
    /// The beam that it continues, among those of its group.
    pub(super) parent: usize,
    pub(super) token: TokenId,
    pub(super) score: f32,
}

/// `max(2, 1 + num_eos) * num_beams` continuations, best first or in the order of drawing: each an index into
/// `accumulated`, `[num_beams, vocab_size]`, with its score. `probabilities` is scratch memory.
///
/// # Errors
/// `Numerical` when the scores hold NaN, or when no token is left to draw.
pub(super) fn candidates(
    isa: Isa,
    accumulated: &[f32],
    num_beams: usize,
    num_eos: usize,
    rng: Option<&mut TorchRng>,
    probabilities: &mut Vec<f32>,
) -> Result<Vec<(usize, f32)>> {
    let count = (2.max(1 + num_eos) * num_beams).min(accumulated.len());
    let largest = maximum(isa, accumulated);
    if largest.is_nan() {
        return Err(Error::numerical("the processed scores hold NaN, so they have no order"));
    }
    let indices: Vec<usize> = match rng {
        None => topk(isa, accumulated, count)?.into_iter().map(|index| index as usize).collect(),
        Some(_) if largest == f32::NEG_INFINITY => {
            return Err(Error::numerical(
                "every token of every beam has been removed, so none can be drawn; loosen the logits processors",
            ));
        }
        Some(rng) => {
            probabilities.clear();
            memory::extend(probabilities, accumulated, "probabilities")?;
            softmax(isa, probabilities);
            rng.multinomial(isa, probabilities, count)?
        }
    };
    Ok(indices.into_iter().map(|index| (index, accumulated[index])).collect())
}
