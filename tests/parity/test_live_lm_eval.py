"""Compares lm-eval's model `rsgen` with its `hf`, which is transformers, on drawn items: see tests/clients for the committed ones."""

from __future__ import annotations

import random
import sys
from types import SimpleNamespace
from typing import Any

import pytest

np = pytest.importorskip("numpy", reason="live parity needs numpy")
pytest.importorskip("torch", reason="live parity needs torch (pip install torch==2.13.0)")
pytest.importorskip("transformers", reason="live parity needs transformers==5.24.0")
pytest.importorskip("lm_eval", reason="this comparison needs lm-eval==0.4.13")
pytest.importorskip("accelerate", reason="lm-eval's `hf` needs accelerate")

from parity_settings import BASE_SEED, CASES, ROOT  # noqa: E402

sys.path.insert(0, str(ROOT / "tools" / "golden"))

from lm_eval_items import beginnings, books, choices  # noqa: E402
from story_corpus import write_stories  # noqa: E402

STORY = ROOT / "python" / "rsgen" / "models" / "story-3m"
STORIES = [story.text for story in write_stories(1000, BASE_SEED)]
RNG = random.Random(BASE_SEED)
TOLERANCE = {"rtol": 1e-5, "atol": 1e-4}


@pytest.fixture(scope="module")
def models() -> tuple[Any, Any]:
    """rsgen and transformers, as lm-eval opens them."""
    from lm_eval.models.huggingface import HFLM
    from rsgen.integrations.lm_eval import RsgenLM

    return RsgenLM(str(STORY), batch_size="auto"), HFLM(
        str(STORY), dtype="float32", device="cpu", batch_size=1
    )


def requests(*arguments: Any) -> list[Any]:
    """What lm-eval hands to a model."""
    return [SimpleNamespace(args=args, task_name=None) for args in arguments]


def test_log_likelihoods_are_those_of_transformers(models: tuple[Any, Any]) -> None:
    pairs = [(item["start"], end) for item in choices(STORIES, RNG)[:CASES] for end in item["ends"]]
    pairs += [("", end) for _, end in pairs[:4]] + [(start + " ", end.strip()) for start, end in pairs[:4]]
    ours, theirs = (np.array(model.loglikelihood(requests(*pairs))) for model in models)
    np.testing.assert_allclose(ours[:, 0], theirs[:, 0], **TOLERANCE)
    np.testing.assert_array_equal(ours[:, 1], theirs[:, 1])


def test_log_likelihoods_of_long_texts_are_those_of_transformers(models: tuple[Any, Any]) -> None:
    texts = [(book["text"],) for book in books(STORIES, RNG)]
    ours, theirs = (np.array(model.loglikelihood_rolling(requests(*texts))) for model in models)
    np.testing.assert_allclose(ours, theirs, **TOLERANCE)


@pytest.mark.parametrize(
    ("until", "fields"),
    [
        (["\n\n"], {}),
        ([".", "!"], {}),
        ([" was", "said"], {}),
        ([], {}),
        # No beams: lm-eval's criterion of `hf` for the end of a text looks at the first beam, and ends them all.
        ([], {"repetition_penalty": 1.3}),
    ],
)
def test_texts_are_those_of_transformers(
    models: tuple[Any, Any], until: list[str], fields: dict[str, Any]
) -> None:
    given = {"until": until, "max_gen_toks": 24, "do_sample": False, **fields}
    starts = [item["start"] for item in beginnings(STORIES, RNG)[: max(CASES // 2, 1)]]
    # A stop sequence that begins in the context is none.
    starts += [STORIES[0].split("\n\n")[0] + "\n"]
    ours, theirs = (model.generate_until(requests(*((s, dict(given)) for s in starts))) for model in models)
    assert ours == theirs
