"""Runs cases in child processes with limits of time and memory, and judges how each one ended.

A child is a fork of this process, which has imported rsgen but opened nothing, so that a case costs milliseconds.
"""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import sys
import tempfile
import time
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

#: A step that takes more processor time hangs: on the clock it may wait for other processes. What runs on a worker has
#: a limit of 10 seconds, and of 50 more for each MB of text, of which the longest here has 5 and takes 13 seconds; a
#: worker that was left goes on beside the next step, and cores that are shared with others count twice the time.
HANG_SECONDS = 45
#: What waits longer on the clock hangs as well.
WAIT_SECONDS = 120.0
#: What a child may allocate. A request for more fails, which ends a Rust program.
MEMORY_BYTES = 3 << 30
MAX_MESSAGE = 1000

#: A step of a case: a label, and the call.
Step = tuple[str, Callable[[], object]]


class Outcome(NamedTuple):
    """How a step ended."""

    label: str
    kind: str
    """`ok`, the name of an error's class, or one of `FAILURES`."""
    detail: str
    seconds: float


#: Ends that no file and no request may bring about; `memory` is an abort for want of it.
FAILURES = ("abort", "memory", "hang", "panic", "message")
#: Errors of Python that a wrong argument may give.
REFUSALS = (
    *(TypeError, ValueError, OverflowError, AttributeError, KeyError, IndexError, RecursionError),
    NotImplementedError,
)


def is_readable(message: str) -> bool:
    """Whether a message is short and holds nothing that changes what a terminal shows."""
    return len(message) <= MAX_MESSAGE and not any(is_control(char) for char in message)


def is_control(char: str) -> bool:
    """Control codes, marks of direction, invisible characters, lone surrogates and separators of lines."""
    return unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def attempt(label: str, call: Callable[[], object]) -> Outcome:
    """Calls, and judges what is raised and warned."""
    import rsgen

    started = time.monotonic()
    kind, messages = "ok", []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            call()
        except rsgen.InternalError as error:
            kind, messages = "panic", [str(error)]
        except (rsgen.RsgenError, *REFUSALS) as error:
            kind, messages = type(error).__name__, [str(error), *getattr(error, "__notes__", ())]
        except (Exception, SystemExit) as error:
            kind, messages = "panic", [f"{type(error).__name__}: {error}"]
    messages += [str(warning.message) for warning in caught if "rsgen" in str(warning.filename)]
    unreadable = [message for message in messages if not is_readable(message)]
    detail = messages[0] if messages else ""
    if unreadable and kind not in FAILURES:
        kind, detail = "message", unreadable[0]
    return Outcome(label, kind, detail[:400], time.monotonic() - started)


def child(steps: Iterable[Step], report: int) -> None:
    """Runs the steps of a case and writes a line before and after each."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with os.fdopen(report, "w") as out:
        for label, call in steps:
            print(json.dumps(label), file=out, flush=True)
            # The system sends SIGXCPU then.
            until = math.ceil(time.process_time()) + HANG_SECONDS
            resource.setrlimit(resource.RLIMIT_CPU, (until, resource.RLIM_INFINITY))
            outcome = attempt(label, call)
            print(json.dumps(outcome), file=out, flush=True)


class Child(NamedTuple):
    """A child that runs."""

    number: int
    started: float
    report: str
    errors: str


class Result(NamedTuple):
    """The end of a case: of each step, and the most memory that was taken."""

    number: int
    outcomes: list[Outcome]
    peak_bytes: int
    seconds: float


def run(cases: Iterable[Callable[[], Iterable[Step]]], jobs: int = 2) -> Iterator[Result]:
    """Runs each case in a child of its own, `jobs` at a time. A case makes its steps in the child."""
    waiting, running = enumerate(cases), {}
    with tempfile.TemporaryDirectory() as folder:
        while True:
            while len(running) < jobs and (entry := next(waiting, None)):
                number, case = entry
                running |= spawn(number, case, folder)
            if not running:
                return
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if pid in running:
                yield finish(running.pop(pid), status, usage.ru_maxrss * 1024)
                continue
            for pid, started in list(running.items()):
                # Its steps have the time of one each: the report grows with them.
                if time.time() - max(started.started, os.path.getmtime(started.report)) > WAIT_SECONDS:
                    os.kill(pid, signal.SIGXCPU)
            time.sleep(0.002)


def spawn(number: int, case: Callable[[], Iterable[Step]], folder: str) -> dict[int, Child]:
    """Forks a child for a case."""
    report, errors = os.path.join(folder, f"{number}.report"), os.path.join(folder, f"{number}.errors")
    descriptor = os.open(report, os.O_CREAT | os.O_WRONLY)
    started = Child(number, time.time(), report, errors)
    sys.stdout.flush()
    if pid := os.fork():
        os.close(descriptor)
        return {pid: started}
    status = 1
    try:
        output = os.open(errors, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        child(case(), descriptor)
        status = 0
    except BaseException as error:
        print(f"the case itself failed: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def finish(ended: Child, status: int, peak_bytes: int) -> Result:
    """Reads what a child has written, and how it ended."""
    with open(ended.report) as report:
        lines = [json.loads(line) for line in report]
    errors = ""
    if os.path.exists(ended.errors):
        with open(ended.errors, errors="replace") as file:
            errors = file.read(10_000)
        os.remove(ended.errors)
    seconds = time.time() - ended.started
    outcomes = [Outcome(*line) for line in lines if isinstance(line, list)]
    if status != 0:
        last = lines[-1] if lines else "the start"
        label = last if isinstance(last, str) else f"after {last[0]}"
        code = os.waitstatus_to_exitcode(status)
        wants_memory = "memory allocation of" in errors
        kind = "hang" if code == -signal.SIGXCPU else "memory" if wants_memory else "abort"
        outcomes.append(Outcome(label, kind, f"exit {code}: {errors.strip()[-300:]}", seconds))
    elif any("panicked" in line and "thread 'rsgen-text'" not in line for line in errors.splitlines()):
        # On a worker a panic is the error of its call.
        outcomes.append(Outcome("standard error", "panic", errors[-400:], seconds))
    elif not all(is_readable(line) for line in errors.splitlines()):
        outcomes.append(Outcome("standard error", "message", errors[:400], seconds))
    os.remove(ended.report)
    return Result(ended.number, outcomes, peak_bytes, seconds)
