//! Weights kept in the type they are stored in, in panels, and computed with in `float32`.

use std::marker::PhantomData;

use super::packed::pack_panels;
use super::{PackedWeights, RowOrder, WeightFormat};
use crate::error::Result;
use crate::kernels::{PanelFormat, Workers};
use crate::tensor::{DType, StoredMatrix};

/// The format for weights of one type.
pub(super) struct Panels<F> {
    dtype: DType,
    format: PhantomData<F>,
}

impl<F> Panels<F> {
    /// The format for weights of `dtype`, the element type of `F`.
    pub(super) const fn keeping(dtype: DType) -> Self {
        Self { dtype, format: PhantomData }
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
        pack_panels::<F>(workers, parts, order, self.dtype)
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
        let (narrow, wide) =
            (Panels::<Bf16Panels>::keeping(DType::Bf16), Panels::<F32Panels>::keeping(DType::F32));
        assert_eq!((narrow.name(), wide.name()), ("bfloat16", "float32"));
        // 33 outputs take two panels of 32, and 5 inputs three steps of two.
        assert_eq!(narrow.pack(&workers, &[stored], RowOrder::Stacked).unwrap().bytes(), 2 * 32 * 6 * 2);
        assert_eq!(wide.pack(&workers, &[stored], RowOrder::Stacked).unwrap().bytes(), 2 * 32 * 6 * 4);
    }
}
