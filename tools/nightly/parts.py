"""The parts of a night: what runs, for how long, what it needs, and how its log says how much it did."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").absolute()
PYTHON = ".venv/bin/python"
#: Seconds for a request of each family and each format, on two cores.
SECONDS_FOR_EACH_FAMILY, SECONDS_FOR_EACH_FORMAT = 18, 12


@dataclass(frozen=True)
class Part:
    """Something that runs in the night, in a shell in the folder of the repository."""

    name: str
    #: Its part of the time.
    share: float
    #: The command, of a seed and the seconds it has.
    command: Callable[[int, int], str]
    #: Patterns of numbers in its log, which are added.
    counted: tuple[str, ...]
    unit: str
    #: Why it cannot run on this machine.
    missing: Callable[[], str | None] = lambda: None
    #: The seconds that it takes, where it takes no number of seconds.
    takes: int = 0
    #: What it builds before its time begins.
    builds: str = "make develop"


def succeeds(command: str) -> bool:
    run = subprocess.run(command, shell=True, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return run.returncode == 0


def needs(command: str, why: str) -> Callable[[], str | None]:
    """What a part needs: a command that succeeds."""
    return lambda: None if succeeds(command) else why


def fuzz(target: str, share: float) -> Part:
    return Part(
        name=f"fuzz {target}",
        share=share,
        command=lambda seed, seconds: (
            f"make fuzz FUZZ_TARGETS={target} FUZZ_SECONDS={seconds} FUZZ_SEED={seed} && make fuzz-merge FUZZ_TARGETS={target}"
        ),
        counted=(r"Done (\d+) runs in", r"stat::number_of_executed_units: (\d+)"),
        unit="inputs",
        missing=needs('command -v "${CXX:-c++}"', "libFuzzer needs a C++ compiler"),
        builds="make fuzz FUZZ_TARGETS=",
    )


def cargo_tests(
    name: str, share: float, takes: int, command: str, counted: str, unit: str, **more: object
) -> Part:
    """Tests of Rust, which take their own time."""
    return Part(
        name,
        share,
        lambda seed, _: command.format(seed=seed),
        (counted,),
        unit,
        takes=takes,
        builds="",
        **more,
    )  # type: ignore[arg-type]


def all_parts(parity_python: str) -> list[Part]:
    """The parts, in the order in which they run."""
    targets = sorted(path.stem for path in (ROOT / "fuzz" / "fuzz_targets").glob("*.rs"))
    python = shlex.quote(parity_python)
    has_torch = needs(
        f"{python} -c 'import torch, transformers'", "PARITY_PYTHON has no torch and transformers"
    )
    nightly = "rustup run nightly"
    has_miri = needs(f"{nightly} cargo miri --version", "there is no nightly toolchain with miri")
    has_source = needs(
        f'ls "$({nightly} rustc --print sysroot)"/lib/rustlib/src/rust/library',
        "there is no nightly toolchain with rust-src, of which the standard library is built for the sanitizer",
    )
    passed = r"test result: \S+ (\d+) passed"
    return [
        cargo_tests(
            "allocations that fail",
            *(0.1, 120),
            "cargo test -p rsgen-llm --features serve --test allocations -- --nocapture",
            *(r"(\d+) allocations refused", "refused allocations"),
        ),
        cargo_tests(
            "orders of threads (shuttle)",
            *(0.1, 120),
            "RSGEN_SCHEDULES=3000 SHUTTLE_RANDOM_SEED={seed} cargo test -p rsgen-llm --features serve --test interleavings -- --nocapture",
            *(r"(\d+) schedules", "schedules"),
        ),
        cargo_tests("address sanitizer", 0.1, 240, "make asan", passed, "tests"),
        cargo_tests("thread sanitizer", 0.1, 300, "make tsan", passed, "tests", missing=has_source),
        cargo_tests("miri", 0.15, 600, "make miri", passed, "tests", missing=has_miri),
        *(fuzz(target, 0.35 / len(targets)) for target in targets),
        Part(
            "server soak",
            0.3,
            lambda seed, seconds: (
                f"cd tests && ../{PYTHON} -W ignore -m soak --seconds {seconds} --seed {seed} --log {TARGET}/nightly/soak-servers.log"
            ),
            (r"(\d+) requests in",),
            "requests",
        ),
        Part(
            "attack",
            0.12,
            lambda seed, seconds: (
                "make attack ARGS='--folders 1000000 --templates 1000000 --calls 1000000 --sizes 100000 "
                f"--seed {seed} --seconds {seconds / 6:.0f}'"
            ),
            (r"drawn, (\d+) steps",),
            "steps",
        ),
        Part(
            "storm",
            0.03,
            lambda seed, seconds: (
                f"{PYTHON} -W ignore tests/storm.py --seed {seed} --streams {30 * seconds} --forks {seconds // 2 + 1}"
            ),
            (
                r"(?m)^ *(\d+) (?:async break|aclose|break|close|drop|exception|future|task|wait_for|close from|fork)",
            ),
            "streams and forks",
        ),
        Part(
            "families beside transformers",
            0.12,
            lambda seed, seconds: (
                f"RSGEN_PARITY_SEED={seed} make parity-families PARITY_PYTHON={python} "
                f"REQUESTS={max(2, seconds // SECONDS_FOR_EACH_FAMILY)}"
            ),
            (r"(?m)^\.*\| `[^|]*` \| (\d+) \|",),
            "requests",
            missing=has_torch,
        ),
        Part(
            "formats beside transformers",
            0.08,
            lambda seed, seconds: (
                f"RSGEN_PARITY_SEED={seed} make parity-formats PARITY_PYTHON={python} "
                f"REQUESTS={max(2, seconds // SECONDS_FOR_EACH_FORMAT)}"
            ),
            (r"(?m)^\.*\| `[^|]*` \| (\d+) \|",),
            "requests",
            missing=has_torch,
        ),
    ]


def executions(part: Part, log: str) -> int:
    """How much a part did, by its log: the numbers of the first pattern that is there."""
    for pattern in part.counted:
        if numbers := re.findall(pattern, log):
            return sum(map(int, numbers))
    return 0
