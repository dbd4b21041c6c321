//! Root-mean-square normalization with a learned weight.

use crate::error::{Error, Result};
use crate::kernels::{Isa, rms_norm};
use crate::weights::WeightScope;

/// `x / sqrt(mean(x^2) + eps) * weight`
#[derive(Debug)]
pub(in crate::model) struct RmsNorm {
    /// `[width]`
    weight: Vec<f32>,
    eps: f32,
}

impl RmsNorm {
    /// Loads the norm of that name.
    pub(in crate::model) fn load(
        scope: &WeightScope<'_>,
        name: &str,
        width: usize,
        eps: f32,
    ) -> Result<Self> {
        let scope = scope.child(name);
        let weight = scope.vector("weight", width)?;
        if weight.iter().any(|value| !value.is_finite()) {
            return Err(Error::load("the weights must be finite, but there is a NaN or an infinity")
                .context(scope.path()));
        }
        Ok(Self { weight, eps })
    }

    /// Normalizes each row of `x`, `[num_rows, width]`, into `out`.
    pub(in crate::model) fn forward(&self, isa: Isa, x: &[f32], out: &mut [f32]) {
        rms_norm(isa, x, &self.weight, self.eps, out);
    }
}
