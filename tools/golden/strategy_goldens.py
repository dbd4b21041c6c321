"""Writes `tests/golden/strategies/`: requests of every strategy, and what the installed transformers makes of them.

Run with transformers 5.24.0, 5.23.0, 4.55.4 and 4.49.0, each of which writes a file of its own.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from closeness import same_choices, scores_of, within_rounding
from reference import Reference
from strategies import (
    COMPAT,
    ERA,
    FAMILIES,
    VERSION,
    StrategyAnswer,
    StrategyCase,
    answer,
    draw_case,
    exact_answer,
)

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
#: Models whose folders the installed transformers reads; those of version 4 do not know `rope_parameters`.
MODELS = {
    "5": ["four_layers", "qwen2_window", "qwen3_window", "phi3_partial", "mistral_window", "config_4_llama3"],
    "4.55": ["config_4_default", "config_4_linear", "config_4_llama3"],
    "4.49": ["config_4_default", "config_4_linear", "config_4_llama3"],
}
#: Requests of each strategy.
CASES = {"5": 40, "4.55": 40, "4.49": 20}
#: Requests of each of those strategies whose scores can multiply the rounding of what they are made of.
MULTIPLIED = {"beam_search": 4, "beam_sample": 4, "dola": 8}
#: The strategies whose results changed in a version; those of the others are in the file of the version before.
CHANGED = {(5, 24): ("beam_sample", "watermark_beams")}
#: A choice that is nearer to a tie than this in float64 is no golden.
LEAST_MARGIN = 3e-5
MOST_TOKENS = 14


def main() -> None:
    """Draws until there are enough requests of each strategy that are no ties."""
    torch.set_num_threads(1)
    references = {name: Reference(GOLDEN / "models" / name) for name in MODELS[ERA]}
    families = CHANGED.get(VERSION[:2]) or [family for family, eras in FAMILIES.items() if ERA in eras]
    cases = [case for family in families for case in draw(family, CASES[ERA], references, golden_case)]
    multiplied = [
        case
        for family in families
        for case in draw(family, MULTIPLIED.get(family, 0), references, multiplied_case)
    ]
    made_with = {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__}
    lines, multiplied_lines = (",\n".join(map(json.dumps, part)) for part in (cases, multiplied))
    head = json.dumps({"format": 1, "made_with": made_with, "config": COMPAT})[:-1]
    version = "_".join(map(str, VERSION))
    path = GOLDEN / "strategies" / f"transformers_{version}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'{head}, "cases": [\n{lines}\n],\n"multiplied": [\n{multiplied_lines}\n]}}\n')
    print(f"{path.relative_to(ROOT)}: {len(cases)} + {len(multiplied)} cases")


def draw(
    family: str, count: int, references: dict[str, Reference], attempt: Callable[..., dict[str, Any] | None]
) -> list[dict[str, Any]]:
    """So many goldens of a family, of the models by turns."""
    rng = random.Random(f"golden {family}")
    cases: list[dict[str, Any]] = []
    while len(cases) < count:
        name = MODELS[ERA][len(cases) % len(MODELS[ERA])]
        made = attempt(family, references, references[name], rng)
        if made is not None:
            cases.append({"model": f"tests/golden/models/{name}", **made})
    return cases


def golden_case(
    family: str, references: dict[str, Reference], reference: Reference, rng: random.Random
) -> dict[str, Any] | None:
    """A drawn request with its answer; `None` if transformers fails on it, or if it is nearly a tie."""
    config = reference.model.config
    case = draw_case(family, rng, config.vocab_size, config.num_hidden_layers)
    drafts = family.startswith("assisted")
    # The vocabularies are equal. Without a threshold the answer does not depend on scikit-learn.
    name, assistant = rng.choice(sorted(references.items())) if drafts else ("", reference)
    if drafts:
        case.fields["assistant_confidence_threshold"] = 0.0
    # Long requests come near to a tie somewhere.
    if case.fields["max_new_tokens"] > MOST_TOKENS:
        return None
    try:
        given = answer(reference.model, case, assistant.model)
    except (ValueError, IndexError, RuntimeError, TypeError):
        return None
    found = exact_answer(reference.model64, case, assistant.model64)
    exact = found.answer
    if found.margin < LEAST_MARGIN or not same_choices(given, exact) or noisy(given, exact):
        return None
    model = {"assistant": f"tests/golden/models/{name}"} if drafts else {}
    return {"strategy": family, "is_list": case.is_list, **model, **request_of(case), **answer_of(given)}


def multiplied_case(
    family: str, _references: dict[str, Reference], reference: Reference, rng: random.Random
) -> dict[str, Any] | None:
    """A drawn request in whose scores the rounding of float32 is multiplied."""
    config = reference.model.config
    case = draw_case(family, rng, config.vocab_size, config.num_hidden_layers)
    if family != "dola":
        case = replace(case, fields=case.fields | {"length_penalty": -2.0})
    try:
        given = answer(reference.model, case)
    except (ValueError, IndexError, RuntimeError, TypeError):
        return None
    found = exact_answer(reference.model64, case)
    exact = found.answer
    same = (
        found.margin >= LEAST_MARGIN
        and same_choices(given, exact)
        and bool(np.isfinite(scores_of(given)).all())
    )
    # A visible part of the tolerance, so that other float32 programs may well be beyond it.
    clean = np.allclose(scores_of(given), scores_of(exact), rtol=1e-7, atol=1e-5)
    if not same or clean or not within_rounding(given, exact, case):
        return None
    largest = {"largest_logit": given.largest_logit} if family == "dola" else {}
    return {
        "strategy": family,
        "is_list": case.is_list,
        **request_of(case),
        **answer_of(given),
        **largest,
    }


def noisy(given: StrategyAnswer, exact: StrategyAnswer) -> bool:
    """Whether float32 itself uses much of the tolerance of scores, or has none."""
    scores, exact_scores = scores_of(given), scores_of(exact)
    there = exact_scores.size > 0
    # JSON has no infinities.
    if not np.isfinite(scores).all():
        return True
    return there and not np.allclose(scores, exact_scores, rtol=3e-6, atol=3e-5)


def request_of(case: StrategyCase) -> dict[str, Any]:
    """What is asked for."""
    return {
        "input_ids": case.input_ids,
        "attention_mask": case.attention_mask,
        "config": case.fields,
        "seed": case.seed,
    }


def answer_of(given: StrategyAnswer) -> dict[str, Any]:
    """What is expected, without what there is not."""
    expected = {
        "tokens": given.tokens,
        "beam_indices": given.beam_indices,
        "sequences_scores": given.scores,
        "token_scores": given.token_scores,
    }
    return {name: value for name, value in expected.items() if value is not None}


if __name__ == "__main__":
    main()
