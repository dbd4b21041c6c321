"""How long something takes, whatever else runs on the same cores."""

import time


class Stopwatch:
    """Measures the processor time of this process: the time of other processes does not count."""

    def __init__(self) -> None:
        self.processor, self.clock = time.process_time(), time.monotonic()

    def assert_within(self, seconds: float) -> None:
        """Fails beyond so much processor time, and far beyond it on the clock, where nothing is computed."""
        assert time.process_time() - self.processor < seconds
        assert time.monotonic() - self.clock < 20 * seconds
