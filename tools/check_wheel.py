"""Checks what a built wheel holds: `python tools/check_wheel.py dist/rsgen-….whl`.

A wheel can be built without an error and still lack its models or its stub. This reads the archive and says
so; it does not install it.
"""

import sys
import zipfile
from pathlib import Path

SIZE_LIMIT_MB = 15
MODEL_FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json")
REQUIRED = {
    "rsgen/__init__.py",
    "rsgen/_rsgen.pyi",
    "rsgen/integrations/ray.py",
    "rsgen/py.typed",
    *(f"rsgen/models/{model}/{file}" for model in ("story-3m", "story-draft") for file in MODEL_FILES),
}


def faults(wheel: Path) -> list[str]:
    """What is wrong with the wheel, one sentence each."""
    found = []
    size_mb = wheel.stat().st_size / 1e6
    if size_mb > SIZE_LIMIT_MB:
        found.append(f"it has {size_mb:.1f} MB, more than {SIZE_LIMIT_MB}")
    if "-cp310-abi3-" not in wheel.name:
        found.append("it is not built for the stable ABI of Python 3.10 (cp310-abi3)")
    with zipfile.ZipFile(wheel) as archive:
        sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
    found += [f"{name} is missing" for name in sorted(REQUIRED - sizes.keys())]
    extensions = [name for name in sizes if name.endswith((".so", ".pyd"))]
    if len(extensions) != 1:
        found.append(f"it must hold one extension module, and holds {extensions}")
    found += [f"{name} does not belong in it" for name in sizes if "__pycache__" in name]
    return found


def main() -> int:
    """Prints the verdict on each wheel; the exit code is 1 if one has a fault."""
    wheels = [Path(argument) for argument in sys.argv[1:]]
    if not wheels:
        print(__doc__, file=sys.stderr)
        return 2
    failed = False
    for wheel in wheels:
        wrong = faults(wheel)
        failed |= bool(wrong)
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB,", "; ".join(wrong) or "complete")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
