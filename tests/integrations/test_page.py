"""The programs of docs/integrations.md run as they stand there."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"
PROGRAMS = re.findall(
    r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE
)


def test_the_page_has_a_program_for_each_engine():
    assert [name for name, _ in PROGRAMS] == ["Ray Data", "Ray Serve", "Spark", "Dask"]


@pytest.mark.parametrize(("name", "program"), PROGRAMS, ids=[name for name, _ in PROGRAMS])
def test_a_program_runs(name, program, tmp_path):
    engine = {"Spark": "pyspark", "Dask": "dask"}.get(name, "ray")
    if importlib.util.find_spec(engine) is None or (name == "Spark" and shutil.which("java") is None):
        pytest.skip(f"{name} is not installed")
    path = tmp_path / "program.py"
    path.write_text(f'if __name__ == "__main__":\n{re.sub("^", "    ", program, flags=re.MULTILINE)}')
    run = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stderr
    if name != "Ray Serve":
        assert "0" in run.stdout
        assert "1" in run.stdout
    assert len(run.stdout) > 40
