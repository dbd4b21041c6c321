"""The bar that ``progress=True`` shows."""

import sys

_WIDTH = 40


def show(done: int, total: int) -> None:
    """Draws the bar over the one before it; the last one ends its line."""
    filled = _WIDTH * done // total
    end = "\n" if done == total else ""
    sys.stderr.write(f"\r[{'#' * filled}{' ' * (_WIDTH - filled)}] {done}/{total}{end}")
    sys.stderr.flush()
