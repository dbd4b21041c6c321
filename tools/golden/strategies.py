"""Draws requests for the strategies of `generate()`, runs them in transformers, and says how near a tie they were."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transformers

VERSION = tuple(int(part) for part in transformers.__version__.split(".")[:2])
#: Strategies, and whether the installed transformers has them in its core as rsgen follows them.
FAMILIES: dict[str, bool] = {
    "beam_search": VERSION >= (4, 56),
    "beam_sample": VERSION >= (4, 56),
    "contrastive_search": VERSION < (4, 56),
    "dola": VERSION < (4, 56),
}


@dataclass(frozen=True)
class StrategyCase:
    """A request: rows of ids of equal width, padded on the left where the mask is 0, and the fields of the call."""

    family: str
    input_ids: list[list[int]]
    attention_mask: list[list[int]]
    fields: dict[str, Any]
    seed: int

    @property
    def is_padded(self) -> bool:
        """Whether the rows need their mask."""
        return not all(map(all, self.attention_mask))


@dataclass(frozen=True)
class StrategyAnswer:
    """For each row of the result its generated tokens, and with beams their lanes and the row's score."""

    tokens: list[list[int]]
    beam_indices: list[list[int]] | None
    scores: list[float] | None


def draw_case(family: str, rng: random.Random, vocab_size: int, num_layers: int) -> StrategyCase:
    """A random request of a family: prompts, fields of the strategy, and processors that go with it."""
    fields: dict[str, Any] = {"max_new_tokens": rng.randint(1, 32)}
    pad = rng.randrange(vocab_size)
    if rng.random() < 0.8:
        fields["eos_token_id"] = rng.sample(range(vocab_size), rng.randint(1, 4))
        fields["pad_token_id"] = pad
    if rng.random() < 0.3:
        fields["repetition_penalty"] = round(rng.uniform(0.8, 1.6), 2)
    if rng.random() < 0.2:
        fields["min_new_tokens"] = rng.randint(1, 6)
    DRAWS[family](fields, rng, num_layers)
    rows = 1 if rng.random() < 0.8 or "pad_token_id" not in fields else rng.randint(2, 3)
    # DoLa chooses one layer for all rows of a batch in transformers, one for each in rsgen.
    rows = 1 if family == "dola" else rows
    prompts = [[rng.randrange(vocab_size) for _ in range(rng.randint(1, 24))] for _ in range(rows)]
    width = max(map(len, prompts))
    return StrategyCase(
        family,
        [[pad] * (width - len(prompt)) + prompt for prompt in prompts],
        [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts],
        fields,
        rng.randrange(1 << 31),
    )


def _draw_beams(fields: dict[str, Any], rng: random.Random, _num_layers: int) -> None:
    beams = rng.randint(2, 8)
    fields["num_beams"] = beams
    fields["num_return_sequences"] = rng.randint(1, beams)
    fields["early_stopping"] = rng.choice([True, False, "never"])
    fields["length_penalty"] = rng.choice([1.0, 0.0, 2.0, 0.5, -1.0, -0.3])


def _draw_beam_sample(fields: dict[str, Any], rng: random.Random, num_layers: int) -> None:
    _draw_beams(fields, rng, num_layers)
    _draw_sampling(fields, rng)


def _draw_sampling(fields: dict[str, Any], rng: random.Random) -> None:
    fields["do_sample"] = True
    warpers = {
        "temperature": round(rng.uniform(0.5, 3.0), 2),
        "top_k": rng.choice([0, 2, 5, 20, 50]),
        "top_p": round(rng.uniform(0.3, 1.0), 2),
        "min_p": round(rng.uniform(0.001, 0.2), 3),
    }
    fields |= {name: value for name, value in warpers.items() if rng.random() < 0.4}


def _draw_contrastive(fields: dict[str, Any], rng: random.Random, _num_layers: int) -> None:
    fields["penalty_alpha"] = round(rng.uniform(0.05, 0.95), 2)
    fields["top_k"] = rng.randint(2, 12)


def _draw_dola(fields: dict[str, Any], rng: random.Random, num_layers: int) -> None:
    layers = sorted(rng.sample(range(num_layers), rng.randint(1, num_layers)))
    fields["dola_layers"] = rng.choice(["high", layers])
    if rng.random() < 0.5:
        _draw_sampling(fields, rng)


DRAWS: dict[str, Callable[[dict[str, Any], random.Random, int], None]] = {
    "beam_search": _draw_beams,
    "beam_sample": _draw_beam_sample,
    "contrastive_search": _draw_contrastive,
    "dola": _draw_dola,
}


def answer(model: Any, case: StrategyCase) -> StrategyAnswer:
    """What transformers gives, seeded right before."""
    torch.manual_seed(case.seed)
    out = model.generate(
        torch.tensor(case.input_ids),
        attention_mask=torch.tensor(case.attention_mask),
        return_dict_in_generate=True,
        output_scores=True,
        **case.fields,
    )
    generated = out.sequences[:, len(case.input_ids[0]) :].tolist()
    indices = getattr(out, "beam_indices", None)
    if indices is not None:
        lanes = [[lane for lane in row if lane >= 0] for row in indices.tolist()]
        tokens = [row[: len(lane)] for row, lane in zip(generated, lanes, strict=True)]
        return StrategyAnswer(tokens, lanes, out.sequences_scores.tolist())
    eos = case.fields.get("eos_token_id", [])
    return StrategyAnswer([_until(row, eos) for row in generated], None, None)


def _until(row: list[int], eos: list[int]) -> list[int]:
    """A row without what fills it after its end."""
    end = next((index for index, token in enumerate(row) if token in eos), len(row))
    return row[: end + 1]


@contextmanager
def margins() -> Iterator[list[float]]:
    """Collects, of every choice that torch makes among scores, how far the nearest two of those considered are apart."""
    found: list[float] = []
    topk, argmax, multinomial = torch.topk, torch.argmax, torch.multinomial

    def gap(values: torch.Tensor, count: int) -> None:
        values = values.reshape(-1, values.shape[-1])
        best = topk(values, min(count + 1, values.shape[-1]), dim=-1)[0]
        gaps = (best[:, :-1] - best[:, 1:]).flatten()
        found.extend(gaps[torch.isfinite(gaps)].tolist())

    def seen_topk(values: torch.Tensor, k: int, *args: Any, **kwargs: Any) -> Any:
        gap(values, k)
        return topk(values, k, *args, **kwargs)

    def seen_argmax(values: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        gap(values, 1)
        return argmax(values, *args, **kwargs)

    def seen_multinomial(weights: torch.Tensor, num_samples: int, *args: Any, **kwargs: Any) -> Any:
        state = torch.get_rng_state()
        noise = torch.empty_like(weights, dtype=torch.float32).exponential_(1)
        gap(weights.log() - noise.to(weights.dtype).log(), num_samples)
        torch.set_rng_state(state)
        # The draws of float32, whatever the weights are in.
        return multinomial(weights.float(), num_samples, *args, **kwargs)

    torch.topk, torch.argmax, torch.multinomial = seen_topk, seen_argmax, seen_multinomial
    try:
        yield found
    finally:
        torch.topk, torch.argmax, torch.multinomial = topk, argmax, multinomial


def exact_answer(model64: Any, case: StrategyCase) -> tuple[StrategyAnswer, float]:
    """What transformers gives in float64, and the smallest margin of its choices."""
    with margins() as found:
        exact = answer(model64, case)
    return exact, min(found, default=float("inf"))


def same(one: StrategyAnswer, other: StrategyAnswer) -> bool:
    """Whether tokens and lanes are equal, and scores within the tolerance promised."""
    if one.tokens != other.tokens or one.beam_indices != other.beam_indices:
        return False
    if one.scores is None or other.scores is None:
        return one.scores is other.scores
    return bool(np.allclose(one.scores, other.scores, rtol=1e-5, atol=1e-4))
