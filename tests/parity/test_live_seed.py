"""Compares `Seed` with torch's generators: their states to the byte, and several calls after one seed with transformers'."""

from __future__ import annotations

import random

import pytest

np = pytest.importorskip("numpy", reason="live parity needs numpy")
torch = pytest.importorskip("torch", reason="live parity needs torch (pip install torch==2.13.0)")
transformers = pytest.importorskip("transformers", reason="live parity needs transformers")

import rsgen  # noqa: E402
from parity_settings import BASE_SEED, ROOT  # noqa: E402

STORY = ROOT / "python/rsgen/models/story-3m"
PROMPTS = ["Once upon a time", "Tom had a", "The dog"]
#: Values around the end of a block of 624 words.
DRAWS = [0, 1, 2, 17, 622, 623, 624, 625, 1247, 1248, 1249]


def drawn(generator: torch.Generator, count: int) -> None:
    """Draws so many words of 32 bits."""
    for _ in range(count):
        torch.empty(1, dtype=torch.int32).random_(generator=generator)


@pytest.mark.parametrize("seed", [0, 7, 2**32, 2**63 + 5, -3])
@pytest.mark.parametrize("count", DRAWS)
def test_a_state_is_that_of_torch_to_the_byte(seed: int, count: int) -> None:
    theirs = torch.Generator().manual_seed(seed)
    drawn(theirs, count)
    state = theirs.get_state().numpy()
    ours = rsgen.Seed(1)
    ours.set_state(state)
    assert ours.get_state().tobytes() == state.tobytes()
    assert ours.initial_seed() == theirs.initial_seed()
    if not count:
        assert rsgen.Seed(seed).get_state().tobytes() == state.tobytes()
    again = torch.Generator()
    again.set_state(torch.from_numpy(ours.get_state()))
    assert torch.rand(5, generator=again).tolist() == torch.rand(5, generator=theirs).tolist()


@pytest.mark.timeout(1800)
def test_calls_after_one_seed_are_those_of_transformers() -> None:
    gen = rsgen.Generator(STORY)
    tokenizer = transformers.AutoTokenizer.from_pretrained(STORY)
    model = transformers.AutoModelForCausalLM.from_pretrained(STORY, dtype=torch.float32)
    rng = random.Random(BASE_SEED)
    for _ in range(20):
        seed = rng.randrange(2**40)
        torch.manual_seed(seed)
        ours = rsgen.Seed(seed)
        for _ in range(rng.randint(2, 4)):
            prompt = rng.choice(PROMPTS)
            fields = {
                "do_sample": True,
                "max_new_tokens": rng.randint(1, 12),
                "num_return_sequences": rng.randint(1, 3),
                "temperature": rng.choice([0.8, 1.3]),
                "top_k": rng.choice([5, 50]),
            }
            expected = model.generate(**tokenizer(prompt, return_tensors="pt"), **fields)
            found = gen.generate(prompt, seed=ours, **fields)
            assert np.asarray(found.sequences).tolist() == expected.tolist()
            assert ours.get_state().tobytes() == torch.get_rng_state().numpy().tobytes()
