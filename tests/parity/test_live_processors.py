"""Compares every logits processor with transformers' own class, on rows of every awkward kind.

With transformers 4.49 installed, the form of ``compat="4.49"`` is compared: the interpreter decides which. The number of
rows for each processor is ``RSGEN_PARITY_ROWS``, 10000 by default.
"""

from __future__ import annotations

import inspect
import math
import os
from typing import Any

import pytest

np = pytest.importorskip("numpy", reason="live parity needs numpy")
torch = pytest.importorskip("torch", reason="live parity needs torch (pip install torch==2.13.0)")
transformers = pytest.importorskip("transformers", reason="live parity needs transformers")

import rsgen  # noqa: E402
from parity_settings import BASE_SEED  # noqa: E402
from processor_cases import PROCESSORS, Batch, Processor, batches  # noqa: E402
from transformers.generation import logits_process  # noqa: E402

ROWS = int(os.environ.get("RSGEN_PARITY_ROWS", "10000"))
VERSION = transformers.__version__.split(".")[0]
COMPAT: dict[str, Any] = {"compat": "4.49"} if VERSION == "4" else {}

#: What was compared: for each processor its rows, and those that float32's own rounding decides.
COUNTS: dict[str, list[int]] = {}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("processor", [p for p in PROCESSORS if VERSION in p.versions], ids=lambda p: p.name)
def test_a_processor_gives_what_that_of_transformers_gives(processor: Processor) -> None:
    theirs_class = getattr(logits_process, processor.name)
    known = inspect.signature(theirs_class).parameters
    ours_class = getattr(rsgen.processors, processor.name)
    count = COUNTS.setdefault(processor.name, [0, 0])
    for number, batch in enumerate(batches(processor, BASE_SEED, ROWS)):
        arguments = {k: v for k, v in processor.arguments(batch).items() if k in known}
        call = processor.call(batch, arguments)
        expected = theirs_class(**{k: _tensor(v) for k, v in arguments.items()})(
            torch.from_numpy(batch.input_ids),
            torch.from_numpy(batch.scores.copy()),
            **{k: _tensor(v) for k, v in call.items()},
        ).numpy()
        actual = ours_class(**arguments, **COMPAT)(batch.input_ids, batch.scores, **call)
        for row in range(batch.rows):
            problem = _difference(actual[row], expected[row], processor.tolerance)
            if problem and _decided_by_rounding(processor, arguments, batch, row, actual[row], expected[row]):
                count[1] += 1
                problem = None
            assert problem is None, (
                f"{processor.name}({arguments}), seed {BASE_SEED}, batch {number}, row {row} of {batch.vocab}"
                f" scores: {problem}"
            )
        count[0] += batch.rows


def _tensor(value: Any) -> Any:
    """Arrays as tensors, everything else as it is."""
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def _difference(actual: Any, expected: Any, tolerance: float) -> str | None:
    """Where two rows differ: in what is removed, in what is NaN, or in a value."""
    equal = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    if tolerance:
        finite = np.isfinite(actual) & np.isfinite(expected)
        with np.errstate(invalid="ignore"):
            close = np.abs(actual.astype(np.float64) - expected) <= tolerance * np.abs(expected)
        equal |= finite & close
    if equal.all():
        return None
    places = np.flatnonzero(~equal)
    shown = [f"{place}: {actual[place]!r} and not {expected[place]!r}" for place in places[:4]]
    return f"{len(places)} differ: {', '.join(shown)}"


def _decided_by_rounding(
    processor: Processor, arguments: dict[str, Any], batch: Batch, row: int, actual: Any, expected: Any
) -> bool:
    """Whether the tokens that differ lie, computed in float64, within float32's rounding of the limit."""
    margin = MARGINS.get(processor.name)
    if margin is None:
        return False
    differing = np.flatnonzero(actual != expected)
    with np.errstate(all="ignore"):
        return bool(margin(arguments, batch.scores[row].astype(np.float64), differing) < 1e-6)


def _probabilities(scores: Any) -> Any:
    exponentials = np.exp(scores - scores.max())
    return exponentials / exponentials.sum()


def _entropy(probabilities: Any) -> float:
    return float(-(probabilities * np.log(np.where(probabilities > 0, probabilities, 1))).sum())


def _eta_margin(arguments: dict[str, Any], scores: Any, differing: Any) -> float:
    probabilities = _probabilities(scores)
    epsilon = arguments["epsilon"]
    limit = min(epsilon, math.sqrt(epsilon) * math.exp(-_entropy(probabilities)))
    return float(np.abs(np.log(probabilities[differing] / limit)).max())


def _top_h_margin(arguments: dict[str, Any], scores: Any, differing: Any) -> float:
    best = np.sort(scores)[::-1][:100]
    probabilities = _probabilities(best)
    terms = -probabilities * np.log(np.where(probabilities > 0, probabilities, 1))
    limit = arguments["top_h"] * terms.sum()
    # Tokens of equal scores come in some order: any of their sums may be the one that counted.
    ranks = [np.flatnonzero(best == scores[token]) for token in differing]
    sums = np.cumsum(terms)
    return float(max(np.abs(sums[rank] / limit - 1).min() if len(rank) else np.inf for rank in ranks))


def _typical_margin(arguments: dict[str, Any], scores: Any, differing: Any) -> float:
    probabilities = _probabilities(scores)
    logs = np.log(probabilities)
    distances = np.abs(-logs - _entropy(probabilities))
    order = np.argsort(distances, kind="stable")
    sums = np.cumsum(probabilities[order])
    border = distances[order][min(int((sums < arguments["mass"]).sum()), len(order) - 1)]
    by_mass = np.abs(sums - arguments["mass"]).min()
    by_distance = np.abs(distances[differing] - border).max()
    return float(min(by_mass, by_distance))


#: How near to its limit a token is in float64, for the warpers whose limit torch computes with functions of a library
#: (the logarithm and the exponential function of MKL) whose last bit depends on the machine.
MARGINS = {
    "EtaLogitsWarper": _eta_margin,
    "TopHLogitsWarper": _top_h_margin,
    "TypicalLogitsWarper": _typical_margin,
}
