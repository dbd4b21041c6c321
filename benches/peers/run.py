"""Runs rsgen and its peers in turns on the same machine, in one run, and prints what each takes.

python benches/peers/run.py --shape T --rounds 5
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
PROMPT_LEN = 32
# Seconds before each measurement, in which the threads of the worker before stop spinning.
REST = 0.5

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
    tokens: list[int] = field(default_factory=list)

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


def measure(shape: str, rounds: int, threads: int, only: list[str] | None) -> dict[str, Any]:
    """All workers in turns, after one round that is not counted."""
    folder = model_folder(shape)
    workers = [start("rsgen float32", [rsgen_binary(), str(folder), str(threads)])]
    missing = []
    for name, (script, packages) in PEERS.items():
        if only is not None and name not in only:
            continue
        python = environment(name, packages)
        if python is None:
            missing.append(name)
            continue
        workers.append(start(name, [str(python), script, str(folder), str(threads)]))
    choose = random.Random(0)
    reads: list[float] = []
    for turn in range(rounds + 1):
        prompt = [choose.randrange(10, 7000) for _ in range(PROMPT_LEN)]
        time.sleep(REST)
        read = statistics.median(workers[0].ask({"read": True})["seconds"] for _ in range(3))
        for worker in workers:
            time.sleep(REST)
            answer = worker.ask({"prompt": prompt})
            if turn > 0:
                worker.seconds.append(answer["seconds"])
            worker.tokens = answer["tokens"]
        if turn > 0:
            reads.append(read)
        if len(workers[0].tokens) != 65:
            raise SystemExit(f"rsgen gave {len(workers[0].tokens)} tokens for 65")
    return report(shape, threads, workers, reads, missing)


def report(
    shape: str, threads: int, workers: list[Worker], reads: list[float], missing: list[str]
) -> dict[str, Any]:
    """The result as data; prints it as a table."""
    read = statistics.median(reads)
    rsgen = statistics.median(workers[0].seconds)
    print(
        f"decode_b1 on {shape}, {threads} threads, medians of {len(reads)} rounds; plain read {1e3 * read:.1f} ms"
    )
    print(f"{'':22}{'ms/token':>10}{'tok/s':>8}{'÷ read':>8}{'rsgen ÷':>9}{'load s':>8}")
    rows = []
    for worker in workers:
        seconds = statistics.median(worker.seconds)
        ratios = [a / b for a, b in zip(worker.seconds, reads, strict=True)]
        faster = statistics.median(a / b for a, b in zip(worker.seconds, workers[0].seconds, strict=True))
        row = {
            "name": worker.name,
            "seconds": seconds,
            "over_read": statistics.median(ratios),
            "rsgen_is_faster": faster,
            "load_seconds": worker.load_seconds,
            "all_seconds": worker.seconds,
        }
        rows.append(row)
        print(
            f"{worker.name:22}{1e3 * seconds:10.2f}{1 / seconds:8.1f}{row['over_read']:8.2f}{faster:9.2f}"
            f"{worker.load_seconds:8.2f}"
        )
        same = sum(a == b for a, b in zip(worker.tokens, workers[0].tokens, strict=False))
        if worker is not workers[0]:
            print(f"{'':22}{same} of 65 tokens equal rsgen's (bfloat16 and float32 arithmetic differ)")
    for name in missing:
        print(f"{name:22}missing: it could not be installed")
    return {
        "task": "decode_b1",
        "shape": shape,
        "threads": threads,
        "read_seconds": reads,
        "rsgen": rsgen,
        "rows": rows,
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=["S", "T"], default="T")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", action="append", help="a peer to run (all of them if not given)")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    arguments = parser.parse_args()
    result = measure(arguments.shape, arguments.rounds, arguments.threads, arguments.only)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
