"""lm-eval's model `rsgen`, in this process: each item has the value that lm-eval's `hf`, which is transformers, gives for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rsgen
from conftest import THREADS
from harness import HERE, evaluate, offline, samples, values

ROOT = HERE.parents[1]
GOLDEN = json.loads((ROOT / "tests" / "golden" / "lm_eval.json").read_text())["tasks"]
TASKS = ["story_choices", "story_continues", "story_books"]
# The tolerance of the goldens, for the difference of float32 itself.
ABSOLUTE, RELATIVE = 1e-4, 1e-5

sys.path.insert(0, str(ROOT / "tools" / "golden"))

# All items are computed for the first test, on whatever cores are free.
pytestmark = pytest.mark.timeout(600)


def run(tasks: list[str], batch_size: int | str, **options: Any) -> dict[str, Any]:
    """lm-eval with the model `rsgen`."""
    import rsgen.integrations.lm_eval  # noqa: F401

    args = {"num_threads": THREADS, "batch_size": batch_size}
    return evaluate("rsgen", args, tasks, **options)


def compare(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Texts and greedy flags are equal, log-likelihoods within the tolerance, item for item; and so are the metrics."""
    assert len(found["items"]) == len(expected["items"])
    for number, (item, wanted) in enumerate(zip(found["items"], expected["items"], strict=True)):
        for got, right in zip(item, wanted, strict=True):
            if isinstance(right, str):
                assert got == right, number
            else:
                got, right = np.atleast_1d(got), np.atleast_1d(right)
                np.testing.assert_allclose(got[0], right[0], RELATIVE, ABSOLUTE, err_msg=str(number))
                assert list(got[1:]) == list(right[1:]), number
    for metric, value in expected["metrics"].items():
        exact = metric in ("acc", "acc_norm", "exact_match")
        assert found["metrics"][metric] == (value if exact else pytest.approx(value, rel=RELATIVE)), metric


@pytest.fixture(scope="module")
def in_lists() -> dict[str, Any]:
    """The values of all tasks, computed in lists."""
    return values(run(TASKS, "auto"))


@pytest.mark.parametrize("task", TASKS)
def test_each_item_is_that_of_transformers(in_lists: dict[str, Any], task: str) -> None:
    assert len(GOLDEN[task]["items"]) == {"story_choices": 200, "story_continues": 50, "story_books": 8}[task]
    compare(in_lists[task], GOLDEN[task])


def test_the_goldens_hold_right_and_wrong_answers_and_texts_beyond_the_context(gen: rsgen.Generator) -> None:
    assert 0.5 < GOLDEN["story_choices"]["metrics"]["acc"] < 0.99
    assert len({text for [text] in GOLDEN["story_continues"]["items"]}) > 40
    books = [json.loads(line)["text"] for line in (HERE / "tasks" / "books.jsonl").read_text().splitlines()]
    lengths = [len(gen.tokenizer.encode(text)) for text in books]
    assert min(lengths) < 512 < 1024 < max(lengths)


@pytest.mark.parametrize("batch_size", [1, 7])
def test_results_do_not_depend_on_the_batch(in_lists: dict[str, Any], batch_size: int) -> None:
    found = values(run(TASKS, batch_size, limit=20))
    for task in TASKS:
        assert found[task]["items"] == in_lists[task]["items"][:20]


def test_conversations_get_the_template_of_the_model() -> None:
    found = run(["story_continues"], 5, limit=12, apply_chat_template=True)
    [prompt, _] = samples(found)["story_continues"][0]["arguments"][0]
    assert prompt.startswith("<s><|user|>")
    assert prompt.endswith("<|assistant|>")
    compare(values(found)["story_continues"], GOLDEN["chat"])


def test_requests_that_sample_have_seeds_of_their_own() -> None:
    drawn = {"do_sample": True, "temperature": 1.0}
    first = values(run(["story_continues"], 4, limit=6, gen_kwargs=drawn))["story_continues"]["items"]
    again = values(run(["story_continues"], 1, limit=3, gen_kwargs=drawn))["story_continues"]["items"]
    assert again == first[:3]
    assert first != GOLDEN["story_continues"]["items"][:6]


def test_every_strategy_is_an_argument() -> None:
    beams = values(run(["story_continues"], 4, limit=4, gen_kwargs={"num_beams": 4}))["story_continues"][
        "items"
    ]
    gen = rsgen.Generator(num_threads=THREADS)
    for line, [text] in zip(
        (HERE / "tasks" / "beginnings.jsonl").read_text().splitlines(), beams, strict=False
    ):
        start = json.loads(line)["start"]
        out = gen.generate(start, num_beams=4, max_new_tokens=48, stop_strings=["\n\n"])
        assert out.text.split("\n\n")[0] == text


def test_a_request_beyond_the_context_is_cut_from_the_left(gen: rsgen.Generator) -> None:
    from rsgen.integrations.lm_eval import RsgenLM

    model = RsgenLM(num_threads=THREADS, max_length=40)
    ids = gen.tokenizer.encode("Once upon a time there was a little fox who lived in the woods. " * 6)
    cut = list(ids)[-41:]
    [(logprob, _)] = model._loglikelihood_tokens([(None, list(ids[:-2]), list(ids[-2:]))])
    assert logprob == pytest.approx(float(gen.score(cut)[-2:].sum()), rel=1e-5)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"pretrained": "no/such/model"}, "no/such/model"),
        ({"dtyp": "int8"}, "dtyp"),
    ],
)
def test_a_wrong_argument_says_what_is_wrong(args: dict[str, Any], message: str) -> None:
    from rsgen.integrations.lm_eval import RsgenLM

    with pytest.raises((rsgen.RsgenError, TypeError), match=message):
        RsgenLM(**args)


def test_the_command_of_lm_eval_knows_the_model(tmp_path: Path) -> None:
    command = "-m rsgen.integrations.lm_eval run --model rsgen --model_args num_threads=2 --batch_size auto"
    tasks = f"--include_path tasks --tasks story_choices --limit 8 --output_path {tmp_path}"
    with offline():
        done = subprocess.run(
            [sys.executable, *command.split(), *tasks.split()], capture_output=True, text=True, check=True
        )
    assert "story_choices" in done.stdout
    assert "|acc" in done.stdout.replace(" ", "")
    [results] = tmp_path.rglob("results*.json")
    assert json.loads(results.read_text())["config"]["model"] == "rsgen"


def test_the_items_are_those_of_their_script() -> None:
    import lm_eval_items

    for name, content in lm_eval_items.items().items():
        assert (HERE / "tasks" / name).read_text(encoding="utf-8") == content
