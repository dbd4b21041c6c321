"""Compares the strategies of `generate()` with the installed transformers on drawn requests.

`RSGEN_PARITY_CASES=300 pytest -s tests/parity/test_live_strategies.py` draws 10 requests for each of 300 models and each
strategy. The installed transformers decides what is compared: with 5.23.0 the searches that it has, with 4.55.4 the others,
with 5.23.0 and 4.49.0 all of them under ``compat``.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy", reason="live parity needs numpy")
pytest.importorskip("torch", reason="live parity needs torch (pip install torch==2.13.0)")
pytest.importorskip("transformers", reason="live parity needs transformers")

import rsgen  # noqa: E402
import strategies  # noqa: E402
from parity_settings import BASE_SEED, CASES, PLAIN  # noqa: E402
from reference import Reference  # noqa: E402
from strategies import ARCHITECTURES, COMPAT, ERA, StrategyAnswer, StrategyCase  # noqa: E402
from tiny_models import draw_model, save_model  # noqa: E402

REQUESTS_PER_MODEL = 10
#: Below this margin in float64 a difference is a tie that float32 may decide either way.
TIE = 1e-5
#: The same for scores beyond 40, in units of their last place: penalties and guidance multiply scores to hundreds, whose
#: neighbours in float32 are further than `TIE` from each other.
ROUNDINGS = 4
#: Of the requests of a family that may be excused so.
MOST_EXCUSED = 0.003
FAMILIES = [family for family, eras in strategies.FAMILIES.items() if ERA in eras]
COMPARED: Counter[str] = Counter()
#: Requests that transformers itself fails on.
FAILED: Counter[str] = Counter()
#: Requests whose scores multiply the rounding of what they are made of, and are equal before that.
MULTIPLIED: Counter[str] = Counter()
EXCUSED: dict[str, list[str]] = {family: [] for family in FAMILIES}


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


@lru_cache(maxsize=1)
def models(seed: int, folder: Path) -> Models:
    """A drawn model, and one that drafts for it."""
    rng = random.Random(seed)
    architecture = rng.choice(ARCHITECTURES)
    # In a window of a few tokens beams forget where they came from, and tie.
    window = rng.choice([None, 24, 40])
    fixed: dict[str, Any] = {} if architecture == "llama" else {"sliding_window": window}
    if ERA != "5":
        # What changed between the versions of transformers has its own tests: other RoPE types, windows.
        fixed = {"rope_type": rng.choice(["default", "linear", "llama3"])}
        windows = {
            "mistral": {"sliding_window": None},
            "phi3": {
                "sliding_window": None,
                "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
            },
            "qwen2": {"use_sliding_window": False, "sliding_window": None, "layer_types": None},
            "qwen3": {"use_sliding_window": False, "layer_types": None},
        }
        fixed |= windows.get(architecture, {})
    elif architecture in ("qwen2", "qwen3") and window is None:
        fixed = {"use_sliding_window": False, "layer_types": None}
    config, model = draw_model(seed, architecture, plain=PLAIN, **fixed)
    form = 5 if ERA == "5" else 4
    save_model(model, folder, config_form=form)
    save_model(strategies.assistant_of(model, rng), folder / "assistant", config_form=form)
    sides = [
        (Reference(place), rsgen.Generator(place, num_threads=1)) for place in (folder, folder / "assistant")
    ]
    return Models(config, *sides[0], *sides[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the models are, one at a time."""
    return tmp_path_factory.mktemp("model")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(BASE_SEED, BASE_SEED + CASES), ids=lambda seed: f"seed{seed}")
def test_a_drawn_request_gives_the_tokens_and_scores_of_transformers(
    family: str, seed: int, folder: Path
) -> None:
    drawn = models(seed, folder)
    config, reference = drawn.config, drawn.reference
    if family in (*strategies.ASSISTED, *strategies.GUIDED) and reference.couples_rows():
        pytest.skip(
            "the length of a draft, or of a negative prompt, changes the frequencies of transformers; see docs/parity.md"
        )
    rng = random.Random(f"{family} {seed}")
    for _ in range(REQUESTS_PER_MODEL):
        case = strategies.draw_case(family, rng, config["vocab_size"], config["num_hidden_layers"])
        if ERA == "5" and len(case.input_ids) > 1 and reference.couples_rows():
            case = replace(case, is_list=True)
        compare(drawn, case, f"seed {seed}, {case}")


def compare(drawn: Models, case: StrategyCase, label: str) -> None:
    """Equal, or a tie in float64."""
    try:
        expected = strategies.answer(drawn.reference.model, case, drawn.draft_reference.model)
    except (ValueError, IndexError, RuntimeError, TypeError) as error:
        FAILED[f"{case.family}: {type(error).__name__} {str(error)[:60]}"] += 1
        return
    try:
        got = run(drawn, case)
    except rsgen.NumericalError as error:
        # transformers takes a token from scores that are all NaN or -inf; see docs/parity.md.
        FAILED[f"{case.family}: refused by rsgen: {error}"] += 1
        return
    COMPARED[case.family] += 1
    same = strategies.same_choices(got, expected)
    if same and strategies.close_scores(got, expected):
        return
    if same and strategies.within_rounding(got, expected, case):
        MULTIPLIED[case.family] += 1
        return
    exact, margin = strategies.exact_answer(drawn.reference.model64, case, drawn.draft_reference.model64)
    if margin < max(TIE, ROUNDINGS * spacing(exact)):
        EXCUSED[case.family].append(f"margin {margin:.1e}: {label}")
        return
    pytest.fail(
        f"{label}\nrsgen        {got}\ntransformers {expected}\nfloat64      {exact}, margin {margin:.1e}"
    )


def spacing(exact: StrategyAnswer) -> float:
    """How far the largest score of the beams is from its neighbour in float32."""
    return float(np.spacing(np.float32(max(map(abs, exact.scores or [0.0])))))


@pytest.mark.parametrize("family", FAMILIES)
def test_few_requests_are_ties(family: str) -> None:
    excused, failed = EXCUSED[family], {what: n for what, n in FAILED.items() if what.startswith(family)}
    print(
        f"{family}: {COMPARED[family]} requests compared, {len(excused)} excused,"
        f" {MULTIPLIED[family]} with scores that multiply rounding"
    )
    print(f"transformers failed: {failed}")
    print("\n".join(excused))
    assert len(excused) <= max(1, MOST_EXCUSED * COMPARED[family]), "\n".join(excused)
