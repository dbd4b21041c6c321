"""Attacks rsgen with drawn folders, templates, calls and sizes, with large requests, and in all ways in which a process once
ended or went on without its caller. Prints what came of them.

A case that fails is named with its seed; `python -m attack --seed SEED --folders 1` runs a folder again.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from attack import calls, folders, kinds, service, sizes, templates
from attack.children import FAILURES, Outcome, Step, run

#: Steps of one child: enough that its start costs little.
CALLS_EACH, TEMPLATES_EACH = 50, 25


def table(name: str, counted: int, outcomes: list[Outcome], peak_bytes: int) -> str:
    """A line for each kind of end, the slowest steps, and the most memory."""
    kinds = Counter(outcome.kind for outcome in outcomes)
    slowest = sorted(outcomes, key=lambda outcome: -outcome.seconds)[:3]
    lines = [f"{name}: {counted} drawn, {len(outcomes)} steps, at most {peak_bytes >> 20} MiB in a process"]
    lines += [f"  {count:7} {kind}" for kind, count in kinds.most_common()]
    lines += [f"  slowest: {outcome.seconds:.2f} s, {outcome.label[:100]!r}" for outcome in slowest]
    return "\n".join(lines)


def attack(
    name: str, cases: Iterable[Callable[[], Iterable[Step]]], each: int, deadline: float, jobs: int
) -> list[Outcome]:
    """Runs cases until the deadline, prints the table, and returns the failures."""
    outcomes: list[Outcome] = []
    counted, peak = 0, 0

    def until_deadline() -> Iterator[Callable[[], Iterable[Step]]]:
        for case in cases:
            if time.monotonic() > deadline:
                return
            yield case

    for result in run(until_deadline(), jobs):
        counted += each
        outcomes += result.outcomes
        peak = max(peak, result.peak_bytes)
    print(table(name, counted, outcomes, peak), flush=True)
    # A tokenizer of a folder may take all memory that there is: see SECURITY.md.
    failures = [kind for kind in FAILURES if (name, kind) != ("folders", "memory")]
    return [outcome for outcome in outcomes if outcome.kind in failures]


def main(argv: list[str] | None = None) -> int:
    """Returns the number of failures."""
    parser = argparse.ArgumentParser(prog="attack", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folders", type=int, default=2000)
    parser.add_argument("--templates", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--sizes", type=int, default=20)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="the most time for each of the six"
    )
    parser.add_argument("--jobs", type=int, default=2, help="how many processes at a time")
    args = parser.parse_args(argv)
    failures: list[Outcome] = []
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        first = args.seed
        # Made one by one: a child begins with the memory that this process has.
        drawn: dict[str, tuple[Iterable[Callable[[], Iterable[Step]]], int]] = {
            "folders": (
                (functools.partial(folders.case, first + n, root / f"f{n}") for n in range(args.folders)),
                1,
            ),
            "templates": (
                (
                    functools.partial(templates.case, first + n, TEMPLATES_EACH)
                    for n in range(-(-args.templates // TEMPLATES_EACH))
                ),
                TEMPLATES_EACH,
            ),
            "calls": (
                (
                    functools.partial(calls.case, first + n, CALLS_EACH, root / f"c{n}")
                    for n in range(-(-args.calls // CALLS_EACH))
                ),
                CALLS_EACH,
            ),
            "service": (service.cases(root) if args.calls else [], 1),
            "kinds": (kinds.cases(root, first) if args.calls else [], 1),
            "sizes": (
                (functools.partial(sizes.case, first + n, root / f"s{n}") for n in range(args.sizes)),
                1,
            ),
        }
        for name, (cases, each) in drawn.items():
            failures += attack(name, cases, each, time.monotonic() + args.seconds, args.jobs)
    for failure in failures:
        print(f"FAILED {failure.kind}: {failure.label[:1500]}\n    {failure.detail!r}")
    print(f"{len(failures)} failures")
    return len(failures)


if __name__ == "__main__":
    sys.exit(bool(main()))
