"""Compares the strategies of `generate()` with the installed transformers on drawn requests.

`RSGEN_PARITY_CASES=750 pytest tests/parity/test_live_strategies.py` draws 4 requests for each of 750 models and each
strategy that the installed transformers has; run it with transformers 5.23.0 and with 4.55.4.
"""

from __future__ import annotations

import random
from collections import Counter
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
from strategies import FAMILIES, StrategyAnswer, StrategyCase  # noqa: E402
from tiny_models import draw_model, save_model  # noqa: E402

REQUESTS_PER_MODEL = 4
#: Below this margin in float64 a difference is a tie that float32 may decide either way.
TIE = 1e-5
#: Of the requests of a family that may be excused so.
MOST_EXCUSED = 0.003
COMPARED: Counter[str] = Counter()
EXCUSED: dict[str, list[str]] = {family: [] for family in FAMILIES}


def run(generator: rsgen.Generator, case: StrategyCase) -> StrategyAnswer:
    """The request through rsgen."""
    fields: dict[str, Any] = dict(case.fields, seed=case.seed)
    if case.is_padded or len(case.input_ids) > 1:
        ids, mask = np.array(case.input_ids), np.array(case.attention_mask)
        out = generator.generate(ids, attention_mask=mask, **fields)
    else:
        out = generator.generate(case.input_ids[0], **fields)
    tokens = [row.tolist() for row in out.token_ids]
    if out.beam_indices is None:
        return StrategyAnswer(tokens, None, None)
    lanes = [row[row >= 0].tolist() for row in out.beam_indices]
    return StrategyAnswer(tokens, lanes, out.sequences_scores.tolist())


@pytest.mark.parametrize("family", [family for family, there in FAMILIES.items() if there])
@pytest.mark.parametrize("seed", range(BASE_SEED, BASE_SEED + CASES), ids=lambda seed: f"seed{seed}")
def test_a_drawn_request_gives_the_tokens_and_scores_of_transformers(
    family: str, seed: int, tmp_path: Path
) -> None:
    # Other RoPE types changed between the versions of transformers; they have their own tests.
    rope_type = random.Random(seed).choice(["default", "linear", "llama3"])
    config, model = draw_model(seed, plain=PLAIN, rope_type=rope_type)
    save_model(model, tmp_path, config_form=4)
    reference = Reference(tmp_path)
    generator = rsgen.Generator(tmp_path, num_threads=1)
    rng = random.Random(f"{family} {seed}")
    for _ in range(REQUESTS_PER_MODEL):
        case = strategies.draw_case(family, rng, config["vocab_size"], config["num_hidden_layers"])
        compare(reference, generator, case, f"seed {seed}, {case}")


def compare(reference: Reference, generator: rsgen.Generator, case: StrategyCase, label: str) -> None:
    """Equal, or a tie in float64."""
    expected, got = strategies.answer(reference.model, case), run(generator, case)
    COMPARED[case.family] += 1
    if strategies.same(got, expected):
        return
    exact, margin = strategies.exact_answer(reference.model64, case)
    if margin < TIE:
        EXCUSED[case.family].append(f"margin {margin:.1e}: {label}")
        return
    pytest.fail(f"{label}\nrsgen        {got}\ntransformers {expected}\nfloat64      {exact}, margin {margin:.1e}")


@pytest.mark.parametrize("family", [family for family, there in FAMILIES.items() if there])
def test_few_requests_are_ties(family: str) -> None:
    excused = EXCUSED[family]
    print(f"{family}: {COMPARED[family]} requests compared, {len(excused)} excused")
    print("\n".join(excused))
    assert len(excused) <= max(1, MOST_EXCUSED * COMPARED[family]), "\n".join(excused)
