"""Tiny models with an encoder, written without any library: their weights follow from their names."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

Shapes = dict[str, list[int]]


def numbers(name: str, count: int) -> np.ndarray:
    """Numbers from -1 to 1 by a 32-bit congruential generator, seeded by the name."""
    state = np.uint32(zlib.crc32(name.encode()))
    multiplier, addend = np.uint32(1664525), np.uint32(1013904223)
    values = np.empty(count, dtype=np.uint32)
    with np.errstate(over="ignore"):
        filled = 1
        values[0] = state * multiplier + addend
        # Twice as many at a time, each so many steps after another.
        while filled < count:
            take = min(filled, count - filled)
            values[filled : filled + take] = values[:take] * multiplier + addend
            addend = multiplier * addend + addend
            multiplier = multiplier * multiplier
            filled += take
    return (values >> np.uint32(8)).astype(np.float32) / np.float32(1 << 23) - np.float32(1)


def weight(name: str, shape: list[int], seed: str) -> np.ndarray:
    """The tensor of this name: numbers that keep the size of what goes through a layer."""
    values = numbers(seed + name, int(np.prod(shape)))
    scale, shift = 2.0 / float(np.sqrt(shape[-1])), 0.0
    if "norm" in name and name.endswith("weight"):
        scale, shift = 0.4, 1.0
    elif "relative_attention_bias" in name or name == "final_logits_bias":
        scale = 1.5
    elif name.endswith("bias"):
        scale = 0.2
    elif "embed" in name or "shared" in name:
        # Larger ones make a model repeat its last token.
        scale = 0.3
    elif name.endswith(".q.weight"):
        # T5 divides no scores.
        scale /= 2.5
    return (values * np.float32(scale) + np.float32(shift)).astype("<f4").reshape(shape)


def write_folder(folder: Path, config: dict[str, Any], shapes: Shapes, seed: str = "", **fields: Any) -> None:
    """A model; the fields go into its `generation_config.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps(fields))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for name, shape in shapes.items():
        start = len(data)
        data += weight(name, shape, seed).tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, len(data)]}
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def without_fill(
    answer: dict[str, Any], fields: dict[str, Any], prompts: list[list[int]] | None
) -> list[list[int]]:
    """The rows of an answer up to their ends: transformers fills those of beams with another token at times."""
    start, eos, pad = (fields[f"{name}_token_id"] for name in ("decoder_start", "eos", "pad"))
    length = 1
    if prompts is not None:
        length = len(prompts[0]) + (not any(prompt[0] == start for prompt in prompts))
    rows, scores = answer["sequences"], answer.get("sequences_scores")
    ends = []
    for row, score in zip(rows, scores or [0.0] * len(rows), strict=True):
        end = row.index(eos, length) + 1 if eos in row[length:] else len(row)
        # Of a beam that has not ended the fill may be the token that ends others.
        while score < -1e8 and end > length and row[end - 1] in (eos, pad):
            end -= 1
        ends.append(end)
    return [row[:end] for row, end in zip(rows, ends, strict=True)]
