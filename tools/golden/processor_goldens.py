"""Inputs and outputs of transformers' logits processors, and of torch's random generator."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    LogitsProcessor,
    MinLengthLogitsProcessor,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

INFINITY = float("inf")

#: Name, class, arguments to try, under the names of transformers' constructors.
PROCESSORS: list[tuple[str, type[LogitsProcessor], list[dict[str, Any]]]] = [
    ("temperature", TemperatureLogitsWarper, [{"temperature": t} for t in (0.1, 0.7, 1.0, 1.5, 10.0)]),
    (
        "top_k",
        TopKLogitsWarper,
        [{"top_k": 1}, {"top_k": 2}, {"top_k": 5}, {"top_k": 1000}, {"top_k": 1, "min_tokens_to_keep": 3}],
    ),
    (
        "top_p",
        TopPLogitsWarper,
        [{"top_p": p} for p in (0.0, 0.1, 0.5, 0.9, 0.999, 1.0)] + [{"top_p": 0.3, "min_tokens_to_keep": 3}],
    ),
    (
        "min_p",
        MinPLogitsWarper,
        [{"min_p": p} for p in (0.0, 0.02, 0.1, 0.5, 1.0)] + [{"min_p": 0.9, "min_tokens_to_keep": 3}],
    ),
    (
        "repetition_penalty",
        RepetitionPenaltyLogitsProcessor,
        [{"penalty": p} for p in (0.5, 1.0, 1.2, 3.0)] + [{"penalty": 1.3, "prompt_ignore_length": 3}],
    ),
    (
        "min_length",
        MinLengthLogitsProcessor,
        [{"min_length": n, "eos_token_id": eos} for n, eos in ((0, [1]), (6, [1]), (7, [0, 2]), (9, [1]))],
    ),
    (
        "min_new_tokens",
        MinNewTokensLengthLogitsProcessor,
        [
            {"prompt_length_to_skip": 4, "min_new_tokens": n, "eos_token_id": eos}
            for n, eos in ((0, [1]), (2, [1]), (3, [0, 2]), (9, [1]))
        ],
    ),
]

#: Length of the ids that every row of scores comes with.
IDS = 6
#: Words of a generator to show: the first ones and those around each renewal of its 624 words of state.
WORD_INDICES = [0, 1, 2, 3, 226, 227, 622, 623, 624, 625, 699]


def tensor(array: np.ndarray) -> dict[str, Any]:
    """An array as JSON: its shape and the base64 of its little-endian float32 values."""
    values = np.ascontiguousarray(array, dtype="<f4")
    return {"shape": list(values.shape), "f32": base64.b64encode(values.tobytes()).decode()}


def score_rows() -> Iterator[list[float]]:
    """About thirty rows: tiny vocabularies, ties, signed zeros, removed tokens, extremes, random ones."""
    yield from ([0.0], [3.0], [1.0, 1.0], [2.0, -INFINITY], [-1.0, 5.0], [0.5, 0.5, 0.5], [-0.0, 0.0, -2.0])
    yield [1.0] * 9
    yield [2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    yield [-3.0, -1.0, -1.0, -1.0, -2.0]
    yield [0.0, 1.0, 2.0, 2.0, 1.0, 0.0, -1.0, -1.0]
    yield [4.0, -INFINITY, 3.0, -INFINITY, 3.0, 1.0]
    yield [-INFINITY, -INFINITY, 1.0, -INFINITY]
    yield [100.0, -100.0, 50.0, 99.99, 0.0]
    yield [1e-8, -1e-8, 0.0, 2e-8]
    yield [3e38, 1e38, -3e38, 0.0]
    yield [88.0, 87.999, 87.998, -88.0, 10.0]
    yield [float(np.log(p)) for p in (0.5, 0.25, 0.125, 0.0625, 0.0625)]
    yield [float(np.log(p)) for p in (0.1, 0.2, 0.3, 0.4)]
    numbers = np.random.RandomState(3)
    for size, spread in ((7, 1.0), (11, 5.0), (16, 0.1), (31, 3.0), (40, 2.0), (50, 8.0), (64, 4.0)):
        yield numbers.normal(0.0, spread, size).tolist()
    yield np.round(numbers.normal(0.0, 2.0, 20)).tolist()
    yield np.round(numbers.normal(0.0, 1.0, 30)).tolist()
    half_removed = numbers.normal(0.0, 2.0, 33)
    half_removed[::2] = -INFINITY
    yield half_removed.tolist()


def write_processor_goldens(path: Path, made_with: dict[str, str]) -> None:
    """Writes each processor with each of its arguments on every row that it accepts."""
    numbers = np.random.RandomState(4)
    rows = [np.asarray(row, dtype=np.float32) for row in score_rows()]
    ids = [numbers.randint(0, len(row), IDS).tolist() for row in rows]
    cases = [
        {
            "processor": name,
            "args": args,
            "expected": [_apply(kind, args, *pair) for pair in zip(ids, rows, strict=True)],
        }
        for name, kind, arguments in PROCESSORS
        for args in arguments
    ]
    inputs = [{"input_ids": row_ids, "scores": tensor(row)} for row_ids, row in zip(ids, rows, strict=True)]
    _write(path, {"format": 1, "made_with": made_with, "rows": inputs, "cases": cases})


def _apply(
    kind: type[LogitsProcessor], args: dict[str, Any], ids: list[int], row: np.ndarray
) -> dict[str, Any] | None:
    """One processor on one row; None where the row is too short for it, or rounding would decide."""
    needed = max([args.get("min_tokens_to_keep", 1), *(token + 1 for token in args.get("eos_token_id", []))])
    if needed > len(row) or _decided_by_rounding(args, row):
        return None
    processor = kind(**args)
    return tensor(processor(torch.tensor([ids]), torch.from_numpy(row.copy())[None])[0].numpy())


def _decided_by_rounding(args: dict[str, Any], row: np.ndarray) -> bool:
    """Whether a token lies so near to the threshold of top-p or min-p that float32 may keep or remove it."""
    ascending = np.sort(row[np.isfinite(row)].astype(np.float64))
    probabilities = np.exp(ascending - ascending[-1])
    if "min_p" in args:
        below_best = probabilities[probabilities < 1.0]
        return bool(args["min_p"] > 0.0 and (np.abs(below_best - args["min_p"]) < 1e-6).any())
    if "top_p" in args:
        cumulated = np.cumsum(probabilities / probabilities.sum())[:-1]
        return bool((np.abs(cumulated - (1.0 - args["top_p"])) < 1e-6).any())
    return False


def write_rng_goldens(path: Path, made_with: dict[str, str]) -> None:
    """Writes what each drawing function gives after `manual_seed`, also several calls in a row."""
    seeds = [0, 1, 42, 2**31, 2**32 - 1, 2**32 + 7, 123456789012345]
    golden = {
        "format": 1,
        "made_with": made_with,
        "words": [{"seed": seed, "indices": WORD_INDICES, "words": _words(seed)} for seed in seeds],
        "rand": [
            {"seed": seed, "values": tensor(torch.rand(9, generator=_seeded(seed)).numpy())} for seed in seeds
        ],
        "exponential": [
            {"seed": seed, "values": tensor(torch.empty(40).exponential_(1, generator=_seeded(seed)).numpy())}
            for seed in seeds
        ],
        "multinomial": [case for seed in seeds[:4] for case in _multinomial_cases(seed)],
        "randperm": [
            {"seed": seed, "n": n, "values": torch.randperm(n, generator=_seeded(seed)).tolist()}
            for seed, n in ((0, 1), (1, 2), (42, 10), (7, 100), (15485863, 61))
        ],
        "mixed": _mixed_calls(),
    }
    _write(path, golden)


def _words(seed: int) -> list[int]:
    """Words of numpy's MT19937, which is torch's, at the chosen indices."""
    words = np.random.RandomState(seed % 2**32).randint(0, 2**32, max(WORD_INDICES) + 1, dtype=np.uint32)
    return words[WORD_INDICES].tolist()


def _seeded(seed: int) -> torch.Generator:
    """A generator as `torch.manual_seed` leaves the global one."""
    return torch.Generator().manual_seed(seed)


def _multinomial_cases(seed: int) -> Iterator[dict[str, Any]]:
    """Three draws in a row from one generator: one row and several, one sample and several, zeros too."""
    for rows, vocab_size, samples in ((1, 5, 1), (1, 64, 1), (3, 33, 1), (2, 20, 6), (1, 7, 7)):
        probabilities = torch.softmax(torch.randn(rows, vocab_size, generator=_seeded(seed + 1)) * 2, dim=-1)
        if samples == 1 and vocab_size > 5:
            probabilities[:, ::3] = 0.0
        generator = _seeded(seed)
        draws = [torch.multinomial(probabilities, samples, generator=generator).tolist() for _ in range(3)]
        yield {
            "seed": seed,
            "probabilities": tensor(probabilities.numpy()),
            "num_samples": samples,
            "draws": draws,
        }


def _mixed_calls() -> dict[str, Any]:
    """Different calls on one generator, in the order of the fields: each uses as many words as in torch."""
    generator = _seeded(99)
    return {
        "seed": 99,
        "rand": tensor(torch.rand(5, generator=generator).numpy()),
        "exponential": tensor(torch.empty(3).exponential_(1, generator=generator).numpy()),
        "randperm": torch.randperm(6, generator=generator).tolist(),
        "multinomial_of_even_quarters": torch.multinomial(
            torch.full((2, 4), 0.25), 1, generator=generator
        ).tolist(),
        "rand_after": tensor(torch.rand(2, generator=generator).numpy()),
    }


def _write(path: Path, value: dict[str, Any]) -> None:
    """Lists of objects get a line for each."""
    lines = []
    for key, item in value.items():
        if isinstance(item, list):
            lines.append(f"  {json.dumps(key)}: [\n    " + ",\n    ".join(map(json.dumps, item)) + "\n  ]")
        else:
            lines.append(f"  {json.dumps(key)}: {json.dumps(item)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
