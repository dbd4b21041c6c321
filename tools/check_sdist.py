"""Checks what a source distribution holds: `python tools/check_sdist.py dist/rsgen-….tar.gz`.

It reads the archive; `make release` also builds and installs it.
"""

import sys
import tarfile
from pathlib import Path, PurePosixPath

SIZE_LIMIT_MB = 10  # also what the registry of crates takes
REQUIRED = {
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "PKG-INFO",
    "crates/core/src/lib.rs",
    "crates/generation/src/lib.rs",
    "crates/kernels/src/lib.rs",
    "crates/model/src/lib.rs",
    "crates/python-macros/src/lib.rs",
    "crates/python/src/lib.rs",
    "crates/text/src/lib.rs",
    "README.md",
    "docs/rust.md",
    "pyproject.toml",
    "python/rsgen/__init__.py",
    "python/rsgen/integrations/ray.py",
    "python/rsgen/models/story-3m/model.safetensors",
    "python/rsgen/models/story-draft/model.safetensors",
    "python/rsgen/py.typed",
    "src/bin/rsgen.rs",
    "src/lib.rs",
}
#: What was built or left behind.
UNWANTED_SUFFIXES = {".so", ".pyd", ".pyc", ".whl"}
UNWANTED_FOLDERS = {"__pycache__", ".pytest_cache", ".hypothesis", "target", ".venv", ".git"}


def faults(sdist: Path) -> list[str]:
    """What is wrong with the archive, one sentence each."""
    found = []
    size_mb = sdist.stat().st_size / 1e6
    if size_mb > SIZE_LIMIT_MB:
        found.append(f"it has {size_mb:.1f} MB, more than {SIZE_LIMIT_MB}")
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    top = sdist.name.removesuffix(".tar.gz")
    names = {member.name.removeprefix(f"{top}/") for member in members if member.isfile()}
    found += [f"{name} is missing" for name in sorted(REQUIRED - names)]
    found += [
        f"{name} does not belong in it"
        for name in sorted(names)
        if PurePosixPath(name).suffix in UNWANTED_SUFFIXES
        or UNWANTED_FOLDERS & set(PurePosixPath(name).parts)
    ]
    found += [
        f"{member.name} must be a plain file below {top}/"
        for member in members
        if not (member.isfile() or member.isdir()) or not member.name.startswith(f"{top}/")
    ]
    return found


def main() -> int:
    """Prints the verdict on each archive; the exit code is 1 if one has a fault."""
    archives = [Path(argument) for argument in sys.argv[1:]]
    if not archives:
        print(__doc__, file=sys.stderr)
        return 2
    failed = False
    for archive in archives:
        wrong = faults(archive)
        failed |= bool(wrong)
        print(f"{archive.name}: {archive.stat().st_size / 1e6:.1f} MB,", "; ".join(wrong) or "complete")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
