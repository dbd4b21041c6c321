"""The model shapes with an encoder: their config.json and their tensors."""

from __future__ import annotations

from typing import Any

# The shapes of tensors by their names.
Tensors = dict[str, list[int]]


def bart(vocab_size: int, hidden: int, layers: int, **fields: Any) -> dict[str, Any]:
    """The fields of a model like BART, with as many layers in the encoder as in the decoder."""
    heads = hidden // 64
    return {
        "vocab_size": vocab_size,
        "d_model": hidden,
        "encoder_layers": layers,
        "decoder_layers": layers,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": 4 * hidden,
        "decoder_ffn_dim": 4 * hidden,
        "is_encoder_decoder": True,
        **fields,
    }


# opus-mt-en-de
OPUS_MT = bart(
    58101,
    512,
    6,
    activation_function="swish",
    decoder_start_token_id=58100,
    eos_token_id=0,
    max_position_embeddings=512,
    pad_token_id=58100,
    scale_embedding=True,
)
# What models have that come from fairseq.
FAIRSEQ = {
    "bos_token_id": 0,
    "decoder_start_token_id": 2,
    "eos_token_id": 2,
    "max_position_embeddings": 1024,
    "pad_token_id": 1,
}
# nllb-200-distilled-600M
NLLB = bart(
    256206,
    1024,
    12,
    activation_function="relu",
    scale_embedding=True,
    **FAIRSEQ,
)
# bart-large-cnn, without its rule that no three tokens come again
BART_LARGE = bart(
    50264,
    1024,
    12,
    activation_function="gelu",
    scale_embedding=False,
    # As published; CTranslate2's converter asks for them.
    normalize_before=False,
    normalize_embedding=True,
    **FAIRSEQ,
)
# flan-t5-base
FLAN_T5 = {
    "d_ff": 2048,
    "d_kv": 64,
    "d_model": 768,
    "decoder_start_token_id": 0,
    "eos_token_id": 1,
    "feed_forward_proj": "gated-gelu",
    "is_encoder_decoder": True,
    "num_decoder_layers": 12,
    "num_heads": 12,
    "num_layers": 12,
    "pad_token_id": 0,
    "relative_attention_max_distance": 128,
    "relative_attention_num_buckets": 32,
    "tie_word_embeddings": False,
    "vocab_size": 32128,
}


def bart_tensors(model_type: str, fields: dict[str, Any]) -> Tensors:
    """Those of a model like BART: only BART itself learns its positions and norms its embeddings."""
    hidden = fields["d_model"]
    tensors = {"model.shared.weight": [fields["vocab_size"], hidden]}
    if model_type != "m2m_100":
        tensors["final_logits_bias"] = [1, fields["vocab_size"]]

    def linear(name: str, inputs: int, outputs: int) -> None:
        tensors.update({f"{name}.weight": [outputs, inputs], f"{name}.bias": [outputs]})

    def norm(name: str) -> None:
        tensors.update({f"{name}.{part}": [hidden] for part in ("weight", "bias")})

    for side, attentions in (("encoder", ["self_attn"]), ("decoder", ["self_attn", "encoder_attn"])):
        if model_type == "bart":
            tensors[f"model.{side}.embed_positions.weight"] = [fields["max_position_embeddings"] + 2, hidden]
            norm(f"model.{side}.layernorm_embedding")
        if model_type == "m2m_100":
            norm(f"model.{side}.layer_norm")
        width = fields[f"{side}_ffn_dim"]
        for index in range(fields[f"{side}_layers"]):
            layer = f"model.{side}.layers.{index}"
            for attention in attentions:
                norm(f"{layer}.{attention}_layer_norm")
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    linear(f"{layer}.{attention}.{part}", hidden, hidden)
            linear(f"{layer}.fc1", hidden, width)
            linear(f"{layer}.fc2", width, hidden)
            norm(f"{layer}.final_layer_norm")
    return tensors


def t5_tensors(fields: dict[str, Any]) -> Tensors:
    """Those of a T5 with a gated feed-forward and a head of its own."""
    hidden, width = fields["d_model"], fields["d_ff"]
    inner, buckets = fields["num_heads"] * fields["d_kv"], fields["relative_attention_num_buckets"]
    vocab = [fields["vocab_size"], hidden]
    tensors = {"shared.weight": vocab, "lm_head.weight": vocab}
    for side, attentions in (
        ("encoder", ["SelfAttention"]),
        ("decoder", ["SelfAttention", "EncDecAttention"]),
    ):
        tensors[f"{side}.final_layer_norm.weight"] = [hidden]
        tensors[f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"] = [
            buckets,
            fields["num_heads"],
        ]
        for index in range(fields["num_layers" if side == "encoder" else "num_decoder_layers"]):
            block = f"{side}.block.{index}.layer"
            for number, attention in enumerate(attentions):
                tensors[f"{block}.{number}.layer_norm.weight"] = [hidden]
                tensors |= {f"{block}.{number}.{attention}.{part}.weight": [inner, hidden] for part in "qkv"}
                tensors[f"{block}.{number}.{attention}.o.weight"] = [hidden, inner]
            last = f"{block}.{len(attentions)}"
            tensors |= {
                f"{last}.layer_norm.weight": [hidden],
                f"{last}.DenseReluDense.wi_0.weight": [width, hidden],
                f"{last}.DenseReluDense.wi_1.weight": [width, hidden],
                f"{last}.DenseReluDense.wo.weight": [hidden, width],
            }
    return tensors
