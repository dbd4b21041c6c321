"""Compares the strategies of `generate()` with the installed transformers on drawn requests.

`RSGEN_PARITY_CASES=300 pytest -s tests/parity/test_live_strategies.py` draws 10 requests for each of 300 models and each
strategy. The installed transformers decides what is compared: with 5.23.0 the searches that it has, with 4.55.4 the others,
with 5.23.0 and 4.49.0 all of them under ``compat``.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy", reason="live parity needs numpy")
pytest.importorskip("torch", reason="live parity needs torch (pip install torch==2.13.0)")
pytest.importorskip("transformers", reason="live parity needs transformers")

import rsgen
import strategies
from live_requests import Models, Verdict, compare
from parity_settings import BASE_SEED, CASES, PLAIN
from reference import Reference
from strategies import ARCHITECTURES, ERA, StrategyCase
from tiny_models import draw_model, save_model

REQUESTS_PER_MODEL = 10
#: Of the requests of a family that may be excused so.
MOST_EXCUSED = 0.003
FAMILIES = [family for family, eras in strategies.FAMILIES.items() if ERA in eras]
COMPARED: Counter[str] = Counter()
#: Requests that transformers itself fails on.
FAILED: Counter[str] = Counter()
#: Requests whose scores multiply the rounding of what they are made of, and are equal before that.
MULTIPLIED: Counter[str] = Counter()
EXCUSED: dict[str, list[str]] = {family: [] for family in FAMILIES}


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
        check(drawn, case, f"seed {seed}, {case}")


def check(drawn: Models, case: StrategyCase, label: str) -> None:
    """Equal, or a tie in float64."""
    verdict, found = compare(drawn, case)
    if verdict is Verdict.FAILED:
        FAILED[f"{case.family}: {found}"] += 1
        return
    COMPARED[case.family] += 1
    if verdict is Verdict.MULTIPLIED:
        MULTIPLIED[case.family] += 1
    elif verdict in (Verdict.TIE, Verdict.ROUTER):
        EXCUSED[case.family].append(f"{found}: {label}")
    elif verdict is Verdict.UNEXPLAINED:
        pytest.fail(f"{label}\n{found}")


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
