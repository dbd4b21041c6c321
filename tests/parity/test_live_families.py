"""Compares rsgen with transformers on tiny models of fresh seeds, so many of each family: `RSGEN_PARITY_CASES=100 pytest`."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy", reason="live parity needs numpy")
pytest.importorskip("torch", reason="live parity needs torch (pip install torch==2.13.0)")
pytest.importorskip(
    "transformers", reason="live parity needs transformers (pip install transformers==5.24.0)"
)

import rsgen  # noqa: E402
from excuse import assert_logits_close, assert_same_tokens  # noqa: E402
from parity_settings import BASE_SEED, CASES, PLAIN  # noqa: E402
from reference import Reference, Request  # noqa: E402
from tiny_models import FAMILIES, draw_model, save_model  # noqa: E402

LONG, SHORT = 200, 60
SEEDS = range(BASE_SEED, BASE_SEED + CASES)


@dataclass
class Case:
    """One drawn model, opened by both sides."""

    family: str
    seed: int
    label: str
    reference: Reference
    generator: rsgen.Generator
    rng: random.Random

    def ids(self, length: int) -> list[int]:
        """A random prompt."""
        return [self.rng.randrange(self.reference.vocab_size) for _ in range(length)]

    def warpers(self) -> dict[str, Any]:
        """Random sampling fields, some of them left out; without top_k its default, 50, acts."""
        rng = self.rng
        fields: dict[str, Any] = {"do_sample": True}
        optional = {
            "temperature": round(rng.uniform(0.5, 2.5), 2),
            "top_k": rng.choice([0, 1, 3, 10, 100, 1000]),
            "top_p": round(rng.uniform(0.3, 1.0), 2),
            "min_p": round(rng.uniform(0.001, 0.2), 3),
            "repetition_penalty": round(rng.uniform(0.8, 1.5), 2),
        }
        return fields | {name: value for name, value in optional.items() if rng.random() < 0.5}

    def stops(self, max_new_tokens: int) -> dict[str, Any]:
        """Random end-of-sequence tokens with a minimal length, and a padding token."""
        count, vocab_size = self.rng.randint(1, 3), self.reference.vocab_size
        return {
            "eos_token_id": self.rng.sample(range(vocab_size), count),
            "pad_token_id": self.rng.randrange(vocab_size),
            "min_new_tokens": self.rng.randint(1, 12),
            "max_new_tokens": max_new_tokens,
        }

    def check(self, request: Request) -> None:
        """Runs the request on both sides."""
        assert_same_tokens(self.reference, request, generate(self.generator, request), self.label)


def generate(generator: rsgen.Generator, request: Request) -> Any:
    """The request through rsgen: one prompt as a list of ids, several as an array with their mask."""
    options = dict(request.fields)
    if request.seed is not None:
        options["seed"] = request.seed
    if request.attention_mask is None:
        return generator.generate(request.input_ids[0], **options).sequences
    ids, mask = np.array(request.input_ids, dtype=np.int64), np.array(request.attention_mask, dtype=np.int64)
    return generator.generate(ids, attention_mask=mask, **options).sequences


def open_case(family: str, seed: int, folder: Path, **form: Any) -> Case:
    """Draws the model of a seed, writes it and opens the folder on both sides."""
    config, model = draw_model(seed, family, plain=PLAIN)
    save_model(model, folder, **form)
    label = f"{family} seed {seed} {config['rope_parameters']['rope_type']} {form.get('dtype', 'float32')}"
    return Case(family, seed, label, Reference(folder), rsgen.Generator(folder), random.Random(seed))


@pytest.fixture(
    scope="module",
    params=[(family, seed) for family in FAMILIES for seed in SEEDS],
    ids=lambda model: f"{model[0]}-seed{model[1]}",
)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A model in float32, its folder whole or in shards, its config in the form of transformers 4 or 5."""
    family, seed = request.param
    rng = random.Random(seed)
    form = {"config_form": rng.choice([4, 5]), "max_shard_size": rng.choice(["5GB", "30KB"])}
    return open_case(family, seed, tmp_path_factory.mktemp("model"), **form)


def test_logits_of_a_prompt_are_those_of_transformers(case: Case) -> None:
    ids = [case.ids(97), case.ids(97)]
    assert_logits_close(case.reference, ids, case.generator.forward(ids), case.label)


def test_logits_beyond_a_span_of_attention_are_those_of_transformers(case: Case) -> None:
    ids = [case.ids(300)]
    assert_logits_close(case.reference, ids, case.generator.forward(ids), case.label)


def test_greedy_gives_the_tokens_of_transformers(case: Case) -> None:
    case.check(Request([case.ids(case.rng.randint(1, 40))], {"do_sample": False, "max_new_tokens": LONG}))


def test_sampling_gives_the_tokens_of_transformers(case: Case) -> None:
    fields = case.warpers() | {"max_new_tokens": LONG}
    case.check(Request([case.ids(case.rng.randint(1, 40))], fields, case.rng.randrange(2**32)))


def test_several_samples_of_one_prompt_share_the_generator_as_in_transformers(case: Case) -> None:
    fields = case.warpers() | case.stops(SHORT) | {"num_return_sequences": case.rng.randint(2, 4)}
    case.check(Request([case.ids(case.rng.randint(1, 12))], fields, case.rng.randrange(2**32)))


def padded(case: Case, fields: dict[str, Any], seed: int | None) -> Request:
    """Three prompts of different lengths in one array, padded on the left."""
    lengths = case.rng.sample(range(1, 24), 3)
    width = max(lengths)
    ids = [[fields["pad_token_id"]] * (width - n) + case.ids(n) for n in lengths]
    return Request(ids, fields, seed, [[0] * (width - n) + [1] * n for n in lengths])


def test_a_left_padded_batch_gives_the_tokens_of_transformers(case: Case) -> None:
    greedy = padded(case, case.stops(SHORT) | {"do_sample": False, "repetition_penalty": 1.1}, None)
    sampled = padded(case, case.stops(SHORT) | case.warpers(), case.rng.randrange(2**32))
    if not case.reference.couples_rows():
        case.check(greedy)
        case.check(sampled)
        return
    # transformers takes the frequencies from the longest row; in rsgen a row is what it is alone.
    got = np.asarray(generate(case.generator, greedy))
    for row in range(greedy.rows):
        alone = Request([greedy.prompt(row)], greedy.fields)
        start = greedy.width - len(alone.input_ids[0])
        own = got[row : row + 1, start:]
        end = case.reference.generate(alone).sequences.shape[1]
        assert (own[:, end:] == greedy.fields["pad_token_id"]).all(), (
            f"{case.label}: padding after the end of row {row}"
        )
        assert_same_tokens(case.reference, alone, own[:, :end], f"{case.label} row {row} of a batch")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_weights_give_what_transformers_gives_after_widening(
    case: Case, dtype: str, tmp_path: Path
) -> None:
    half = open_case(case.family, case.seed, tmp_path / "model", dtype=dtype)
    ids = [half.ids(40)]
    assert_logits_close(half.reference, ids, half.generator.forward(ids), half.label)
    half.check(Request([half.ids(9)], {"do_sample": False, "max_new_tokens": SHORT}))
    half.check(Request([half.ids(9)], half.warpers() | {"max_new_tokens": SHORT}, half.seed))
