"""Many machines on paper: what N of them serve behind a load balancer, from the measured times of one.

python benches/scale.py measure MODEL > times.json       # a folder; some minutes
python benches/scale.py table times.json                 # requests a second of 1 to 64 machines, and what they cost
python benches/scale.py table times.json --workload chat --arrivals bursts
python benches/scale.py check times.json                 # the simulation against the server that was measured

The simulation knows what docs/scale.md says: passes with a budget of rows as the engine has it, the cache of computed prompts of
each machine, requests that arrive at random, and a router. It knows no network beyond `--hop-ms`, and no machine that fails.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from scale_machines import ROUTERS, Machine, Request, Result, Times, least, simulate

MACHINES = (1, 2, 4, 8, 16, 64)
# The part of what full machines do that may be asked of them: beyond it queues take long to settle, or never do.
MOST_LOAD = 0.9
# How many times as fast as the best peer in bfloat16 with eight texts, in one run: the README's table, and the lower figure.
SAME_RUN = {"S": 1.75, "T": 1.22}


def arrival_times(number: int, rate: float, process: str, draw: np.random.Generator) -> np.ndarray:
    """When requests arrive: one at a time, or in bursts of eight on average; so many a second either way."""
    if process == "poisson":
        return np.cumsum(draw.exponential(1 / rate, number))
    sizes = draw.geometric(1 / 8, number)
    times = np.cumsum(draw.exponential(8 / rate, number))
    return np.repeat(times, sizes)[:number]


def texts(number: int, rate: float, process: str, machines: int, seed: int) -> list[Request]:
    """Prompts of 32 to 512 tokens that nobody had before, and 16 to 112 new ones."""
    draw = np.random.default_rng(seed)
    prompts, new = draw.integers(32, 513, number), draw.integers(16, 113, number)
    times = arrival_times(number, rate, process, draw)
    rows = zip(times.tolist(), prompts.tolist(), new.tolist(), strict=True)
    return [Request(index, *row) for index, row in enumerate(rows)]


def chats(number: int, rate: float, process: str, machines: int, seed: int) -> list[Request]:
    """Conversations of eight turns, 16 for each machine at a time. A turn says 64 tokens and gets 16 to 112, after a first
    prompt of 256 and all that was said."""
    draw = np.random.default_rng(seed)
    new = draw.integers(16, 113, number).tolist()
    choices = draw.integers(0, 16 * machines, number).tolist()
    times = arrival_times(number, rate, process, draw).tolist()
    names, requests = count(16 * machines), []
    # The name of each, what it holds, and how many turns it had.
    active = [(name, 256, 0) for name in range(16 * machines)]
    for index, (arrival, tokens, choice) in enumerate(zip(times, new, choices, strict=True)):
        name, length, turns = active[choice]
        earlier = length if turns else 0
        requests.append(Request(index, arrival, length + 64, tokens, name, earlier))
        active[choice] = (name, length + 64 + tokens, turns + 1) if turns < 7 else (next(names), 256, 0)
    return requests


WORKLOADS = {"texts": texts, "chat": chats}


@dataclass(frozen=True)
class Limits:
    """What users are promised, in seconds: 99 of 100 first tokens, and 99 of 100 times between two tokens."""

    ttft: float
    gap: float


@dataclass(frozen=True)
class Setting:
    """What is simulated, but for the number of machines, the router and the rate."""

    times: Times
    kv_tokens: int
    workload: str = "texts"
    arrivals: str = "poisson"
    hop: float = 0.0
    requests: int = 2000
    seed: int = 0

    def run(self, number: int, router: str, rate: float) -> Result:
        """So many machines at so many requests a second."""
        requests = max(self.requests, min(500 * number, 12_000))
        work = WORKLOADS[self.workload](requests, rate, self.arrivals, number, self.seed)
        machines = [Machine(self.times, self.kv_tokens) for _ in range(number)]
        return simulate(machines, work, ROUTERS[router], self.seed)

    def full(self) -> float:
        """The requests a second of one machine for which something always waits, and that has computed all earlier turns."""
        work = WORKLOADS[self.workload](self.requests, 1e6, self.arrivals, 1, self.seed)
        return (
            self.requests
            / simulate([Machine(self.times, self.kv_tokens, knows_all=True)], work, least).seconds
        )

    def capacity(self, number: int, router: str, limits: Limits, full: float) -> tuple[float, Result | None]:
        """The most requests a second within the limits, to a 40th of what full machines do, and that run."""

        def fitting(rate: float) -> Result | None:
            result = self.run(number, router, rate)
            fits = result.ttft() + self.hop <= limits.ttft and result.gap() <= limits.gap
            return result if fits else None

        low, high = 0.0, MOST_LOAD * number * full
        if best := fitting(high):
            return high, best
        while high - low > number * full / 40:
            rate = (low + high) / 2
            if result := fitting(rate):
                low, best = rate, result
            else:
                high = rate
        return low, best


def new_tokens_a_second(result: Result, rate: float) -> float:
    """Of a run that keeps up with its requests."""
    return rate * float(np.mean([request.new_tokens for request in result.requests]))


def core_hours(tokens_a_second: float, cores: int) -> float:
    """For a million tokens."""
    return cores * 1e6 / tokens_a_second / 3600


def print_table(data: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Requests a second of machines within the limits, for each router; and what the best of it costs."""
    limits = Limits(arguments.ttft / 1e3, arguments.gap / 1e3)
    hop = arguments.hop_ms / 1e3
    times = Times(data)
    setting = Setting(
        times, data["kv_tokens"], arguments.workload, arguments.arrivals, hop, seed=arguments.seed
    )
    full = setting.full()
    alone = setting.run(1, "least", 1e-3)
    first, gap = 1e3 * alone.ttft(50), 1e3 * alone.gap(50)
    print(
        f"{data['model']}, {data['threads']} core(s) a machine, {arguments.workload}, {arguments.arrivals};"
    )
    print(f"99 of 100 first tokens within {arguments.ttft:g} ms, and next ones within {arguments.gap:g} ms;")
    print(
        f"with next to no load {first:.0f} and {gap:.1f} ms. Requests a second (as a part of full machines):"
    )
    names = [name for name in ROUTERS if arguments.workload == "chat" or name != "affine"]
    costs = ["tokens/s", "core-hours for 10⁶ tokens", f"at {arguments.price:g} a core-hour"]
    print(f"| machines | {' | '.join(names + costs)} |")
    print("|" + "---|" * (len(names) + 4))
    for number in arguments.machines:
        found = {name: setting.capacity(number, name, limits, full) for name in names}
        cells = [f"{rate:.1f} ({rate / number / full:.2f})" for rate, _ in found.values()]
        rate, result = max(found.values(), key=lambda pair: pair[0])
        cost = ["–", "–", "–"]
        if result:
            tokens = new_tokens_a_second(result, rate)
            hours = core_hours(tokens, number * data["threads"])
            cost = [f"{tokens:.0f}", f"{hours:.2f}", f"{hours * arguments.price:.2f}"]
        print(f"| {number} | {' | '.join(cells + cost)} |", flush=True)


def print_costs(data: dict[str, Any], arguments: argparse.Namespace) -> None:
    """What a million tokens of eight texts side by side cost, with rsgen and with its peers, of which each has two cores."""
    reference = json.loads((Path(__file__).parent / "peers" / "reference.json").read_text())
    print("| eight texts at once | model | tokens/s | core-hours for 10⁶ tokens | at the price |")
    print("|---|---|---|---|---|")
    for model, ratio in SAME_RUN.items():
        peers = {name: row["decode_b8"] for name, row in reference[model].items() if "decode_b8" in row}
        best = max(rate for name, rate in peers.items() if "bf16" in name)
        for name, rate in {"rsgen bfloat16": ratio * best, **peers}.items():
            hours = core_hours(rate, 2)
            print(f"| {name} | {model} | {rate:.0f} | {hours:.2f} | {hours * arguments.price:.2f} |")
    alone = 8 / Times(data).seconds(8, 0)
    print(
        f"\none core of rsgen, through its server: {alone:.0f} tokens/s, {core_hours(alone, data['threads']):.2f}"
    )


def compare(data: dict[str, Any]) -> dict[str, dict[str, tuple[float, float]]]:
    """What was measured with the server, and what the simulation says of the same arrivals."""
    found = {}
    for run in data["runs"]:
        requests = [Request(index, *row[:3]) for index, row in enumerate(run["requests"])]
        result = simulate([Machine(Times(data), data["kv_tokens"])], requests, least)
        first, end = (np.array([row[column] for row in run["requests"]]) for column in (3, 4))
        arrival = np.array([row[0] for row in run["requests"]])
        warm = len(requests) // 10
        tokens = sum(request.new_tokens for request in requests)
        gaps = [(row[4] - row[3]) / (row[2] - 1) for row in run["requests"] if row[2] > 1]
        simulated = [(request.end - request.first) / (request.new_tokens - 1) for request in requests]
        found[run["name"]] = {
            "tokens/s": (tokens / float(end.max()), tokens / result.seconds),
            "mean ms to the first token": (
                1e3 * float(np.mean((first - arrival)[warm:])),
                1e3 * float(np.mean([request.first - request.arrival for request in requests[warm:]])),
            ),
            "mean ms between tokens": (1e3 * float(np.mean(gaps)), 1e3 * float(np.mean(simulated))),
            "mean ms of a request": (
                1e3 * float(np.mean((end - arrival)[warm:])),
                1e3 * float(np.mean([request.end - request.arrival for request in requests[warm:]])),
            ),
        }
    return found


def print_check(data: dict[str, Any]) -> None:
    """The simulation beside the server."""
    for name, figures in compare(data).items():
        print(name)
        for figure, (measured, simulated) in figures.items():
            print(
                f"  {figure:28} measured {measured:9.1f}, simulated {simulated:9.1f}: {simulated / measured:.2f}"
            )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    measure = commands.add_parser("measure", help="the times of this machine, as JSON")
    measure.add_argument("model")
    measure.add_argument("--threads", type=int, default=1)
    measure.add_argument("--clock", choices=["cpu", "wall"], default="cpu")
    measure.add_argument("--compute-dtype", default="bfloat16")
    measure.add_argument("--rounds", type=int, default=2)
    table = commands.add_parser("table", help="1 to 64 machines")
    costs = commands.add_parser("costs", help="a million tokens beside the peers")
    check = commands.add_parser("check", help="the simulation against the measured server")
    table.add_argument("--workload", choices=list(WORKLOADS), default="texts")
    table.add_argument("--arrivals", choices=["poisson", "bursts"], default="poisson")
    table.add_argument("--ttft", type=float, default=2000, help="milliseconds")
    table.add_argument("--gap", type=float, default=100, help="milliseconds")
    table.add_argument(
        "--hop-ms", type=float, default=1.0, help="what the load balancer adds to the first token"
    )
    table.add_argument("--machines", type=int, nargs="+", default=list(MACHINES))
    table.add_argument("--seed", type=int, default=0)
    for command in (table, costs):
        command.add_argument("--price", type=float, default=1.0, help="of a core-hour, in your currency")
    for command in (table, costs, check):
        command.add_argument("times", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "measure":
        from scale_times import measure as measure_times

        print(json.dumps(measure_times(arguments), indent=1))
        return
    data = json.loads(arguments.times.read_text())
    {"table": print_table, "costs": print_costs, "check": lambda data, _: print_check(data)}[
        arguments.command
    ](data, arguments)


if __name__ == "__main__":
    main()
