"""How long something takes, whatever else runs on the same cores."""

import time


class TooSlow(AssertionError):
    """What took longer than it may. Another process may have been the reason: such a test, and no other, is run up to
    three times (`--only-rerun` in pyproject.toml)."""


class Stopwatch:
    """Measures the processor time of this process: the time of other processes does not count."""

    def __init__(self) -> None:
        self.processor, self.clock = time.process_time(), time.monotonic()

    def assert_within(self, seconds: float) -> None:
        """Fails beyond so much processor time, and far beyond it on the clock, where nothing is computed."""
        not_longer(time.process_time() - self.processor, seconds, "of processor time")
        self.assert_clock_within(20 * seconds)

    def assert_clock_within(self, seconds: float) -> None:
        """Fails beyond so much time on the clock: for what another process does."""
        not_longer(time.monotonic() - self.clock, seconds, "on the clock")


def not_longer(taken: float, most: float, what: str = "taken") -> None:
    """Fails if something took as many seconds as it may, or more: `what` is said of them."""
    if taken >= most:
        raise TooSlow(f"{taken:.2f} s {what}, at most {most:.2f} s expected")
