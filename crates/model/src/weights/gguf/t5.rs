//! T5 and its kin: an encoder and a decoder in one file, under the names of both sides.

use serde_json::{Map, Value, json};

use super::architecture::{Architecture, Rows};
use super::architectures::LLAMA;
use super::config::Description;
use rsgen_core::error::Result;

/// The names that both kinds have.
const NAMES: [(&str, &str); 24] = [
    ("token_embd", "shared"),
    ("enc.output_norm", "encoder.final_layer_norm"),
    ("dec.output_norm", "decoder.final_layer_norm"),
    ("enc.attn_norm", "layer.0.layer_norm"),
    ("enc.attn_q", "layer.0.SelfAttention.q"),
    ("enc.attn_k", "layer.0.SelfAttention.k"),
    ("enc.attn_v", "layer.0.SelfAttention.v"),
    ("enc.attn_o", "layer.0.SelfAttention.o"),
    ("enc.attn_rel_b", "layer.0.SelfAttention.relative_attention_bias"),
    ("enc.ffn_norm", "layer.1.layer_norm"),
    ("enc.ffn_down", "layer.1.DenseReluDense.wo"),
    ("dec.attn_norm", "layer.0.layer_norm"),
    ("dec.attn_q", "layer.0.SelfAttention.q"),
    ("dec.attn_k", "layer.0.SelfAttention.k"),
    ("dec.attn_v", "layer.0.SelfAttention.v"),
    ("dec.attn_o", "layer.0.SelfAttention.o"),
    ("dec.attn_rel_b", "layer.0.SelfAttention.relative_attention_bias"),
    ("dec.cross_attn_norm", "layer.1.layer_norm"),
    ("dec.cross_attn_q", "layer.1.EncDecAttention.q"),
    ("dec.cross_attn_k", "layer.1.EncDecAttention.k"),
    ("dec.cross_attn_v", "layer.1.EncDecAttention.v"),
    ("dec.cross_attn_o", "layer.1.EncDecAttention.o"),
    ("dec.ffn_norm", "layer.2.layer_norm"),
    ("dec.ffn_down", "layer.2.DenseReluDense.wo"),
];

/// These names, and those of feed-forward layers.
const fn with<const N: usize>(
    feed_forward: &[(&'static str, &'static str)],
) -> [(&'static str, &'static str); N] {
    let mut names = [("", ""); N];
    let (known, others) = names.split_at_mut(NAMES.len());
    known.copy_from_slice(&NAMES);
    others.copy_from_slice(feed_forward);
    names
}

/// T5 and mT5. Whether there are gates changes the names, and tables of distances in each layer are umT5's.
pub(super) const T5: Architecture = Architecture {
    name: "t5",
    class: "T5ForConditionalGeneration",
    model_type: "t5",
    sides: &[("enc", "encoder.block"), ("dec", "decoder.block")],
    names: &with::<{ NAMES.len() + 2 }>(&[
        ("enc.ffn_up", "layer.1.DenseReluDense.wi"),
        ("dec.ffn_up", "layer.2.DenseReluDense.wi"),
    ]),
    rows: Rows::Same,
    config,
    ..LLAMA
};

pub(super) const T5_GATED: Architecture = Architecture {
    names: &with::<{ NAMES.len() + 4 }>(&[
        ("enc.ffn_gate", "layer.1.DenseReluDense.wi_0"),
        ("enc.ffn_up", "layer.1.DenseReluDense.wi_1"),
        ("dec.ffn_gate", "layer.2.DenseReluDense.wi_0"),
        ("dec.ffn_up", "layer.2.DenseReluDense.wi_1"),
    ]),
    ..T5
};

/// Those with a table of distances in each layer.
pub(super) const UMT5: Architecture =
    Architecture { class: "UMT5ForConditionalGeneration", model_type: "umt5", ..T5 };

pub(super) const UMT5_GATED: Architecture =
    Architecture { class: UMT5.class, model_type: UMT5.model_type, ..T5_GATED };

/// The entry of a file with this architecture.
pub(super) fn find(model: &Description<'_>) -> &'static Architecture {
    match (model.has("enc.blk.1.attn_rel_b.weight"), has_gates(model)) {
        (false, false) => &T5,
        (false, true) => &T5_GATED,
        (true, false) => &UMT5,
        (true, true) => &UMT5_GATED,
    }
}

fn has_gates(model: &Description<'_>) -> bool {
    model.has("dec.blk.0.ffn_gate.weight")
}

/// Names the fields as T5's class does. llama.cpp implies the activation by the gates. Published models
/// without them are the first ones, which are tied, though some of their files have a head.
fn config(model: &Description<'_>, config: &mut Map<String, Value>) -> Result<()> {
    let mut made = Map::new();
    for (name, common) in [
        ("architectures", "architectures"),
        ("model_type", "model_type"),
        ("vocab_size", "vocab_size"),
        ("d_model", "hidden_size"),
        ("d_kv", "head_dim"),
        ("d_ff", "intermediate_size"),
        ("num_heads", "num_attention_heads"),
        ("num_layers", "num_hidden_layers"),
        ("layer_norm_epsilon", "rms_norm_eps"),
        ("tie_word_embeddings", "tie_word_embeddings"),
        ("eos_token_id", "eos_token_id"),
        ("pad_token_id", "pad_token_id"),
    ] {
        made.extend(config.remove(common).map(|value| (name.to_owned(), value)));
    }
    let mut set = |name: &str, value: Value| made.insert(name.to_owned(), value);
    set("num_decoder_layers", json!(model.num_decoder_layers()?));
    let buckets = model.count("attention.relative_buckets_count")?;
    let missing = || model.wrong("attention.relative_buckets_count", "given");
    set("relative_attention_num_buckets", json!(buckets.ok_or_else(missing)?));
    set("is_encoder_decoder", json!(true));
    set("decoder_start_token_id", json!(model.count("decoder_start_token_id")?));
    if has_gates(model) {
        set("feed_forward_proj", json!("gated-gelu"));
    } else {
        set("feed_forward_proj", json!("relu"));
        set("tie_word_embeddings", json!(true));
    }
    *config = made;
    Ok(())
}
