"""Draws negative prompts for guided requests, and makes transformers' guidance right where its cache goes astray."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers.generation.logits_process import UnbatchedClassifierFreeGuidanceLogitsProcessor


def draw_guidance(fields: dict[str, Any], rng: random.Random, vocab_size: int) -> None:
    """A scale, and mostly a negative prompt."""
    fields["guidance_scale"] = round(rng.choice([rng.uniform(1.1, 3.0), rng.uniform(-1.0, 0.9)]), 2)
    if rng.random() < 0.8:
        fields["negative_prompt_ids"] = [
            [rng.randrange(vocab_size) for _ in range(rng.randint(1, 24))] for _ in range(rng.randint(1, 3))
        ]


def fit_prompts(fields: dict[str, Any], num_prompts: int) -> None:
    """As many negative prompts as prompts, or one for all."""
    given = fields.get("negative_prompt_ids")
    if given and len(given) not in (1, num_prompts):
        fields["negative_prompt_ids"] = given[:num_prompts] if len(given) > num_prompts else given[:1]


def of_prompt(fields: dict[str, Any], place: int) -> dict[str, Any]:
    """The fields for one prompt alone."""
    given = fields.get("negative_prompt_ids")
    return fields if not given or len(given) == 1 else fields | {"negative_prompt_ids": [given[place]]}


def for_transformers(fields: dict[str, Any], num_prompts: int, rows_each: int) -> dict[str, Any]:
    """The negative prompts as transformers takes them: a tensor with a row for each row of the result, padded on the left."""
    given = fields.get("negative_prompt_ids")
    if not given:
        return {}
    rows = given * num_prompts if len(given) == 1 else given
    width = max(map(len, rows))
    padded = [[0] * (width - len(row)) + row for row in rows]
    masks = [[0] * (width - len(row)) + [1] * len(row) for row in rows]
    return {
        "negative_prompt_ids": torch.tensor(padded).repeat_interleave(rows_each, dim=0),
        "negative_prompt_attention_mask": torch.tensor(masks).repeat_interleave(rows_each, dim=0),
    }


@contextmanager
def recomputed(prompt_len: int) -> Iterator[None]:
    """transformers' guidance without its cache, which follows neither beams nor rejected candidates: the unconditional text of
    each row is computed anew in each step, from the row's own ids.
    """

    def logits(self: Any, input_ids: torch.Tensor) -> torch.Tensor:
        context = self.unconditional_context
        begin, mask = context["input_ids"], context["attention_mask"]
        if begin is None:
            begin = input_ids[:, prompt_len - 1 : prompt_len]
        if mask is None:
            mask = torch.ones_like(begin)
        new = input_ids[:, prompt_len:]
        ids, mask = torch.cat([begin, new], dim=1), torch.cat([mask, torch.ones_like(new)], dim=1)
        return self.model(ids, attention_mask=mask, use_cache=False).logits

    cached = UnbatchedClassifierFreeGuidanceLogitsProcessor.get_unconditional_logits
    UnbatchedClassifierFreeGuidanceLogitsProcessor.get_unconditional_logits = logits
    try:
        yield
    finally:
        UnbatchedClassifierFreeGuidanceLogitsProcessor.get_unconditional_logits = cached
