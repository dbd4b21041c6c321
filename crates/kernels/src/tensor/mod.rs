//! The array types of all layers above the kernels: element types and stored matrices.

mod dtype;
mod stored;
mod weight_type;

pub use dtype::{ComputeDtype, DType};
pub use stored::{ReadBytes, StoredBytes, StoredMatrix, not_finite};
pub use weight_type::WeightType;
