"""Machines that serve a model, simulated: passes of rows as the engine composes them, and routers in front of many.

`scale.py` is the command.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

# As src/engine/budget.rs has them.
MAX_ROWS, MIN_PROMPT_ROWS, SLOWDOWN = 256, 16, 2.5
# The tokens of a block of the KV cache: what is shared of a prompt is a multiple.
BLOCK = 32


class Times:
    """How long a pass takes, in seconds, by its rows."""

    def __init__(self, data: dict[str, Any]) -> None:
        rows = np.arange(MAX_ROWS + 1)
        decode, prompt = data["decode"], data["prompt"]
        self._decode = _line(rows, decode["rows"], decode["ms"])
        self._prompt = _line(rows, [decode["rows"][0], *prompt["rows"]], [decode["ms"][0], *prompt["ms"]])
        self._decode_context, self._decode_at = decode["ns_per_context_token"] * 1e-9, decode["context"]
        self._prompt_context = prompt["ns_per_context_token"] * 1e-9

    def seconds(self, steps: int, prompt_rows: int, context: int = 0, prompt_context: int = 0) -> float:
        """A pass with the next tokens of `steps` texts and so many rows of prompts, which see so many tokens together.

        The rows of both read the weights once. Those of texts cost more than those of prompts: each has logits."""
        if prompt_rows == 0:
            seconds = self._decode[steps]
        else:
            apart = max(0.0, self._decode[steps] - self._prompt[steps]) if steps else 0.0
            seconds = self._prompt[steps + prompt_rows] + apart
        seconds += max(0, context - steps * self._decode_at) * self._decode_context
        return seconds + prompt_context * self._prompt_context


def _line(rows: np.ndarray, at: list[int], ms: list[float]) -> list[float]:
    """Straight lines through the measured points, in seconds; beyond the last one as the last two go."""
    known = np.maximum.accumulate(ms)
    beyond = (known[-1] - known[-2]) / (at[-1] - at[-2])
    values = np.interp(rows, at, known) + np.maximum(0, rows - at[-1]) * beyond
    return (values / 1e3).tolist()


@dataclass
class Pace:
    """Times of passes as the engine averages them: a port of src/engine/budget.rs."""

    step: float = 0.0
    prompt_row: float = 0.0

    def prompt_rows(self, prompts: int, sequences: int, later: int) -> int:
        """The rows of prompts that may join a pass that next tokens wait for.

        `later` are the pairs of a prompt and a sequence that began after the prompt had come."""
        if self.step == 0.0 or self.prompt_row == 0.0:
            return MIN_PROMPT_ROWS
        share = max(1.0, max(prompts, later) / max(sequences, 1))
        rows = int(self.step * (SLOWDOWN - 1.0) * share / self.prompt_row)
        return min(max(rows // MIN_PROMPT_ROWS * MIN_PROMPT_ROWS, MIN_PROMPT_ROWS), MAX_ROWS)

    def add(self, seconds: float, rows: int, prompt_rows: int) -> None:
        """Notes a pass."""
        if prompt_rows == 0:
            self.step = seconds if self.step == 0.0 else 0.8 * self.step + 0.2 * seconds
        elif prompt_rows >= MIN_PROMPT_ROWS:
            steps = self.step if rows > prompt_rows else 0.0
            row = max(seconds - steps, seconds / 8.0) / prompt_rows
            self.prompt_row = row if self.prompt_row == 0.0 else 0.8 * self.prompt_row + 0.2 * row


@dataclass
class Request:
    """A request, and what becomes of it."""

    number: int
    arrival: float
    prompt: int
    new_tokens: int
    # Those of a conversation begin alike, with so many tokens of earlier turns.
    conversation: int = -1
    earlier: int = 0
    # The tokens of its prompt that are computed, of which so many were found in the cache.
    done: int = 0
    cached: int = 0
    # The pass before which it was taken.
    arrived: int = 0
    first: float = 0.0
    end: float = 0.0


@dataclass
class Machine:
    """One server: who runs, who waits, and what its cache remembers."""

    times: Times
    kv_tokens: int
    max_requests: int = 64
    # Whether it has computed all earlier turns, whichever machine did.
    knows_all: bool = False
    waiting: deque[Request] = field(default_factory=deque)
    prompts: list[Request] = field(default_factory=list)
    # Those with a next token, by the number of the pass that ends them.
    decoding: list[tuple[int, int, Request]] = field(default_factory=list)
    # The tokens of conversations that are not running, the latest last, and their sum.
    remembered: OrderedDict[int, int] = field(default_factory=OrderedDict)
    remembered_tokens: int = 0
    pace: Pace = field(default_factory=Pace)
    outstanding: int = 0
    reserved: int = 0
    context: int = 0
    passes: int = 0
    busy: float = 0.0
    parts: list[tuple[Request, int]] = field(default_factory=list)
    is_running: bool = False

    def __post_init__(self) -> None:
        # It has answered a request before: it knows what a step takes.
        self.pace.add(self.times.seconds(1, 0), 1, 0)
        self.pace.add(self.times.seconds(0, 64), 64, 64)

    def admit(self) -> None:
        """Takes those who wait while there is room, first come, first served."""
        while self.waiting and len(self.prompts) + len(self.decoding) < self.max_requests:
            request = self.waiting[0]
            size = request.prompt + request.new_tokens
            if self.reserved and self.reserved + size > self.kv_tokens:
                return
            self.waiting.popleft()
            self.reserved += size
            known = self.remembered.pop(request.conversation, 0)
            self.remembered_tokens -= known
            known = request.earlier if self.knows_all else known
            # The last token of a prompt is computed in any case.
            request.arrived = self.passes
            request.done = request.cached = min(known, request.prompt - 1) // BLOCK * BLOCK
            self.prompts.append(request)
        while self.remembered and self.remembered_tokens + self.reserved > self.kv_tokens:
            self.remembered_tokens -= self.remembered.popitem(last=False)[1]

    def begin(self) -> float:
        """Composes a pass as src/engine/pass.rs does, and returns how long it takes."""
        prompts, parts = self.prompts, self.parts
        parts.clear()
        steps = min(len(self.decoding), MAX_ROWS - MIN_PROMPT_ROWS if prompts else MAX_ROWS)
        began = [end - request.new_tokens for end, _, request in self.decoding]
        later = sum(prompt.arrived <= pass_ for prompt in prompts for pass_ in began)
        budget = self.pace.prompt_rows(len(prompts), steps, later) if steps else MAX_ROWS
        left = min(MAX_ROWS - steps, budget)
        if prompts:
            size = lambda request: request.prompt - request.done  # noqa: E731
            oldest, *others = prompts
            short = sorted((other for other in others if size(other) < budget / 4), key=size)
            quarter = min(left, budget // 4)
            for request in short:
                if quarter == 0:
                    break
                left -= (rows := min(size(request), quarter))
                quarter -= rows
                parts.append((request, rows))
            for request in (oldest, *(other for other in others if size(other) >= budget / 4)):
                if left == 0:
                    break
                left -= (rows := min(size(request), left))
                parts.append((request, rows))
        rows = sum(rows for _, rows in parts)
        seen = sum(rows * request.done for request, rows in parts)
        seconds = self.times.seconds(steps, rows, self.context, seen)
        self.pace.add(seconds, steps + rows, rows)
        self.busy += seconds
        return seconds

    def finish(self, now: float) -> Iterator[Request]:
        """Ends the pass. Returns the requests that have all their tokens."""
        self.passes += 1
        self.context += len(self.decoding)
        while self.decoding and self.decoding[0][0] <= self.passes:
            yield self.leave(heapq.heappop(self.decoding)[2], now, was_decoding=True)
        for request, rows in self.parts:
            request.done += rows
            if request.done < request.prompt:
                continue
            self.prompts.remove(request)
            request.first = now
            if request.new_tokens == 1:
                yield self.leave(request, now, was_decoding=False)
            else:
                last = self.passes + request.new_tokens - 1
                heapq.heappush(self.decoding, (last, request.number, request))
                self.context += request.prompt

    def leave(self, request: Request, now: float, *, was_decoding: bool) -> Request:
        """Gives back what a request holds; its tokens stay findable."""
        size = request.prompt + request.new_tokens
        self.reserved -= size
        self.context -= size - 1 if was_decoding else 0
        if request.conversation >= 0:
            self.remembered_tokens += size - 1 - self.remembered.pop(request.conversation, 0)
            self.remembered[request.conversation] = size - 1
        request.end = now
        return request


Router = Callable[[list[Machine], Request, np.random.Generator], int]


def round_robin(machines: list[Machine], request: Request, draw: np.random.Generator) -> int:
    """One after the other."""
    return request.number % len(machines)


def least(machines: list[Machine], request: Request, draw: np.random.Generator) -> int:
    """The machine with the fewest requests, in turns: nginx' `least_conn`, HAProxy's `leastconn`."""
    order = ((request.number + step) % len(machines) for step in range(len(machines)))
    return min(order, key=lambda index: machines[index].outstanding)


def two_choices(machines: list[Machine], request: Request, draw: np.random.Generator) -> int:
    """The better one of two drawn ones: Ray Serve, and nginx' `random two least_conn`."""
    pair = draw.choice(len(machines), size=min(2, len(machines)), replace=False)
    return int(min(pair, key=lambda index: machines[index].outstanding))


def affine(machines: list[Machine], request: Request, draw: np.random.Generator) -> int:
    """A conversation stays with its machine unless that has a quarter more than its part: HAProxy's `hash-balance-factor`."""
    bound = 1.25 * (sum(machine.outstanding for machine in machines) + 1) / len(machines)
    start = (request.conversation * 2654435761 + 12345) % 2**32 % len(machines)
    ring = ((start + step) % len(machines) for step in range(len(machines)))
    return next((index for index in ring if machines[index].outstanding < bound), start)


ROUTERS: dict[str, Router] = {"round robin": round_robin, "least": least, "two choices": two_choices}
ROUTERS["affine"] = affine


@dataclass(frozen=True)
class Result:
    """What a run gave: the second half of its requests, as the first begins with empty machines."""

    requests: list[Request]
    gaps: np.ndarray
    weights: np.ndarray
    seconds: float
    busy: float
    mean_outstanding: float

    def ttft(self, percent: float = 99) -> float:
        """The time to the first token that so many percent stay below."""
        return float(np.percentile([request.first - request.arrival for request in self.requests], percent))

    def gap(self, percent: float = 99) -> float:
        """The time between two tokens that so many percent stay below."""
        order = np.argsort(self.gaps)
        part = np.cumsum(self.weights[order])
        return float(self.gaps[order][np.searchsorted(part, percent / 100 * part[-1])]) if part.size else 0.0

    def latency(self) -> float:
        """The mean time of a request."""
        return float(np.mean([request.end - request.arrival for request in self.requests]))


def simulate(machines: list[Machine], requests: list[Request], router: Router, seed: int = 0) -> Result:
    """Runs the requests, in the order of their arrival, to their end."""
    draw, number = np.random.default_rng(seed), count()
    events: list[tuple[float, int, Machine]] = []
    gaps: list[tuple[float, int]] = []
    warm, arrived, outstanding = len(requests) // 2, 0, 0
    now, last, area = 0.0, 0.0, 0.0

    def start(machine: Machine) -> None:
        machine.admit()
        machine.is_running = bool(machine.prompts or machine.decoding)
        if machine.is_running:
            seconds = machine.begin()
            heapq.heappush(events, (now + seconds, next(number), machine))
            if machine.decoding and arrived > warm:
                gaps.append((seconds, len(machine.decoding)))

    upcoming = iter(requests)
    following = next(upcoming, None)
    while following or events:
        if following and (not events or following.arrival <= events[0][0]):
            now = following.arrival
            area, last = area + outstanding * (now - last), now
            machine = machines[router(machines, following, draw)]
            machine.waiting.append(following)
            machine.outstanding += 1
            outstanding += 1
            arrived += 1
            following = next(upcoming, None)
            if not machine.is_running:
                start(machine)
        else:
            now, _, machine = heapq.heappop(events)
            area, last = area + outstanding * (now - last), now
            ended = len(list(machine.finish(now)))
            machine.outstanding -= ended
            outstanding -= ended
            start(machine)
    pairs = np.array(gaps or [(0.0, 0)])
    busy = sum(machine.busy for machine in machines)
    return Result(requests[warm:], pairs[:, 0], pairs[:, 1], now, busy, area / now)
