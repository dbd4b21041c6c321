//! The array types of all layers above the kernels: element types and stored matrices.

mod dtype;
mod stored;

pub use dtype::{ComputeDtype, DType};
pub use stored::{StoredBytes, StoredMatrix, not_finite};
