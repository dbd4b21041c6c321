"""lm-eval's own client, `local-completions`: each item has the value that the library computes for it.

The tasks and their items are in `tasks/`; nothing is fetched.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import rsgen
from serving import Server

HERE = Path(__file__).parent
ITEMS = [json.loads(line) for line in (HERE / "tasks" / "stories.jsonl").read_text().splitlines()]
# The client adds Python floats, the library's are float32: their sums differ in the last bits.
CLOSE = {"rel": 1e-6}

Samples = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module", params=[1, 4], ids=["one by one", "in batches"])
def samples(
    request: pytest.FixtureRequest, server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Samples:
    """What the client gets for each item of each task."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
            patch.setenv(name, "1")
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("hub")))
        patch.chdir(HERE)
        # The variables are read when it is imported.
        import lm_eval
        from lm_eval.tasks import TaskManager

        results = lm_eval.simple_evaluate(
            model="local-completions",
            model_args={
                "base_url": f"{server.url}/v1/completions",
                "model": "story-3m",
                "max_length": 512,
                "batch_size": request.param,
            },
            tasks=["story_ends", "story_goes_on", "story_whole"],
            task_manager=TaskManager(include_path="tasks", include_defaults=False),
            bootstrap_iters=0,
            log_samples=True,
        )
    assert results is not None
    found: Samples = results["samples"]
    return {task: sorted(rows, key=lambda row: row["doc_id"]) for task, rows in found.items()}


def loglikelihood(gen: rsgen.Generator, context: str, continuation: str) -> tuple[float, bool]:
    """The log-probability of a continuation, and whether it is the most probable one token by token."""
    # As the client splits them: the tokens of the whole, less those of the context.
    start = len(gen.tokenizer.encode(context, add_special_tokens=False))
    ids = gen.tokenizer.encode(context + continuation, add_special_tokens=False)
    scores = gen.score(list(ids), top_logprobs=0)
    return float(scores.logprobs[start:].sum()), bool((scores.ranks[start:] == 1).all())


def test_the_loglikelihood_of_each_end_is_that_of_the_library(samples: Samples, gen: rsgen.Generator) -> None:
    rows = samples["story_ends"]
    assert len(rows) == len(ITEMS)
    for row, item in zip(rows, ITEMS, strict=True):
        for response, end in zip(row["filtered_resps"], item["ends"], strict=True):
            sum_of_logprobs, is_greedy = loglikelihood(gen, item["start"], end)
            assert float(response[0]) == pytest.approx(sum_of_logprobs, **CLOSE)
            assert str(response[1]) == str(is_greedy)


def test_each_story_goes_on_as_in_the_library(samples: Samples, gen: rsgen.Generator) -> None:
    rows = samples["story_goes_on"]
    assert len(rows) == len(ITEMS)
    for row, item in zip(rows, ITEMS, strict=True):
        ids = gen.tokenizer.encode(item["start"], add_special_tokens=False)
        text = gen.generate(list(ids), max_new_tokens=16, do_sample=False, stop_strings=[".", "\n"]).text
        # OpenAI's API leaves out the stop string, `generate` keeps it.
        assert row["filtered_resps"] == [text.split(".")[0].split("\n")[0]]


def test_the_loglikelihood_of_each_whole_story_is_that_of_the_library(
    samples: Samples, gen: rsgen.Generator
) -> None:
    rows = samples["story_whole"]
    assert len(rows) == len(ITEMS)
    for row, item in zip(rows, ITEMS, strict=True):
        story = item["start"] + item["ends"][item["answer"]]
        # The first token is predicted, too: from the end-of-sequence token.
        ids = [gen.tokenizer.eos_token_id, *gen.tokenizer.encode(story, add_special_tokens=False)]
        assert float(row["filtered_resps"][0]) == pytest.approx(float(gen.score(ids).sum()), **CLOSE)
