"""Writes the Python programs of pages into files, for pyright in strict mode.

python tools/page_programs.py FOLDER PAGE…
"""

import re
import sys
from pathlib import Path

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def main() -> None:
    """Writes a file for each program."""
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.py"):
        old.unlink()
    for page in map(Path, sys.argv[2:]):
        programs = BLOCK.findall(page.read_text(encoding="utf-8"))
        if not programs:
            raise SystemExit(f"error: {page} must have a program")
        for number, program in enumerate(programs, 1):
            path = folder / f"{page.stem}_{number}.py"
            path.write_text(f"# pyright: strict\n{program}", encoding="utf-8")


if __name__ == "__main__":
    main()
