"""The bar that ``progress=True`` shows."""

import sys
import time

_WIDTH = 40


def show(done: int, total: int) -> None:
    """Draws the bar over the one before it; the last one ends its line."""
    filled = _WIDTH * done // total
    end = "\n" if done == total else ""
    sys.stderr.write(f"\r[{'#' * filled}{' ' * (_WIDTH - filled)}] {done}/{total}{end}")
    sys.stderr.flush()


def end() -> None:
    """Ends the line of a bar that `show` has not finished, for what is written next."""
    sys.stderr.write("\n")
    sys.stderr.flush()


class RowBar:
    """The bar of rows, with their rate and the time that is left. It is drawn ten times a second at most.

    Only the time from `begin` to `end` counts: results may be made in one cell of a notebook, iterated in the next, and
    again after an interruption.
    """

    def __init__(self) -> None:
        self._begun: float | None = None
        self._before = 0.0
        self._drawn, self._is_open = -1.0, False

    def begin(self) -> None:
        """Goes on with the clock."""
        if self._begun is None:
            self._begun = time.monotonic()

    def __call__(self, done: int, total: "int | None") -> None:
        """Draws the bar over the one before it; the last one ends its line."""
        self.begin()
        seconds = max(self._seconds(), 1e-3)
        if done != total and seconds - self._drawn < 0.1:
            return
        self._drawn, self._is_open = seconds, True
        rate = done / seconds
        if total is None:
            sys.stderr.write(f"\r{done} rows, {rate:.1f} a second ")
        else:
            filled = _WIDTH * done // max(total, 1)
            minutes, left = divmod(round((total - done) / rate), 60)
            bar = f"[{'#' * filled}{' ' * (_WIDTH - filled)}] {done}/{total} rows"
            sys.stderr.write(f"\r{bar}, {rate:.1f} a second, {minutes}:{left:02} left ")
        if done == total:
            self.end()
        sys.stderr.flush()

    def _seconds(self) -> float:
        return self._before + (0.0 if self._begun is None else time.monotonic() - self._begun)

    def end(self) -> None:
        """Ends the line, and stops the clock."""
        self._before, self._begun = self._seconds(), None
        if self._is_open:
            self._is_open = False
            sys.stderr.write("\n")
