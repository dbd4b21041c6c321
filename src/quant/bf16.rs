//! Weights kept in `bfloat16`, computed with in `float32`.

use super::packed::{pack_panels, panel_bytes};
use super::{PackedWeights, WeightFormat};
use crate::error::Result;
use crate::kernels::{Bf16Panels, Workers};
use crate::tensor::StoredMatrix;

/// The format.
pub(super) struct Bf16;

impl WeightFormat for Bf16 {
    fn name(&self) -> &'static str {
        "bfloat16"
    }

    fn packed_bytes(&self, num_outputs: usize, num_inputs: usize) -> Option<usize> {
        panel_bytes::<Bf16Panels>(num_outputs, num_inputs)
    }

    fn pack(&self, workers: &Workers, parts: &[StoredMatrix<'_>]) -> Result<Box<dyn PackedWeights>> {
        pack_panels::<Bf16Panels>(workers, parts)
    }
}
