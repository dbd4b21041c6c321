"""The soak: clients of every protocol ask a server with three models for hours, leave it, dawdle and send nonsense.

`python -m soak --seconds 600` in the folder of the tests. A quarter of the time goes to short lives of the server: each
ends in the middle of its work, by SIGKILL or by SIGTERM, and the next one takes its port and gives the same answers. The
rest is one long life with rests in it. At each rest every request has ended, every block is free, and memory, files and
threads are counted; afterwards they must not have grown (`flat.py`). The last life ends by SIGTERM with exit code 0.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

import rsgen
from test_translation import folder_of

from soak.clients import Crowd
from soak.drawn import cases
from soak.flat import faults, told_of
from soak.server import Rest, Served

BUNDLED = Path(rsgen.__file__).parent / "models"
#: Of the marian model of the tests, whose weights are random.
SPECIAL = {"pad_token_id": 587, "eos_token_id": 0, "decoder_start_token_id": 587}


def short_life(crowd: Crowd, served: Served, clients: int, seconds: float, *, kill: bool) -> None:
    """A server that ends while it is asked."""
    crowd.begin(served, clients)
    time.sleep(seconds)
    crowd.is_over = True
    if kill:
        served.kill()
    elif code := served.stop():
        crowd.fail(f"SIGTERM ends the server with {code}")
    crowd.end()


def long_life(crowd: Crowd, served: Served, clients: int, seconds: float) -> list[Rest]:
    """A server that is asked for long, with rests."""
    rests: list[Rest] = []
    until, between = time.monotonic() + seconds, max(1.0, min(60.0, seconds / 60))
    crowd.begin(served, clients)
    try:
        while time.monotonic() < until and served.process.poll() is None:
            time.sleep(between)
            crowd.pause()
            rests.append(served.rest())
            crowd.resume()
    except AssertionError as error:
        crowd.fail(str(error))
    crowd.is_over = True
    if served.process.poll() is not None:
        crowd.fail(f"the server has ended by itself with {served.process.returncode}")
    elif code := served.stop():
        crowd.fail(f"SIGTERM ends the server with {code}")
    crowd.end()
    return rests


def soak(seconds: float, clients: int, seed: int, log: Path | None) -> int:
    """Returns the number of failures."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        translator = folder_of(Path(scratch) / "pair", "marian", "marian", **SPECIAL)
        models = {"big": BUNDLED / "story-3m", "small": BUNDLED / "story-draft", "eng-deu": translator}
        rng = random.Random(seed)
        crowd = Crowd(cases(rng, ["big", "small"], "eng-deu"), seed)
        each = max(2.0, min(60.0, seconds / 40))
        port, lives = 0, 0
        while time.monotonic() - started < seconds / 4:
            served = Served(models, port, log)
            port, lives = served.port, lives + 1
            short_life(crowd, served, clients, each * rng.uniform(0.5, 1.5), kill=lives % 3 > 0)
        rests = long_life(crowd, Served(models, port, log), clients, started + seconds - time.monotonic())
    crowd.failures += faults(rests)
    for what, count in sorted(crowd.counts.items()):
        print(f"{count:8} {what}")
    print(f"{len(crowd.answers)} different requests, {lives + 1} lives, {told_of(rests)}")
    for failure in crowd.failures[:40]:
        print(f"FAILED {failure}")
    asked = sum(count for what, count in crowd.counts.items() if not what.startswith("answers"))
    print(f"{asked} requests in {time.monotonic() - started:.0f} s, {len(crowd.failures)} failures")
    return len(crowd.failures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--clients", type=int, default=12, help="how many ask at a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="a file for what the servers write")
    arguments = parser.parse_args()
    sys.exit(bool(soak(arguments.seconds, arguments.clients, arguments.seed, arguments.log)))
