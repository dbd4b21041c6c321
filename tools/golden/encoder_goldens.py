"""Goldens of tiny models with an encoder, whose weights are computed from their names as those of `family_goldens.py`.

`tests/suite/encoders.rs` encodes the sources and computes the logits of the decoder's tokens. Sources are padded on
the right, on the left, and within, where masks hide tokens that are no padding; one has a pad token that is not hidden.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from family_goldens import numbers, weight
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM

FOLDER = Path(__file__).parents[2] / "tests" / "golden" / "encoders"
VOCAB = 61


def bart(**fields: Any) -> dict[str, Any]:
    """Sizes of BART and of those like it, which differ on both sides."""
    return {
        "vocab_size": VOCAB,
        "d_model": 36,
        "encoder_layers": 3,
        "decoder_layers": 2,
        "encoder_ffn_dim": 40,
        "decoder_ffn_dim": 56,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 3,
        "max_position_embeddings": 300,
        **fields,
    }


def t5(**fields: Any) -> dict[str, Any]:
    """Sizes of T5; heads are together wider than the model."""
    return {
        "vocab_size": VOCAB,
        "d_model": 30,
        "d_kv": 9,
        "d_ff": 44,
        "num_layers": 3,
        "num_decoder_layers": 2,
        "num_heads": 4,
        "decoder_start_token_id": 0,
        **fields,
    }


def marian(**fields: Any) -> dict[str, Any]:
    """The ids of opus-mt."""
    ids = {"pad_token_id": VOCAB - 1, "decoder_start_token_id": VOCAB - 1}
    return bart(**{**ids, "activation_function": "swish", "scale_embedding": True, **fields})


BOUNDED = {"relative_attention_num_buckets": 12, "relative_attention_max_distance": 20}
HUB = {"tie_word_embeddings": False, "scale_decoder_outputs": None}
HEAD = {"lm_head.weight": [VOCAB, 30]}

# The type, the configuration, and what is changed in the saved file: fields, added tensors, dropped and renamed ones.
MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "marian": ("marian", marian(), {}),
    "marian_odd": (
        "marian",
        marian(d_model=21, encoder_attention_heads=3, decoder_attention_heads=7, activation_function="relu"),
        {"drop": "final_logits_bias"},
    ),
    "marian_vocabularies": (
        "marian",
        marian(share_encoder_decoder_embeddings=False, decoder_vocab_size=67),
        {},
    ),
    "marian_positions": (
        "marian",
        marian(activation_function="gelu", scale_embedding=False),
        {"add": {f"model.{side}.embed_positions.weight": [300, 36] for side in ("encoder", "decoder")}},
    ),
    "m2m_100": ("m2m_100", bart(), {}),
    "nllb_odd": (
        "m2m_100",
        bart(d_model=21, encoder_attention_heads=3, decoder_attention_heads=7, max_position_embeddings=40),
        {},
    ),
    "bart": ("bart", bart(), {}),
    "bart_encoder_names": (
        "bart",
        bart(scale_embedding=True, decoder_layers=4),
        {"rename": ("model.shared.", "model.encoder.embed_tokens.")},
    ),
    "bart_base": ("bart", bart(), {"rename": ("model.", ""), "drop": "final_logits_bias"}),
    "bart_own_matrices": (
        "bart",
        bart(tie_word_embeddings=False),
        {"drop": "embed_tokens"},
    ),
    "mbart": ("mbart", bart(activation_function="relu", scale_embedding=True), {}),
    "pegasus": ("pegasus", bart(activation_function="relu", scale_embedding=True), {}),
    "pegasus_sinusoids": ("pegasus", bart(), {"drop": "embed_positions"}),
    "t5": ("t5", t5(), {}),
    "t5_gelu": ("t5", t5(feed_forward_proj="gelu", num_decoder_layers=1, **BOUNDED), {}),
    "t5_flan": ("t5", t5(feed_forward_proj="gated-gelu"), {"fields": HUB, "add": HEAD}),
    "t5_flan_5": (
        "t5",
        t5(feed_forward_proj="gated-gelu", num_decoder_layers=4),
        {"fields": {"scale_decoder_outputs": False}, "add": HEAD},
    ),
    "t5_silu": ("t5", t5(feed_forward_proj="gated-silu", tie_word_embeddings=True, **BOUNDED), {}),
    "mt5": ("mt5", t5(**BOUNDED), {"fields": HUB, "add": HEAD}),
    "umt5": ("umt5", t5(**BOUNDED), {"fields": HUB, "add": HEAD}),
    "umt5_scaled": ("umt5", t5(), {}),
}


def sources(name: str, config: dict[str, Any]) -> list[dict[str, list[int]]]:
    """Padded rows of ids, their masks, and what the decoder reads."""
    pad, start, vocab = config["pad_token_id"], config["decoder_start_token_id"], config["vocab_size"]
    start = config["bos_token_id"] if start is None else start
    draw = iter(np.abs(numbers(f"{name} sources", 2000)))

    def ids(count: int, most: int) -> list[int]:
        drawn = (int(next(draw) * (most - 4)) + 3 for _ in range(count))
        return [id + (id == pad) for id in drawn]

    def source(row: list[int], mask: list[int], target: int) -> dict[str, list[int]]:
        most = config.get("decoder_vocab_size") or vocab
        return {"ids": row, "mask": mask, "decoder_ids": [start, *ids(target, most)]}

    within = [int(next(draw) > 0.2) for _ in range(67)]
    mixed = ids(67, vocab)
    mixed[30], within[30] = pad, 1
    return [
        source([*ids(9, vocab), *[pad] * 4], [1] * 9 + [0] * 4, 6),
        source([*[pad] * 5, *ids(33, vocab)], [0] * 5 + [1] * 33, 19),
        source(mixed, within, 2),
        source(ids(257, vocab), [1] * 257, 39),
    ]


def golden(name: str) -> dict[str, Any]:
    """What transformers computes with a model."""
    model_type, fields, changes = MODELS[name]
    parsed = transformers.CONFIG_MAPPING[model_type](**fields)
    model = AutoModelForSeq2SeqLM.from_config(parsed).float().eval()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        path, config_path = Path(folder) / "model.safetensors", Path(folder) / "config.json"
        config = json.loads(config_path.read_text()) | changes.get("fields", {})
        config = {key: value for key, value in config.items() if value is not None}
        before, after = changes.get("rename", ("", ""))
        shapes = {}
        for key, tensor in load_file(path).items():
            renamed = after + key.removeprefix(before) if before and key.startswith(before) else key
            if not changes.get("drop") or changes["drop"] not in key:
                shapes[renamed] = list(tensor.shape)
        shapes |= changes.get("add", {})
        tensors = {
            key: torch.from_numpy(weight(key, shape, norms_around_0=False).copy())
            for key, shape in shapes.items()
        }
        save_file(tensors, path, metadata={"format": "pt"})
        config_path.write_text(json.dumps(config))
        model = AutoModelForSeq2SeqLM.from_pretrained(folder, attn_implementation="eager").eval()
        if changes.get("drop") == "embed_tokens":
            # Transformers 5 leaves them random.
            for side in (model.model.encoder, model.model.decoder):
                side.embed_tokens.weight = model.model.shared.weight
    cases = sources(name, model.config.to_dict())
    rounded = lambda tensor: [round(float(x), 6) for x in tensor.flatten()]  # noqa: E731
    for case in cases:
        with torch.no_grad():
            out = model(
                input_ids=torch.tensor([case["ids"]]),
                attention_mask=torch.tensor([case["mask"]]),
                decoder_input_ids=torch.tensor([case["decoder_ids"]]),
                output_hidden_states=True,
                output_attentions=True,
            )
        logits = out.logits[0]
        last = len(logits) - 1
        case["positions"] = sorted({0, last // 2, last})
        case["logits"] = [rounded(logits[position]) for position in case["positions"]]
        assert logits.std() > 0.1, name
    # Of the third source, with hidden tokens: the states of the last row, and its weights in the last layer.
    out, seen = None, [place for place, shown in enumerate(cases[2]["mask"]) if shown]
    with torch.no_grad():
        case = cases[2]
        out = model(
            input_ids=torch.tensor([case["ids"]]),
            attention_mask=torch.tensor([case["mask"]]),
            decoder_input_ids=torch.tensor([case["decoder_ids"]]),
            output_hidden_states=True,
            output_attentions=True,
        )
    return {
        "made_with": {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]},
        "config": config,
        "norms_around_0": False,
        "tensors": shapes,
        "sources": cases,
        "states": {
            "encoder_hidden_states": [rounded(state[0, seen[-1]]) for state in out.encoder_hidden_states],
            "encoder_attentions": [
                rounded(layer[0, :, seen[-1]][:, seen]) for layer in out.encoder_attentions[-1:]
            ],
            "decoder_hidden_states": [rounded(state[0, -1]) for state in out.decoder_hidden_states],
            "decoder_attentions": [rounded(layer[0, :, -1]) for layer in out.decoder_attentions[-1:]],
            "cross_attentions": [rounded(layer[0, :, -1][:, seen]) for layer in out.cross_attentions[-1:]],
        },
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for model in sys.argv[1:] or MODELS:
        text = json.dumps(golden(model), separators=(",", ":"))
        (FOLDER / f"{model}.json").write_text(text + "\n")
        print(model, len(text), flush=True)
