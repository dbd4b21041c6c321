"""The programs of docs/clients.md, by section."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from harness import HERE

PAGE = (HERE.parents[1] / "docs" / "clients.md").read_text(encoding="utf-8")
URL = "http://localhost:8000"


def blocks(section: str, language: str) -> list[str]:
    """The blocks of a language in a section."""
    text = re.split(rf"^## {re.escape(section)}$", PAGE, flags=re.MULTILINE)[1]
    text = re.split(r"^## ", text, flags=re.MULTILINE)[0]
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def run(section: str, url: str, folder: Path) -> str:
    """What the one program of a section prints, with the server at `url`."""
    [program] = blocks(section, "python")
    path = folder / "program.py"
    path.write_text(program.replace(URL, url), encoding="utf-8")
    done = subprocess.run([sys.executable, str(path)], cwd=HERE, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout
