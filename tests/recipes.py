"""The files that the programs of docs/recipes name."""

import json
from pathlib import Path

from story_gguf import Q4_0, Q8_0, write_story_gguf

ROOT = Path(__file__).parents[1]
LETTERS = {
    "ada.txt": "The house is small. The old garden is green.\n\nI like tea.\n",
    "bo.txt": "Is the garden green?\n",
}


def prepare(folder):
    """Writes them into an empty folder."""
    (folder / "tests").symlink_to(ROOT / "tests")
    (folder / "letters").mkdir()
    for name, text in LETTERS.items():
        (folder / "letters" / name).write_text(text, encoding="utf-8")
    with (folder / "reviews.jsonl").open("w", encoding="utf-8") as file:
        for number in range(100):
            toy, end = (
                ["kite", "boat", "drum", "ball", "cart"][number % 5],
                ["broke", "flew high", "sank"][number % 3],
            )
            file.write(json.dumps({"id": number, "review": f"The {toy} {end}."}) + "\n")
    write_story_gguf(folder / "story-3m-Q8_0.gguf", Q8_0)
    write_story_gguf(folder / "story-3m-Q4_0.gguf", Q4_0)
