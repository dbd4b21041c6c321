//! The files of a model: where they are, what config.json says, and the tensors of its safetensors files.
//!
//! Every file is untrusted: sizes, names, offsets and shapes are checked before they are used. Nothing is computed
//! here, and nothing is ever downloaded.

mod config;
mod fields;
mod hub_cache;
mod memory;
#[expect(
    unsafe_code,
    reason = "a memory map is as good as the promise that nobody shortens the file meanwhile"
)]
mod mmap;
mod rope;
mod safetensors;
mod scope;
mod shards;
mod source;

pub use config::ModelConfig;
pub use hub_cache::HubCache;
pub use memory::available_memory;
pub use mmap::Mapping;
pub use rope::{RopeKind, RopeParameters};
pub use safetensors::{MAX_HEADER_BYTES, MAX_TENSORS, TensorFile, TensorView};
pub use scope::WeightScope;
pub use shards::Weights;
pub use source::{FileBytes, MAX_TEXT_BYTES, ModelFiles};

pub use crate::json::read_object;
