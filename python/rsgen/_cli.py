"""The command ``rsgen``, as pip installs it: the same program as the Rust binary, in this process."""

# `signal` imports more, and takes longer.
import _signal  # pyright: ignore[reportMissingImports]

# From here on Ctrl-C ends the process, without a word, until the command takes it over to end its work in an orderly way.
# Python's own handler would print a traceback. Where the signal is ignored it stays so.
if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import sys


def main() -> int:
    """Runs the command with the arguments of this process and returns its exit code."""
    from ._rsgen import cli

    return cli(sys.argv[1:])
