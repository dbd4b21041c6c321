//! The layers of the decoder. Each loads itself from a scope of the checkpoint.

mod attention;
mod decoder_layer;
mod embedding;
mod linear;
mod mlp;
mod parts;
mod rms_norm;
mod rotary;

pub(super) use attention::Attention;
pub(super) use decoder_layer::DecoderLayer;
pub(super) use embedding::Embedding;
pub(super) use linear::Linear;
pub(super) use mlp::Mlp;
pub(super) use parts::{LayerParts, Projections};
pub(super) use rms_norm::RmsNorm;
pub(super) use rotary::RotaryEmbedding;
