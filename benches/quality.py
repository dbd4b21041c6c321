"""What weights of integers cost: how much the loss of a model rises, and how far its matrices are off.

python benches/quality.py                       # the story model on 500 stories that it was not trained on
python benches/quality.py --stories 50
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import rsgen

sys.path.insert(0, str(Path(__file__).parent.parent / "tools" / "story_model"))
from story_corpus import write_stories

# Far from the seeds that the model was trained with.
SEED = 20_000_003
# The most that the loss may rise.
BOUNDS = {"int8": 0.005, "int4": 0.04}


def stories(count: int) -> list[str]:
    """Stories that the model was not trained on."""
    return [story.text for story in write_stories(count, SEED)]


def loss(gen: rsgen.Generator, texts: list[str]) -> float:
    """The mean negative log-probability of a token."""
    scores = [logprobs[1:] for logprobs in gen.score(texts)]
    return -float(sum(row.sum() for row in scores)) / sum(len(row) for row in scores)


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("model", nargs="?", help="a folder; the story model if not given")
    arguments.add_argument("--stories", type=int, default=500)
    given = arguments.parse_args()
    texts = stories(given.stories)
    plain = loss(rsgen.Generator(given.model), texts)
    print(f"loss on {len(texts)} stories: {plain:.5f} as stored")
    failed = False
    for dtype, bound in BOUNDS.items():
        rise = loss(rsgen.Generator(given.model, dtype=dtype), texts) / plain - 1
        failed |= rise > bound
        print(f"  {dtype}: {100 * rise:+.2f} %, at most {100 * bound:.1f} %")
    sys.exit(failed)


if __name__ == "__main__":
    main()
