//! The names of an adapter's tensors: which module of the model they belong to, and as what.

use rsgen_core::error::{Error, Result};
use rsgen_core::escape;

/// What PEFT puts before the names of a causal language model.
const PREFIX: &str = "base_model.model.";

/// The role of a tensor in its module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The factor next to the input, `[rank, in]`.
    A,
    /// The factor next to the output, `[out, rank]`.
    B,
    /// The factor of an embedding next to its rows, `[rank, num_rows]`.
    EmbeddingA,
    /// The factor of an embedding next to its columns, `[num_columns, rank]`.
    EmbeddingB,
    /// The weights below an adapter's factors, which were saved with them.
    Base,
    /// A tensor of the model, in place of its own.
    Whole,
}

/// The module, such as `model.layers.0.self_attn.q_proj`, or for [`Part::Whole`] the tensor.
///
/// # Errors
/// `Load` when the tensor is of no kind that is supported.
pub(super) fn parse(name: &str) -> Result<(&str, Part)> {
    let unknown = |rule: &str| Error::load(format!("the name {} must {rule}", escape::name(name)));
    let rest = name.strip_prefix(PREFIX).ok_or_else(|| {
        unknown(&format!("begin with {PREFIX}; load the adapter with PEFT and save it again"))
    })?;
    for (ending, part) in [
        (".lora_A.weight", Part::A),
        (".lora_B.weight", Part::B),
        (".lora_embedding_A", Part::EmbeddingA),
        (".lora_embedding_B", Part::EmbeddingB),
        (".base_layer.weight", Part::Base),
    ] {
        if let Some(module) = rest.strip_suffix(ending) {
            return Ok((module, part));
        }
    }
    if rest.contains(".lora_") || rest.contains(".base_layer.") || rest.contains("token_adapter.") {
        return Err(unknown(
            "be that of a factor, lora_A or lora_B, or of a whole tensor: other parts of adapters are not supported; \
             merge it with PEFT",
        ));
    }
    Ok((rest, Part::Whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_give_modules_and_parts() {
        for (name, module, part) in [
            ("model.layers.0.mlp.up_proj.lora_A.weight", "model.layers.0.mlp.up_proj", Part::A),
            ("lm_head.lora_B.weight", "lm_head", Part::B),
            ("model.embed_tokens.lora_embedding_A", "model.embed_tokens", Part::EmbeddingA),
            ("model.embed_tokens.lora_embedding_B", "model.embed_tokens", Part::EmbeddingB),
            ("model.embed_tokens.base_layer.weight", "model.embed_tokens", Part::Base),
            ("model.norm.weight", "model.norm.weight", Part::Whole),
        ] {
            assert_eq!(parse(&format!("base_model.model.{name}")).unwrap(), (module, part));
        }
        for name in [
            "model.norm.weight",
            "base_model.model.a.lora_magnitude_vector",
            "base_model.model.a.lora_B.bias",
        ] {
            assert!(parse(name).unwrap_err().to_string().contains(name));
        }
    }
}
