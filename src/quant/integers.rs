//! Weights as integers in groups, rounded while loading.

use std::marker::PhantomData;

use super::packed::pack_panels;
use super::{PackedWeights, RowOrder, WeightFormat};
use crate::error::Result;
use crate::kernels::{PanelFormat, Work, Workers};
use crate::tensor::{DType, StoredMatrix, WeightType};

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

impl<F: PanelFormat> WeightFormat for Integers<F> {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn pack(
        &self,
        workers: &Workers,
        parts: &[StoredMatrix<'_>],
        order: RowOrder,
    ) -> Result<Box<dyn PackedWeights>> {
        pack_panels::<F>(workers, parts, order, DType::F32)
    }

    fn work(&self, bytes: u64, operations: u64) -> Work {
        Work { bytes, int8_ops: operations, ..Work::default() }
    }
}
