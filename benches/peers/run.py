"""Runs rsgen and its peers in turns on the same machine, in one run, and prints what each takes.

python benches/peers/run.py --shape T --precision int8 --task decode_b1 --rounds 5 --json t.json --picture t.svg
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from environments import ISAS, WORK, Missing, keep_to
from peers import PEERS, PRECISIONS
from picture import draw
from report import LOAD_COLUMNS, TASK_COLUMNS, load_rows, table, task_rows
from shapes import SHAPES, write_checkpoint
from tasks import LOADING, SERVING, TASKS
from turns import CAN_EVICT, Measured, Worker, measure, repeats, settle

ROOT = Path(__file__).resolve().parent.parent.parent
# How the name of the worker ends that calls rsgen from a thread for each prompt.
CALLS_AT_ONCE = " calls"


def rsgen_binary() -> str:
    """Builds the rsgen worker, without the command of the package; cargo says where it is."""
    command = ["cargo", "bench", "--no-default-features", "--no-run", "--bench", "rsgen_worker"]
    command.append("--message-format=json")
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("target", {}).get("name") == "rsgen_worker" and message.get("executable"):
            return str(message["executable"])
    raise SystemExit("cargo built no rsgen_worker")


def checkpoint_of(shape: str) -> Path:
    """The folder of the shape's checkpoint, made if it is not there."""
    folder = WORK / "models" / shape
    if not (folder / "model.safetensors").exists():
        print(f"writing {folder} …", file=sys.stderr)
        write_checkpoint(folder, SHAPES[shape])
    return folder


def rsgen_workers(
    binary: str, checkpoint: Path, precision: str, tasks: list[str], threads: int
) -> list[Worker]:
    """rsgen with a task in one call, which the peers are held against; also with a thread and a call for each request."""
    serve = [binary, "serve", str(checkpoint), str(threads)]
    workers = [
        Worker(f"rsgen {precision}", [*serve, precision], tuple(TASKS), checkpoint),
        Worker(f"rsgen {precision}{CALLS_AT_ONCE}", [*serve, precision, "calls"], SERVING, checkpoint),
    ]
    if precision == "bfloat16":
        workers.append(Worker("rsgen float32", [*serve, "float32"], tuple(TASKS), checkpoint))
    elif not set(tasks).isdisjoint(LOADING):
        folder = packed_model(binary, checkpoint, precision)
        packed = [binary, "serve", str(folder), str(threads), precision]
        workers.append(Worker(f"rsgen {precision} packed", packed, LOADING, folder))
    return workers


def same_file_workers(binary: str, checkpoint: Path, peers: list[Worker], threads: int) -> list[Worker]:
    """rsgen on the files that llama.cpp runs on, with activations of 8 bits as there."""
    found = {worker.name for worker in peers if worker.missing is None}
    workers = []
    for peer in PEERS:
        # Of bfloat16 rsgen computes with the checkpoint; each file has several peers.
        if peer.worker == "llama_cpp" and peer.made_of and peer.options == ("calls",) and peer.name in found:
            file = peer.model(checkpoint) / "model.gguf"
            name = peer.name.replace("llama.cpp", "rsgen, the file")
            command = [binary, "serve", str(file), str(threads), "file"]
            worker = Worker(name, command, peer.tasks, file)
            worker.weight_bytes = peer.weight_bytes(checkpoint)
            workers.append(worker)
    return workers


def packed_model(binary: str, checkpoint: Path, precision: str) -> Path:
    """The folder of the model as `rsgen pack` writes it, made if it is not there."""
    folder = checkpoint.with_name(f"{checkpoint.name}.rsgen.{precision}")
    if not folder.exists():
        print(f"packing {folder} …", file=sys.stderr)
        partial = folder.with_name(f"{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        subprocess.run([binary, "pack", str(checkpoint), str(partial), precision], check=True)
        partial.rename(folder)
    return folder


def peer_workers(
    checkpoint: Path, precision: str, tasks: list[str], arguments: argparse.Namespace
) -> list[Worker]:
    """A worker for each peer that has one of the tasks, with the reason if it cannot be installed or converted for."""
    workers = []
    for peer in PEERS:
        wanted = any(peer.name.lower().startswith(name.lower()) for name in arguments.only or [""])
        if wanted and peer.precision == precision and not set(tasks).isdisjoint(peer.tasks):
            worker = Worker(peer.name, tasks=peer.tasks)
            workers.append(worker)
            try:
                worker.command = peer.command(checkpoint, arguments.threads)
                worker.model = peer.model(checkpoint)
                worker.weight_bytes = peer.weight_bytes(checkpoint)
            except Missing as reason:
                worker.missing = str(reason)
    return workers


def run(
    shape: str, precision: str, tasks: list[str], binary: str, arguments: argparse.Namespace
) -> dict[str, Any]:
    """All that is asked for on one shape in one precision, as data; prints it as it comes."""
    checkpoint, threads, rounds = checkpoint_of(shape), arguments.threads, arguments.rounds
    size = (checkpoint / "model.safetensors").stat().st_size
    rsgen = rsgen_workers(binary, checkpoint, precision, tasks, threads)
    # It says how many bytes its matrices take.
    rsgen[0].start()
    rsgen[0].stop()
    reader = Worker("read", [binary, "read", str(rsgen[0].matrix_bytes), str(threads)])
    rsgen = [worker for worker in rsgen if not set(tasks).isdisjoint(worker.tasks)]
    peers = peer_workers(checkpoint, precision, tasks, arguments)
    rsgen += same_file_workers(binary, checkpoint, peers, threads)
    names, workers = {peer.name for peer in peers}, [*rsgen, *peers]
    result: dict[str, Any] = {"tasks": {}}

    def take(name: str) -> None:
        task = TASKS[name]
        measured = measure(name, workers, reader, rounds)
        for worker in rsgen:
            if name in worker.tasks and measured[worker.name].missing is not None:
                raise SystemExit(f"{worker.name}, {name}: {measured[worker.name].missing}")
        compare(measured, precision)
        bits = {worker.name: 8 * worker.weight_bytes / SHAPES[shape].num_weights() for worker in workers}
        rows = result["tasks"][name] = task_rows(shape, name, task, measured, bits, names)
        title = f"{name} on {shape} in {precision} ({task.unit}), medians of {rounds} rounds"
        print(table(title, TASK_COLUMNS, rows), flush=True)

    try:
        reader.start()
        for name in (name for name in tasks if TASKS[name].loading):
            take(name)
        settle(workers, size)
        for name in (name for name in tasks if not TASKS[name].loading):
            for worker in rsgen:
                if name in worker.tasks:
                    check(worker, name)
            take(name)
    finally:
        for worker in [*workers, reader]:
            worker.stop()
    result["load"] = load_rows(shape, workers, size, names)
    print(table(f"loading and memory on {shape} in {precision}", LOAD_COLUMNS, result["load"]), flush=True)
    return result


def check(worker: Worker, name: str) -> None:
    """A peer may be missing; rsgen may not, and gives the same tokens for the same prompts."""
    if worker.missing is None:
        try:
            if repeats(TASKS[name], worker):
                return
            worker.missing = "it gave other tokens for the same prompts"
        except Missing as reason:
            worker.missing = str(reason)
    raise SystemExit(f"{worker.name}, {name}: {worker.missing}")


def compare(measured: dict[str, Measured], precision: str) -> None:
    """rsgen gives the same tokens to a list of prompts and to calls that run at once."""
    one, each = (measured.get(f"rsgen {precision}{calls}") for calls in ("", CALLS_AT_ONCE))
    if one and each and one.tokens != each.tokens:
        raise SystemExit(
            "rsgen gave other tokens to calls that ran at once than to a list of the same prompts"
        )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", action="append", choices=list(SHAPES), help="all of them if not given")
    parser.add_argument("--precision", action="append", choices=PRECISIONS, help="all of them if not given")
    parser.add_argument("--task", action="append", choices=list(TASKS), help="all of them if not given")
    parser.add_argument("--only", action="append", help="how the name of a peer begins; all if not given")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--isa", choices=list(ISAS), help="an instruction set that all are kept to")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--picture", type=Path, help="where to draw them (SVG)")
    arguments = parser.parse_args()
    (WORK / "logs").mkdir(parents=True, exist_ok=True)
    if arguments.isa:
        keep_to(arguments.isa)
    binary, tasks = rsgen_binary(), arguments.task or list(TASKS)
    result: dict[str, Any] = {"threads": arguments.threads, "rounds": arguments.rounds, "isa": arguments.isa}
    result["shapes"] = {}
    for shape in arguments.shape or SHAPES:
        precisions = result["shapes"][shape] = {}
        fitting = [
            name for name in tasks if SHAPES[shape].fits(TASKS[name]) and (CAN_EVICT or not TASKS[name].cold)
        ]
        for precision in arguments.precision or PRECISIONS:
            precisions[precision] = run(shape, precision, fitting, binary, arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1, ensure_ascii=False))
    if arguments.picture:
        arguments.picture.write_text(draw(result))


if __name__ == "__main__":
    main()
