"""The server under load, a few seconds of what `benches/load.py` does in full length and with figures.

Other work on the same cores may slow everything here, so the bounds are wide.
"""

from __future__ import annotations

import resource
import statistics
from collections.abc import Iterator
from contextlib import contextmanager

import load
from conftest import story_server
from serving import Server


def test_slow_connections_hold_nobody_up(server: Server) -> None:
    found = load.slow(server, number=300, calls=10)
    assert found.beside < 2 * found.alone + 0.1


def test_slow_connections_hold_nobody_up_where_few_files_may_be_open() -> None:
    with few_files(128):
        server = story_server()
    with server:
        found = load.slow(server, number=300, calls=10)
    assert found.beside < 3 * found.alone + 0.5


def test_clients_that_leave_free_their_blocks(server: Server) -> None:
    seconds = load.leave(server, clients=12, prompt=300, new_tokens=40)
    assert statistics.median(seconds) < 0.25
    assert max(seconds) < 2.0


def test_refusals_are_quick_and_slow_nobody(small_server: Server) -> None:
    full = load.refusals(small_server, seconds=4)
    # Between two streams a place is free.
    assert full.refusals > 400
    assert full.p99 < 0.1
    assert full.gap_beside < 2 * full.gap_alone + 0.01


@contextmanager
def few_files(number: int) -> Iterator[None]:
    """Processes that start meanwhile may have so many open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
