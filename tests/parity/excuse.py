"""When a difference from transformers counts: the one rule for excuses, applied to tokens and to logits.

A token may differ only where transformers in float64, on the same prefix, decides by a margin below `MARGIN`.
A logit must be within tolerance of transformers in float32; where float32 itself strays, near to float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from reference import Reference, Request, noise_of_step

MARGIN = 1e-5
ABSOLUTE, RELATIVE = 1e-4, 1e-5
#: How many times transformers' own float32 error on a prompt rsgen may be off, both measured against float64.
ERROR_RATIO = 4.0


@dataclass(frozen=True)
class Candidates:
    """What decides a step, in float64: scores minus the log of the noise, and distances from removal."""

    weight: np.ndarray
    #: Positive: kept, and by how much. Negative: removed, and by how much. Infinite: no threshold is near.
    keep: np.ndarray

    def distance(self, token: int) -> float:
        """The smallest disturbance under which `token` would be the one chosen; 0 for the one that is."""
        rivals = np.minimum(self.weight - self.weight[token], np.maximum(self.keep, 0.0))
        rivals[token] = 0.0
        return float(max(0.0, -self.keep[token], rivals.max()))

    def margin(self, first: int, second: int) -> float:
        """The disturbance under which both tokens could be chosen."""
        return max(self.distance(first), self.distance(second))

    def gap(self) -> float:
        """The smallest disturbance that chooses another token than the best; 1 stands for more."""
        kept = np.where(self.keep >= 0.0, self.weight, -np.inf)
        best = int(kept.argmax())
        near = np.flatnonzero(self.weight > kept[best] - 1.0)
        return min(
            [1.0, float(self.keep[best]), *(self.distance(int(token)) for token in near if token != best)]
        )


@dataclass(frozen=True)
class Difference:
    """The first token of a row that differs, with what float64 says about it."""

    row: int
    step: int
    expected: int
    got: int
    margin: float
    #: Largest error of transformers' own float32 logits on this prefix; for the reader, not for the rule.
    reference_error: float

    @property
    def excused(self) -> bool:
        """Whether the margin is below the limit."""
        return self.margin < MARGIN

    def __str__(self) -> str:
        """One line for the log."""
        verdict = "excused" if self.excused else "NOT excused"
        return (
            f"row {self.row} step {self.step}: expected {self.expected}, got {self.got}: {verdict},"
            f" deciding margin {self.margin:.2e} in float64"
            f" (float32 of transformers is off by {self.reference_error:.1e} there)"
        )


@dataclass
class Ledger:
    """Everything compared in a session, for the summary."""

    tokens: int = 0
    excused: list[str] = field(default_factory=list)
    positions: int = 0
    excused_positions: int = 0
    worst_logit: float = 0.0


LEDGER = Ledger()


def candidates(
    reference: Reference, request: Request, row: int, tokens: Sequence[int], logits: np.ndarray
) -> Candidates:
    """The decision that follows `tokens`, the continuation so far of a row, from float64 logits."""
    step, ids = len(tokens), [*request.prompt(row), *tokens]
    scores = _penalized(reference, request, ids, step, logits)
    if not reference.setting(request, "do_sample", False):
        return Candidates(scores, np.full_like(scores, np.inf))
    scores = scores / reference.setting(request, "temperature", 1.0)
    keep = _keep_margins(reference, request, scores)
    noise = noise_of_step(request.seed or 0, request.rows, len(scores), step)[row]
    with np.errstate(divide="ignore"):
        return Candidates(scores - np.log(noise), keep)


def _penalized(
    reference: Reference, request: Request, ids: list[int], step: int, logits: np.ndarray
) -> np.ndarray:
    """Logits after the processors that greedy search has too."""
    scores = logits.astype(np.float64, copy=True)
    seen = np.unique(ids)
    penalty = reference.setting(request, "repetition_penalty", 1.0)
    scores[seen] = np.where(scores[seen] < 0, scores[seen] * penalty, scores[seen] / penalty)
    too_short = step < (request.fields.get("min_new_tokens") or 0)
    too_short |= request.width + step < (reference.setting(request, "min_length", 0))
    if too_short:
        scores[reference.eos_ids(request)] = -np.inf
    return scores


def _keep_margins(reference: Reference, request: Request, scores: np.ndarray) -> np.ndarray:
    """Distance of each token from the thresholds of top-k, top-p and min-p, applied in this order."""
    keep = np.where(np.isneginf(scores), -np.inf, np.inf)
    if top_k := reference.setting(request, "top_k", 50):
        keep = np.minimum(keep, _top_k_margin(scores, min(top_k, len(scores))))
    top_p = reference.setting(request, "top_p", 1.0)
    if top_p < 1.0:
        keep = np.minimum(keep, _top_p_margin(np.where(keep >= 0, scores, -np.inf), top_p))
    min_p = reference.setting(request, "min_p")
    if min_p is not None:
        keep = np.minimum(keep, _min_p_margin(scores, min_p))
    return keep


def _top_k_margin(scores: np.ndarray, k: int) -> np.ndarray:
    """Kept tokens: lead over the best one outside; others: what they lack to the k-th (negative)."""
    ordered = np.sort(scores)[::-1]
    outside = ordered[k] if k < len(scores) else -np.inf
    with np.errstate(invalid="ignore"):
        margin = np.where(scores >= ordered[k - 1], scores - outside, scores - ordered[k - 1])
    return np.where(np.isneginf(scores), -np.inf, margin)


def _top_p_margin(scores: np.ndarray, top_p: float) -> np.ndarray:
    """Cumulated ascending probability beyond `1 - top_p`; 0 where a near tie decides which is inside."""
    order = np.argsort(scores, kind="stable")
    probabilities = np.exp(scores - scores.max())
    probabilities /= probabilities.sum()
    ascending, cumulated = scores[order], np.cumsum(probabilities[order])
    margin = np.empty_like(scores)
    margin[order] = cumulated - (1.0 - top_p)
    before = np.concatenate([[0.0], cumulated])
    lowest = before[np.searchsorted(ascending, scores - MARGIN, side="left")] + probabilities
    highest = before[np.searchsorted(ascending, scores + MARGIN, side="right")]
    tied = (lowest <= 1.0 - top_p) & (highest > 1.0 - top_p) & (highest - lowest > MARGIN)
    margin[tied & np.isfinite(scores)] = 0.0
    margin[order[-1]] = np.inf
    return np.where(np.isneginf(scores), -np.inf, margin)


def _min_p_margin(scores: np.ndarray, min_p: float) -> np.ndarray:
    """Log-probability above the threshold `min_p * max`."""
    with np.errstate(divide="ignore"):
        margin = scores - scores.max() - np.log(min_p)
    margin[scores.argmax()] = np.inf
    return margin


def first_differences(
    reference: Reference, request: Request, expected: np.ndarray, got: np.ndarray
) -> list[Difference]:
    """The first difference of each row; after it the prefixes differ, so nothing more can be compared."""
    eos = reference.eos_ids(request)
    found = []
    for row in range(request.rows):
        want = _continuation(expected[row], request.width, eos)
        have = _continuation(got[row], request.width, eos)
        step = next((i for i, (a, b) in enumerate(zip(want, have, strict=False)) if a != b), None)
        LEDGER.tokens += len(want) if step is None else step + 1
        if step is None:
            assert want == have, f"row {row}: equal so far, but {len(have)} tokens instead of {len(want)}"
            continue
        found.append(_judge(reference, request, row, want[:step], want[step], have[step]))
    return found


def _continuation(sequence: np.ndarray, width: int, eos: list[int]) -> list[int]:
    """The generated tokens of a row, up to its end-of-sequence token."""
    tokens = [int(token) for token in sequence[width:]]
    end = next((i + 1 for i, token in enumerate(tokens) if token in eos), len(tokens))
    return tokens[:end]


def _judge(
    reference: Reference, request: Request, row: int, prefix: list[int], expected: int, got: int
) -> Difference:
    """Asks float64 about one step."""
    prompt = request.prompt(row)
    exact = reference.logits_along(prompt, prefix)[-1]
    error = np.abs(reference.logits_along(prompt, prefix, float64=False)[-1] - exact).max()
    margin = candidates(reference, request, row, prefix, exact).margin(expected, got)
    return Difference(row, len(prefix), expected, got, margin, float(error))


def assert_same_tokens(reference: Reference, request: Request, got: np.ndarray, label: str) -> None:
    """Compares the sequences of a request with transformers'; a difference without excuse fails."""
    expected = reference.generate(request).sequences
    got = np.asarray(got)
    assert got.dtype == np.int64, f"{label}: sequences must be int64, got {got.dtype}"
    assert got.ndim == 2, f"{label}: sequences must have 2 dimensions, got {got.shape}"
    assert got.shape[0] == request.rows, f"{label}: {got.shape} for {request.rows} rows"
    prompts = expected[:, : request.width]
    assert np.array_equal(got[:, : request.width], prompts), f"{label}: the prompts must stand in front"
    differences = first_differences(reference, request, expected, got)
    for difference in differences:
        if difference.excused:
            LEDGER.excused.append(f"{label}: {difference}")
    lines = [str(difference) for difference in differences if not difference.excused]
    assert not lines, f"{label} {request.fields} seed {request.seed}:\n" + "\n".join(lines)
    if not differences:
        assert np.array_equal(got, expected), f"{label}: same tokens, but another width or padding"


def assert_logits_close(
    reference: Reference, input_ids: list[list[int]], got: np.ndarray, label: str
) -> None:
    """Compares logits at every position, `[batch, seq, vocab]`."""
    expected = reference.forward(input_ids)
    assert got.dtype == np.float32, f"{label}: logits must be float32, got {got.dtype}"
    assert got.shape == expected.shape, f"{label}: {got.shape} for {expected.shape}"
    tolerance = ABSOLUTE + RELATIVE * np.abs(expected)
    off = (np.abs(got - expected) / tolerance).max(axis=-1)
    LEDGER.positions += off.size
    if (off <= 1.0).all():
        LEDGER.worst_logit = max(LEDGER.worst_logit, float(off.max()))
        return
    exact = reference.forward(input_ids, float64=True)
    own = (np.abs(got - exact) / tolerance).max(axis=-1)
    theirs = (np.abs(expected - exact) / tolerance).max()
    wrong = (off > 1.0) & (own > max(1.0, ERROR_RATIO * theirs))
    LEDGER.excused_positions += int(((off > 1.0) & ~wrong).sum())
    where = [
        f"row {b} position {t}: {off[b, t]:.1f} tolerances from float32, {own[b, t]:.1f} from float64,"
        f" where float32 of transformers is up to {theirs:.1f} off"
        for b, t in zip(*np.nonzero(wrong), strict=True)
    ]
    assert not where, f"{label}: {len(where)} of {off.size} positions\n" + "\n".join(where[:10])
