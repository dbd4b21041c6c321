"""Drawn requests on both sides, and what their differences come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import rsgen
import strategies
from closeness import close_scores, same_choices, within_rounding
from reference import Reference
from strategies import COMPAT, ERA, ExactAnswer, StrategyAnswer, StrategyCase

#: Below this margin in float64 a difference is a tie that float32 may decide either way, among tokens as among experts.
TIE = 1e-5
#: The same for scores beyond 40, in units of their last place: penalties and guidance multiply scores to hundreds, whose
#: neighbours in float32 are further than `TIE` from each other.
ROUNDINGS = 4


@dataclass(frozen=True)
class Models:
    """A drawn model and its assistant on both sides."""

    config: dict[str, Any]
    reference: Reference
    generator: rsgen.Generator
    draft_reference: Reference
    drafter: rsgen.Generator


def run(models: Models, case: StrategyCase) -> StrategyAnswer:
    """The request through rsgen."""
    generator = models.generator
    fields: dict[str, Any] = dict(case.fields, seed=case.seed, output_scores=True, **COMPAT)
    if case.family.startswith("assisted"):
        fields["assistant_model"] = models.drafter
    if case.is_list:
        prompts = [alone.input_ids[0] for alone in case.alone()]
        out = generator.generate(prompts, **fields | {"seed": [alone.seed for alone in case.alone()]})
    elif case.is_padded or len(case.input_ids) > 1:
        ids, mask = np.array(case.input_ids), np.array(case.attention_mask)
        out = generator.generate(ids, attention_mask=mask, **fields)
    else:
        out = generator.generate(case.input_ids[0], **fields)
    tokens = [row.tolist() for row in out.token_ids]
    if out.beam_indices is None:
        chosen = [
            [float(out.scores[step][place][token]) for step, token in enumerate(row)]
            for place, row in enumerate(tokens)
        ]
        return StrategyAnswer(tokens, None, None, chosen)
    if ERA != "5":
        rows = out.sequences[:, len(case.input_ids[0]) :].tolist()
        scores = None if case.family == "constrained_beam_search" else out.sequences_scores.tolist()
        return StrategyAnswer([strategies.without_fill(row, case) for row in rows], None, scores)
    lanes = [row[row >= 0].tolist() for row in out.beam_indices]
    return StrategyAnswer(tokens, lanes, out.sequences_scores.tolist())


class Verdict(Enum):
    """What a comparison came to."""

    EQUAL = "equal"
    #: Scores that multiply the rounding of what they are made of, and are equal before that.
    MULTIPLIED = "multiplied"
    #: A choice of tokens that float32 may make either way.
    TIE = "tie"
    #: A choice of experts that float32 may make either way.
    ROUTER = "router"
    #: transformers raised an exception, or rsgen refused scores without a choice.
    FAILED = "failed"
    UNEXPLAINED = "unexplained"


def compare(models: Models, case: StrategyCase) -> tuple[Verdict, str]:
    """Runs the request on both sides; the text says what was found."""
    try:
        expected = strategies.answer(models.reference.model, case, models.draft_reference.model)
    except (AttributeError, ValueError, IndexError, RuntimeError, TypeError) as error:
        return Verdict.FAILED, f"{type(error).__name__} {str(error)[:60]}"
    try:
        got = run(models, case)
    except rsgen.NumericalError as error:
        # transformers takes a token from scores that are all NaN or -inf; see docs/parity.md.
        return Verdict.FAILED, f"refused by rsgen: {error}"
    same = same_choices(got, expected)
    if same and close_scores(got, expected):
        return Verdict.EQUAL, ""
    if same and within_rounding(got, expected, case):
        return Verdict.MULTIPLIED, ""
    exact = strategies.exact_answer(models.reference.model64, case, models.draft_reference.model64)
    if exact.margin < max(TIE, ROUNDINGS * spacing(exact, case)):
        return Verdict.TIE, f"margin {exact.margin:.1e}"
    if exact.router_margin < TIE:
        return Verdict.ROUTER, f"router margin {exact.router_margin:.1e}"
    return Verdict.UNEXPLAINED, f"rsgen        {got}\ntransformers {expected}\nfloat64      {exact}"


def check_requests(counts: Counter[Verdict], drawn: Iterable[tuple[Models, StrategyCase, str]]) -> None:
    """Compares drawn requests, each with its label, counts what they come to, and fails for what nothing explains."""
    unexplained = []
    for models, case, label in drawn:
        verdict, found = compare(models, case)
        counts[verdict] += 1
        if verdict is not Verdict.EQUAL:
            print(f"{verdict.value}: {case.family}: {label}\n{found}")
        if verdict is Verdict.UNEXPLAINED:
            unexplained.append(f"{label}\n{found}")
    assert not unexplained, f"{len(unexplained)} unexplained\n" + "\n\n".join(unexplained)


def table(column: str, counts: dict[str, Counter[Verdict]]) -> list[str]:
    """What the requests of each row came to, as the pages in docs have it."""
    kinds = [Verdict.EQUAL, Verdict.TIE, Verdict.ROUTER, Verdict.UNEXPLAINED]
    lines = [f"| {column} | requests | equal | ties | router margins | unexplained |", "|---|" + "--:|" * 5]
    for name, of_row in counts.items():
        # Scores that multiply rounding belong to equal tokens. Where transformers fails, nothing is compared.
        equal = of_row + Counter({Verdict.EQUAL: of_row[Verdict.MULTIPLIED]})
        cells = [sum(equal[kind] for kind in kinds), *(equal[kind] for kind in kinds)]
        lines.append(f"| {name} | " + " | ".join(map(str, cells)) + " |")
    return lines


def spacing(exact: ExactAnswer, case: StrategyCase) -> float:
    """How far the largest score, or sum of log-probabilities, of the beams is from its neighbour in float32."""
    penalty = case.fields.get("length_penalty", 1.0)
    scores = zip(exact.answer.scores or [], exact.answer.tokens, strict=False)
    largest = max((abs(score) * max(1.0, len(row) ** penalty) for score, row in scores), default=0.0)
    return float(np.spacing(np.float32(largest)))
