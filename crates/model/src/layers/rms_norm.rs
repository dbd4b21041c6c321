//! Root-mean-square normalization with a learned weight.

use crate::loader::Loader;
use rsgen_core::error::Result;
use rsgen_kernels::{Inputs, Isa, Norm, rms_norm, rms_norm_in_place};

/// `x / sqrt(mean(x^2) + eps) * weight`
#[derive(Debug)]
pub(crate) struct RmsNorm {
    /// `[width]`
    weight: Vec<f32>,
    eps: f32,
}

impl RmsNorm {
    /// Loads the norm `name`.
    pub(crate) fn load(loader: &Loader<'_>, name: &str, width: usize, eps: f32) -> Result<Self> {
        Ok(Self { weight: loader.child(name).vector("weight", width)?, eps })
    }

    /// The rows of `x`, `[num_rows, width]`, as inputs of a matrix that normalizes them.
    pub(crate) fn of<'a>(&'a self, x: &'a [f32]) -> Inputs<'a> {
        Inputs { values: x, norm: Some(self.norm()) }
    }

    /// Normalizes each row of `x`, `[num_rows, width]`, into `out`.
    pub(crate) fn forward(&self, isa: Isa, x: &[f32], out: &mut [f32]) {
        rms_norm(isa, x, self.norm(), out);
    }

    /// Normalizes each row of `x`, `[num_rows, width]`.
    pub(crate) fn forward_in_place(&self, isa: Isa, x: &mut [f32]) {
        rms_norm_in_place(isa, x, self.norm());
    }

    fn norm(&self) -> Norm<'_> {
        Norm { weight: &self.weight, eps: self.eps }
    }
}
