"""Compares assistants of another tokenizer with transformers'. Sampling is compared with its form that does not prune the
assistant's head: the pruned one orders tokens by a hash map and mixes up their ids."""

from __future__ import annotations

import random
from typing import Any

import pytest

pytest.importorskip("torch", reason="live parity needs torch (pip install torch==2.13.0)")
transformers = pytest.importorskip("transformers", reason="live parity needs transformers==5.24.0")
candidates = pytest.importorskip("transformers.generation.candidate_generator")

import rsgen  # noqa: E402
import torch  # noqa: E402
from parity_settings import BASE_SEED, CASES, ROOT  # noqa: E402

if not hasattr(candidates, "UniversalSpeculativeDecodingGenerator"):
    pytest.skip("transformers is too old for assistants of another tokenizer", allow_module_level=True)

STORY = ROOT / "python" / "rsgen" / "models" / "story-3m"
OTHER = ROOT / "tests" / "golden" / "models" / "other_tokenizer"
PROMPTS = ["Once upon a time", "One day, a little fox", "Near the lake there was", "Tom had a red kite."]


class Side:
    """Both models, opened by both sides."""

    def __init__(self) -> None:
        load = transformers.AutoModelForCausalLM.from_pretrained
        self.target, self.assistant = (load(folder, dtype=torch.float32) for folder in (STORY, OTHER))
        read = transformers.AutoTokenizer.from_pretrained
        self.tokenizer, self.assistant_tokenizer = read(STORY), read(OTHER)
        self.generator = rsgen.Generator(STORY, assistant=OTHER, num_threads=1)

    def check(self, prompt: str, seed: int | None, drafts: dict[str, Any], fields: dict[str, Any]) -> None:
        for name, value in drafts.items():
            setattr(self.assistant.generation_config, name, value)
        ids = self.tokenizer(prompt, return_tensors="pt").input_ids
        if seed is not None:
            torch.manual_seed(seed)
        expected = self.target.generate(
            ids,
            assistant_model=self.assistant,
            tokenizer=self.tokenizer,
            assistant_tokenizer=self.assistant_tokenizer,
            do_sample=seed is not None,
            **fields,
        )
        got = self.generator.generate(
            prompt, do_sample=seed is not None, **drafts, **fields, **({} if seed is None else {"seed": seed})
        )
        assert got.draft_stats is not None
        assert got.sequences[0].tolist() == expected[0].tolist(), (prompt, seed, drafts, fields)


@pytest.fixture(scope="module")
def side() -> Side:
    return Side()


def draw_drafts(rng: random.Random) -> dict[str, Any]:
    return {
        "num_assistant_tokens": rng.randint(1, 8),
        "num_assistant_tokens_schedule": rng.choice(["constant", "heuristic_transient"]),
        "assistant_confidence_threshold": rng.choice([0.0, 0.2, 0.4]),
        "assistant_lookbehind": rng.choice([4, 10]),
        "target_lookbehind": rng.choice([4, 10]),
    }


@pytest.mark.parametrize("case", range(CASES))
def test_greedy_search_gives_the_tokens_of_transformers(side: Side, case: int) -> None:
    rng = random.Random(BASE_SEED + case)
    side.check(rng.choice(PROMPTS), None, draw_drafts(rng), {"max_new_tokens": 40})


@pytest.mark.parametrize("case", range(CASES))
def test_sampling_gives_the_tokens_of_transformers(
    side: Side, case: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = candidates.AssistantToTargetTranslator.__init__

    def unpruned(self: Any, *arguments: Any, **options: Any) -> None:
        made(self, *arguments, **{**options, "assistant_prune_lm_head": False})

    def positional(self: Any, target: Any, assistant: Any, size: int, model: Any, _prune: bool) -> None:
        unpruned(self, target, assistant, size, model)

    monkeypatch.setattr(candidates.AssistantToTargetTranslator, "__init__", positional)
    rng = random.Random(BASE_SEED + case)
    fields = rng.choice([{}, {"top_k": 0}, {"temperature": 0.7, "top_p": 0.9}])
    side.check(rng.choice(PROMPTS), BASE_SEED + case, draw_drafts(rng), {"max_new_tokens": 40, **fields})
