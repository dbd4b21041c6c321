//! Root-mean-square normalization with a learned weight.

use crate::error::Result;
use crate::kernels::{Isa, Workers, rms_norm};
use crate::model::loader::Loader;

/// The rows that one thread normalizes in one go: fewer are not worth another's coming.
const ROWS_OF_A_CHUNK: usize = 16;

/// `x / sqrt(mean(x^2) + eps) * weight`
#[derive(Debug)]
pub(in crate::model) struct RmsNorm {
    /// `[width]`
    weight: Vec<f32>,
    eps: f32,
}

impl RmsNorm {
    /// Loads the norm of that name.
    pub(in crate::model) fn load(loader: &Loader<'_>, name: &str, width: usize, eps: f32) -> Result<Self> {
        Ok(Self { weight: loader.child(name).vector("weight", width)?, eps })
    }

    /// [`RmsNorm::forward`] on all threads.
    pub(in crate::model) fn forward_rows(&self, workers: &Workers, x: &[f32], out: &mut [f32]) {
        let len = ROWS_OF_A_CHUNK * self.weight.len();
        if x.len() <= len {
            self.forward(workers.isa(), x, out);
        } else {
            workers.for_each_chunk(out, len, |chunk, out| {
                self.forward(workers.isa(), &x[chunk * len..][..out.len()], out);
            });
        }
    }

    /// Normalizes each row of `x`, `[num_rows, width]`, into `out`.
    pub(in crate::model) fn forward(&self, isa: Isa, x: &[f32], out: &mut [f32]) {
        rms_norm(isa, x, &self.weight, self.eps, out);
    }
}
