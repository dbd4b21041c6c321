//! Floating-point weights in panels.

use std::marker::PhantomData;

use super::packed::pack_panels;
use super::{PackedWeights, RowOrder, WeightFormat};
use crate::error::Result;
use crate::kernels::{PanelFormat, Work, Workers};
use crate::tensor::{ComputeDtype, DType, StoredMatrix};

/// The format for weights of one type.
pub(super) struct Panels<F> {
    dtype: DType,
    compute: ComputeDtype,
    format: PhantomData<F>,
}

impl<F> Panels<F> {
    /// The format for weights of `dtype`, the element type of `F`, which computes in `compute`.
    pub(super) const fn keeping(dtype: DType, compute: ComputeDtype) -> Self {
        Self { dtype, compute, format: PhantomData }
    }
}

impl<F: PanelFormat> WeightFormat for Panels<F> {
    fn name(&self) -> &'static str {
        self.dtype.name()
    }

    fn pack(
        &self,
        workers: &Workers,
        parts: &[StoredMatrix<'_>],
        order: RowOrder,
    ) -> Result<Box<dyn PackedWeights>> {
        Ok(Box::new(pack_panels::<F>(workers, parts, order, self.dtype)?))
    }

    fn work(&self, bytes: u64, operations: u64) -> Work {
        match self.compute {
            ComputeDtype::F32 => Work { bytes, f32_flops: operations, ..Work::default() },
            ComputeDtype::Bf16 => Work { bytes, bf16_flops: operations, ..Work::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{Bf16Panels, F32Panels, Isa};

    #[test]
    fn a_format_takes_two_or_four_bytes_for_each_weight_of_whole_panels() {
        let workers = Workers::new(1, Isa::select().unwrap()).unwrap();
        let bytes = [0; 33 * 5 * 4];
        let stored = StoredMatrix {
            dtype: DType::F32,
            num_rows: 33,
            num_columns: 5,
            bytes: bytes[..].into(),
            cancelled: None,
        };
        let (narrow, wide) = (
            Panels::<Bf16Panels>::keeping(DType::Bf16, ComputeDtype::F32),
            Panels::<F32Panels>::keeping(DType::F32, ComputeDtype::F32),
        );
        assert_eq!((narrow.name(), wide.name()), ("bfloat16", "float32"));
        // 33 outputs take two panels of 32, and 5 inputs three steps of two.
        assert_eq!(narrow.pack(&workers, &[stored], RowOrder::Stacked).unwrap().bytes(), 2 * 32 * 6 * 2);
        assert_eq!(wide.pack(&workers, &[stored], RowOrder::Stacked).unwrap().bytes(), 2 * 32 * 6 * 4);
    }
}
