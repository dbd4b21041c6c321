"""``rsgen run-batch``: killed in the middle, and ended otherwise, it goes on without a row lost or doubled.

RSGEN_KILLS=20 kills it 20 times instead of 3.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import rsgen
from stopwatch import Stopwatch

PROGRAM = [sys.executable, "-m", "rsgen"]
KILLS = int(os.environ.get("RSGEN_KILLS", "3"))
pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX"),
    pytest.mark.timeout(120 + 10 * KILLS),
]
ROWS = 90
#: What differs between two runs: ids, the clock, and how much of a prompt another request has left in the cache.
VOLATILE = re.compile(
    rb'(?<=")(batch_req_)?(req|cmpl|chatcmpl)-[0-9a-f]{24}(?=")|(?<="created":)\d+|(?<="cached_tokens":)\d+'
)
PROMPTS = ["Once upon a time", "A fox", "Near the lake", "One day, Mia", "Tom had a red kite.", "The"]
#: Every sixth row is one of these. All but one get their seed from their id.
KINDS: list[dict[str, object]] = [
    {"temperature": 0},
    {"temperature": 1.0},
    {"temperature": 0.9, "top_p": 0.9, "n": 2, "seed": 7},
    {"temperature": 0, "num_beams": 3, "n": 2, "logprobs": 1},
    {"temperature": 1.2, "num_beams": 3, "do_sample": True},
    {"temperature": 0.8, "messages": []},
]
#: Rows that are answered with an error.
REFUSED: dict[int, dict[str, object]] = {
    17: {"max_tokens": -5},
    60: {"prompt": "fox " * 2000},
    ROWS - 1: {"temperature": "hot"},
}


def request_line(row: int) -> str:
    """A row of the input."""
    draw = random.Random(row)
    prompt, body = draw.choice(PROMPTS), dict(KINDS[row % len(KINDS)])
    if "messages" in body:
        url, body["messages"] = "/v1/chat/completions", [{"role": "user", "content": prompt}]
    else:
        url, body["prompt"] = "/v1/completions", prompt
    body["max_tokens"] = draw.randint(1, 24)
    body |= REFUSED.get(row, {})
    # Ids have any characters, and any length.
    custom_id = f'row-{row} «"\n\u2028» {"x" * (row % 7) ** 3}'
    request = {"custom_id": custom_id, "method": "POST", "url": url, "body": body}
    return json.dumps(request, ensure_ascii=row % 2 == 0)


def command(requests: Path, answers: Path, *options: str) -> list[str]:
    return [*PROGRAM, "run-batch", str(requests), str(answers), "--json", *options]


def run_to_the_end(requests: Path, answers: Path, *options: str) -> dict[str, int]:
    """Runs the command and returns its report."""
    run = subprocess.run(command(requests, answers, *options), capture_output=True, text=True)
    assert run.stdout, run.stderr
    report = json.loads(run.stdout)
    assert run.returncode == (1 if report["failed"] else 0), run.stderr
    assert report["answered_before"] + report["answered"] == report["requests"]
    return report


def content(answers: Path) -> bytes:
    return answers.read_bytes() if answers.exists() else b""


def stable(answers: bytes) -> list[bytes]:
    """The rows but for what differs between two runs, sorted."""
    assert answers.endswith(b"\n")
    # Not `splitlines`: for it more than a line feed ends a line.
    return sorted(VOLATILE.sub(b"0", row) for row in answers[:-1].split(b"\n"))


def check(answers: bytes, expected: list[bytes]) -> None:
    """Each row is answered once, with the bytes of a run that nobody disturbs."""
    rows = stable(answers)
    ids = [json.loads(row)["custom_id"] for row in rows]
    assert len(ids) == len(set(ids)), "a row is doubled"
    assert set(ids) == {json.loads(row)["custom_id"] for row in expected}, "a row is lost"
    assert rows == expected


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run_batch") / "requests.jsonl"
    rows = [request_line(row) for row in range(ROWS)]
    # Blank lines are no rows, and the last row needs no end.
    path.write_text("\n\n".join(rows[:10]) + "\n" + "\n".join(rows[10:]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def expected(requests: Path) -> list[bytes]:
    """The answers of one run over all rows, sorted."""
    answers = requests.with_name("expected.jsonl")
    report = run_to_the_end(requests, answers)
    assert (report["requests"], report["failed"]) == (ROWS, len(REFUSED))
    rows = stable(answers.read_bytes())
    bodies = [json.loads(row)["response"]["body"] for row in rows]
    assert len({json.dumps(body.get("choices")) for body in bodies}) > ROWS / 2, "each row draws by itself"
    return rows


def wait_for_bytes(run: subprocess.Popen[bytes], answers: Path, size: int) -> None:
    """Waits until the file is so long, or the run has ended."""
    while run.poll() is None and (not answers.exists() or answers.stat().st_size < size):
        time.sleep(0.0002)


def tear(answers: Path, draw: random.Random) -> None:
    """Cuts the last row somewhere in the middle, as a kill during the write would."""
    *whole, last = content(answers).splitlines(keepends=True)
    os.truncate(answers, sum(map(len, whole)) + draw.randrange(1, len(last)))


def kill(requests: Path, answers: Path, kills: int, *options: str) -> Iterator[bytes]:
    """Runs the command, kills it and goes on, until it was killed so many times. Returns the file whenever it is complete:
    then the next run begins anew."""
    draw, torn = random.Random(kills), 0
    while kills > 0:
        # The file is the same, however much is computed at a time.
        drawn = ["--resume", "--concurrency", str(draw.choice([1, 3, 16])), "--num-threads", "2"]
        before = content(answers)
        with subprocess.Popen(
            command(requests, answers, *options, *drawn), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as run:
            if torn and draw.random() < 0.3:
                # While it starts.
                time.sleep(draw.uniform(0.0, 0.3))
            else:
                wait_for_bytes(run, answers, len(before) + draw.randrange(1, 20_000))
            run.kill()
            report, errors = run.communicate()
        assert content(answers).startswith(before[: before.rfind(b"\n") + 1]), "what is answered stays"
        if run.returncode == -signal.SIGKILL:
            kills -= 1
            if content(answers) and (torn == 0 or draw.random() < 0.5):
                tear(answers, draw)
                torn += 1
        else:
            assert report, errors.decode()
            yield content(answers)
            answers.unlink()
    run_to_the_end(requests, answers, *options, "--resume")
    assert torn
    yield content(answers)


def test_kill_9_loses_and_doubles_no_row(requests, expected, tmp_path):
    for answers in kill(requests, tmp_path / "answers.jsonl", KILLS):
        check(answers, expected)


def test_parts_that_are_killed_are_together_the_whole(requests, expected, tmp_path):
    parts = []
    for index in range(3):
        shard = ["--shard", f"{index}/3"]
        *_, part = kill(requests, tmp_path / f"part{index}.jsonl", max(1, KILLS // 3), *shard)
        assert part.count(b"\n") == ROWS // 3
        parts.append(part)
    check(b"".join(parts), expected)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_file_that_goes_on(requests, expected, tmp_path, number):
    answers = tmp_path / "answers.jsonl"
    with subprocess.Popen(
        command(requests, answers), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        while run.poll() is None and content(answers).count(b"\n") < 20:
            time.sleep(0.001)
        run.send_signal(number)
        watch = Stopwatch()
        _, errors = run.communicate(timeout=20)
    watch.assert_clock_within(5)
    written = content(answers)
    count = written.count(b"\n")
    assert 20 <= count < ROWS
    assert "Traceback" not in errors
    if number == signal.SIGINT:
        assert run.returncode == 130
        assert f"{count} of {ROWS} are answered; --resume goes on" in errors
        assert written.endswith(b"\n")
    else:
        assert run.returncode == -number
    report = run_to_the_end(requests, answers, "--resume")
    assert report["answered_before"] == count
    assert content(answers).startswith(written[: written.rfind(b"\n") + 1])
    check(content(answers), expected)


def test_ctrl_c_in_a_pipe_leaves_a_file_that_goes_on(requests, expected, tmp_path):
    """A terminal interrupts the command and those who read what it says, all at once."""
    answers, mark = tmp_path / "answers.jsonl", tmp_path / "mark"
    line = f'"$@" 2>&1 | cat; echo ended > {mark}'
    pipe = ["sh", "-c", line, "sh", *command(requests, answers)]
    with subprocess.Popen(pipe, start_new_session=True, stdout=subprocess.DEVNULL) as shell:
        while shell.poll() is None and content(answers).count(b"\n") < 20:
            time.sleep(0.001)
        os.killpg(shell.pid, signal.SIGINT)
        shell.wait(timeout=20)
    assert not mark.exists(), "the shell was interrupted, too"
    assert content(answers).count(b"\n") >= 20
    # The command ends a moment after its readers; until then the file is its own.
    for _ in range(500):
        run = subprocess.run(
            command(requests, answers, "--resume", "--shard", "0/1"), capture_output=True, text=True
        )
        if "another run writes" not in run.stderr:
            break
        time.sleep(0.01)
    check(content(answers), expected)


def test_a_full_disk_leaves_a_file_that_goes_on(requests, expected, tmp_path):
    """The system writes a part of a row, and no more: not simulated, but a limit on the size of a file."""
    answers = tmp_path / "answers.jsonl"
    limited = ["sh", "-c", 'ulimit -f 20; exec "$@"', "sh", *command(requests, answers)]
    run = subprocess.run(limited, capture_output=True, text=True)
    assert run.returncode == 1
    assert "answers.jsonl cannot be written" in run.stderr
    torn = content(answers)
    assert len(torn) == 20 * 512
    assert not torn.endswith(b"\n")
    report = run_to_the_end(requests, answers, "--resume")
    assert report["answered_before"] == torn.count(b"\n")
    check(content(answers), expected)


def test_lines_of_standard_input_are_answered_also_those_that_are_no_utf_8(tmp_path):
    row = '{{"custom_id": "{}", "url": "/v1/completions", "body": {{"prompt": "{}", "max_tokens": 2, "topk": 1}}}}\n'
    lines = [row.format("first", "One day"), row.format("bad", "a?b"), row.format("last", "Once")]
    given = "".join(lines).encode().replace(b"?", b"\xff")
    (tmp_path / "file.jsonl").write_bytes(given)
    for source, piped in [("-", given), (str(tmp_path / "file.jsonl"), None)]:
        answers = tmp_path / "answers.jsonl"
        run = subprocess.run(command(Path(source), answers), input=piped, capture_output=True)
        report = json.loads(run.stdout)
        assert (run.returncode, report["requests"], report["failed"]) == (1, 3, 1), run.stderr
        rows = {row["custom_id"]: row["response"] for row in map(json.loads, content(answers).splitlines())}
        assert {name: row["status_code"] for name, row in rows.items()} == {
            "first": 200,
            "bad": 400,
            "last": 200,
        }
        assert "must be UTF-8, but byte" in rows["bad"]["body"]["error"]["message"]
        errors = run.stderr.decode()
        assert errors.count("`topk` is no field of a request") == 1, errors
        answers.unlink()


def test_a_file_of_rows_of_a_map_is_left_alone_and_that_of_answers_by_a_map(gen, requests, tmp_path):
    rows, answers = tmp_path / "rows.jsonl", tmp_path / "answers.jsonl"
    list(gen.map(["One day"], max_new_tokens=2, resume=rows))
    before = content(rows)
    run = subprocess.run(command(requests, rows, "--resume"), capture_output=True, text=True)
    assert run.returncode != 0
    assert "rows.jsonl, line 1: it is no answer of a batch; give another file" in run.stderr
    assert content(rows) == before
    answers.write_text('{"id":"batch_req_a","custom_id":"a","response":{},"error":null}\n')
    with pytest.raises(rsgen.InputError, match="line 1: it is no row of `map`; give another file"):
        gen.map(["One day"], max_new_tokens=2, resume=answers)


def test_an_error_of_a_list_of_prompts_names_the_prompt(tmp_path):
    source, answers = tmp_path / "in.jsonl", tmp_path / "answers.jsonl"
    body = {"prompt": ["One day", "fox " * 2000], "max_tokens": 2}
    line = {"custom_id": "list", "url": "/v1/completions", "body": body}
    source.write_text(json.dumps(line) + "\n" + request_line(0))
    report = run_to_the_end(source, answers)
    assert (report["answered"], report["failed"]) == (2, 1)
    rows = {row["custom_id"]: row["response"] for row in map(json.loads, content(answers).splitlines())}
    assert rows["list"]["status_code"] == 400
    assert "prompt 1: " in rows["list"]["body"]["error"]["message"]
