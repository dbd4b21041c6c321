//! The variants of a decoder layer.

/// How the layers of families differ. Sizes and windows come from `config.json`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LayerParts {
    /// How projections that share their input are stored.
    pub(crate) projections: Projections,
    /// Whether queries, keys and values have biases.
    pub(crate) qkv_bias: bool,
    /// Whether the output projection of attention has biases.
    pub(crate) output_bias: bool,
    /// Whether each head of queries and keys is normalized before RoPE.
    pub(crate) head_norms: bool,
    /// Whether the projections of the MLP have biases.
    pub(crate) mlp_bias: bool,
}

/// How the projections that share their input are stored.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Projections {
    /// `q_proj`, `k_proj` and `v_proj`; `gate_proj` and `up_proj`.
    Separate,
    /// `qkv_proj` and `gate_up_proj`, the same rows stacked.
    Fused,
}
