//! `BayesianDetectorModel`: transformers' trained judge of g-values. It is small: a weight for each pair of
//! layers of the tournament, a bias for each layer, and how probable a watermark is beforehand.

use super::synthid::MAX_DEPTH;
use rsgen_core::{Error, Result, memory};
use rsgen_kernels::torch_reduce::{exp, ln, sum};

/// How probable a watermark is, given the g-values of a text.
#[derive(Debug, Clone, PartialEq)]
pub struct BayesianDetectorModel {
    /// `[depth]`
    beta: Vec<f32>,
    /// `[depth, depth]`
    delta: Vec<f32>,
    prior: f32,
}

impl BayesianDetectorModel {
    /// A model with these parameters: `beta` is `[depth]`, `delta` `[depth, depth]`, `prior` the probability
    /// of a watermark before anything is known.
    ///
    /// # Errors
    /// `Load` when the sizes do not fit each other.
    pub fn new(beta: Vec<f32>, delta: Vec<f32>, prior: f32) -> Result<Self> {
        let depth = beta.len();
        if !(1..=MAX_DEPTH).contains(&depth) || delta.len() != depth * depth {
            return Err(Error::load(format!(
                "a detector's `beta` must hold 1 to {MAX_DEPTH} numbers and its `delta` the square of that, but they hold {depth} \
                 and {}",
                delta.len()
            )));
        }
        Ok(Self { beta, delta, prior })
    }

    /// The layers of the tournament.
    pub fn watermarking_depth(&self) -> usize {
        self.beta.len()
    }

    /// The probability that a text with these g-values, `[num_ngrams, depth]`, is marked. `mask`,
    /// `[num_ngrams]`, says which n-grams count.
    ///
    /// # Errors
    /// `Input` when the sizes do not fit the model.
    pub fn posterior(&self, g_values: &[bool], mask: &[bool]) -> Result<f32> {
        self.posterior_interruptible(g_values, mask, &mut || false)
    }

    /// [`BayesianDetectorModel::posterior`], ended with a `Cancelled` when the callback returns true.
    pub(super) fn posterior_interruptible(
        &self,
        g_values: &[bool],
        mask: &[bool],
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<f32> {
        let depth = self.watermarking_depth();
        if g_values.len() != mask.len() * depth {
            return Err(Error::input(format!(
                "the detector's model judges {depth} g-values of each n-gram, but there are {} for {} n-grams; take the model that \
                 was trained for these `keys`",
                g_values.len(),
                mask.len()
            )));
        }
        let mut log_odds = Vec::new();
        memory::reserve(&mut log_odds, g_values.len(), "scores of g-values")?;
        for (values, &counts) in g_values.chunks_exact(depth).zip(mask) {
            if interrupted() {
                return Err(Error::cancelled());
            }
            for layer in 0..depth {
                let odds = ln(self.likelihood(values, layer).max(1e-30)) - ln(0.5);
                log_odds.push(odds * f32::from(u8::from(counts)));
            }
        }
        let prior = self.prior.clamp(1e-5, 1.0 - 1e-5);
        Ok(sigmoid(ln(prior) - ln(1.0 - prior) + sum(&log_odds)))
    }

    /// How probable the g-value of a layer is in a marked text, given those of the layers before.
    fn likelihood(&self, values: &[bool], layer: usize) -> f32 {
        let weights = &self.delta[layer * self.beta.len()..][..layer];
        let before = weights.iter().zip(values).filter(|(_, value)| **value);
        let logit = before.fold(0.0, |sum, (weight, _)| sum + weight) + self.beta[layer];
        // The probability that the two candidates of a match were different tokens.
        let two = sigmoid(logit);
        let value = f32::from(u8::from(values[layer]));
        0.5 * ((value + 0.5) * two + (1.0 - two))
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

#[cfg(test)]
mod tests {
    use super::*;

    // m = BayesianDetectorModel(BayesianDetectorConfig(watermarking_depth=3)), its parameters set to
    // beta = [-1.0, 0.5, 2.0], delta = arange(9) / 4 - 1, prior = 0.3
    // g = (tensor(GROUPS) == 1).long().reshape(1, 5, 3); m(g, mask)[0]
    #[test]
    fn posteriors_are_those_of_transformers() {
        let delta = (0..9_u8).map(|index| f32::from(index) / 4.0 - 1.0).collect();
        let model = BayesianDetectorModel::new(vec![-1.0, 0.5, 2.0], delta, 0.3).unwrap();
        assert_eq!(model.watermarking_depth(), 3);
        let g_values: Vec<bool> = (0..15).map(|index| GROUPS[index] == 1).collect();
        for (mask, expected) in CASES {
            let found = model.posterior(&g_values, &mask.map(|counts| counts == 1)).unwrap();
            assert!((found - expected).abs() <= 2.0 * f32::EPSILON * expected, "{found} {expected}");
        }
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        assert!(BayesianDetectorModel::new(Vec::new(), Vec::new(), 0.5).is_err());
        assert!(BayesianDetectorModel::new(vec![0.0; 3], vec![0.0; 8], 0.5).is_err());
        let model = BayesianDetectorModel::new(vec![0.0; 2], vec![0.0; 4], 0.5).unwrap();
        let error = model.posterior(&[true; 6], &[true; 2]).unwrap_err().to_string();
        assert!(error.contains("judges 2 g-values of each n-gram, but there are 6 for 2"), "{error}");
        assert_eq!(model.posterior(&[], &[]).unwrap(), 0.5);
    }

    const GROUPS: [u8; 15] = [0, 2, 1, 0, 0, 2, 1, 0, 0, 2, 1, 0, 0, 2, 1];
    #[allow(clippy::unreadable_literal, clippy::excessive_precision, reason = "as torch prints them")]
    const CASES: [([u8; 5], f32); 4] = [
        ([1, 1, 1, 1, 1], 0.027069710195064545),
        ([1, 0, 1, 1, 0], 0.08852626383304596),
        ([0, 0, 0, 0, 0], 0.30000001192092896),
        ([0, 0, 0, 0, 1], 0.26901230216026306),
    ];
}
