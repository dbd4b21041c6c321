"""Compares rsgen with transformers on real text: the bundled models, and stories260k where it is present."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy", reason="live parity needs numpy")
pytest.importorskip("torch", reason="live parity needs torch (pip install torch==2.13.0)")
transformers = pytest.importorskip("transformers", reason="live parity needs transformers==5.24.0")

import rsgen  # noqa: E402
from excuse import assert_logits_close, assert_same_tokens  # noqa: E402
from parity_settings import BASE_SEED, ROOT  # noqa: E402
from reference import Reference, Request  # noqa: E402

BUNDLED = ROOT / "python" / "rsgen" / "models"
STORIES260K = Path(
    os.environ.get("RSGEN_TEST_STORIES260K") or ROOT.parent / "shared" / "models" / "stories260k"
)
PROMPTS = ["Once upon a time", "The little dog", "One day, Anna and"]


@dataclass
class Story:
    """A story model, opened by both sides."""

    name: str
    reference: Reference
    generator: rsgen.Generator

    def ids(self, text: str) -> list[int]:
        """The prompt as transformers encodes it."""
        return self.reference.tokenizer(text)["input_ids"]

    def check(self, text: str, fields: dict[str, Any], seed: int | None = None) -> None:
        """Runs a prompt on both sides, given to rsgen as text, and compares ids and texts."""
        options = fields if seed is None else fields | {"seed": seed}
        out = self.generator.generate(text, **options)
        request = Request([self.ids(text)], fields, seed)
        assert_same_tokens(self.reference, request, out.sequences, f"{self.name} {text!r}")
        for row, got in zip(np.asarray(out.sequences), out.texts, strict=True):
            assert got == self.continuation(request, row), f"{self.name} {text!r}: text of the continuation"

    def continuation(self, request: Request, row: Any) -> str:
        """What a row adds to its prompt; both are decoded together, so that a leading space stays."""
        decode = self.reference.tokenizer.decode
        prompt = decode(request.prompt(0), skip_special_tokens=True)
        return decode([int(token) for token in row], skip_special_tokens=True)[len(prompt) :]


@pytest.fixture(scope="module", params=["story-3m", "story-draft", "stories260k"])
def story(request: pytest.FixtureRequest) -> Story:
    """Each model in turn."""
    folder = STORIES260K if request.param == "stories260k" else BUNDLED / request.param
    if not folder.is_dir():
        pytest.skip(f"{request.param} is not present; RSGEN_TEST_STORIES260K may name its folder")
    reference = Reference(folder, transformers.AutoTokenizer.from_pretrained(folder))
    return Story(request.param, reference, rsgen.Generator(folder))


@pytest.mark.parametrize("text", PROMPTS)
def test_greedy_tells_the_story_of_transformers(story: Story, text: str) -> None:
    story.check(text, {"do_sample": False, "max_new_tokens": 200})


@pytest.mark.parametrize("text", PROMPTS)
def test_sampling_tells_the_story_of_transformers(story: Story, text: str) -> None:
    for offset, fields in enumerate([{}, {"temperature": 0.7, "top_p": 0.9}, {"top_k": 0, "min_p": 0.05}]):
        story.check(text, {"do_sample": True, "max_new_tokens": 200, **fields}, BASE_SEED + offset)


def test_several_samples_share_the_generator_as_in_transformers(story: Story) -> None:
    fields = {"do_sample": True, "num_return_sequences": 4, "max_new_tokens": 60, "repetition_penalty": 1.1}
    story.check(PROMPTS[0], fields, BASE_SEED)


def test_a_left_padded_batch_tells_the_stories_of_transformers(story: Story) -> None:
    prompts = [story.ids(text) for text in [*PROMPTS, "A"]]
    width = max(map(len, prompts))
    ids = [[0] * (width - len(prompt)) + prompt for prompt in prompts]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    for seed, fields in ((None, {"do_sample": False}), (BASE_SEED, {"do_sample": True, "top_p": 0.95})):
        request = Request(ids, fields | {"max_new_tokens": 60, "pad_token_id": 0}, seed, mask)
        options = request.fields if seed is None else request.fields | {"seed": seed}
        out = story.generator.generate(np.array(ids), attention_mask=np.array(mask), **options)
        assert_same_tokens(story.reference, request, out.sequences, story.name)


def test_stop_strings_end_where_transformers_ends(story: Story) -> None:
    story.check(PROMPTS[0], {"do_sample": False, "max_new_tokens": 100, "stop_strings": [".", " was"]})


def test_logits_of_a_text_are_those_of_transformers(story: Story) -> None:
    ids = [story.ids("Once upon a time there was a little fox. She had a red kite and a big smile.")]
    assert_logits_close(story.reference, ids, story.generator.forward(ids), story.name)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "Once upon",
        "  two  spaces",
        "na\u00efve caf\u00e9",
        "\U0001f98a fox\n\n",
        "\u4ece\u524d",
        "it's 3.14!",
    ],
)
def test_the_tokenizer_gives_the_ids_of_transformers(story: Story, text: str) -> None:
    assert list(story.generator.tokenizer.encode(text)) == story.ids(text)
