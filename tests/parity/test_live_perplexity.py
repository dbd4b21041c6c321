"""Compares `perplexity` with the loop of transformers' page "Perplexity of fixed-length models"."""

from __future__ import annotations

import math
import sys

import pytest

np = pytest.importorskip("numpy", reason="live parity needs numpy")
torch = pytest.importorskip("torch", reason="live parity needs torch (pip install torch==2.13.0)")
pytest.importorskip("transformers", reason="live parity needs transformers==5.24.0")

import rsgen  # noqa: E402
from parity_settings import BASE_SEED, ROOT  # noqa: E402

sys.path.insert(0, str(ROOT / "tools" / "story_model"))

from story_corpus import write_stories  # noqa: E402

STORY = ROOT / "python" / "rsgen" / "models" / "story-3m"


def of_the_page(model: object, ids: torch.Tensor, window: int, stride: int) -> float:
    """The sums of the page: the model's loss is a mean over the labels that count."""
    total, tokens, before = 0.0, 0, 0
    for begin in range(0, ids.shape[1], stride):
        end = min(begin + window, ids.shape[1])
        part, new = ids[:, begin:end], end - before
        labels = part.clone()
        labels[:, :-new] = -100
        with torch.no_grad():
            loss = model(part, labels=labels).loss.item()
        total += loss * (new - 1)
        tokens += new - 1
        before = end
        if end == ids.shape[1]:
            break
    return math.exp(total / tokens)


@pytest.mark.parametrize(("window", "stride"), [(512, 512), (512, 256), (128, 50), (40, 40)])
def test_perplexities_are_those_of_the_page(window: int, stride: int) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    text = "\n".join(story.text for story in write_stories(12, BASE_SEED))
    model = AutoModelForCausalLM.from_pretrained(STORY, dtype=torch.float32).eval()
    ids = AutoTokenizer.from_pretrained(STORY)(text, return_tensors="pt").input_ids
    assert ids.shape[1] > 1000
    found = rsgen.Generator(str(STORY)).perplexity(text, window=window, stride=stride)
    assert found == pytest.approx(of_the_page(model, ids, window, stride), rel=1e-5)
