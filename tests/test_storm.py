"""A small storm; see storm.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads and files are counted in /proc")
def test_a_small_storm_leaves_nothing():
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("storm.py")), "--forks", "6"]
    run = subprocess.run([*command, "--streams", "250"], capture_output=True, text=True, timeout=110)
    assert (run.returncode, run.stderr) == (0, ""), run.stdout + run.stderr
    assert "all blocks free" in run.stdout
