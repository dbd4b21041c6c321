"""The file that keeps the finished rows of `Generator.map`: what is interrupted, killed or short of room goes on."""

import json
import subprocess
import sys
import time

import pytest
import rsgen
from rsgen._row_file import digest

ROWS = [{"id": i, "question": f"Once upon a time {i}"} for i in range(70)]
TEMPLATE = "{question} there"


@pytest.fixture(scope="module")
def answers(gen):
    texts = gen.generate([f"{row['question']} there" for row in ROWS], max_new_tokens=6).texts
    return [{**row, "text": text} for row, text in zip(ROWS, texts, strict=True)]


def test_a_file_keeps_the_finished_rows(gen, answers, tmp_path):
    path = tmp_path / "kept.jsonl"
    options = {"max_new_tokens": 6, "resume": path, "concurrency": 4}
    results = gen.map(ROWS, TEMPLATE, **options)
    first = [next(results) for _ in range(20)]
    program = "import sys; from rsgen._row_file import opened; opened(sys.argv[1])"
    other = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=False)
    assert "another run writes" in other.stderr
    later = gen.map(ROWS, TEMPLATE, **options)  # a notebook's cell, run again
    with pytest.raises(rsgen.InputError, match="another run writes"):
        list(results)
    del results, later
    # As a killed process leaves it.
    whole = path.read_bytes()
    assert 20 <= whole.count(b"\n") < 70
    computed = []
    for torn in (whole[:-5], whole + b'{"row":', whole + bytes(50), whole):
        path.write_bytes(torn)
        computed.clear()
        counts = lambda ids, scores: bool(computed.append(1))  # noqa: E731
        rows = list(gen.map(ROWS, TEMPLATE, stopping_criteria=counts, **options))
        assert first + rows[20:] == rows == answers
        assert len(computed) == 6 * (70 - torn[: torn.rfind(b"\n") + 1].count(b"\n"))
    assert list(gen.map(ROWS, TEMPLATE, on_error="raise", **options)) == answers
    assert path.read_bytes().count(b"\n") == 70
    with pytest.raises(rsgen.InputError, match="row 0 has another prompt; give another file"):
        list(gen.map(ROWS, "{question} where", **options))
    for other in (b"notes\n", b'{"custom_id": "a"}\n', b"half"):
        path.write_bytes(other)
        with pytest.raises(rsgen.InputError, match=r"line 1: it is no row of `map`; give another file"):
            gen.map(ROWS, TEMPLATE, **options)
        assert path.read_bytes() == other


def test_a_file_of_an_earlier_version_is_read(gen, tmp_path):
    """It was written by Python's json, with escapes, and without entries."""
    path = tmp_path / "kept.jsonl"
    prompt = "Once upon a time \u00e4 \U0001f600"
    answer = {"texts": [" der B\u00e4r \U0001f600"], "finish_reasons": ["length"], "token_counts": [6]}
    line = {"row": 0, "prompt": digest(prompt), **answer}
    path.write_text(json.dumps(line, separators=(",", ":")) + "\n", encoding="ascii")
    first, second = gen.map([prompt, "One day"], resume=path, max_new_tokens=6, details=True)
    assert (first["text"], first["finish_reason"], first["token_count"]) == (answer["texts"][0], "length", 6)
    assert second["text"] == gen.generate("One day", max_new_tokens=6).text
    assert finished(path) == [0, 1]


def test_a_run_that_was_ended_by_a_later_one_goes_on_after_it(gen, answers, tmp_path):
    path = tmp_path / "kept.jsonl"
    options = {"max_new_tokens": 6, "resume": path, "concurrency": 4}
    first = gen.map(ROWS, TEMPLATE, **options)
    assert next(first) == answers[0]
    assert list(gen.map(ROWS[:40], TEMPLATE, **options)) == answers[:40]
    assert list(first) == answers[1:]
    rows = [json.loads(line)["row"] for line in path.read_bytes().splitlines()]
    assert sorted(rows) == list(range(70)), "no row is lost or comes twice"


#: Maps rows into a file, up to so many bytes of it if there is a limit, and then without.
RUN = """
import json, sys, rsgen
path, limit = sys.argv[1], int(sys.argv[2])
rows = [f"Once upon a time {i}" for i in range(70)]
results = rsgen.Generator(num_threads=1).map(rows, max_new_tokens=6, resume=path, concurrency=4)
if limit:
    import resource
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        list(results)
    except rsgen.InputError as error:
        assert "cannot be written" in str(error), error
    else:
        raise SystemExit("the disk was not full")
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
print(json.dumps([row["text"] for row in results]))
"""


def run(path, limit=0):
    return [sys.executable, "-c", RUN, path, str(limit)]


def finished(path):
    return [json.loads(line)["row"] for line in path.read_bytes().splitlines()]


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_kill_9_loses_and_doubles_no_row(gen, tmp_path):
    path, kept = tmp_path / "kept.jsonl", b""
    expected = [
        row["text"] for row in gen.map([f"Once upon a time {i}" for i in range(70)], max_new_tokens=6)
    ]
    for size in (1, 3000, 6000):
        with subprocess.Popen(run(path), stdout=subprocess.DEVNULL) as killed:
            while killed.poll() is None and (not path.exists() or path.stat().st_size < size):
                time.sleep(0.0002)
            killed.kill()
        assert path.read_bytes().startswith(kept[: kept.rfind(b"\n") + 1])
        # In the middle of a line.
        kept = path.read_bytes()[:-7]
        path.write_bytes(kept)
    done = subprocess.run(run(path), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == expected
    assert sorted(finished(path)) == list(range(70))


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
def test_a_full_disk_leaves_a_file_that_goes_on_also_in_the_same_process(tmp_path):
    """The system writes a part of a row, and no more: not simulated, but a limit on the size of a file."""
    path = tmp_path / "kept.jsonl"
    first = json.loads(subprocess.run(run(path, 2999), capture_output=True, text=True, check=True).stdout)
    assert sorted(finished(path)) == list(range(70))
    again = json.loads(subprocess.run(run(path), capture_output=True, text=True, check=True).stdout)
    assert len(again) == 70
    assert again[-len(first) :] == first, "what was not given before the error came after it"
