"""The command as pip installs it: the program itself is tested in Rust, here what runs it inside Python."""

import ast
import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
import rsgen
from stopwatch import Stopwatch

PROGRAM = [sys.executable, "-m", "rsgen"]


def test_it_writes_what_the_generator_writes(gen):
    command = [*PROGRAM, "generate", "Once upon a time", "--max-new-tokens", "8"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    text = gen.generate("Once upon a time", max_new_tokens=8).text
    assert run.stdout.rstrip("\n") == "Once upon a time" + text


def test_it_has_every_subcommand(gen):
    def object_of(*arguments: str) -> dict[str, object]:
        run = subprocess.run([*PROGRAM, *arguments, "--json"], capture_output=True, text=True, check=True)
        assert run.stderr == ""
        return json.loads(run.stdout)

    scored = object_of("score", "Once upon a time")
    assert scored["logprobs"] == [
        None,
        *(pytest.approx(score, rel=1e-6) for score in gen.score("Once upon a time")[1:]),
    ]
    assert object_of("tokenize", "Once upon")["token_ids"] == gen.tokenizer.encode("Once upon")
    report = object_of("doctor")
    assert report["version"] == rsgen.__version__
    assert "python" in report["features"]
    assert report["model"]["fits"]
    assert object_of("inspect")["supported"]
    assert "_rsgen()" in object_of("completions", "bash")["script"]


def test_the_environment_counts_as_it_does_for_the_program():
    environment = {**os.environ, "RSGEN_JSON": "1", "RSGEN_TOP_K": "many"}
    run = subprocess.run([*PROGRAM, "generate", "x"], env=environment, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (2, "")
    error = json.loads(run.stderr)["error"]
    assert error["kind"] == "usage"
    assert "RSGEN_TOP_K" in error["message"]


def test_exit_codes_come_through():
    assert subprocess.run([*PROGRAM, "--help"], capture_output=True).returncode == 0
    assert subprocess.run([*PROGRAM, "dance"], capture_output=True).returncode == 2
    nowhere = subprocess.run([*PROGRAM, "generate", "--model", "./nowhere", "x"], capture_output=True)
    assert nowhere.returncode == 3
    assert b"Traceback" not in nowhere.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT for one process")
def test_ctrl_c_ends_it_in_an_orderly_way():
    options = ["--do-sample", "--num-return-sequences", "128", "--min-new-tokens", "480", "--seed", "1"]
    with subprocess.Popen(
        [*PROGRAM, "-v", "generate", "Once", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        assert run.stderr is not None
        # The model is loaded; what is asked for takes seconds from here.
        assert b"KV cache" in run.stderr.readline()
        time.sleep(0.1)
        assert run.poll() is None
        run.send_signal(signal.SIGINT)
        watch = Stopwatch()
        _, errors = run.communicate(timeout=10)
    watch.assert_clock_within(1.0)
    assert run.returncode == 130
    assert b"Traceback" not in errors


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT for one process")
def test_ctrl_c_ends_it_while_it_waits_for_its_input():
    with subprocess.Popen(
        [*PROGRAM, "generate"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        time.sleep(0.5)
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=10)
    assert run.returncode == -signal.SIGINT


#: The script that pip makes of the command, which says when Python's own start is over: Python prints a traceback when the
#: signal comes before.
SCRIPT = """
import sys
from rsgen._cli import main
sys.stderr.write("begun\\n")
sys.stderr.flush()
sys.exit(main())
"""


def test_the_command_imports_nothing_before_it_has_taken_ctrl_c_over():
    program = """
import sys
before = set(sys.modules)
import rsgen._cli
print(sorted(set(sys.modules) - before))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    # Whether the interpreter is the main one is asked of a module in C, which is quick.
    asked = {"_interpreters", "_xxsubinterpreters"}
    assert set(ast.literal_eval(run.stdout)) - asked == {"rsgen", "rsgen._cli", "rsgen._interpreter"}


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT for one process")
def test_ctrl_c_at_any_time_ends_it_without_a_word(tmp_path):
    text = tmp_path / "text"
    text.write_text("Once upon a time there was a little boy who had a dog.\n" * 2000)
    draw = random.Random(5)
    # The extension is imported and the model loaded within some 50 ms; scoring all of the text takes seconds.
    delays = [draw.uniform(0.0, 0.06) for _ in range(25)] + [draw.uniform(0.0, 0.8) for _ in range(10)]
    for delay in delays:
        with (
            text.open("rb") as lines,
            subprocess.Popen(
                [sys.executable, "-c", SCRIPT, "score", "--totals", "-"],
                stdin=lines,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            ) as run,
        ):
            assert run.stderr is not None
            assert run.stderr.readline() == b"begun\n"
            time.sleep(delay)
            run.send_signal(signal.SIGINT)
            _, errors = run.communicate(timeout=20)
        # A shell says 130 for a process that the signal has ended.
        assert run.returncode in (130, -signal.SIGINT), (delay, errors)
        assert errors in (b"", b"rsgen: interrupted\n"), delay
