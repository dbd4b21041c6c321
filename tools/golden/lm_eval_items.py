"""Writes the items of lm-eval's tasks in `tests/clients/tasks/`, from new stories of the language that the bundled model knows.

It needs the standard library alone, and writes the same items each time.
"""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TASKS = ROOT / "tests" / "clients" / "tasks"
#: Not a seed of the stories that the model was trained on.
SEED = 20261123
CHOICES, BEGINNINGS, BOOKS = 200, 50, 8
STORIES = 1000

sys.path.insert(0, str(ROOT / "tools" / "story_model"))

from story_corpus import write_stories  # noqa: E402


def cut(story: str, rng: random.Random) -> tuple[str, str]:
    """A story up to a place within a sentence, and the last one to four words of that sentence."""
    ends = [found.end() for found in re.finditer(r"[.!?]”?\"?(?=\s|$)", story)]
    end = rng.choice(ends)
    start = max([stop for stop in ends if stop < end], default=0)
    words = [start + word.start() for word in re.finditer(r"\s\S", story[start:end])]
    place = rng.choice(words[-4:]) if words else start
    return story[:place], story[place:end]


def choices(stories: list[str], rng: random.Random) -> list[dict[str, Any]]:
    """Contexts with four ends: the true one, and ends of other stories that follow the same word there."""
    pairs = [pair for pair in (cut(story, rng) for story in stories) if pair[0]]
    items = []
    for context, end in pairs:
        word = context.split()[-1]
        others = {other for before, other in pairs if before.split()[-1] == word} - {end}
        if len(others) < 3:
            continue
        wrong = rng.sample(sorted(others), 3)
        answer = rng.randrange(4)
        items.append({"start": context, "ends": [*wrong[:answer], end, *wrong[answer:]], "answer": answer})
    assert len(items) >= CHOICES
    return items[:CHOICES]


def beginnings(stories: list[str], rng: random.Random) -> list[dict[str, Any]]:
    """The beginnings of stories, of a few words to most of the story."""
    return [{"start": cut(story, rng)[0] or "Once upon a time"} for story in stories[:BEGINNINGS]]


def books(stories: list[str], rng: random.Random) -> list[dict[str, Any]]:
    """Texts of one to eight stories, the longer ones beyond the model's context."""
    return [{"text": "\n\n".join(rng.sample(stories, number))} for number in range(1, BOOKS + 1)]


def items() -> dict[str, str]:
    """The content of each file."""
    rng = random.Random(SEED)
    stories = [story.text for story in write_stories(STORIES, SEED)]
    files = {
        "choices.jsonl": choices(stories[:-100], rng),
        "beginnings.jsonl": beginnings(stories[-100:], rng),
        "books.jsonl": books(stories[-100:], rng),
    }
    return {
        name: "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        for name, rows in files.items()
    }


def main() -> None:
    """Writes the files."""
    for name, content in items().items():
        (TASKS / name).write_text(content, encoding="utf-8")
        print(f"{(TASKS / name).relative_to(ROOT)}: {content.count(chr(10))} items")


if __name__ == "__main__":
    main()
