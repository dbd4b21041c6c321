"""lm-eval's own client, `local-completions`: each item has the value that the library computes for it.

The tasks and their items are in `tasks/`; nothing is fetched.
"""

from __future__ import annotations

import json
from pathlib import Path

import harness
import pytest
import rsgen
from serving import Server

HERE = Path(__file__).parent
ITEMS = [json.loads(line) for line in (HERE / "tasks" / "stories.jsonl").read_text().splitlines()]
# The client adds Python floats, the library's are float32: their sums differ in the last bits.
CLOSE = {"rel": 1e-6}


@pytest.fixture(scope="module", params=[1, 4], ids=["one by one", "in batches"])
def samples(request: pytest.FixtureRequest, server: Server) -> harness.Samples:
    """What the client gets for each item of each task."""
    args = {
        "base_url": f"{server.url}/v1/completions",
        "model": "story-3m",
        "max_length": 512,
        "batch_size": request.param,
    }
    return harness.samples(
        harness.evaluate("local-completions", args, ["story_ends", "story_goes_on", "story_whole"])
    )


def loglikelihood(gen: rsgen.Generator, context: str, continuation: str) -> tuple[float, bool]:
    """The log-probability of a continuation, and whether it is the most probable one token by token."""
    # As the client splits them: the tokens of the whole, less those of the context.
    start = len(gen.tokenizer.encode(context, add_special_tokens=False))
    ids = gen.tokenizer.encode(context + continuation, add_special_tokens=False)
    scores = gen.score(list(ids), top_logprobs=0)
    return float(scores.logprobs[start:].sum()), bool((scores.ranks[start:] == 1).all())


def test_the_loglikelihood_of_each_end_is_that_of_the_library(
    samples: harness.Samples, gen: rsgen.Generator
) -> None:
    rows = samples["story_ends"]
    assert len(rows) == len(ITEMS)
    for row, item in zip(rows, ITEMS, strict=True):
        for response, end in zip(row["filtered_resps"], item["ends"], strict=True):
            sum_of_logprobs, is_greedy = loglikelihood(gen, item["start"], end)
            assert float(response[0]) == pytest.approx(sum_of_logprobs, **CLOSE)
            assert str(response[1]) == str(is_greedy)


def test_each_story_goes_on_as_in_the_library(samples: harness.Samples, gen: rsgen.Generator) -> None:
    rows = samples["story_goes_on"]
    assert len(rows) == len(ITEMS)
    for row, item in zip(rows, ITEMS, strict=True):
        ids = gen.tokenizer.encode(item["start"], add_special_tokens=False)
        text = gen.generate(list(ids), max_new_tokens=16, do_sample=False, stop_strings=[".", "\n"]).text
        # OpenAI's API leaves out the stop string, `generate` keeps it.
        assert row["filtered_resps"] == [text.split(".")[0].split("\n")[0]]


def test_the_loglikelihood_of_each_whole_story_is_that_of_the_library(
    samples: harness.Samples, gen: rsgen.Generator
) -> None:
    rows = samples["story_whole"]
    assert len(rows) == len(ITEMS)
    for row, item in zip(rows, ITEMS, strict=True):
        story = item["start"] + item["ends"][item["answer"]]
        # The first token is predicted, too: from the end-of-sequence token.
        ids = [gen.tokenizer.eos_token_id, *gen.tokenizer.encode(story, add_special_tokens=False)]
        assert float(row["filtered_resps"][0]) == pytest.approx(float(gen.score(ids).sum()), **CLOSE)
