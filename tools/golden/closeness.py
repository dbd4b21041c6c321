"""Whether two answers of a strategy are equal: their choices, and their scores within what is promised."""

from __future__ import annotations

import numpy as np
from strategies import StrategyAnswer, StrategyCase

#: Scores that have been made numbers of infinities are beyond this.
HUGE = 1e30
#: What is promised for scores.
ABSOLUTE, RELATIVE = 1e-4, 1e-5


def same_choices(one: StrategyAnswer, other: StrategyAnswer) -> bool:
    """Whether tokens and lanes are equal."""
    lanes = one.beam_indices, other.beam_indices
    return one.tokens == other.tokens and (None in lanes or lanes[0] == lanes[1])


def scores_of(answer: StrategyAnswer) -> np.ndarray:
    """All scores of an answer."""
    each = [answer.scores or [], *(answer.token_scores or [])]
    return np.concatenate([np.asarray(scores, dtype=np.float64) for scores in each])


def close_scores(one: StrategyAnswer, other: StrategyAnswer) -> bool:
    """Whether the scores of equal choices are equal within the tolerance promised."""
    return bool(np.allclose(scores_of(one), scores_of(other), rtol=RELATIVE, atol=ABSOLUTE))


def within_rounding(one: StrategyAnswer, other: StrategyAnswer, case: StrategyCase) -> bool:
    """Whether scores that multiply the rounding of what they are made of are equal within the tolerance of that.

    A negative `length_penalty` multiplies a row's sum, so the sums are compared. SynthID's tournament does so in each layer. The scores of DoLa are differences of logits, so
    the tolerance is relative to the largest of those.
    """
    if case.family == "dola":
        allowed = ABSOLUTE + RELATIVE * max(one.largest_logit, other.largest_logit)
        scores, expected = scores_of(one), scores_of(other)
        # What has no logit of its own left, because a processor made it so, has no rounding either.
        rounded = np.abs(expected) < HUGE
        exact = np.array_equal(scores[~rounded], expected[~rounded], equal_nan=True)
        return exact and bool((np.abs(scores[rounded] - expected[rounded]) <= allowed).all())
    if case.family == "synthid_text_watermark":
        # Each layer of the tournament adds the rounding of a sum of probabilities.
        layers = 1 + len(case.fields["watermarking_config"]["keys"])
        allowed = layers * (ABSOLUTE + RELATIVE * np.abs(scores_of(other)))
        return bool((np.abs(scores_of(one) - scores_of(other)) <= allowed).all())
    penalty = case.fields.get("length_penalty", 1.0)
    if penalty >= 0 or one.scores is None or other.scores is None:
        return False
    lengths = np.array([len(row) for row in one.tokens], dtype=np.float64)
    sums = [np.asarray(answer.scores) * lengths**penalty for answer in (one, other)]
    return bool(np.allclose(*sums, rtol=RELATIVE, atol=ABSOLUTE))
