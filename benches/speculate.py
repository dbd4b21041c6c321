"""Drafts with the adaptive schedule against plain decoding: what they gain, and that they never lose.

python benches/speculate.py                                   # the bundled story model and its draft model
python benches/speculate.py target/peers/models/T --compute-dtype bfloat16 --acceptance 0 0.3 0.6 0.9
python benches/speculate.py target/peers/models/T --compute-dtype bfloat16 --verify   # what a pass of several rows costs

It needs the Python package. With a model's folder, candidates are scripted: each is right with the given probability, and the
model checks it as any other. Both ways take turns, and a figure is the median over the rounds of the time of plain decoding
divided by that with drafts; the first round does not count. Each figure is measured alone and with 16 requests at once.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import rsgen

REQUESTS, NEW_TOKENS = 16, 128
DRAFT = Path(rsgen.__file__).parent / "models" / "story-draft"
# The least that is asked for: of any figure, and of an acceptance of 0.6 for one request.
LEAST, GAIN = 0.97, (0.6, 1.5)
# The most that verifying so many rows may cost, as a multiple of a step of one row.
VERIFIED, MOST = 5, 1.15

PROMPTS = [
    "Once upon a time there was a little fox who lived near the lake.",
    "One day, Mia and Leo found a red kite in the tall grass.",
    "Leo had a red kite. Mia had a red kite. Tom had",
    "The old man sang a song. The song was long. The old man",
    "Oscar the owl could not sleep, so he flew over the quiet houses.",
    "It was raining. Lily looked out of the window and saw a wet cat.",
    "The cat sat on the mat. The dog sat on the mat. The bird sat on",
    "Ben wanted a cake for his birthday, a big cake with blue stars.",
    "There was a boat on the river. In the boat there was a bear.",
    "Anna counted her shells: one shell, two shells, three shells,",
    "In the morning the sun came up and all the flowers opened.",
    "Tom lost his ball. He looked under the bed. He looked under the chair.",
    "A small mouse met a large elephant on the road to the village.",
    '"Where is my hat?" asked the king. "Where is my hat?"',
    "Every night the moon told the children a new story.",
    "Sam and his sister made a snowman with a carrot for a nose.",
    "The train went up the hill. The train went down the hill. The train",
    "Nora planted a seed. She gave it water every day.",
    "A frog jumped into the pond, and another frog jumped after it.",
    "Grandma had a box, and in the box there was a smaller box.",
]


def ratio(rounds: int, plain: Callable[[], Any], drafted: Callable[[], Any]) -> float:
    """How many times as fast the drafted way is."""

    def seconds(work: Callable[[], Any]) -> float:
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin

    ratios = []
    for turn in range(rounds + 1):
        # Each goes first as often as the other.
        if turn % 2:
            with_drafts, without = seconds(drafted), seconds(plain)
        else:
            without, with_drafts = seconds(plain), seconds(drafted)
        ratios.append(without / with_drafts)
    return statistics.median(ratios[1:])


def scripted(gen: rsgen.Generator, acceptance: float, drafted: int) -> tuple[list[int], Any]:
    """A prompt with the candidates after each token, and what makes the model write the tokens that they belong to.

    All tokens differ. Each stands in the prompt before its candidates, the last token first, so that prompt lookup finds it there.
    """
    choose = random.Random(0)
    wanted = NEW_TOKENS + drafted + 1
    ids = choose.sample(range(10, gen.config["vocab_size"] - 1), wanted + NEW_TOKENS * drafted)
    text, wrong = ids[:wanted], iter(ids[wanted:])
    prompt = []
    for index in reversed(range(NEW_TOKENS)):
        right = text[index + 1 : index + 1 + drafted]
        prompt += [text[index], *(t if choose.random() < acceptance else next(wrong) for t in right)]
    return [*prompt, text[0]], dict.fromkeys(pairwise(text), 1e4)


def of_scripts(gen: rsgen.Generator, drafted: int, rounds: int, acceptances: list[float]) -> list[str]:
    """The figures of scripted candidates."""
    lookup = {"prompt_lookup_num_tokens": drafted, "max_matching_ngram_size": 1}
    missed = []
    for acceptance in acceptances:
        prompt, bias = scripted(gen, acceptance, drafted)
        fields = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS, "sequence_bias": bias}
        for count in (1, REQUESTS):
            prompts = [prompt] * count
            plain = partial(gen.greedy_search, prompts, **fields)
            with_drafts = partial(gen.prompt_lookup, prompts, **fields, **lookup)
            output = with_drafts()
            same = [row.tolist() for row in output.token_ids] == [row.tolist() for row in plain().token_ids]
            assert same, "drafts have changed the tokens"
            figure = ratio(rounds, plain, with_drafts)
            least = GAIN[1] if (acceptance, count) == (GAIN[0], 1) else LEAST
            missed += show(f"scripted, acceptance {acceptance}", count, figure, least, output.draft_stats)
    return missed


def of_verification(gen: rsgen.Generator, rounds: int) -> list[str]:
    """What passes over 2 to 8 tokens after the same text cost, in steps of one token."""
    choose = random.Random(0)

    def ids(count: int) -> list[int]:
        return choose.sample(range(10, gen.config["vocab_size"] - 1), count)

    cache = gen.prefill(ids(32))

    def seconds(rows: int) -> float:
        more = ids(rows)
        begin = time.perf_counter()
        gen.generate(more, cache=cache, max_new_tokens=1)
        return time.perf_counter() - begin

    sizes = [1, 2, 3, 5, 8]
    measured = [[seconds(rows) for rows in sizes] for _ in range(10 * rounds + 1)][1:]
    ratios = {rows: statistics.median(row[i] / row[0] for row in measured) for i, rows in enumerate(sizes)}
    for rows, figure in ratios.items():
        print(f"a pass of {rows} rows costs {figure:.2f} of one of a row")
    missed = f"{VERIFIED} rows cost {ratios[VERIFIED]:.2f}, more than {MOST}"
    return [missed] if ratios[VERIFIED] > MOST else []


def of_stories(rounds: int) -> list[str]:
    """The figures of the story model: prompt lookup and its draft model, prompt by prompt and together."""
    gen, draft = rsgen.Generator(), rsgen.Generator(DRAFT)
    fields = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS}

    def all_of(method: Callable[..., Any], groups: list[list[str]]) -> list[Any]:
        return [method(prompts, **fields) for prompts in groups]

    missed = []
    for name, method in {
        "prompt_lookup": gen.prompt_lookup,
        "assisted_decoding": partial(gen.assisted_decoding, assistant_model=draft),
    }.items():
        for count in (1, REQUESTS):
            groups = [[prompt] for prompt in PROMPTS] if count == 1 else [PROMPTS[:count]]
            plain, with_drafts = partial(all_of, gen.greedy_search, groups), partial(all_of, method, groups)
            outputs = with_drafts()
            same = [out.texts for out in outputs] == [out.texts for out in plain()]
            assert same, "drafts have changed the tokens"
            missed += show(name, count, ratio(rounds, plain, with_drafts), LEAST, outputs[-1].draft_stats)
    return missed


def show(name: str, count: int, figure: float, least: float, stats: Any) -> list[str]:
    """Prints a figure; returns it when it is too low."""
    line = f"{name:28} {count:3} at once {figure:6.3f} (at least {least:.2f})"
    print(f"{line}  {stats}", flush=True)
    return [line] if figure < least else []


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "model", nargs="?", help="the folder of a model; without one, the bundled story model"
    )
    parser.add_argument("--compute-dtype", default="float32")
    parser.add_argument("--acceptance", type=float, nargs="+", default=[0.0, 0.3, 0.6, 0.9])
    parser.add_argument("--drafted", type=int, default=4, help="the most candidates of a pass")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--verify", action="store_true", help="measure passes of several rows instead")
    options = parser.parse_args()
    if options.verify and not options.model:
        parser.error("--verify needs the folder of a model")
    if options.verify:
        missed = of_verification(
            rsgen.Generator(options.model, compute_dtype=options.compute_dtype), options.rounds
        )
    elif options.model:
        gen = rsgen.Generator(options.model, compute_dtype=options.compute_dtype)
        missed = of_scripts(gen, options.drafted, options.rounds, options.acceptance)
    else:
        missed = of_stories(options.rounds)
    raise SystemExit("too slow:\n" + "\n".join(missed) if missed else 0)


if __name__ == "__main__":
    main()
