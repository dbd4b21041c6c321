//! A tensor that is made while it is read: the model's own or another in its place, with the adapter's
//! products added.

use std::sync::Arc;

use super::super::safetensors::TensorView;
use super::super::store::Store;
use rsgen_core::error::{Error, Result};
use rsgen_core::memory;
use rsgen_kernels::tensor::{DType, ReadBytes, StoredBytes};
use rsgen_kernels::{Isa, LowRank, add_low_rank};

/// The elements that are converted at a time.
const CHUNK: usize = 1 << 16;

/// A tensor of the model with an adapter merged in.
///
/// As PEFT's `merge_and_unload` on a CPU: the factors are widened to float32, their product and its sum with
/// the widened weight are rounded to float32, and the sum is rounded to the type that the weights are stored
/// in.
pub(in super::super) struct AdaptedTensor {
    pub(super) store: Arc<Store>,
    /// The name of the tensor there.
    pub(super) stored_as: String,
    /// The element type that the result is rounded to, after each product.
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    pub(super) is_transposed: bool,
    pub(super) products: Vec<Product>,
    pub(super) isa: Isa,
}

/// The factors of an adapter for one matrix, as they are multiplied.
pub(super) struct Product {
    /// `[num_rows, rank]`, row-major.
    pub(super) left: Vec<f32>,
    /// `[rank, num_columns]`, row-major.
    pub(super) right: Vec<f32>,
    pub(super) rank: usize,
    pub(super) num_columns: usize,
    pub(super) scale: f32,
}

impl AdaptedTensor {
    /// The tensor under its name in the model.
    pub(in super::super) fn view<'a>(&'a self, name: &'a str) -> TensorView<'a> {
        let bytes = StoredBytes::Reader { reader: self, start: 0, len: self.num_bytes() };
        let is_transposed = self.is_transposed;
        TensorView { name, encoding: self.dtype.into(), shape: &self.shape, is_transposed, bytes }
    }

    pub(in super::super) fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }

    pub(in super::super) fn num_bytes(&self) -> usize {
        self.num_elements() * self.dtype.bytes()
    }

    fn read_elements(&self, stored: &TensorView<'_>, first: usize, out: &mut [u8]) -> Result<()> {
        let own = self.dtype.bytes();
        let len = out.len() / own;
        let mut values = Vec::new();
        memory::reserve(&mut values, len, "weights")?;
        values.resize(len, 0.0);
        stored.row().read_f32(first..first + len, &mut values)?;
        for product in &self.products {
            // The weights were rounded to their own type before.
            self.dtype.round_all(&mut values);
            add_low_rank(self.isa, product.low_rank(), first, &mut values);
        }
        for (value, out) in values.into_iter().zip(out.chunks_exact_mut(own)) {
            for (out, byte) in out.iter_mut().zip(self.dtype.to_le_bytes(value)) {
                *out = byte;
            }
        }
        Ok(())
    }
}

impl ReadBytes for AdaptedTensor {
    fn read(&self, start: usize, out: &mut [u8]) -> Result<()> {
        let gone = || Error::internal("an adapted tensor is stored");
        let stored = self.store.tensor(&self.stored_as)?.ok_or_else(gone)?;
        let size = self.dtype.bytes();
        for (chunk, out) in out.chunks_mut(CHUNK * size).enumerate() {
            self.read_elements(&stored, start / size + chunk * CHUNK, out)?;
        }
        Ok(())
    }
}

impl Product {
    fn low_rank(&self) -> LowRank<'_> {
        let Self { left, right, rank, num_columns, scale } = self;
        LowRank { left, right, rank: *rank, num_columns: *num_columns, scale: *scale }
    }
}
