"""Writes `tests/golden/layers.json`: what transformers gives for embeddings, and the states of its layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from reference import Reference

ROOT = Path(__file__).resolve().parents[2]
MODEL = "tests/golden/models/four_layers"
STORY = "python/rsgen/models/story-3m"
OUT = ROOT / "tests" / "golden" / "layers.json"

#: Label, ids of the prompts (0 pads on the left where a row has one), whether the ids are given too, fields.
EMBEDDED: list[tuple[str, list[list[int]], bool, dict[str, Any]]] = [
    ("greedy", [[5, 9, 33, 2, 17, 41]], False, {"max_new_tokens": 24}),
    ("greedy_with_ids", [[5, 9, 33, 2, 17, 41]], True, {"max_new_tokens": 24, "repetition_penalty": 1.3}),
    ("new_tokens_alone_are_penalized", [[5, 9, 33, 2, 17, 41]], False, {"max_new_tokens": 24, "repetition_penalty": 1.3}),
    ("max_length_counts_the_embeddings", [[5, 9, 33, 2, 17, 41]], False, {"max_length": 20}),
    ("max_length_counts_the_ids", [[5, 9, 33, 2, 17, 41]], True, {"max_length": 20}),
    ("min_length_counts_the_embeddings", [[5, 9, 33]], False, {"max_new_tokens": 20, "min_length": 12, "eos_token_id": list(range(30)), "pad_token_id": 0}),
    ("forced_bos_is_the_second_token", [[5, 9, 33]], False, {"max_new_tokens": 8, "forced_bos_token_id": 7}),
    ("begin_suppress_tokens", [[5, 9, 33]], False, {"max_new_tokens": 8, "begin_suppress_tokens": list(range(0, 61, 2))}),
    ("left_padded", [[0, 0, 8, 30, 12], [7, 21, 3, 50, 44]], False, {"max_new_tokens": 16, "repetition_penalty": 1.4}),
    ("beams", [[5, 9, 33, 2, 17, 41]], False, {"max_new_tokens": 16, "num_beams": 4, "num_return_sequences": 2}),
    ("sample", [[5, 9, 33, 2, 17, 41]], False, {"max_new_tokens": 16, "do_sample": True, "num_return_sequences": 2, "temperature": 1.4}),
    ("prompt_lookup", [[5, 9, 5, 9, 5, 9]], False, {"max_new_tokens": 24, "prompt_lookup_num_tokens": 3}),
]  # fmt: skip

#: Label, ids of the prompts, fields.
STATES: list[tuple[str, list[list[int]], dict[str, Any]]] = [
    ("greedy", [[313, 402, 581, 777]], {"max_new_tokens": 3}),
    ("left_padded", [[0, 402, 581], [313, 990, 415]], {"max_new_tokens": 3}),
    ("beams", [[313, 402, 581]], {"max_new_tokens": 3, "num_beams": 2}),
]


def disturbed(embeddings: np.ndarray) -> np.ndarray:
    """Embeddings between those of tokens: what tests make of those of the tokens as well."""
    shape = embeddings.shape
    wave = np.sin(0.37 * np.arange(shape[-2] * shape[-1], dtype=np.float64)).reshape(shape[-2:])
    return (embeddings.astype(np.float64) * (1 + 0.25 * wave)).astype(np.float32)


def main() -> None:
    """Writes the file."""
    model: Any = Reference(ROOT / MODEL).model
    model.generation_config = transformers.GenerationConfig(pad_token_id=0)
    embedded, states = [], []
    for name, ids, with_ids, fields in EMBEDDED:
        prompts = torch.tensor(ids)
        given = {"input_ids": prompts} if with_ids else {}
        values = disturbed(model.get_input_embeddings()(prompts).detach().numpy())
        torch.manual_seed(7)
        tokens = model.generate(
            inputs_embeds=torch.tensor(values), attention_mask=(prompts != 0).long(), **given, **fields
        ).tolist()
        embedded.append(
            {"name": name, "input_ids": ids, "with_ids": with_ids, "config": fields, "sequences": tokens}
        )
    model = Reference(ROOT / STORY).model
    model.set_attn_implementation("eager")
    model.generation_config = transformers.GenerationConfig(pad_token_id=0)
    for name, ids, fields in STATES:
        prompts = torch.tensor(ids)
        out = model.generate(
            prompts,
            attention_mask=(prompts != 0).long(),
            return_dict_in_generate=True,
            output_hidden_states=True,
            output_attentions=True,
            **fields,
        )
        arrays = {
            kind: [
                [np.round(layer.numpy().astype(np.float64), 6).tolist() for layer in step]
                for step in getattr(out, kind)
            ]
            for kind in ("hidden_states", "attentions")
        }
        states.append(
            {"name": name, "input_ids": ids, "config": fields, "sequences": out.sequences.tolist(), **arrays}
        )
    golden = {
        "format": 1,
        "made_by": {"transformers": transformers.__version__, "torch": torch.__version__},
        "folder": MODEL,
        "embedded": embedded,
        "states": states,
    }
    OUT.write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
