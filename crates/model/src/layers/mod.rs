//! The layers of the decoder. Each loads itself from a scope of the checkpoint.

mod attention;
mod decoder_layer;
mod embedding;
mod experts;
mod linear;
mod mlp;
mod norm;
mod rotary;

pub(super) use attention::Attention;
pub(super) use decoder_layer::DecoderLayer;
pub(super) use embedding::Embedding;
pub(super) use experts::Experts;
pub(super) use linear::Linear;
pub(super) use mlp::{Mlp, MlpMemory};
pub(super) use norm::{Norm, normed};
pub(super) use rotary::RotaryTables;
