//! What all layers above the kernels say about arrays: element types, and matrices where they are stored.

mod dtype;
mod stored;

pub use dtype::{ComputeDtype, DType};
pub use stored::{StoredBytes, StoredMatrix, not_finite};
