"""Runs rsgen and its peers in turns on the same machine, in one run, and prints what each takes.

python benches/peers/run.py --shape T --task decode_b1 --task beam8 --rounds 5
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
import venv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORK = ROOT / "target" / "peers"
# Seconds before each measurement, in which the threads of the worker before stop spinning.
REST = 0.5


@dataclass(frozen=True)
class Task:
    """What is timed: a call, or, for `decoding`, what each new token but the first adds to it."""

    prompt_len: int
    num_prompts: int
    new_tokens: int
    num_beams: int = 1
    decoding: bool = False

    def seconds(self, worker: Worker, prompts: list[list[int]]) -> float:
        """Runs the task once; the worker keeps the tokens."""
        if not self.decoding:
            return worker.generate(prompts, self.new_tokens, self.num_beams)
        first = worker.generate(prompts, 1, 1)
        return (worker.generate(prompts, 1 + self.new_tokens, 1) - first) / self.new_tokens


TASKS = {
    "prefill512": Task(512, 1, 1),
    "decode_b1": Task(32, 1, 64, decoding=True),
    "decode_b8": Task(32, 8, 32, decoding=True),
    "beam4": Task(128, 1, 64, num_beams=4),
    "beam8": Task(512, 1, 32, num_beams=8),
}

# The first is what the others are held against.
ARITHMETICS = ["bfloat16", "float32"]
# name -> (worker, packages). rsgen comes first and is not installed.
PEERS = {
    "transformers bf16": ("transformers_worker.py", ["torch==2.13.0", "transformers==5.23.0"]),
}


@dataclass
class Worker:
    """A running worker and what it has measured."""

    name: str
    process: subprocess.Popen[str]
    load_seconds: float = 0.0
    seconds: list[float] = field(default_factory=list)
    tokens: list[list[int]] = field(default_factory=list)

    def answer(self) -> dict[str, Any]:
        """The next line of the worker."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended without an answer; its error is above")
        return json.loads(line)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Sends a request and waits for its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def generate(self, prompts: list[list[int]], new_tokens: int, num_beams: int) -> float:
        """The seconds of one call, which must give as many tokens as were asked for."""
        answer = self.ask({"prompts": prompts, "new_tokens": new_tokens, "num_beams": num_beams})
        self.tokens = answer["tokens"]
        if [len(row) for row in self.tokens] != [new_tokens] * len(prompts):
            raise SystemExit(
                f"{self.name} gave {[len(row) for row in self.tokens]} tokens for {new_tokens} each"
            )
        return float(answer["seconds"])


def start(name: str, command: list[str]) -> Worker:
    """Starts a worker and waits until it has loaded its model."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE)
    worker = Worker(name, process)
    worker.load_seconds = worker.answer()["load_seconds"]
    return worker


def environment(name: str, packages: list[str]) -> Path | None:
    """The Python of a peer's own environment; None if the peer cannot be installed."""
    folder = WORK / "env" / name.replace(" ", "-")
    python = folder / "bin" / "python"
    marker = folder / "installed"
    if not marker.exists():
        venv.create(folder, with_pip=True, clear=True)
        if subprocess.run([python, "-m", "pip", "install", "--quiet", *packages]).returncode != 0:
            return None
        marker.write_text("\n".join(packages))
    return python


def rsgen_binary() -> str:
    """Builds the rsgen worker; cargo says where it is."""
    command = ["cargo", "bench", "--no-run", "--bench", "rsgen_worker", "--message-format=json"]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("target", {}).get("name") == "rsgen_worker" and message.get("executable"):
            return str(message["executable"])
    raise SystemExit("cargo built no rsgen_worker")


def model_folder(shape: str) -> Path:
    """The folder of the shape's checkpoint, made if it is not there."""
    from shapes import SHAPES, write_checkpoint

    folder = WORK / "models" / shape
    if not (folder / "model.safetensors").exists():
        print(f"writing {folder} …", file=sys.stderr)
        write_checkpoint(folder, SHAPES[shape])
    return folder


def workers_of(folder: Path, threads: int, only: list[str] | None) -> tuple[list[Worker], list[str]]:
    """Starts rsgen in each arithmetic and all peers; also the names of those that are missing."""
    binary = rsgen_binary()
    workers = [start(f"rsgen {dtype}", [binary, str(folder), str(threads), dtype]) for dtype in ARITHMETICS]
    missing = []
    for name, (script, packages) in PEERS.items():
        if only is not None and name not in only:
            continue
        python = environment(name, packages)
        if python is None:
            missing.append(name)
            continue
        workers.append(start(name, [str(python), script, str(folder), str(threads)]))
    return workers, missing


def measure(task: Task, workers: list[Worker], rounds: int) -> list[float]:
    """All workers in turns, after one round that is not counted; the seconds of the plain reads between them."""
    choose = random.Random(0)
    reads: list[float] = []
    for worker in workers:
        worker.seconds = []
    for turn in range(rounds + 1):
        prompts = [
            [choose.randrange(10, 7000) for _ in range(task.prompt_len)] for _ in range(task.num_prompts)
        ]
        time.sleep(REST)
        read = statistics.median(workers[0].ask({"read": True})["seconds"] for _ in range(3))
        for worker in workers:
            time.sleep(REST)
            seconds = task.seconds(worker, prompts)
            if turn > 0:
                worker.seconds.append(seconds)
        if turn > 0:
            reads.append(read)
    return reads


def report(title: str, workers: list[Worker], reads: list[float], missing: list[str]) -> list[dict[str, Any]]:
    """The results as data; prints them as a table."""
    print(f"{title}, medians of {len(reads)} rounds; plain read {1e3 * statistics.median(reads):.1f} ms")
    print(f"{'':22}{'ms':>10}{'÷ read':>8}{'rsgen ÷':>9}{'load s':>8}")
    rows = []
    for worker in workers:
        row = {
            "name": worker.name,
            "seconds": statistics.median(worker.seconds),
            "over_read": statistics.median(a / b for a, b in zip(worker.seconds, reads, strict=True)),
            "rsgen_is_faster": statistics.median(
                a / b for a, b in zip(worker.seconds, workers[0].seconds, strict=True)
            ),
            "load_seconds": worker.load_seconds,
            "all_seconds": worker.seconds,
        }
        rows.append(row)
        print(
            f"{worker.name:22}{1e3 * row['seconds']:10.2f}{row['over_read']:8.2f}{row['rsgen_is_faster']:9.2f}"
            f"{worker.load_seconds:8.2f}"
        )
        if worker is not workers[0]:
            pairs = [
                pair
                for rows_of_two in zip(worker.tokens, workers[0].tokens, strict=True)
                for pair in zip(*rows_of_two, strict=True)
            ]
            same = sum(a == b for a, b in pairs)
            print(f"{'':22}{same} of {len(pairs)} tokens equal those of {workers[0].name}")
    for name in missing:
        print(f"{name:22}missing: it could not be installed")
    return rows


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=["S", "T"], default="T")
    parser.add_argument("--task", action="append", choices=list(TASKS), help="all of them if not given")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", action="append", help="a peer to run (all of them if not given)")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    arguments = parser.parse_args()
    workers, missing = workers_of(model_folder(arguments.shape), arguments.threads, arguments.only)
    result: dict[str, Any] = {"shape": arguments.shape, "threads": arguments.threads, "tasks": {}}
    for name in arguments.task or TASKS:
        reads = measure(TASKS[name], workers, arguments.rounds)
        title = f"{name} on {arguments.shape}, {arguments.threads} threads"
        result["tasks"][name] = {"read_seconds": reads, "rows": report(title, workers, reads, missing)}
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
