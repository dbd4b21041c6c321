"""Workers in turns: each measures once, with a plain read of the weights' bytes before it, then the next."""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from environments import WORK, Missing, last_line
from tasks import CALLS, NAMED, REPEATING, TASKS, Ids, Task

# Seconds before each measurement, in which the threads of the worker before stop spinning.
REST = 0.5
# Seconds that a process may take to end.
PATIENCE = 30
# Whether the system can take a file out of the page cache; macOS cannot.
CAN_EVICT = hasattr(os, "posix_fadvise")
# Memory that is left to the workers that do not stay loaded, and to the system, in checkpoints.
SPARE_CHECKPOINTS = 3


@dataclass
class Worker:
    """A process that answers requests, and what was seen of it."""

    name: str
    command: list[str] = field(default_factory=list)
    # What it is measured on.
    tasks: tuple[str, ...] = CALLS
    # The file or the folder of its weights.
    model: Path | None = None
    # Why it cannot be run.
    missing: str | None = None
    # Whether the process stays between its turns.
    stays: bool = True
    process: subprocess.Popen[str] | None = None
    loads: list[float] = field(default_factory=list)
    peak_rss: int = 0
    # The bytes of all its weights: those of its model's file, or what it says itself.
    weight_bytes: int = 0
    # The bytes of the weights that a step of decoding reads, if it says so.
    matrix_bytes: int = 0
    tokens: Ids = field(default_factory=list)

    @property
    def log(self) -> Path:
        """What it writes besides answers."""
        return WORK / "logs" / f"{self.name.replace(' ', '-')}.log"

    def start(self) -> float:
        """Starts the process and waits until it has loaded its model; the seconds that it says this took."""
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        ready = self.answer()
        self.weight_bytes = ready.get("weight_bytes", self.weight_bytes)
        self.matrix_bytes = ready.get("matrix_bytes", self.matrix_bytes)
        return float(ready["load_seconds"])

    def try_start(self) -> float | None:
        """Starts the process as `start` does, unless it cannot be run: then that is kept, and there are no seconds."""
        if self.missing is None:
            try:
                return self.start()
            except Missing as reason:
                self.missing = str(reason)
        return None

    def stop(self) -> None:
        """Ends the process."""
        if self.process is None:
            return
        try:
            self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
        self.process = None

    @contextmanager
    def running(self) -> Iterator[bool]:
        """Starts the process if it does not run, and says whether it did; ends one that does not stay."""
        fresh = self.process is None
        if fresh:
            self.start()
        try:
            yield fresh
        finally:
            if not self.stays:
                self.stop()

    def answer(self) -> dict[str, Any]:
        """The next line of the process."""
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.stop()
            raise Missing(last_line(self.log))
        answer = json.loads(line)
        if "error" in answer:
            raise Missing(answer["error"])
        self.peak_rss = max(self.peak_rss, peak_rss(self.process.pid))
        return answer

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Sends a request and waits for its answer."""
        assert self.process is not None
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.stop()
            raise Missing(last_line(self.log)) from None
        return self.answer()

    def generate(self, prompts: Ids, new_tokens: int, num_beams: int, **options: int) -> float:
        """The seconds of one call, or of those of `clients`, which must give as many tokens as were asked for."""
        request = {"prompts": prompts, "new_tokens": new_tokens, "num_beams": num_beams}
        answer = self.ask(request | options)
        self.tokens = answer["tokens"]
        lengths = [len(row) for row in self.tokens]
        if lengths != [new_tokens] * len(prompts):
            raise Missing(f"it gave {lengths} tokens for {new_tokens} each")
        return float(answer["seconds"])


@dataclass
class Measured:
    """What a worker took for a task in each round, and the plain read before it; or why there is nothing."""

    seconds: list[float] = field(default_factory=list)
    reads: list[float] = field(default_factory=list)
    tokens: Ids = field(default_factory=list)
    missing: str | None = None


def peak_rss(pid: int) -> int:
    """The most resident memory of a process so far, in bytes; 0 where the system does not tell."""
    return system_bytes(Path(f"/proc/{pid}/status"), "VmHWM:")


def system_bytes(file: Path, name: str) -> int:
    """An entry of a file of /proc."""
    lines = file.read_text().splitlines() if file.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(name)), 0)


def settle(workers: list[Worker], checkpoint_bytes: int) -> None:
    """Starts all workers; those that memory does not do for are started anew for each of their turns."""
    # Not what is available later: that counts the files that workers have mapped.
    room = system_bytes(Path("/proc/meminfo"), "MemAvailable:") - SPARE_CHECKPOINTS * checkpoint_bytes
    for worker in workers:
        seconds = worker.try_start()
        if seconds is not None:
            worker.loads = worker.loads or [seconds]
            # A mapped file is not resident before it is used.
            need = max(worker.peak_rss, worker.weight_bytes)
            worker.stays = need <= room
            if worker.stays:
                room -= need
            else:
                worker.stop()


def measure(name: str, workers: list[Worker], reader: Worker, rounds: int) -> dict[str, Measured]:
    """The task's workers in turns, after one round that is not counted: in it a file may not be in memory yet."""
    workers = [worker for worker in workers if name in worker.tasks]
    measured = {worker.name: Measured(missing=worker.missing) for worker in workers}
    for turn in range(rounds + 1):
        for worker in workers:
            result = measured[worker.name]
            if result.missing is None:
                try:
                    take = first_token if TASKS[name].loading else once
                    seconds, read = take(name, worker, reader, turn)
                except Missing as reason:
                    measured[worker.name] = Measured(missing=str(reason))
                    if TASKS[name].loading:
                        worker.missing = str(reason)
                    continue
                if turn > 0:
                    result.seconds.append(seconds)
                    result.reads.append(read)
                result.tokens = worker.tokens
    return measured


def once(name: str, worker: Worker, reader: Worker, turn: int) -> tuple[float, float]:
    """The seconds of the task, and of the plain read just before it."""
    task = TASKS[name]
    with worker.running() as fresh:
        if fresh:
            task.seconds(worker.generate, random_prompts(task, f"warm-up of {name}"))
        read = plain_read(reader)
        return task.seconds(worker.generate, random_prompts(task, f"{name} {turn}")), read


def first_token(name: str, worker: Worker, reader: Worker, turn: int) -> tuple[float, float]:
    """As `once`, but in a new process and with the time of loading, which it keeps if the round counts."""
    task, read = TASKS[name], plain_read(reader)
    if task.cold and worker.model is not None:
        evict(worker.model)
    load = worker.start()
    try:
        seconds = load + task.seconds(worker.generate, random_prompts(task, f"{name} {turn}"))
    finally:
        worker.stop()
    if turn > 0:
        worker.loads.append(load)
    return seconds, read


def evict(model: Path) -> None:
    """Takes the files of a model out of the page cache; nobody may have them mapped."""
    if not CAN_EVICT:
        raise OSError("this system has no way to take a file out of the page cache")
    for file in [model, *model.rglob("*")]:
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            try:
                # What is not written yet would stay.
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def plain_read(reader: Worker) -> float:
    """The seconds of a plain read, after a rest."""
    time.sleep(REST)
    return statistics.median(reader.ask({})["seconds"] for _ in range(3))


def random_prompts(task: Task, seed: str) -> Callable[[], Ids]:
    """Makes prompts: others for each call and for each seed, so that no prefix of them was computed before."""
    choose = random.Random(seed)

    def draw(length: int) -> list[int]:
        return [choose.randrange(10, 7000) for _ in range(length)]

    def misleading(length: int) -> list[int]:
        """A token, and before it those that follow, each before one that does not follow it."""
        first = choose.randrange(REPEATING, NAMED - length)
        following = list(range(first + 1, first + length))
        while any(after == before + 1 for before, after in pairwise(following)):
            choose.shuffle(following)
        return [*following, first]

    def prompts() -> Ids:
        if task.misleads:
            return [misleading(length) for length in task.prompt_lens()]
        shared = draw(task.shared_len)
        return [shared + draw(length) for length in task.prompt_lens()]

    return prompts


def repeats(task: Task, worker: Worker) -> bool:
    """Whether the worker gives the same tokens for the same prompts."""
    shared = list(range(10, 10 + task.shared_len))
    own = [[10 + (7 * i + j) % 30000 for i in range(length)] for j, length in enumerate(task.prompt_lens())]
    prompts = [shared + prompt for prompt in own]
    with worker.running():
        worker.generate(prompts, task.new_tokens, task.num_beams, **task.options())
        first = worker.tokens
        worker.generate(prompts, task.new_tokens, task.num_beams, **task.options())
    return worker.tokens == first
