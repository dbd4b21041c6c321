"""Compares a model of the size of SmolLM2-135M, with random weights, with the installed transformers in float32.

`RSGEN_PARITY_SHAPE=S pytest -s tests/parity/test_live_shape.py` takes some minutes and 2 GB; without the variable it is
skipped. Prompts are of 32, 512 and 1500 tokens; compared are logits, 100 greedy tokens, 4 beams and a seeded sample.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

np = pytest.importorskip("numpy", reason="live parity needs numpy")
torch = pytest.importorskip("torch", reason="live parity needs torch (pip install torch==2.13.0)")
pytest.importorskip("transformers", reason="live parity needs transformers")

SHAPE = os.environ.get("RSGEN_PARITY_SHAPE", "")
if not SHAPE:
    pytest.skip("set RSGEN_PARITY_SHAPE=S to compare a large model", allow_module_level=True)

import rsgen  # noqa: E402
import strategies  # noqa: E402
from closeness import close_scores, same_choices  # noqa: E402
from parity_settings import ROOT  # noqa: E402
from reference import Reference  # noqa: E402
from strategies import StrategyAnswer, StrategyCase  # noqa: E402

sys.path.append(str(ROOT / "benches" / "peers"))
from shapes import SHAPES, write_checkpoint  # noqa: E402

LENGTHS = [32, 512, 1500]
REQUESTS = {
    "greedy_search": {"max_new_tokens": 100},
    "beam_search": {"max_new_tokens": 32, "num_beams": 4, "num_return_sequences": 4},
    "sample": {"max_new_tokens": 100, "do_sample": True, "temperature": 0.8, "top_p": 0.95},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Reference, rsgen.Generator]:
    """The model on both sides."""
    folder: Path = tmp_path_factory.mktemp(SHAPE)
    write_checkpoint(folder, SHAPES[SHAPE])
    torch.set_num_threads(1)
    return Reference(folder), rsgen.Generator(folder)


def prompt(length: int, vocab_size: int) -> list[int]:
    """Random ids."""
    return np.random.default_rng(length).integers(0, vocab_size, length).tolist()


@pytest.mark.parametrize("length", LENGTHS)
def test_logits_are_those_of_transformers(models: tuple[Reference, rsgen.Generator], length: int) -> None:
    reference, generator = models
    ids = prompt(length, reference.vocab_size)
    expected, got = reference.forward([ids])[0], generator.forward([ids])[0]
    beyond = np.abs(got - expected) - (1e-4 + 1e-5 * np.abs(expected))
    print(f"logits after {length} tokens: at most {np.abs(got - expected).max():.2e} apart")
    assert beyond.max() <= 0


@pytest.mark.parametrize("search", REQUESTS)
@pytest.mark.parametrize("length", LENGTHS)
def test_tokens_are_those_of_transformers(
    models: tuple[Reference, rsgen.Generator], search: str, length: int
) -> None:
    reference, generator = models
    ids = prompt(length, reference.vocab_size)
    fields = {**REQUESTS[search], "eos_token_id": [0], "pad_token_id": 1}
    expected = strategies.answer(
        reference.model, StrategyCase(search, [ids], [[1] * length], fields, seed=length)
    )
    out = generator.generate(ids, seed=length, **fields)
    scores = None if out.sequences_scores is None else out.sequences_scores.tolist()
    got = StrategyAnswer([row.tolist() for row in out.token_ids], None, scores)
    assert same_choices(got, expected)
    if scores is not None:
        assert close_scores(got, expected)
    print(f"{search} after {length} tokens: {sum(map(len, got.tokens))} tokens equal")
