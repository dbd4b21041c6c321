"""The programs of docs/runtime.md run as they stand there, each by itself."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "runtime.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_page_shows_programs():
    assert len(PROGRAMS) >= 6


@pytest.mark.parametrize("index", range(len(PROGRAMS)))
def test_a_program_of_the_page_runs(index, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAMS[index], encoding="utf-8")
    # Python 3.12 warns of each fork of a process with threads.
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", str(program)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")
    logs_only = "logging" in PROGRAMS[index]
    assert run.stdout or logs_only
