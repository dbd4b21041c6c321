//! The variants of a decoder layer.

/// How the layers of families differ. Sizes and windows come from `config.json`.
#[derive(Debug, Clone, Copy)]
pub(in crate::model) struct LayerParts {
    /// How projections that share their input are stored.
    pub(in crate::model) projections: Projections,
    /// Whether queries, keys and values have biases.
    pub(in crate::model) qkv_bias: bool,
    /// Whether the output projection of attention has biases.
    pub(in crate::model) output_bias: bool,
    /// Whether each head of queries and keys is normalized before RoPE.
    pub(in crate::model) head_norms: bool,
    /// Whether the projections of the MLP have biases.
    pub(in crate::model) mlp_bias: bool,
}

/// How the projections that share their input are stored.
#[derive(Debug, Clone, Copy)]
pub(in crate::model) enum Projections {
    /// `q_proj`, `k_proj` and `v_proj`; `gate_proj` and `up_proj`.
    Separate,
    /// `qkv_proj` and `gate_up_proj`, the same rows stacked.
    Fused,
}
