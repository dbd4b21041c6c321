"""Inputs and outputs of transformers' logits processors, and of torch's random generator.

The three processors of OpenAI's fields, and those that need functions or groups of beams, have no golden: unit tests and
the live tests show them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers.generation import logits_process

INFINITY = float("inf")

Arguments = dict[str, Any]

_PROMPTS = [[0, 1, 0, 2, 1, 3]]

#: For each processor its class and the arguments to try, under the names of transformers' constructors.
PROCESSORS: dict[str, tuple[str, list[Arguments]]] = {
    # Other scales need a model: see `guidance.py`.
    "unbatched_classifier_free_guidance": (
        "UnbatchedClassifierFreeGuidanceLogitsProcessor",
        [{"guidance_scale": 1.0, "model": None}],
    ),
    "sequence_bias": (
        "SequenceBiasLogitsProcessor",
        [
            {"sequence_bias": [[[0], -2.5]]},
            {"sequence_bias": [[[1], 3.25], [[0, 1], -1.5], [[1, 1], 0.7], [[2, 0, 1], 100.0]]},
        ],
    ),
    "encoder_repetition_penalty": (
        "EncoderRepetitionPenaltyLogitsProcessor",
        [{"penalty": p, "encoder_input_ids": ids} for p in (0.5, 1.3) for ids in ([[0]], _PROMPTS)],
    ),
    "repetition_penalty": (
        "RepetitionPenaltyLogitsProcessor",
        [{"penalty": p} for p in (0.5, 1.0, 1.2, 3.0)] + [{"penalty": 1.3, "prompt_ignore_length": 3}],
    ),
    "no_repeat_ngram": ("NoRepeatNGramLogitsProcessor", [{"ngram_size": n} for n in (1, 2, 3, 9)]),
    "encoder_no_repeat_ngram": (
        "EncoderNoRepeatNGramLogitsProcessor",
        [{"encoder_ngram_size": n, "encoder_input_ids": _PROMPTS} for n in (1, 2, 3)],
    ),
    "no_bad_words": (
        "NoBadWordsLogitsProcessor",
        [
            {"bad_words_ids": [[0], [1, 1], [0, 1], [2, 1, 0]]},
            {"bad_words_ids": [[0], [1]], "eos_token_id": [1]},
        ],
    ),
    "min_length": (
        "MinLengthLogitsProcessor",
        [{"min_length": n, "eos_token_id": eos} for n, eos in ((0, [1]), (6, [1]), (7, [0, 2]), (9, [1]))],
    ),
    "min_new_tokens": (
        "MinNewTokensLengthLogitsProcessor",
        [
            {"prompt_length_to_skip": 4, "min_new_tokens": n, "eos_token_id": eos}
            for n, eos in ((0, [1]), (2, [1]), (3, [0, 2]), (9, [1]))
        ],
    ),
    "forced_bos_token": ("ForcedBOSTokenLogitsProcessor", [{"bos_token_id": 0}]),
    "forced_eos_token": (
        "ForcedEOSTokenLogitsProcessor",
        [{"max_length": n, "eos_token_id": eos} for n, eos in ((6, [0]), (7, [0]), (7, [1, 2]))],
    ),
    "inf_nan_remove": ("InfNanRemoveLogitsProcessor", [{}]),
    "exponential_decay_length_penalty": (
        "ExponentialDecayLengthPenalty",
        [
            {"exponential_decay_length_penalty": list(decay), "eos_token_id": eos, "input_ids_seq_length": 2}
            for decay, eos in (((0, 1.1), [0]), ((1, 2.5), [1, 2]), ((9, 3.0), [0]))
        ],
    ),
    "suppress_tokens": (
        "SuppressTokensLogitsProcessor",
        [{"suppress_tokens": ids} for ids in ([0], [1, 2], [])],
    ),
    "suppress_tokens_at_begin": (
        "SuppressTokensAtBeginLogitsProcessor",
        [{"begin_suppress_tokens": [0, 1], "begin_index": n} for n in (5, 6)],
    ),
    "temperature": ("TemperatureLogitsWarper", [{"temperature": t} for t in (0.1, 0.7, 1.0, 1.5, 10.0)]),
    "top_h": ("TopHLogitsWarper", [{"top_h": h} for h in (0.05, 0.3, 0.6, 0.9)]),
    "top_k": (
        "TopKLogitsWarper",
        [{"top_k": 1}, {"top_k": 2}, {"top_k": 5}, {"top_k": 1000}, {"top_k": 1, "min_tokens_to_keep": 3}],
    ),
    "top_p": (
        "TopPLogitsWarper",
        [{"top_p": p} for p in (0.0, 0.1, 0.5, 0.9, 0.999, 1.0)]
        + [{"top_p": 0.3, "min_tokens_to_keep": 3}, {"top_p": 0.6, "filter_value": -10.0}],
    ),
    "min_p": (
        "MinPLogitsWarper",
        [{"min_p": p} for p in (0.0, 0.02, 0.1, 0.5, 1.0)] + [{"min_p": 0.9, "min_tokens_to_keep": 3}],
    ),
    "typical": (
        "TypicalLogitsWarper",
        [{"mass": p} for p in (0.1, 0.5, 0.9, 0.99)] + [{"mass": 0.2, "min_tokens_to_keep": 3}],
    ),
    "epsilon": (
        "EpsilonLogitsWarper",
        [{"epsilon": p} for p in (0.001, 0.05, 0.3)] + [{"epsilon": 0.5, "min_tokens_to_keep": 3}],
    ),
    "eta": (
        "EtaLogitsWarper",
        [{"epsilon": p} for p in (0.001, 0.05, 0.3)] + [{"epsilon": 0.9, "min_tokens_to_keep": 3}],
    ),
    "logit_normalization": ("LogitNormalization", [{}]),
}

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
        for name, (kind, arguments) in PROCESSORS.items()
        for args in arguments
    ]
    inputs = [{"input_ids": row_ids, "scores": tensor(row)} for row_ids, row in zip(ids, rows, strict=True)]
    _write(path, {"format": 1, "made_with": made_with, "rows": inputs, "cases": cases})


def _apply(kind: str, args: Arguments, ids: list[int], row: np.ndarray) -> dict[str, Any] | None:
    """One processor on one row; None where the row is too short for it, or rounding would decide."""
    tokens = [token for name in _TOKENS if name in args for token in np.ravel(_flat(args[name]))]
    needed = max([args.get("min_tokens_to_keep", 1), *(int(token) + 1 for token in tokens)])
    if needed > len(row) or _decided_by_rounding(args, row):
        return None
    if "encoder_input_ids" in args:
        args = args | {"encoder_input_ids": torch.tensor(args["encoder_input_ids"])}
    processor = getattr(logits_process, kind)(**args)
    return tensor(processor(torch.tensor([ids]), torch.from_numpy(row.copy())[None])[0].numpy())


#: The arguments that hold token ids.
_TOKENS = (
    "eos_token_id",
    "bos_token_id",
    "suppress_tokens",
    "begin_suppress_tokens",
    "bad_words_ids",
    "sequence_bias",
    "encoder_input_ids",
)


def _flat(tokens: Any) -> list[int]:
    """All integers of nested lists."""
    if isinstance(tokens, list):
        return [token for item in tokens for token in _flat(item)]
    return [tokens] if isinstance(tokens, int) else []


def _decided_by_rounding(args: Arguments, row: np.ndarray) -> bool:
    """Whether a token lies so near to a warper's limit that a machine with other vectors may decide otherwise."""
    ascending = np.sort(row[np.isfinite(row)].astype(np.float64))
    probabilities = np.exp(ascending - ascending[-1])
    below_best = probabilities[probabilities < 1.0]
    probabilities /= probabilities.sum()
    terms = -probabilities * np.log(np.where(probabilities > 0, probabilities, 1.0))
    entropy = terms.sum()
    distances: Any = np.array([1.0])
    if "min_p" in args and args["min_p"] > 0.0:
        distances = below_best - args["min_p"]
    elif "top_p" in args:
        distances = np.cumsum(probabilities)[:-1] - (1.0 - args["top_p"])
    elif "top_h" in args:
        distances = np.cumsum(terms[::-1])[:-1] - args["top_h"] * entropy
    elif "epsilon" in args:
        limits = args["epsilon"], np.sqrt(args["epsilon"]) * np.exp(-entropy)
        distances = np.concatenate([probabilities - limit for limit in limits])
    elif "mass" in args:
        surprise = np.abs(-np.log(np.maximum(probabilities, 1e-300)) - entropy)
        sums = np.cumsum(probabilities[np.argsort(surprise, kind="stable")])[:-1]
        distances = np.append(sums - args["mass"], np.diff(np.unique(surprise)))
    return bool((np.abs(distances) < 1e-6).any())


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
