"""Environments of the peers, made from the Python package index alone."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

# Everything that the harness makes: 26 GB, so the folder may be a link to a larger disk.
WORK = (Path(__file__).resolve().parent.parent.parent / "target" / "peers").resolve()


# For llama.cpp, the one peer that is compiled here. With AMX it crashes in products of two rows and more
# (ggml-org/llama.cpp#20824); the part for images is not wanted.
CMAKE_ARGS = "-DCMAKE_C_FLAGS=-mno-amx-int8 -DCMAKE_CXX_FLAGS=-mno-amx-int8 -DLLAVA_BUILD=OFF"


class Missing(Exception):
    """A peer cannot be run, or not for a task; the message says why."""


@dataclass(frozen=True)
class Environment:
    """Packages that are installed together, beside those of another environment."""

    name: str
    packages: tuple[str, ...]
    # What takes gigabytes is installed once, and imported from there.
    base: Environment | None = None

    def python(self) -> Path:
        """Its interpreter; makes the environment if it is not there, or was made of other packages."""
        folder = WORK / "env" / self.name
        python, made_of = folder / "bin" / "python", folder / "made_of"
        paths = [str(next(self.base.python().parent.parent.glob("lib/*/site-packages")))] if self.base else []
        wanted = "\n".join([*self.packages, *paths])
        if made_of.exists() and made_of.read_text() == wanted:
            return python
        print(f"installing {' '.join(self.packages)} …", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        for path in paths:
            (next(folder.glob("lib/*/site-packages")) / "base.pth").write_text(path)
        pip = [str(python), "-m", "pip", "install", "--quiet", *self.packages]
        run(pip, folder / "pip.log", "it could not be installed", {"CMAKE_ARGS": CMAKE_ARGS})
        made_of.write_text(wanted)
        return python


def run(command: list[str], log: Path, failure: str, variables: dict[str, str] | None = None) -> None:
    """Runs a command that writes to a log, whose last line is the reason if it fails."""
    environment = os.environ | (variables or {})
    with log.open("w") as out:
        code = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment
        ).returncode
    if code != 0:
        raise Missing(f"{failure}: {last_line(log)}")


def last_line(log: Path) -> str:
    """The last words of a process."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it said nothing"
