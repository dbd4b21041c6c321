"""lm-eval on the committed tasks, for any of its models: what the tests, the goldens and the live comparison share."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

#: The rows of each task in the order of its items.
Samples = dict[str, list[dict[str, Any]]]


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """Beside the tasks, with nothing fetched, and nothing kept of the data sets. lm-eval is imported inside."""
    old, folder = dict(os.environ), Path.cwd()
    with tempfile.TemporaryDirectory() as hub:
        os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_DATASETS_CACHE": hub}
        os.chdir(HERE)
        try:
            yield
        finally:
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(old)


def evaluate(model: str, model_args: dict[str, Any], tasks: list[str], **options: Any) -> dict[str, Any]:
    """What lm-eval gives for a model that it knows by name."""
    with offline():
        import lm_eval
        from lm_eval.tasks import TaskManager

        found = lm_eval.simple_evaluate(
            model=model,
            model_args=model_args,
            tasks=tasks,
            task_manager=TaskManager(include_path="tasks", include_defaults=False),
            bootstrap_iters=0,
            log_samples=True,
            **options,
        )
    assert found is not None
    return found


def samples(found: dict[str, Any]) -> Samples:
    """The rows of each task, sorted by item."""
    return {task: sorted(rows, key=lambda row: row["doc_id"]) for task, rows in found["samples"].items()}


def values(found: dict[str, Any]) -> dict[str, Any]:
    """What is compared of each task: its metrics, and for each item the answers of the model."""
    named = {}
    for task, rows in samples(found).items():
        metrics = {
            name.split(",")[0]: value
            for name, value in found["results"][task].items()
            if isinstance(value, float) and "stderr" not in name
        }
        items = [[_plain(response) for response in row["filtered_resps"]] for row in rows]
        named[task] = {"metrics": metrics, "items": items}
    return named


def _plain(response: Any) -> Any:
    """A text, a log-likelihood, or one with whether it is greedy. lm-eval logs numbers as texts."""
    if isinstance(response, str | float):
        return response
    logprob, is_greedy = response
    return [float(logprob), str(is_greedy) == "True"]
