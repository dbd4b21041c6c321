//! Normalization with learned weights.

use crate::loader::Loader;
use crate::spec::{NormSpec, NormWeight};
use rsgen_core::error::Result;
use rsgen_kernels::{Inputs, Isa, NormKind, Prologue, Workers, norm, norm_in_place};

/// A norm of rows, or of parts of them.
#[derive(Debug)]
pub(crate) struct Norm {
    kind: NormKind,
    /// `[width]`
    weight: Vec<f32>,
    bias: Option<Vec<f32>>,
    eps: f32,
}

impl Norm {
    /// Loads the norm `name`.
    pub(crate) fn load(loader: &Loader<'_>, name: &str, width: usize, spec: NormSpec) -> Result<Self> {
        Self::load_tensor(loader, name, &[width], spec)
    }

    /// Loads the norm `name`, whose tensors have this shape.
    pub(crate) fn load_tensor(
        loader: &Loader<'_>,
        name: &str,
        shape: &[usize],
        spec: NormSpec,
    ) -> Result<Self> {
        let NormSpec { kind, eps, weight, bias } = spec;
        let loader = loader.child(name);
        let weight = match weight {
            NormWeight::Stored => loader.floats("weight", shape)?,
            NormWeight::OnePlus => {
                loader.floats("weight", shape)?.iter().map(|weight| 1.0 + weight).collect()
            }
            NormWeight::Ones => vec![1.0; shape.iter().product()],
        };
        Ok(Self { kind, weight, bias: bias.then(|| loader.floats("bias", shape)).transpose()?, eps })
    }

    /// Several norms side by side.
    pub(crate) fn concat(norms: Vec<Self>) -> Option<Self> {
        norms.into_iter().reduce(|mut all, next| {
            all.weight.extend(next.weight);
            all.bias = all.bias.zip(next.bias).map(|(all, next)| [all, next].concat());
            all
        })
    }

    /// The rows of `x`, `[num_rows, width]`, as inputs of a matrix that normalizes them.
    pub(crate) fn of<'a>(&'a self, x: &'a [f32]) -> Inputs<'a> {
        Inputs { values: x, prologue: Prologue::Norm(self.kernel()) }
    }

    /// Normalizes each row of `x`, `[num_rows, width]`, into `out`.
    pub(crate) fn forward(&self, isa: Isa, x: &[f32], out: &mut [f32]) {
        norm(isa, x, self.kernel(), out);
    }

    /// Normalizes all rows of `x`, `[num_rows, width]`, on all threads.
    pub(crate) fn forward_rows(&self, workers: &Workers, x: &mut [f32]) {
        let normalize = |_, row: &mut [f32]| norm_in_place(workers.isa(), row, self.kernel());
        workers.for_each_chunk(x, self.weight.len(), normalize);
    }

    /// Normalizes each `width` elements of `x`, with the weights of their place.
    pub(crate) fn forward_heads(&self, isa: Isa, x: &mut [f32], width: usize) {
        if width == self.weight.len() {
            return norm_in_place(isa, x, self.kernel());
        }
        let num_norms = self.weight.len() / width;
        for (index, head) in x.chunks_exact_mut(width).enumerate() {
            let place = index % num_norms * width..(index % num_norms + 1) * width;
            let bias = self.bias.as_ref().map(|bias| &bias[place.clone()]);
            norm_in_place(
                isa,
                head,
                rsgen_kernels::Norm { weight: &self.weight[place], bias, ..self.kernel() },
            );
        }
    }

    /// As the kernels take it.
    pub(crate) fn kernel(&self) -> rsgen_kernels::Norm<'_> {
        let Self { kind, weight, bias, eps } = self;
        rsgen_kernels::Norm { kind: *kind, weight, bias: bias.as_deref(), eps: *eps }
    }
}

/// The rows of `x`, normalized if there is a norm.
pub(crate) fn normed<'a>(norm: Option<&'a Norm>, x: &'a [f32]) -> Inputs<'a> {
    norm.map_or_else(|| x.into(), |norm| norm.of(x))
}
