//! Floating-point weights in panels.

use std::marker::PhantomData;

use super::packed::pack_panels;
use super::{PackedWeights, RowOrder, WeightFormat};
use crate::tensor::{DType, StoredMatrix};
use crate::{Bf16Products, EmulatedBf16Products, PanelFormat, Work, Workers};
use rsgen_core::Result;

/// The format for weights of one type, which computes in `float32`.
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
        Ok(Box::new(pack_panels::<F>(workers, parts, order, self.dtype.into())?))
    }

    fn work(&self, bytes: u64, operations: u64) -> Work {
        Work { bytes, f32_flops: operations, ..Work::default() }
    }
}

/// The format for weights in `bfloat16`, which computes in `bfloat16`: with the same bits on every
/// instruction set.
pub(super) struct Bf16Arithmetic;

impl WeightFormat for Bf16Arithmetic {
    fn name(&self) -> &'static str {
        DType::Bf16.name()
    }

    fn pack(
        &self,
        workers: &Workers,
        parts: &[StoredMatrix<'_>],
        order: RowOrder,
    ) -> Result<Box<dyn PackedWeights>> {
        Ok(if workers.isa().has_bf16_products() {
            Box::new(pack_panels::<Bf16Products>(workers, parts, order, DType::Bf16.into())?)
        } else {
            Box::new(pack_panels::<EmulatedBf16Products>(workers, parts, order, DType::Bf16.into())?)
        })
    }

    fn work(&self, bytes: u64, operations: u64) -> Work {
        Work { bytes, bf16_flops: operations, ..Work::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bf16Panels, F32Panels, Inputs, Isa, MatrixOutput, PackedRows, scalar};

    #[test]
    fn a_format_takes_two_or_four_bytes_for_each_weight_of_whole_panels() {
        let workers = Workers::new(1, Isa::select().unwrap()).unwrap();
        let bytes = [0; 33 * 5 * 4];
        let stored = StoredMatrix {
            encoding: DType::F32.into(),
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

    #[test]
    fn bfloat16_arithmetic_has_the_bits_of_its_twin_on_every_instruction_set() {
        let (m, n, k) = (7, 40, 64);
        let number = |i: usize| (i * 7919 % 1000) as f32 / 333.0 - 1.5;
        let x: Vec<f32> = (0..m * k).map(|i| number(i + 5)).collect();
        let weight: Vec<f32> = (0..n * k).map(|i| half::bf16::from_f32(number(i)).to_f32()).collect();
        let mut expected = vec![0.0; m * n];
        scalar::matmul_bf16(&x, &weight, k, &mut expected);
        let bytes: Vec<u8> = weight.iter().flat_map(|weight| weight.to_le_bytes()).collect();
        for isa in Isa::available() {
            let workers = Workers::new(2, isa).unwrap();
            let stored = StoredMatrix {
                encoding: DType::F32.into(),
                num_rows: n,
                num_columns: k,
                bytes: bytes[..].into(),
                cancelled: None,
            };
            let matrix = Bf16Arithmetic.pack(&workers, &[stored], RowOrder::Stacked).unwrap();
            let (mut rows, mut out) = (PackedRows::default(), vec![0.0; m * n]);
            matrix.pack_rows(&workers, Inputs::from(&x[..]), &mut rows);
            matrix.matmul(&workers, &rows, MatrixOutput::default(), &mut out);
            assert!(out.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()), "{isa:?}");
        }
    }
}
