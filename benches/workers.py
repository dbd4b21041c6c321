"""How rows of a table scale from one worker to two, each with a core of its own: `rsgen run-batch`, Ray and Dask.

python benches/workers.py                                          # the story model; run-batch alone
.venv-integrations/bin/python benches/workers.py --engine run-batch ray dask
python benches/workers.py --model target/peers/models/S --rows 64  # a model that is larger than the caches

One worker and two take turns. Figures are medians over the rounds; the first round does not count. Rows a second are those on the
clock, so others on the machine count, too. Rows a second of processor time leave others out, but also time in which a worker waits.
Starting is not timed but for `run-batch`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rsgen.integrations import RowGenerator

WORKERS = (1, 2)
NEW_TOKENS, BATCH = 48, 64
STARTS = ["Once upon a time", "A fox", "Near the lake", "One day, Mia", "Tom had a red kite.", "The"]
OPTIONS = {"id_column": "id", "do_sample": True, "max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS}

# Seconds on the clock, and of processors.
Spent = tuple[float, float]


def table(rows: int) -> dict[str, list[Any]]:
    """Prompts with ids."""
    return {"id": list(range(rows)), "prompt": [STARTS[row % len(STARTS)] for row in range(rows)]}


def write_requests(path: Path, model: str | None, rows: int) -> None:
    """The same for `run-batch`. A model in a folder gets ids: it may have no tokenizer."""
    draw = random.Random(0)
    fields = {"max_tokens": NEW_TOKENS, "min_tokens": NEW_TOKENS, "ignore_eos": True, "temperature": 1.0}
    with path.open("w") as file:
        for row, prompt in enumerate(table(rows)["prompt"]):
            body = {"prompt": [draw.randrange(10, 7000) for _ in range(32)] if model else prompt, **fields}
            file.write(json.dumps({"custom_id": str(row), "url": "/v1/completions", "body": body}) + "\n")


def on_core(index: int) -> Callable[[], None] | None:
    """Keeps a process on one core, where the system can. One worker alone would take more than that: it reads and writes
    beside what it computes.
    """
    if not hasattr(os, "sched_setaffinity"):
        return None
    cores = sorted(os.sched_getaffinity(0))
    if index >= len(cores):
        raise RuntimeError(f"each worker needs a core of its own, and this process may use {len(cores)}")
    return lambda: os.sched_setaffinity(0, {cores[index]})


@contextmanager
def run_batch(model: str | None, rows: int) -> Iterator[Callable[[int], Spent]]:
    """A process for each part of the file."""
    with tempfile.TemporaryDirectory() as folder:
        requests = Path(folder) / "requests.jsonl"
        write_requests(requests, model, rows)
        options = ["--num-threads", "1", "--concurrency", "16"]
        options += ["--model", model, "--compute-dtype", "bfloat16"] if model else []

        def job(workers: int) -> Spent:
            before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            parts = [Path(folder) / f"part{index}.jsonl" for index in range(workers)]
            command = [sys.executable, "-m", "rsgen", "run-batch", str(requests)]
            running = [
                subprocess.Popen(
                    [*command, str(part), "--shard", f"{index}/{workers}", *options],
                    stdout=subprocess.DEVNULL,
                    preexec_fn=on_core(index),
                )
                for index, part in enumerate(parts)
            ]
            if any(process.wait() for process in running):
                raise RuntimeError("a part has failed")
            seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
            if sum(part.read_bytes().count(b"\n") for part in parts) != rows:
                raise RuntimeError("rows are missing")
            for part in parts:
                part.unlink()
            return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        yield job


@contextmanager
def ray(model: str | None, rows: int) -> Iterator[Callable[[int], Spent]]:
    """Actors of Ray Data."""
    import ray
    from rsgen.integrations.ray import RsgenPredictor

    class Timed(RsgenPredictor):
        """Says when it worked."""

        def __call__(self, batch: Any) -> Any:
            begin, cpu = time.monotonic(), time.process_time()
            done = super().__call__(batch)
            size = len(done["id"])
            spent = time.process_time() - cpu
            return {
                **done,
                "begin": [begin] * size,
                "end": [time.monotonic()] * size,
                "cpu": [spent / size] * size,
            }

    columns = table(rows)
    items = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def job(workers: int) -> Spent:
        done = (
            ray.data.from_items(items, override_num_blocks=rows // BATCH)
            .map_batches(
                Timed,
                fn_constructor_kwargs={"model": model, **OPTIONS},
                batch_size=BATCH,
                num_cpus=1,
                concurrency=workers,
            )
            .take_all()
        )
        if sorted(row["id"] for row in done) != columns["id"]:
            raise RuntimeError("rows are missing")
        seconds = max(row["end"] for row in done) - min(row["begin"] for row in done)
        return seconds, sum(row["cpu"] for row in done)

    # One CPU beside the two of the actors, for what reads and collects.
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, configure_logging=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        yield job
    finally:
        ray.shutdown()


@contextmanager
def dask(model: str | None, rows: int) -> Iterator[Callable[[int], Spent]]:
    """Worker processes of Dask."""
    import dask.dataframe as dd
    import distributed
    import pandas as pd
    from rsgen.integrations import dask as rsgen_dask

    def job(workers: int) -> Spent:
        with (
            distributed.LocalCluster(
                n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None
            ) as cluster,
            distributed.Client(cluster) as client,
        ):

            def generate(rows: int, partitions: int) -> int:
                frame = dd.from_pandas(pd.DataFrame(table(rows)), npartitions=partitions)
                return len(rsgen_dask.generate(frame, model, **OPTIONS).compute())

            # Each worker opens the model.
            generate(4 * workers, 4 * workers)
            before, begin = sum(client.run(time.process_time).values()), time.perf_counter()
            if generate(rows, rows // BATCH) != rows:
                raise RuntimeError("rows are missing")
            seconds = time.perf_counter() - begin
            return seconds, sum(client.run(time.process_time).values()) - before

    yield job


@contextmanager
def threads(model: str | None, rows: int) -> Iterator[Callable[[int], Spent]]:
    """One process with a thread for each core, for comparison."""

    def job(workers: int) -> Spent:
        generate = RowGenerator(model, model_kwargs={"num_threads": workers}, **OPTIONS)
        generate({name: column[:1] for name, column in table(rows).items()})
        columns, begin, cpu = table(rows), time.perf_counter(), time.process_time()
        for start in range(0, rows, BATCH):
            generate({name: column[start : start + BATCH] for name, column in columns.items()})
        return time.perf_counter() - begin, time.process_time() - cpu

    yield job


ENGINES = {"run-batch": run_batch, "ray": ray, "dask": dask, "threads": threads}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="a folder; the story model if not given")
    parser.add_argument("--engine", nargs="+", choices=list(ENGINES), default=["run-batch"])
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    paths = [str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    for name in arguments.engine:
        with ENGINES[name](arguments.model, arguments.rows) as job:
            spent: dict[int, list[Spent]] = {workers: [] for workers in WORKERS}
            for turn in range(arguments.rounds + 1):
                for workers in WORKERS:
                    seconds = job(workers)
                    if turn > 0:
                        spent[workers].append(seconds)
        report(name, arguments.rows, spent)


def report(name: str, rows: int, spent: dict[int, list[Spent]]) -> None:
    """Rows a second for each core, and how much of those of one worker two keep."""
    print(f"{name}: {rows} rows of {NEW_TOKENS} new tokens, medians of {len(spent[1])} rounds")
    for kind, what in enumerate(("on the clock", "of processor time")):
        each = {
            workers: [rows / row[kind] / (workers if kind == 0 else 1) for row in found]
            for workers, found in spent.items()
        }
        ratio = statistics.median(two / one for one, two in zip(each[1], each[2], strict=True))
        one, two = (statistics.median(each[workers]) for workers in WORKERS)
        print(
            f"  rows a second and core {what:18} 1 worker {one:8.1f}, 2 workers {two:8.1f}: {ratio:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
