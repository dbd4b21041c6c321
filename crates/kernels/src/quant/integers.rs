//! Weights as integers in groups: rounded while loading, or read from a packed file.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};

use super::packed::pack_panels;
use super::{PackedWeights, RowOrder, WeightFormat};
use crate::tensor::{DType, StoredBytes, StoredMatrix, WeightType};
use crate::{FileFormat, PanelMatrix, Work, Workers};
use rsgen_core::{Error, Result};

/// The format for integers of one width.
pub(super) struct Integers<F> {
    kind: WeightType,
    format: PhantomData<F>,
}

impl<F> Integers<F> {
    /// The format for weights that `F` packs.
    pub(super) const fn of(kind: WeightType) -> Self {
        Self { kind, format: PhantomData }
    }
}

impl<F: FileFormat> WeightFormat for Integers<F> {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn pack(
        &self,
        workers: &Workers,
        parts: &[StoredMatrix<'_>],
        order: RowOrder,
    ) -> Result<Box<dyn PackedWeights>> {
        Ok(Box::new(pack_panels::<F>(workers, parts, order, DType::F32.into())?))
    }

    fn file_shape(&self, num_outputs: usize, num_inputs: usize) -> Option<[usize; 3]> {
        Some(PanelMatrix::<F>::file_shape(num_outputs, num_inputs))
    }

    fn read(
        &self,
        workers: &Workers,
        num_outputs: usize,
        num_inputs: usize,
        bytes: StoredBytes<'_>,
        cancelled: &AtomicBool,
    ) -> Result<Box<dyn PackedWeights>> {
        let matrix = PanelMatrix::<F>::read(workers, num_outputs, num_inputs, |range, out| {
            if cancelled.load(Ordering::Relaxed) {
                return Err(Error::cancelled());
            }
            bytes.part(range).read(out)
        })?;
        let matrix = matrix.ok_or_else(|| {
            Error::load(format!(
                "it holds no {} weights; the file is damaged, pack the model again",
                self.name()
            ))
        })?;
        Ok(Box::new(matrix))
    }

    fn work(&self, bytes: u64, operations: u64) -> Work {
        Work { bytes, int8_ops: operations, ..Work::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{I4Groups, I8Groups, Isa};

    #[test]
    fn integers_in_a_file_are_the_matrix_that_was_packed() {
        fn check<F: FileFormat>(kind: WeightType) {
            let workers = Workers::new(2, Isa::select().unwrap()).unwrap();
            let bytes: Vec<u8> = (0..40 * 70).flat_map(|i| ((i as f32 * 0.37).sin()).to_le_bytes()).collect();
            let stored = StoredMatrix {
                encoding: DType::F32.into(),
                num_rows: 40,
                num_columns: 70,
                bytes: bytes[..].into(),
                cancelled: None,
            };
            let format = Integers::<F>::of(kind);
            let packed = format.pack(&workers, &[stored], RowOrder::Stacked).unwrap();
            let mut file = Vec::new();
            packed.write(&mut file);
            assert_eq!(file.len(), format.file_shape(40, 70).unwrap().iter().product::<usize>());
            assert_eq!(file.len(), packed.bytes());
            let go_on = AtomicBool::new(false);
            let read = format.read(&workers, 40, 70, file[..].into(), &go_on).unwrap();
            let (mut row, mut other) = (vec![0.0; 70], vec![0.0; 70]);
            for output in 0..40 {
                packed.row(output, &mut row);
                read.row(output, &mut other);
                assert_eq!(row, other);
            }
            let cancelled = format.read(&workers, 40, 70, file[..].into(), &AtomicBool::new(true));
            assert!(cancelled.is_err_and(|error| error.kind() == rsgen_core::error::ErrorKind::Cancelled));
        }
        check::<I8Groups>(WeightType::Int8);
        check::<I4Groups>(WeightType::Int4);
    }
}
