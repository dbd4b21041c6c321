"""What the package says, and where: Python's loggers alone, and nothing when the process ends."""

import json
import logging
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import rsgen
from tiny_llama import llama_tensors, write_safetensors

PROMPT = "Once upon a time"


def run(program: str, *, seconds: float = 60.0, **variables: str) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, **variables}
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, env=environment, timeout=seconds, check=False
    )


def test_nothing_is_written_while_loading_generating_failing_and_ending():
    program = """
import asyncio, gc, threading
import rsgen
gen = rsgen.Generator(num_threads=2)
gen.generate("Once", max_new_tokens=3)
gen.generate(["Once", "One"], do_sample=True, max_new_tokens=3)
next(gen.stream("Once"))
kept = gen.stream("Once")
next(kept)
for wrong in (lambda: rsgen.Generator("nowhere"), lambda: gen.generate("Once", top_p=7), lambda: gen.stream([])):
    try:
        wrong()
    except rsgen.RsgenError:
        pass
async def read():
    async for token in gen.astream("Once", max_new_tokens=5):
        pass
    try:
        await asyncio.wait_for(anext(gen.astream("Once " * 100)), 0.001)
    except asyncio.TimeoutError:
        pass
    return anext(gen.astream("Once"))
left = asyncio.run(read())
del gen
gc.collect()
"""
    ended = run(program)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


def test_daemon_threads_that_compute_do_not_disturb_the_end_of_the_process():
    program = """
import asyncio, sys, threading, time
import rsgen
gen = rsgen.Generator(num_threads=1)
def forever(work):
    def repeat():
        while True:
            work()
    threading.Thread(target=repeat, daemon=True).start()
async def read():
    async for token in gen.astream("Once", max_new_tokens=50):
        pass
forever(lambda: gen.generate("Once", max_new_tokens=50))
forever(lambda: list(gen.stream("Once", max_new_tokens=50)))
forever(lambda: gen.generate("Once", logits_processor=lambda ids, scores: scores, max_new_tokens=50))
forever(lambda: asyncio.run(read()))
forever(lambda: rsgen.Generator(num_threads=1))
forever(lambda: gen.tokenizer.encode("Once upon a time"))
class Slow:  # the end takes its time, so that the threads come along in the middle of it
    def __del__(self, sleep=time.sleep, gen=gen):
        sleep(0.3)
        gen.generate("Once", max_new_tokens=2)
sys.slow = Slow()
time.sleep(0.3)
"""
    for _ in range(5):
        ended = run(program)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


def test_levels_are_respected(tmp_path):
    program = """
import logging, sys
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(name)s %(message)s", level={level})
import rsgen
rsgen.Generator()
"""
    debug = run(program.format(level="logging.DEBUG"), RSGEN_NUM_THREADS="1").stdout.decode()
    assert " rsgen." in debug
    assert "RSGEN_NUM_THREADS" in debug
    info = run(program.format(level="logging.INFO"), RSGEN_NUM_THREADS="1").stdout.decode()
    assert "RSGEN_NUM_THREADS" in info
    assert all(line.startswith("INFO rsgen.") for line in info.splitlines())
    assert run(program.format(level="logging.WARNING"), RSGEN_NUM_THREADS="1").stdout == b""
    silenced = program.format(level="logging.DEBUG") + "\n"
    silenced = silenced.replace(
        "import rsgen\n", "import rsgen\nlogging.getLogger('rsgen').setLevel('WARNING')\n"
    )
    assert run(silenced, RSGEN_NUM_THREADS="1").stdout == b""


def test_without_a_handler_nothing_is_written(make_llama):
    folder = make_llama()
    (folder / "generation_config.json").write_text('{"no_such_field": 1}')
    program = (
        f"import logging, rsgen; rsgen.Generator({str(folder)!r}); print(logging.getLogger('rsgen').handlers)"
    )
    ended = run(program)
    assert b"NullHandler" in ended.stdout
    assert ended.stderr == b""


class Busy(logging.Handler):
    """A handler that uses the generator, and another thread that uses it and logs itself."""

    def __init__(self, gen: rsgen.Generator, folder: str) -> None:
        super().__init__()
        self.gen, self.folder, self.records = gen, folder, 0

    def emit(self, record: logging.LogRecord) -> None:
        self.records += 1
        self.gen.generate(PROMPT, max_new_tokens=1)
        if threading.current_thread().name != "inner":
            inner = threading.Thread(target=self.gen.score, args=(PROMPT,), name="inner")
            inner.start()
            inner.join()


@pytest.mark.timeout(60)
def test_records_of_many_threads_and_a_handler_that_computes_do_not_lock_each_other_out(gen, make_llama):
    folder = make_llama()
    # A tensor that no layer reads is logged each time the model is opened.
    config = json.loads((folder / "config.json").read_text())
    tensors = llama_tensors(config, np.random.default_rng(0))
    tensors["no.such.tensor"] = np.zeros(1, dtype=np.float32)
    write_safetensors(folder / "model.safetensors", tensors)
    logger, handler = logging.getLogger("rsgen"), Busy(gen, str(folder))
    logger.addHandler(handler)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: rsgen.Generator(folder, num_threads=2), range(40)))
    finally:
        logger.removeHandler(handler)
    assert handler.records == 40


class Raises(logging.Handler):
    """A handler that raises at its first record."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error, self.records = error, []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record.getMessage())
        if len(self.records) == 1:
            raise self.error


@pytest.fixture
def two_records(make_llama):
    """A folder for which two records are logged."""
    folder = make_llama()
    tensors = llama_tensors(json.loads((folder / "config.json").read_text()), np.random.default_rng(0))
    tensors["no.such.tensor"] = np.zeros(1, dtype=np.float32)
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "generation_config.json").write_text('{"no_such_field": 1}')
    return folder


@pytest.mark.parametrize("error", [ValueError("full"), KeyboardInterrupt()])
def test_a_handler_that_raises_loses_no_other_record(two_records, error, monkeypatch):
    raised = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: raised.append(args.exc_value))
    logger, handler = logging.getLogger("rsgen"), Raises(error)
    logger.addHandler(handler)
    try:
        if isinstance(error, KeyboardInterrupt):
            with pytest.raises(KeyboardInterrupt):
                rsgen.Generator(two_records, num_threads=1)
            assert len(handler.records) == 1
            rsgen.Generator(num_threads=1).generate(PROMPT, max_new_tokens=1)
        else:
            rsgen.Generator(two_records, num_threads=1)
            assert raised == [error]
    finally:
        logger.removeHandler(handler)
    assert len(handler.records) == 2
    assert handler.records[0] != handler.records[1]


def test_timing_goes_to_its_logger_and_is_silent_without_a_handler():
    program = """
import sys, rsgen
gen = rsgen.Generator()
output = gen.generate("Once upon a time", max_new_tokens=4)
"""
    quiet = run(program, RSGEN_TIMING="1")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, b"", b"")
    begin = "import logging\nlogging.basicConfig(level='INFO', format='%(levelname)s %(name)s %(message)s')"
    heard = begin + program
    ended = run(heard, RSGEN_TIMING="1")
    assert (ended.returncode, ended.stdout) == (0, b"")
    record = ended.stderr.decode().split("INFO rsgen.timing ")
    assert len(record) == 2, ended.stderr
    assert "\nprompt: passes 1, rows 5, " in record[1]
    assert "\nsteps: passes 3, rows 3, " in record[1]
    assert b"rsgen.timing" not in run(heard, RSGEN_TIMING="0").stderr
