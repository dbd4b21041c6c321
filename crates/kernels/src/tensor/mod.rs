//! The array types of all layers above the kernels: element types and stored matrices.

mod dtype;
mod encoding;
mod stored;
mod weight_type;

pub use dtype::{ComputeDtype, DType};
pub use encoding::{BlockType, Encoding, IndexedType, e4m3, e8m0};
pub use stored::{ReadBytes, StoredBytes, StoredMatrix, not_finite};
pub use weight_type::WeightType;
