"""What shared prefixes cost when texts are scored: the time of `score` over the time of one pass over the distinct tokens.

python benches/score.py target/peers/models/S            # a model of the size of SmolLM2-135M
python benches/score.py --only lm-eval                   # the bundled story model

It needs the Python package, built for release. The one pass is `score` of texts that share nothing: as many tokens as there are
distinct ones, each with as many tokens before it in the mean, and all of them scored. So it does the same arithmetic, and
what is above 1 is the work that sharing costs. A call and its pass take turns; a figure is the median of the ratios over
the rounds, of the processor's time and of the clock's. Each round draws tokens anew, so that no cache helps.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import rsgen

Texts = list[list[int]]
# The most that a case may take, that of a pass being 1.
MOST, MOST_OF_LM_EVAL = 1.1, 1.2


class Case(NamedTuple):
    """What is scored, after a cache if there is one."""

    texts: Texts
    #: The tokens of a cache that the texts follow.
    kept: list[int] = []  # noqa: RUF012 (a tuple has no state of its own)


class Draw:
    """Draws cases of tokens that no earlier one had in their order."""

    def __init__(self, vocab_size: int, candidates: int, context: int) -> None:
        self._random = random.Random(0)
        self._words = range(3, vocab_size)
        self.candidates, self.context = candidates, context

    def ids(self, count: int) -> list[int]:
        """So many tokens."""
        return self._random.choices(self._words, k=count)

    def _ends(self, count: int) -> Texts:
        return [self.ids(self._random.randint(3, 8)) for _ in range(count)]

    def one_context(self) -> Case:
        """Candidates after one context."""
        context = self.ids(self.context)
        return Case([context + end for end in self._ends(self.candidates)])

    def shuffled(self) -> Case:
        """Candidates after one of eight contexts each, in no order."""
        contexts = [self.ids(self.context) for _ in range(8)]
        texts = [contexts[at % 8] + end for at, end in enumerate(self._ends(self.candidates))]
        self._random.shuffle(texts)
        return Case(texts)

    def kept(self) -> Case:
        """Candidates after a kept cache."""
        return Case(self._ends(self.candidates), self.ids(self.context))

    def _prefixes(self) -> Texts:
        """Candidates that are prefixes of each other, in no order."""
        whole = [self.ids(8) for _ in range(self.candidates // 8)]
        texts = [one[:length] for one in whole for length in range(1, 9)]
        self._random.shuffle(texts)
        return texts

    def prefixes(self) -> Case:
        """Candidates after one context that are prefixes of each other."""
        context = self.ids(self.context)
        return Case([context + end for end in self._prefixes()])

    def kept_prefixes(self) -> Case:
        """Candidates after a kept cache that are prefixes of each other."""
        return Case(self._prefixes(), self.ids(self.context))

    def lm_eval(self) -> Case:
        """Requests of the shape of HellaSwag: four ends after each context, the contexts of 10 subjects with a common beginning."""
        beginnings = [self.ids(12) for _ in range(10)]
        texts = []
        for _ in range(10 * self.candidates // 4):
            context = self._random.choice(beginnings) + self.ids(self._random.randint(20, 70))
            texts += [context + self.ids(self._random.randint(8, 30)) for _ in range(4)]
        return Case(texts)

    def apart(self, case: Case) -> Case:
        """Texts that share nothing, for the pass over the distinct tokens."""
        positions = list(distinct(case))
        count, mean = len(positions), sum(positions) / len(positions)
        if (before := round(mean - count / 2)) > 0:
            # Too few for positions as high: they follow a cache.
            return Case([self.ids(count)], self.ids(before))
        number = math.ceil(count / (2 * mean + 1))
        return Case([self.ids(count // number + (at < count % number)) for at in range(number)])


def distinct(case: Case) -> Iterator[int]:
    """The position of each distinct token that is computed: of a node of the tree of the texts."""
    before: list[int] = []
    # In the order of their tokens a text shares the most with the one before it.
    for text in sorted(case.texts):
        shared = 0
        while shared < min(len(before), len(text)) and before[shared] == text[shared]:
            shared += 1
        yield from (len(case.kept) + position for position in range(shared, len(text)))
        before = text


def times(work: Callable[[], Any]) -> tuple[float, float]:
    """How long it takes, by the processor and by the clock."""
    start = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - start[0], time.perf_counter() - start[1]


def run(gen: rsgen.Generator, draw: Draw, name: str, rounds: int, batch: int | None) -> float:
    """Measures a case, prints it, and returns the ratio of the processor's time."""
    ratios, count, seconds = [], 0, 0.0

    def scoring(case: Case, parts: int) -> Callable[[], None]:
        cache: dict[str, Any] = {"cache": gen.prefill(case.kept)} if case.kept else {}

        def score() -> None:
            for at in range(0, len(case.texts), parts):
                gen.score(case.texts[at : at + parts], top_logprobs=0, **cache)

        return score

    for turn in range(1 + rounds):
        case: Case = getattr(draw, name.replace("-", "_"))()
        one_pass = draw.apart(case)
        count = sum(map(len, one_pass.texts))
        works = scoring(case, batch or len(case.texts)), scoring(one_pass, len(one_pass.texts))
        # Each is first in turn.
        measured = [times(work) for work in works[:: 1 if turn % 2 else -1]]
        own, other = measured[:: 1 if turn % 2 else -1]
        ratios.append((own[0] / other[0], own[1] / other[1]))
        seconds = other[1]
    # The first round has warmed up.
    processor, clock = (statistics.median(column) for column in zip(*ratios[1:], strict=True))
    print(
        f"{name:14} {count:7} distinct tokens: {processor:.2f} of the processor's time of a pass, {clock:.2f} of the clock's "
        f"(a pass is {seconds:.1f} s)",
        flush=True,
    )
    return processor


def main() -> None:
    """Measures, and says what is slower than it should be."""
    cases = ["one-context", "shuffled", "kept", "prefixes", "kept-prefixes", "lm-eval"]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", help="a model's folder (default: the bundled model)")
    parser.add_argument("--only", action="append", choices=cases, help="a case; all if not given")
    parser.add_argument("--candidates", type=int, default=1000, help="of lm-eval ten times as many")
    parser.add_argument("--context", type=int, default=800, help="at most half of what the model has")
    parser.add_argument("--batch", type=int, help="texts of a call (default: all of them)")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()

    gen = rsgen.Generator(Path(arguments.model) if arguments.model else None)
    draw = Draw(gen.config["vocab_size"], arguments.candidates, arguments.context)
    slow = []
    for name in arguments.only or cases:
        ratio = run(gen, draw, name, arguments.rounds, arguments.batch)
        slow += [name] * (ratio > (MOST_OF_LM_EVAL if name == "lm-eval" else MOST))
    assert not slow, f"slower than it should be: {', '.join(slow)}"


if __name__ == "__main__":
    main()
