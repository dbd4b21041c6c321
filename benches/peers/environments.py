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
# Its environment.
COMPILED = "llama_cpp"


@dataclass(frozen=True)
class Isa:
    """An instruction set that all are kept to on a machine that has more."""

    name: str
    # What keeps the libraries to it that choose when they run.
    variables: dict[str, str]
    # What llama.cpp is compiled with.
    cmake_args: str
    # The workers that nothing keeps to it: mistral.rs has no such variable, and the fork of llama.cpp comes compiled.
    missing: tuple[str, ...]


ISAS = {
    "avx2": Isa(
        "avx2",
        {
            "RSGEN_ISA": "avx2",
            "ONEDNN_MAX_CPU_ISA": "AVX2",
            "ATEN_CPU_CAPABILITY": "avx2",
            "MKL_ENABLE_INSTRUCTIONS": "AVX2",
            "CT2_FORCE_CPU_ISA": "AVX2",
        },
        "-DGGML_NATIVE=OFF -DGGML_SSE42=ON -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON",
        ("mistralrs", "ik_llama_cpp"),
    )
}


def keep_to(isa: str) -> None:
    """Keeps all processes that are started from now on to an instruction set."""
    os.environ.update(ISAS[isa].variables, PEERS_ISA=isa)


def kept_to() -> Isa | None:
    """What `keep_to` was given."""
    return ISAS.get(os.environ.get("PEERS_ISA", ""))


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
        isa = kept_to()
        if isa and self.name in isa.missing:
            raise Missing(f"it cannot be kept to {isa.name}")
        if self.name != COMPILED:
            isa = None
        folder = WORK / "env" / (f"{self.name}_{isa.name}" if isa else self.name)
        python, made_of = folder / "bin" / "python", folder / "made_of"
        paths = [str(next(self.base.python().parent.parent.glob("lib/*/site-packages")))] if self.base else []
        wanted = "\n".join([*self.packages, *paths])
        if made_of.exists() and made_of.read_text() == wanted:
            return python
        print(f"installing {' '.join(self.packages)} …", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        for path in paths:
            (next(folder.glob("lib/*/site-packages")) / "base.pth").write_text(path)
        cmake_args = f"{CMAKE_ARGS} {isa.cmake_args}" if isa else CMAKE_ARGS
        # pip would take what it compiled before, whatever that was told.
        fresh = ["--no-cache-dir"] if self.name == COMPILED else []
        pip = [str(python), "-m", "pip", "install", "--quiet", *fresh, *self.packages]
        run(pip, folder / "pip.log", "it could not be installed", {"CMAKE_ARGS": cmake_args})
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
