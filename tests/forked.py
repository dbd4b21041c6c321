"""Forks for tests: a function in a forked process, with a time limit."""

import os
import pickle
import select
import signal
import time
import warnings
from collections.abc import Callable
from typing import Any


def in_fork(function: Callable[[], Any], *, seconds: float = 20.0) -> Any:
    """What ``function`` returns in a forked process. What it raises there is raised here."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # From Python 3.12 on: that this process has threads is the point.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process == 0:
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.write(writer, run(function))
        finally:
            os._exit(0)
    os.close(writer)
    try:
        answer = read_all(reader, time.monotonic() + seconds)
    finally:
        os.close(reader)
        if not has_ended(process):
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    if answer is None:
        raise TimeoutError(f"a forked process did not answer within {seconds} s")
    result, raised = pickle.loads(answer)
    if raised is not None:
        raise raised
    return result


def run(function: Callable[[], Any]) -> bytes:
    try:
        return pickle.dumps((function(), None))
    except BaseException as error:
        return pickle.dumps((None, error))


def read_all(reader: int, deadline: float) -> bytes | None:
    data = b""
    while select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(reader, 1 << 16)
        if not part:
            return data
        data += part
    return None


def has_ended(process: int) -> bool:
    for _ in range(1000):
        if os.waitpid(process, os.WNOHANG)[0]:
            return True
        time.sleep(0.001)
    return False
