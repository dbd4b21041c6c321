//! Weights kept in `float16`, computed with in `float32`.

use super::packed::{pack_panels, panel_bytes};
use super::{PackedWeights, WeightFormat};
use crate::error::Result;
use crate::kernels::{F16Panels, Workers};
use crate::tensor::StoredMatrix;

/// The format.
pub(super) struct F16;

impl WeightFormat for F16 {
    fn name(&self) -> &'static str {
        "float16"
    }

    fn packed_bytes(&self, num_outputs: usize, num_inputs: usize) -> Option<usize> {
        panel_bytes::<F16Panels>(num_outputs, num_inputs)
    }

    fn pack(&self, workers: &Workers, parts: &[StoredMatrix<'_>]) -> Result<Box<dyn PackedWeights>> {
        pack_panels::<F16Panels>(workers, parts)
    }
}
