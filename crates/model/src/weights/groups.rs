//! What a model's weight files hold, by the parts of a model and the types of their tensors. Names decide what a
//! tensor belongs to: the sum is for people, and nothing is computed by it.

use std::collections::BTreeMap;

use super::shards::Weights;

/// The parts of a model, and what the names of their tensors hold, in lower case. The first that fits counts.
const PARTS: [(&str, &[&str]); 7] = [
    ("norm", &["norm", "ln_1", "ln_2", "ln_f", "ln_attn", "ln_mlp"]),
    ("head", &["lm_head", "embed_out", "logits_bias", "output.weight"]),
    ("router", &["router", ".gate.", "expert_gate"]),
    ("experts", &["expert", "shared_mlp", "block_sparse_moe"]),
    ("attention", &["attn", "attention"]),
    ("embedding", &["embed", "wte.", "wpe.", "shared.", "project_in", "project_out"]),
    ("mlp", &["mlp", "fc1", "fc2", "densereludense", "feed_forward", "ffn"]),
];
/// The part of all other tensors.
const OTHER: &str = "other";

/// The tensors of a type in a part of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorGroup {
    /// `embedding`, `attention`, `mlp`, `experts`, `router`, `norm`, `head` or `other`.
    pub group: &'static str,
    /// How its numbers are stored, such as `Q4_K` or `bfloat16`.
    pub dtype: String,
    /// The tensors, under the names of the model's class: each expert counts.
    pub tensors: usize,
    /// Their numbers.
    pub parameters: u64,
    /// Their bytes in the files.
    pub bytes: u64,
}

impl Weights {
    /// What the files hold, in the order of a model's parts.
    pub fn groups(&self) -> Vec<TensorGroup> {
        let mut groups = BTreeMap::new();
        for (name, dtype, parameters, bytes) in self.described() {
            let (place, group) = part_of(name);
            let empty = TensorGroup { group, dtype: dtype.clone(), tensors: 0, parameters: 0, bytes: 0 };
            let sum = groups.entry((place, dtype)).or_insert(empty);
            sum.tensors += 1;
            sum.parameters += parameters;
            sum.bytes += bytes;
        }
        groups.into_values().collect()
    }
}

/// The part that a tensor of this name belongs to, after its place in the order of a model.
fn part_of(name: &str) -> (usize, &'static str) {
    const ORDER: [&str; 8] = ["embedding", "attention", "mlp", "experts", "router", "norm", "head", OTHER];
    let name = name.to_ascii_lowercase();
    let found = PARTS.iter().find(|(_, marks)| marks.iter().any(|mark| name.contains(mark)));
    let part = found.map_or(OTHER, |(part, _)| part);
    (ORDER.iter().position(|known| *known == part).unwrap_or(ORDER.len()), part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_belong_to_the_part_that_their_names_say() {
        for (name, part) in [
            ("model.embed_tokens.weight", "embedding"),
            ("transformer.wte.weight", "embedding"),
            ("model.decoder.embed_positions.weight", "embedding"),
            ("shared.weight", "embedding"),
            ("model.layers.0.self_attn.q_proj.weight", "attention"),
            ("transformer.h.0.self_attention.query_key_value.weight", "attention"),
            ("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", "attention"),
            ("model.layers.0.self_attn.q_norm.weight", "norm"),
            ("transformer.h.0.ln_1.bias", "norm"),
            ("model.layers.0.mlp.gate_proj.weight", "mlp"),
            ("decoder.block.0.layer.2.DenseReluDense.wi_0.weight", "mlp"),
            ("model.layers.0.mlp.gate.weight", "router"),
            ("model.layers.0.block_sparse_moe.gate.weight", "router"),
            ("model.layers.0.mlp.shared_expert_gate.weight", "router"),
            ("model.layers.0.mlp.experts.7.gate_proj.weight", "experts"),
            ("model.layers.0.block_sparse_moe.input_linear.weight", "experts"),
            ("model.layers.0.mlp.experts.gate_up_proj", "experts"),
            ("lm_head.weight", "head"),
            ("model.mm_projector.weight", OTHER),
        ] {
            assert_eq!(part_of(name).1, part, "{name}");
        }
    }
}
