//! The files of a model: their location, config.json, and the tensors of its weight files or of the
//! caller, with those of an adapter merged in.
//!
//! All files are untrusted: sizes, names, offsets and shapes are checked before they are used. Nothing is
//! downloaded.

mod adapter;
mod config;
mod convert;
mod family;
mod fields;
mod foreign;
mod gguf;
mod groups;
mod hub_cache;
mod in_memory;
mod memory;
mod packed;
mod quantized;
mod rope;
mod safetensors;
mod scope;
mod shards;
mod source;
mod store;
mod tensor_names;
mod torch;
mod window;
mod wrapper;

pub use adapter::{Adapter, AdapterConfig, Factors};
pub use config::ModelConfig;
pub use family::{FamilyConfig, Switch};
pub use gguf::{FitsTokenizer, GgufModel, GgufPlan};
pub use groups::TensorGroup;
pub use hub_cache::{HubCache, HubCacheReason};
pub use in_memory::{Tensor, TensorInfo, TensorSource};
pub use memory::{MemoryLimit, available_memory, memory_limit};
pub use rope::{RopeKind, RopeParameters, RopeRule};
pub use safetensors::{HeaderLimits, MAX_HEADER_BYTES, MAX_TENSORS, TensorFile, TensorView};
pub use scope::WeightScope;
pub use shards::Weights;
pub use source::{FileBytes, MAX_TEXT_BYTES, ModelFiles, TOKENIZER_FILES};
pub use tensor_names::TensorNames;
pub use torch::TorchFile;
pub(crate) use window::has_rope;
pub use window::{LayerType, SlidingWindow, WindowRule};

pub use rsgen_core::json::read_object;
