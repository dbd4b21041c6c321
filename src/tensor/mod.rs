//! What all layers above the kernels say about arrays: element types and plain descriptions of stored matrices.

mod dtype;

pub use dtype::{ComputeDtype, DType, StoredMatrix};
