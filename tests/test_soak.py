"""A small soak, and the rule for memory that is flat; see soak/."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from soak.flat import faults, growth
from soak.server import Rest

MIB = 1 << 20


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="memory and files are counted in /proc")
def test_a_small_soak_finds_nothing():
    command = [sys.executable, "-W", "ignore", "-m", "soak", "--seconds=16", "--clients=6"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=110, cwd=Path(__file__).parent)
    assert (run.returncode, run.stderr) == (0, ""), run.stdout + run.stderr
    assert ", 0 failures" in run.stdout
    assert " leaves\n" in run.stdout


def rests(resident, files=lambda _: 20, threads=lambda _: 30):
    return [Rest(60.0 * n, int(resident(n)), files(n), threads(n)) for n in range(60)]


def test_memory_that_grows_and_files_that_stay_open_are_found():
    assert faults(rests(lambda n: 100 * MIB + n % 3 * MIB)) == []
    # Warming up, and one rest that is larger, are no growth.
    assert faults(rests(lambda n: min(n, 14) * 10 * MIB + (50 * MIB if n == 40 else 0))) == []
    slow = rests(lambda n: 100 * MIB + n * 0.2 * MIB)
    assert [part in fault for part, fault in zip(["memory grew by 8."], faults(slow), strict=True)] == [True]
    assert growth(slow) == pytest.approx(11.8 * MIB, rel=0.01)
    assert "files" in faults(rests(lambda _: MIB, files=lambda n: 20 + n // 5))[0]
    assert "threads" in faults(rests(lambda _: MIB, threads=lambda n: 20 + n))[0]
    assert faults(rests(lambda n: n * MIB)[:5]) == [], "too few to say"
