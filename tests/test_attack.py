"""A slice of the attack: see attack/__main__.py. `make attack` runs all of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(240)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="each case is a fork")
def test_drawn_folders_templates_and_calls_end_in_a_result_or_a_clear_error():
    command = [sys.executable, "-m", "attack", "--seconds", "20", "--folders", "400", "--calls", "1500"]
    run = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
