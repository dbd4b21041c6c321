//! The layers of the decoder. Each loads itself from a scope of the checkpoint.

mod attention;
mod cross_attention;
mod decoder_layer;
mod embedding;
mod experts;
mod heads;
mod linear;
mod low_rank;
mod mlp;
mod norm;
mod positions;
mod rotary;
mod sight;

pub(super) use attention::Attention;
pub(super) use cross_attention::{CrossAttention, SourceKv};
pub(super) use decoder_layer::DecoderLayer;
pub(super) use embedding::Embedding;
pub(super) use experts::{ExpertRows, Experts};
pub(super) use linear::Linear;
pub use low_rank::{LoadedAdapter, WeightedAdapters};
pub(super) use low_rank::{LowRankMemory, LowRankPass, Site, Unused};
pub(super) use mlp::{Mlp, MlpMemory};
pub(super) use norm::{Norm, normed};
pub(super) use positions::Positions;
pub(super) use rotary::RotaryTables;
pub(super) use sight::{LayerPass, Sight, Slots};
