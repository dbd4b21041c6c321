//! What happens to the rows of a multiplication on their way: a norm, or an activation.

use super::load_padded;
use crate::activation::Activation;
use crate::norm::{Moments, Norm};
use crate::simd::{LANES, Simd};

/// What packing does to each row before it is multiplied.
#[derive(Debug, Clone, Copy)]
pub enum Prologue<'a> {
    /// Nothing.
    None,
    /// It normalizes the row.
    Norm(Norm<'a>),
    /// It applies an activation.
    Activation(Activation),
}

impl Prologue<'_> {
    /// Those of a row, if it is normalized.
    #[inline(always)]
    pub(super) fn moments<S: Simd>(&self, s: S, row: &[f32]) -> Moments {
        if let Self::Norm(norm) = self { norm.moments(s, row) } else { Moments::default() }
    }

    /// The weights of the 16 values from an index on, if rows are normalized.
    #[inline(always)]
    pub(super) fn weight<S: Simd>(&self, s: S, begin: usize) -> S::F {
        if let Self::Norm(norm) = self { load_at(s, norm.weight, begin) } else { s.splat(1.0) }
    }

    /// The 16 values of a row from an index on, as they are multiplied.
    #[inline(always)]
    pub(super) fn apply<S: Simd>(
        &self,
        s: S,
        row: &[f32],
        weight: S::F,
        moments: Moments,
        begin: usize,
    ) -> S::F {
        let values = load_at(s, row, begin);
        match self {
            Self::None => values,
            Self::Norm(norm) => norm.apply(s, values, moments, weight, |bias| load_at(s, bias, begin)),
            Self::Activation(activation) => activation.apply(s, values),
        }
    }
}

/// The 16 values from an index on; zeros after the end.
#[inline(always)]
pub(super) fn load_at<S: Simd>(s: S, values: &[f32], begin: usize) -> S::F {
    load_padded(s, &values[begin.min(values.len())..values.len().min(begin + LANES)])
}
