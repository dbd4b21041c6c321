"""What rows take in memory, in each of the ways to run many: the peak of a process with 20,000 of them beside that with 2,000.

python benches/row_memory.py                     # the bundled story model, 4 beams

It needs the Python package and Linux. Each figure is of a process of its own: the most memory that it had resident, all of it,
and what it had at the end. `generate(list)` gives all its results at once: there the end, with the results, is beside the peak.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import rsgen

WAYS = ("map", "map resumed", "generate(list)", "run-batch")
# The cache of prompts would grow up to its limit, some gigabytes: it is full soon.
KV_CACHE = 32 << 20
CALL = {"num_beams": 4, "max_new_tokens": 4}


def prompt(index: int) -> str:
    """Prompts that differ, of the length of a sentence."""
    return f"One day, child {index} went to the park with a red ball."


def resident(field: str) -> float:
    """Megabytes that the process has or had at most."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(field)) / 1024


def measured(way: str, count: int) -> None:
    """Runs so many prompts in this process, and prints what they took."""
    if way == "run-batch":
        run_batch(count)
        return
    gen = rsgen.Generator(kv_cache_bytes=KV_CACHE)
    with tempfile.TemporaryDirectory() as folder:
        resume = Path(folder) / "rows.jsonl" if way == "map resumed" else None
        if way == "generate(list)":
            out = gen.generate([prompt(index) for index in range(count)], **CALL)
            report(len(out))
            return
        done = sum(1 for _ in gen.map((prompt(index) for index in range(count)), resume=resume, **CALL))
        report(done)


def report(done: int) -> None:
    """Prints the peak, what there is now, and how many rows are done."""
    print(json.dumps([resident("VmHWM"), resident("VmRSS"), done]))


def run_batch(count: int) -> None:
    """Runs the command in this process, on a file of so many requests."""
    from rsgen._rsgen import cli

    with tempfile.TemporaryDirectory() as folder:
        requests, answers = Path(folder) / "requests.jsonl", Path(folder) / "answers.jsonl"

        with requests.open("w") as file:
            for index in range(count):
                body = {"prompt": prompt(index), "use_beam_search": True, "n": 4, "max_tokens": 4}
                line = {"custom_id": str(index), "url": "/v1/completions", "body": body}
                file.write(json.dumps(line) + "\n")
        assert cli(["run-batch", str(requests), str(answers), "--json", f"--kv-cache-bytes={KV_CACHE}"]) == 0
        with answers.open() as file:
            report(sum(1 for _ in file))


def main() -> None:
    """Measures each way in processes of their own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--counts", type=int, nargs=2, default=[2000, 20000])
    parser.add_argument("--way", action="append", choices=WAYS, help="all if not given")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measured(arguments.measure[0], int(arguments.measure[1]))
        return
    for way in arguments.way or WAYS:
        peaks = []
        for count in arguments.counts:
            command = [sys.executable, __file__, "--measure", way, str(count)]
            lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
            peak, after, done = json.loads(lines[-1])
            assert done >= count, f"{done} of {count} rows are there"
            peaks.append(peak)
            print(f"{way:15} {count:6} rows: {peak:6.1f} MB at most, {after:6.1f} MB at the end", flush=True)
        few, many = arguments.counts
        more = (peaks[1] - peaks[0]) * 1024 / (many - few)
        print(
            f"{way:15} ratio of the peaks {peaks[1] / peaks[0]:.2f}, {more:.2f} KB for each row more",
            flush=True,
        )


if __name__ == "__main__":
    main()
