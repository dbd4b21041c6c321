"""The simulation of many machines, held to what is known without it: laws of queues, and the server that was measured."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHES = Path(__file__).resolve().parent.parent / "benches"
sys.path.append(str(BENCHES))
import scale  # noqa: E402
from scale_machines import MAX_ROWS, ROUTERS, Machine, Request, Times, affine, least, simulate  # noqa: E402

#: A model whose passes take 10 ms and 1 ms for each row.
LINEAR: dict[str, Any] = {
    "decode": {"rows": [1, 64], "ms": [11.0, 74.0], "context": 64, "ns_per_context_token": 0.0},
    "prompt": {"rows": [8, 256], "ms": [18.0, 266.0], "ns_per_context_token": 0.0},
}
MEASURED = json.loads((BENCHES / "scale_times.json").read_text())
REQUESTS = 600


def setting(**options: Any) -> scale.Setting:
    return scale.Setting(Times(LINEAR), 40_000, **{"requests": REQUESTS, **options})


def one_by_one(rate: float, number: int) -> list[Request]:
    """Requests of 16 rows and one token: each takes a pass of 26 ms."""
    times = np.cumsum(np.random.default_rng(0).exponential(1 / rate, number)).tolist()
    return [Request(index, time, 16, 1) for index, time in enumerate(times)]


def test_a_request_alone_takes_its_passes():
    machine = Machine(Times(LINEAR), 40_000)
    request = Request(0, 1.0, 300, 5)
    result = simulate([machine], [request], least)
    # 256 and 44 rows of a prompt, then four tokens.
    assert request.first - 1.0 == pytest.approx(0.266 + 0.054)
    assert request.end - request.first == pytest.approx(4 * 0.011)
    assert machine.busy == pytest.approx(result.seconds - 1.0)
    assert (machine.outstanding, machine.reserved, machine.context) == (0, 0, 0)


def test_a_prompt_beside_texts_takes_a_part_of_each_pass():
    """As the engine: the next tokens wait for at most three steps."""
    machine = Machine(Times(LINEAR), 40_000)
    running = [Request(index, 0.0, 16, 200) for index in range(8)]
    late = Request(8, 2.0, 1900, 1)
    result = simulate([machine], [*running, late], least)
    step = 0.010 + 8 * 0.001
    assert min(result.gaps) == pytest.approx(step)
    assert 1.5 * step < max(result.gaps) <= 3 * step
    assert late.first - late.arrival > 1900 / MAX_ROWS * 0.266


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_a_single_server_waits_as_the_formula_says(load):
    """One request at a time with a fixed time is a queue M/D/1, whose mean wait Pollaczek and Khinchine give."""
    service, rate = 0.026, load / 0.026
    machine = Machine(Times(LINEAR), 40_000, max_requests=1)
    result = simulate([machine], one_by_one(rate, 60_000), least)
    wait = result.latency() - service
    # Drawn: 60,000 requests leave some percent.
    assert wait == pytest.approx(load * service / (2 * (1 - load)), rel=0.08)
    # The utilisation law: the part of the time that it works is the rate times the work of a request.
    assert machine.busy / result.seconds == pytest.approx(60_000 / result.seconds * service)
    assert machine.busy / result.seconds == pytest.approx(load, rel=0.02)


@pytest.mark.parametrize("router", ROUTERS)
@pytest.mark.parametrize("workload", scale.WORKLOADS)
def test_littles_law_holds(router, workload):
    """The mean number of requests inside is their rate times their mean time."""
    work = scale.WORKLOADS[workload](REQUESTS, 3.0, "poisson", 4, seed=3)
    machines = [Machine(Times(LINEAR), 40_000) for _ in range(4)]
    result = simulate(machines, work, ROUTERS[router])
    mean_time = np.mean([request.end - request.arrival for request in work])
    assert result.mean_outstanding == pytest.approx(REQUESTS / result.seconds * mean_time)
    assert all(request.arrival < request.first <= request.end for request in work)
    assert all(machine.outstanding == machine.reserved == machine.context == 0 for machine in machines)


@pytest.mark.parametrize("router", ROUTERS)
def test_machines_do_no_more_than_so_many_times_one(router):
    """Full from the beginning to the end: each works all the time, and a machine more brings at most its own part."""
    alone = setting().run(1, router, 1e6)
    for number in (2, 4):
        together = scale.Setting(Times(LINEAR), 40_000, requests=REQUESTS * number).run(number, router, 1e6)
        assert together.seconds >= 0.97 * alone.seconds, "the draws differ a little"
        assert together.busy <= number * together.seconds * (1 + 1e-9)


def test_no_machine_computes_more_rows_than_a_pass_has():
    machine = Machine(Times(LINEAR), 10**9, max_requests=1000)
    widths = []
    machine.times.seconds = lambda steps, rows, *_: widths.append(steps + rows) or 0.01  # type: ignore[method-assign]
    simulate([machine], [Request(index, 0.1 * index**0.5, 100, 30) for index in range(600)], least)
    assert max(widths) == MAX_ROWS


@pytest.mark.parametrize("workload", scale.WORKLOADS)
def test_the_same_seed_gives_the_same(workload):
    def figures(seed: int) -> tuple[float, float, float]:
        result = setting(workload=workload, arrivals="bursts", seed=seed).run(3, "two choices", 4.0)
        return result.ttft(), result.gap(), result.seconds

    assert figures(5) == figures(5) != figures(6)


def test_bursts_wait_longer_at_the_same_rate():
    poisson, bursts = (setting(arrivals=arrivals).run(1, "least", 1.0) for arrivals in ("poisson", "bursts"))
    assert bursts.latency() > 1.2 * poisson.latency()
    rates = [len(result.requests) / result.seconds for result in (poisson, bursts)]
    assert rates[0] == pytest.approx(rates[1], rel=0.2)


def test_looking_at_all_queues_is_better_than_taking_turns_or_looking_at_two():
    """With the same requests."""
    latency = {
        name: setting().run(8, name, 12.0).latency() for name in ("round robin", "two choices", "least")
    }
    assert latency["least"] < min(latency["two choices"], latency["round robin"])


def test_conversations_that_stay_find_their_beginnings():
    work = {name: scale.chats(1000, 8.0, "poisson", 8, seed=1) for name in ("affine", "round robin")}
    for name, requests in work.items():
        simulate([Machine(Times(LINEAR), 40_000) for _ in range(8)], requests, ROUTERS[name])
    found = {name: np.mean([request.cached for request in requests]) for name, requests in work.items()}
    assert found["affine"] > 2 * found["round robin"]
    # Nothing is found before it was said.
    seen: set[int] = set()
    for request in sorted(work["affine"], key=lambda request: request.arrival):
        assert request.cached == 0 or request.conversation in seen
        assert request.cached < request.prompt
        seen.add(request.conversation)


def test_a_full_machine_gives_its_conversations_away():
    machines = [Machine(Times(LINEAR), 40_000) for _ in range(4)]
    for index in range(200):
        request = Request(index, 0.0, 100, 10, conversation=7)
        machine = machines[affine(machines, request, np.random.default_rng(0))]
        machine.outstanding += 1
    counts = sorted(machine.outstanding for machine in machines)
    assert counts[-1] <= 1.25 * (200 + 1) / 4 + 1
    assert counts[-1] > counts[0]


def test_a_small_cache_forgets_the_oldest():
    requests = [Request(index, 10.0 * index, 320, 10, conversation=index % 3) for index in range(9)]
    for tokens, found in ((2000, True), (700, False)):
        work = [
            Request(row.number, row.arrival, row.prompt, row.new_tokens, row.conversation) for row in requests
        ]
        simulate([Machine(Times(LINEAR), tokens)], work, least)
        assert any(request.cached for request in work) == found


def test_the_capacity_keeps_the_limits_and_more_breaks_them():
    limits = scale.Limits(ttft=1.0, gap=0.05)
    full = setting().full()
    rate, result = setting().capacity(2, "least", limits, full)
    assert result is not None
    assert result.ttft() <= 1.0
    assert result.gap() <= 0.05
    more = setting().run(2, "least", 1.1 * rate)
    assert more.ttft() > 1.0 or more.gap() > 0.05
    assert setting().capacity(1, "least", scale.Limits(ttft=0.001, gap=0.05), full) == (0.0, None)
    # However patient users are, a tenth is in reserve.
    patient = scale.Limits(ttft=1e6, gap=1e6)
    assert setting().capacity(2, "least", patient, full)[0] == pytest.approx(0.9 * 2 * full)


def test_a_million_tokens_cost_their_hours():
    assert scale.core_hours(tokens_a_second=1000.0, cores=4) == pytest.approx(4 * 1000 / 3600)


@pytest.mark.parametrize("run", range(len(MEASURED["runs"])))
def test_one_machine_is_as_fast_as_the_server_that_was_measured(run):
    """The same arrivals, within 15 %."""
    name = MEASURED["runs"][run]["name"]
    for figure, (measured, simulated) in scale.compare(MEASURED)[name].items():
        assert simulated == pytest.approx(measured, rel=0.15), (name, figure)
