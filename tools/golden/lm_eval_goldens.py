"""Writes `tests/golden/lm_eval.json`: what lm-eval's model `hf`, which is transformers, gives for the tasks of `tests/clients/tasks/`."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
STORY = ROOT / "python" / "rsgen" / "models" / "story-3m"
OUT = ROOT / "tests" / "golden" / "lm_eval.json"
#: A choice that is nearer to a tie than this in float64 is no golden.
LEAST_MARGIN = 3e-5

sys.path.insert(0, str(ROOT / "tests" / "clients"))

from harness import evaluate, values  # noqa: E402

TASKS = ["story_choices", "story_continues", "story_books"]
CHAT = {"tasks": ["story_continues"], "limit": 12, "apply_chat_template": True}


def run(dtype: str, batch_size: int = 1) -> dict[str, Any]:
    """The values of transformers, of texts and of conversations."""
    args = {"pretrained": str(STORY), "dtype": dtype, "device": "cpu", "batch_size": batch_size}
    found = values(evaluate("hf", args, TASKS))
    found["chat"] = values(evaluate("hf", args, **CHAT))["story_continues"]
    return found


def choices(found: dict[str, Any]) -> Any:
    """What must not hang on rounding: texts, greedy flags, and which end is the most probable one."""
    ends = found["story_choices"]["items"]
    best = [max(range(len(item)), key=lambda end: item[end][0]) for item in ends]
    flags = [[greedy for _, greedy in item] for item in ends]
    return found["story_continues"]["items"], found["chat"]["items"], flags, best


def main() -> None:
    """Runs the tasks in float32, and in float64 to see how near the choices are to ties."""
    from margins import margins

    found = run("float32")
    with margins() as near:
        exact = run("float64")
    assert choices(exact) == choices(found)
    assert min(near) > LEAST_MARGIN, min(near)
    made_with = {name: version(name).split("+")[0] for name in ("torch", "transformers", "lm-eval")}
    tasks = ",\n".join(
        f'{json.dumps(task)}: {{"metrics": {json.dumps(each["metrics"])}, "items": [\n'
        + ",\n".join(json.dumps(item) for item in each["items"])
        + "\n]}"
        for task, each in found.items()
    )
    OUT.write_text(f'{{"format": 1, "made_with": {json.dumps(made_with)}, "tasks": {{\n{tasks}\n}}}}\n')
    print(f"{OUT.relative_to(ROOT)}: {[(task, each['metrics']) for task, each in found.items()]}")


if __name__ == "__main__":
    main()
