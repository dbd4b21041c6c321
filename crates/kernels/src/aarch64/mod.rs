//! The instruction sets of 64-bit ARM, one file each.

mod instructions;
pub(crate) mod neon;
