"""The command ``rsgen``, as pip installs it: the same program as the Rust binary, in this process."""

import signal
import sys

from ._rsgen import cli


def main() -> int:
    """Runs the command with the arguments of this process and returns its exit code."""
    # While a model loads or standard input is read, Ctrl-C simply ends the process; as soon as tokens are computed, the
    # command takes it over and ends in an orderly way.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return cli(sys.argv[1:])
