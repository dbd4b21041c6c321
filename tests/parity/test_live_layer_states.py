"""Compares hidden states and attention weights with the installed transformers on drawn models of all families."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy", reason="live parity needs numpy")
torch = pytest.importorskip("torch", reason="live parity needs torch (pip install torch==2.13.0)")
pytest.importorskip("transformers", reason="live parity needs transformers")

import rsgen  # noqa: E402
from parity_settings import BASE_SEED, CASES, PLAIN  # noqa: E402
from reference import Reference, reset_rope  # noqa: E402
from strategies import ARCHITECTURES, ERA  # noqa: E402
from tiny_models import draw_model, save_model  # noqa: E402

pytestmark = pytest.mark.skipif(ERA != "5", reason="the shapes are those of transformers 5")

BOTH = {"output_hidden_states": True, "output_attentions": True}
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sample": {"do_sample": True, "num_return_sequences": 2},
    "beams": {"num_beams": 3, "num_return_sequences": 2},
}
COMPARED: Counter[str] = Counter()
#: Numbers, and those that are within the tolerance of a number of their own size.
WITHIN: Counter[str] = Counter()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("seed", range(BASE_SEED, BASE_SEED + CASES), ids=lambda seed: f"seed{seed}")
def test_states_of_a_drawn_model_are_those_of_transformers(
    architecture: str, seed: int, tmp_path: Path
) -> None:
    rng = random.Random(f"states {architecture} {seed}")
    config, model = draw_model(seed, architecture, plain=PLAIN)
    save_model(model, tmp_path, config_form=5)
    reference, generator = Reference(tmp_path), rsgen.Generator(tmp_path, num_threads=1)
    reference.model.set_attn_implementation("eager")
    for name, fields in SEARCHES.items():
        rows = 1 if reference.couples_rows() else rng.randint(1, 3)
        prompts = [
            [rng.randrange(1, config["vocab_size"]) for _ in range(rng.randint(1, 40))] for _ in range(rows)
        ]
        width = max(map(len, prompts))
        ids = np.array([[0] * (width - len(prompt)) + prompt for prompt in prompts])
        mask = np.array([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        original = getattr(reference.model.config, "original_max_position_embeddings", None)
        if architecture == "phi3" and original and width <= original < width + 8:
            continue  # transformers gives the states of the whole text once it becomes long.
        common = dict(
            fields, max_new_tokens=8, eos_token_id=rng.sample(range(config["vocab_size"]), 3), pad_token_id=0
        )
        torch.manual_seed(seed)
        reset_rope(reference.model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected: Any = reference.model.generate(
                torch.tensor(ids),
                attention_mask=torch.tensor(mask),
                return_dict_in_generate=True,
                output_scores=True,
                **BOTH,
                **common,
            )
            got = generator.generate(
                ids, attention_mask=mask, seed=seed, output_scores=True, **BOTH, **common
            )
        if got.sequences.tolist() != expected.sequences[:, : got.sequences.shape[1]].tolist():
            continue  # A tie: what the tokens are is compared elsewhere.
        compare(got, expected, mask, f"{architecture}, seed {seed}, {name}")
        COMPARED[architecture] += 1
    prompt = [rng.randrange(config["vocab_size"]) for _ in range(rng.randint(1, 40))]
    reset_rope(reference.model)
    with torch.no_grad():
        whole = reference.model(torch.tensor([prompt]), use_cache=False, **BOTH)
    mine = generator.forward(prompt, **BOTH)
    for kind in ("hidden_states", "attentions"):
        for layer, other in zip(getattr(mine, kind), getattr(whole, kind), strict=True):
            close(layer, other.numpy(), f"{architecture}, seed {seed}, forward, {kind}")


def compare(got: Any, expected: Any, mask: Any, label: str) -> None:
    """Shapes, and numbers but of padding and of rows that have ended."""
    for kind in ("hidden_states", "attentions"):
        steps, others = getattr(got, kind), getattr(expected, kind)
        assert len(steps) <= len(others), label
        for step, (layers, wanted) in enumerate(zip(steps, others, strict=False)):
            for index, (layer, other) in enumerate(zip(layers, wanted, strict=True)):
                where = f"{label}, {kind}, step {step}, layer {index}"
                assert layer.shape == tuple(other.shape), where
                ended = np.isnan(got.scores[step]).all(axis=1)
                if step == 0:
                    padding = np.repeat(mask == 0, len(layer) // len(mask), axis=0)
                    unknown = padding[..., None] if kind == "hidden_states" else padding[:, None, :, None]
                else:
                    unknown = ended.reshape(-1, *[1] * (layer.ndim - 1))
                unknown = np.broadcast_to(unknown, layer.shape)
                assert (np.isnan(layer) == unknown).all(), where
                close(layer[~unknown], other.numpy()[~unknown], where)


def close(got: Any, expected: Any, label: str) -> None:
    """Within what is promised, relative to the largest number: those of drawn models run into the hundreds, and their sums
    round accordingly.
    """
    if got.size:
        atol = 1e-4 + 1e-5 * float(np.abs(expected).max())
        WITHIN["in all"] += got.size
        WITHIN["by each number alone"] += int(
            (np.abs(got - expected) <= 1e-4 + 1e-5 * np.abs(expected)).sum()
        )
        np.testing.assert_allclose(got, expected, atol=atol, rtol=0, err_msg=label)


def test_all_families_were_compared() -> None:
    print(dict(COMPARED), dict(WITHIN))
    assert not COMPARED or min(COMPARED[architecture] for architecture in ARCHITECTURES) > 0
