//! What all layers above the kernels say about arrays: element types and plain descriptions of stored matrices.

mod dtype;
mod stored;

pub use dtype::{ComputeDtype, DType};
pub use stored::{StoredBytes, StoredMatrix};
