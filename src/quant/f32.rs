//! Weights kept in `float32`, computed with in `float32`.

use super::packed::{pack_panels, panel_bytes};
use super::{PackedWeights, WeightFormat};
use crate::error::Result;
use crate::kernels::{F32Panels, Workers};
use crate::tensor::StoredMatrix;

/// The format.
pub(super) struct F32;

impl WeightFormat for F32 {
    fn name(&self) -> &'static str {
        "float32"
    }

    fn packed_bytes(&self, num_outputs: usize, num_inputs: usize) -> Option<usize> {
        panel_bytes::<F32Panels>(num_outputs, num_inputs)
    }

    fn pack(&self, workers: &Workers, parts: &[StoredMatrix<'_>]) -> Result<Box<dyn PackedWeights>> {
        pack_panels::<F32Panels>(workers, parts)
    }
}
