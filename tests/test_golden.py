"""Compares rsgen with the committed goldens of `tests/golden`; needs numpy only."""

from __future__ import annotations

import base64
import json
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")

import rsgen  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden"
GOLDENS = {path.stem: json.loads(path.read_text()) for path in sorted(GOLDEN.glob("*.json"))}
#: A sample: tests/suite/golden.rs compares all of them.
MODELS = [
    "story-3m",
    "generation_defaults",
    "head_of_its_own",
    "mistral_window",
    "phi3_longrope",
    "qwen3_norms",
    "sharded",
]
CASES = [
    pytest.param(name, case, id=f"{name}-{case['name']}")
    for name in MODELS
    for case in GOLDENS[name]["generate"]
]
TOKENIZER = GOLDENS["story-3m"]["tokenizer"]


@cache
def generator(name: str) -> rsgen.Generator:
    """The golden's model, opened once."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`tie_word_embeddings` is true, but")
        return rsgen.Generator(ROOT / GOLDENS[name]["model"])


def tensor(value: dict[str, Any]) -> Any:
    """An array out of its base64 form."""
    return np.frombuffer(base64.b64decode(value["f32"]), dtype="<f4").reshape(value["shape"])


def assert_close(got: Any, expected: Any) -> None:
    """Within the tolerance promised: 1e-4 absolute plus 1e-5 relative; infinities must match."""
    np.testing.assert_allclose(np.asarray(got, dtype=np.float32), expected, rtol=1e-5, atol=1e-4)


def options(case: dict[str, Any]) -> dict[str, Any]:
    """The keywords of a golden request."""
    return case["config"] if case["seed"] is None else {**case["config"], "seed": case["seed"]}


def run(name: str, case: dict[str, Any], **more: Any) -> Any:
    """A golden request: one prompt as a list of ids, several rows as an array with their mask."""
    keywords = {**options(case), **more}
    if "attention_mask" not in case:
        return generator(name).generate(case["input_ids"][0], **keywords)
    ids, mask = np.array(case["input_ids"], dtype=np.int64), np.array(case["attention_mask"], dtype=np.int64)
    return generator(name).generate(ids, attention_mask=mask, **keywords)


def test_every_golden_has_the_format_that_these_tests_read() -> None:
    assert len([golden for golden in GOLDENS.values() if "model" in golden]) > 20
    assert {golden["format"] for golden in GOLDENS.values()} == {1}


@pytest.mark.parametrize("name", MODELS)
def test_logits_match(name: str) -> None:
    golden = GOLDENS[name]["forward"]
    logits = generator(name).forward(golden["input_ids"])
    assert logits.dtype == np.float32
    assert logits.shape[:2] == np.shape(golden["input_ids"])
    assert_close(logits[:, golden["positions"]], tensor(golden["logits"]))


@pytest.mark.parametrize("name", MODELS)
def test_scores_of_a_text_match(name: str) -> None:
    golden = GOLDENS[name]["score"]
    logprobs = np.asarray(generator(name).score(golden["input_ids"]), dtype=np.float32).reshape(-1)
    assert_close(logprobs[1:], tensor(golden["logprobs"])[1:])


@pytest.mark.parametrize(("name", "case"), CASES)
def test_generated_tokens_match(name: str, case: dict[str, Any]) -> None:
    out = run(name, case)
    assert out.sequences.dtype == np.int64
    np.testing.assert_array_equal(out.sequences, case["sequences"])
    assert list(out.finish_reasons) == case["finish_reasons"]
    if "texts" in case:
        assert list(out.texts) == case["texts"]


@pytest.mark.parametrize(("name", "case"), [p for p in CASES if "scores" in p.values[1]])
def test_scores_and_logprobs_of_generated_tokens_match(name: str, case: dict[str, Any]) -> None:
    scores, logprobs = tensor(case["scores"]), tensor(case["logprobs"])
    out = run(name, case, return_dict_in_generate=True, output_scores=True)
    assert len(out.scores) == len(logprobs)
    assert_close(np.stack(out.scores[: len(scores)]), scores)
    assert_close(np.asarray(out.logprobs[0])[: len(logprobs)], logprobs)


@pytest.mark.parametrize(
    ("name", "case"), [p for p in CASES if p.values[0] == "story-3m" and "prompts" in p.values[1]]
)
def test_prompts_as_text_give_the_same_stories(name: str, case: dict[str, Any]) -> None:
    if len(case["prompts"]) > 1 and case["seed"] is not None:
        # A list of prompts draws from one generator each; only an array shares one as transformers does.
        texts = [case["prompts"][0]] * 2
        out = generator(name).generate(texts, **case["config"], seed=[case["seed"]] * 2)
        assert out.texts[0] == out.texts[1]
        return
    prompts = case["prompts"] if len(case["prompts"]) > 1 else case["prompts"][0]
    assert list(generator(name).generate(prompts, **options(case)).texts) == case["texts"]


@pytest.mark.parametrize(("name", "case"), [p for p in CASES if p.values[1]["name"].endswith("greedy")])
def test_a_list_of_prompts_gives_each_what_it_gets_alone(name: str, case: dict[str, Any]) -> None:
    prompt, expected = case["input_ids"][0], case["sequences"][0]
    other = prompt[: max(1, len(prompt) - 2)]
    out = generator(name).generate([other, prompt], **case["config"])
    width = len(prompt)
    np.testing.assert_array_equal(out.sequences[1][: len(expected)], expected)
    alone = generator(name).generate(other, **case["config"]).sequences[0]
    start = width - len(other)
    np.testing.assert_array_equal(out.sequences[0][start : start + len(alone)], alone)


@pytest.mark.parametrize(
    ("name", "case"), [p for p in CASES if p.values[1]["name"] in ("greedy", "sample_top_k_top_p")]
)
def test_a_stream_gives_the_same_tokens(name: str, case: dict[str, Any]) -> None:
    prompt = case["input_ids"][0]
    ids = [token.id for token in generator(name).stream(prompt, **options(case))]
    assert ids == case["sequences"][0][len(prompt) :]


@pytest.mark.parametrize("case", TOKENIZER["encode"], ids=lambda case: ascii(case["text"])[:30])
def test_texts_give_the_ids_of_the_reference(case: dict[str, Any]) -> None:
    tokenizer = generator("story-3m").tokenizer
    assert list(tokenizer.encode(case["text"])) == case["ids"]
    assert list(tokenizer.encode(case["text"], add_special_tokens=False)) == case["ids_without_special"]


@pytest.mark.parametrize("case", TOKENIZER["decode"], ids=lambda case: ascii(case["text"])[:30])
def test_ids_give_the_texts_of_the_reference(case: dict[str, Any]) -> None:
    tokenizer = generator("story-3m").tokenizer
    assert tokenizer.decode(case["ids"], skip_special_tokens=False) == case["text"]
    assert tokenizer.decode(case["ids"], skip_special_tokens=True) == case["text_without_special"]
