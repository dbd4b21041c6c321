"""What `scale.py` needs to know of one machine, measured with its server: how long passes take, starting, and requests that
arrive at random.

Time is the server's processor time by default: what it would take if nobody else used the machine. That is its time on the clock
for one thread alone; for more take `--clock wall`, on a machine that does nothing else. What arrives, arrives by the same clock, which
goes on to the next arrival where the server has nothing to do. Figures are medians of some rounds.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
from serving import Server

STREAMS = (1, 2, 4, 8, 16, 32)
CHUNKS = (8, 16, 32, 64, 128, 256)
# A step is the difference of so many tokens, over their number; after prompts so short that one pass computes them all.
FEW, MANY = 8, 32
SHORT, LONG = 8, 1024
KV_BYTES = 1 << 30
# What arrives in the runs that the simulation is checked with: requests, and the part of what the server can do at most.
REQUESTS, LOADS = 40, (0.4, 0.7)


class Clock:
    """Seconds of the server's processors, or of the clock, without those in which it has nothing to do."""

    def __init__(self, server: Server, kind: str) -> None:
        # Linux' name for the processor time of another process.
        self.name = (~server.process.pid << 3) | 2 if kind == "cpu" else time.CLOCK_MONOTONIC
        self.is_wall = kind == "wall"
        self.begin = 0.0
        self.start()

    def start(self) -> None:
        """Begins at 0."""
        self.begin = time.clock_gettime(self.name)

    def now(self) -> float:
        """Since the start."""
        return time.clock_gettime(self.name) - self.begin

    def wait(self, until: float, is_idle: Callable[[], bool]) -> None:
        """Waits for a time, or goes there at once where nothing moves the clock."""
        while (left := until - self.now()) > 0:
            if not self.is_wall and is_idle():
                self.begin -= left
                return
            time.sleep(min(left, 0.002))


class Bench:
    """A server, and what is asked of it."""

    def __init__(self, server: Server, clock: Clock) -> None:
        self.server, self.clock = server, clock
        self.draw = random.Random(0)

    def stream(self, length: int, new_tokens: int) -> tuple[float, float]:
        """When the first and the last token of a request arrive, whose prompt nobody had before."""
        prompt = [self.draw.randrange(10, 7000) for _ in range(length)]
        fields = {"prompt": prompt, "max_tokens": new_tokens, "temperature": 0, "ignore_eos": True}
        body = json.dumps({**fields, "stream": True, "return_token_ids": True})
        connection = HTTPConnection("127.0.0.1", self.server.port, timeout=600)
        first, tokens = 0.0, 0
        try:
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                raise RuntimeError(f"{response.status}: {response.read().decode()}")
            while line := response.readline():
                if line.startswith(b"data: {"):
                    event = json.loads(line[len(b"data: ") :])
                    tokens += sum(len(choice.get("token_ids") or []) for choice in event["choices"])
                    first = first or (self.clock.now() if tokens else 0.0)
        finally:
            connection.close()
        if tokens != new_tokens:
            raise RuntimeError(f"{tokens} tokens, not {new_tokens}")
        return first, self.clock.now()

    def at_once(self, streams: int, length: int, new_tokens: int) -> float:
        """Seconds of so many requests that begin together."""
        self.clock.start()
        with ThreadPoolExecutor(streams) as pool:
            list(pool.map(lambda _: self.stream(length, new_tokens), range(streams)))
        return self.clock.now()

    def step(self, streams: int, length: int) -> float:
        """Milliseconds of a pass with the next tokens of so many texts."""
        seconds = [self.at_once(streams, length, tokens) for tokens in (FEW, MANY)]
        return 1e3 * (seconds[1] - seconds[0]) / (MANY - FEW)

    def chunk(self, rows: int) -> float:
        """Milliseconds of a prompt that has the machine for itself."""
        return 1e3 * self.at_once(1, rows, 1)

    def arrivals(self, rate: float, seed: int) -> list[list[float]]:
        """Requests that arrive at random: arrival, prompt, new tokens, first token and end of each."""
        draw = np.random.default_rng(seed)
        times = np.cumsum(draw.exponential(1 / rate, REQUESTS)).tolist()
        prompts = draw.integers(32, 513, REQUESTS).tolist()
        tokens = draw.integers(16, 113, REQUESTS).tolist()
        rows: list[list[float]] = [[] for _ in range(REQUESTS)]

        def ask(index: int) -> None:
            arrival = self.clock.now()
            rows[index] = [
                arrival,
                prompts[index],
                tokens[index],
                *self.stream(prompts[index], tokens[index]),
            ]

        threads: list[threading.Thread] = []
        self.clock.start()
        for index, arrival in enumerate(times):
            self.clock.wait(arrival, lambda: not any(thread.is_alive() for thread in threads))
            threads.append(threading.Thread(target=ask, args=(index,)))
            threads[-1].start()
        for thread in threads:
            thread.join()
        if not all(rows):
            raise RuntimeError("a request has failed")
        return [[round(value, 4) for value in row] for row in rows]


def start(arguments: argparse.Namespace) -> tuple[Server, float]:
    """A server that is ready, and the seconds that took."""
    begin = time.perf_counter()
    flags = ["--num-threads", str(arguments.threads), "--compute-dtype", arguments.compute_dtype]
    server = Server([arguments.model, *flags, "--kv-cache-bytes", str(KV_BYTES)])
    while True:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("GET", "/health/ready")
        if connection.getresponse().status == 200:
            seconds = time.perf_counter() - begin
            if arguments.clock == "cpu":
                seconds = time.clock_gettime(Clock(server, "cpu").name)
            return server, seconds
        time.sleep(0.005)


def sizes(server: Server, model: str) -> tuple[int, dict[str, Any]]:
    """How many tokens its KV cache of `KV_BYTES` holds, and what the server says of its model."""
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", "/v1/models")
    meta = json.loads(connection.getresponse().read())["data"][0]["meta"]
    config = json.loads((Path(model) / "config.json").read_text())
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    # Keys and values in bfloat16.
    token = 2 * 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * head
    return KV_BYTES // token, meta


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Everything."""
    start_seconds = []
    for _ in range(3):
        server, seconds = start(arguments)
        server.__exit__(None, None, None)
        start_seconds.append(seconds)
    server, _ = start(arguments)
    with server:
        bench = Bench(server, Clock(server, arguments.clock))
        ways: dict[str, Callable[[], float]] = {}
        for streams in STREAMS:
            ways[f"step {streams}"] = lambda streams=streams: bench.step(streams, SHORT)
        ways["step long"] = lambda: bench.step(1, LONG)
        for rows in (*CHUNKS, LONG):
            ways[f"chunk {rows}"] = lambda rows=rows: bench.chunk(rows)
        measured: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(arguments.rounds + 1):
            for name, way in ways.items():
                measured[name].append(way())
                print(f"round {turn}: {name}: {measured[name][-1]:.2f} ms", file=sys.stderr)
        # The first round does not count.
        found = {name: statistics.median(values[1:]) for name, values in measured.items()}
        steps = [round(found[f"step {streams}"], 3) for streams in STREAMS]
        chunks = [round(found[f"chunk {rows}"], 3) for rows in CHUNKS]
        # What the server can do at most with 16 requests at a time: a prompt of 272 tokens and 64 steps for each.
        most = 1e3 / (found["chunk 256"] * 272 / 256 + 64 * found["step 16"] / 16)
        runs = []
        for load in LOADS:
            print(f"{load * most:.2f} requests a second", file=sys.stderr)
            requests = bench.arrivals(load * most, seed=1)
            runs.append({"name": f"{load * most:.2f} requests a second", "requests": requests})
        tokens, meta = sizes(server, arguments.model)
    # Four chunks of 256, of which the later ones see 256, 512 and 768 tokens.
    beyond = max(0.0, found[f"chunk {LONG}"] - LONG / 256 * chunks[-1]) / (256 * (256 + 512 + 768))
    longer = max(0.0, found["step long"] - found["step 1"]) / (LONG - SHORT)
    return {
        "model": Path(arguments.model).name,
        "compute_dtype": arguments.compute_dtype,
        "isa": meta["isa"],
        "threads": arguments.threads,
        "clock": arguments.clock,
        "weight_bytes": meta["weight_bytes"],
        "kv_tokens": tokens,
        "start_seconds": round(statistics.median(start_seconds), 3),
        "decode": {
            "rows": list(STREAMS),
            "ms": steps,
            "context": SHORT + (FEW + MANY) // 2,
            "ns_per_context_token": round(1e6 * longer, 1),
        },
        "prompt": {"rows": list(CHUNKS), "ms": chunks, "ns_per_context_token": round(1e6 * beyond, 2)},
        "runs": runs,
    }
