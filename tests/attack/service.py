"""Attacks the server and `run-batch` with requests whose answers, bodies or lines are large, under a limit of memory."""

from __future__ import annotations

import json
import os
import re
import resource
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from attack.children import Step

PROGRAM = [sys.executable, "-m", "rsgen"]
#: One arena: each thread would reserve addresses for its own, which count as memory here.
ENVIRONMENT = {**os.environ, "MALLOC_ARENA_MAX": "1"}
MESSAGES = [{"role": "user", "content": "Tell me a story."}]
LONG = "the little fox and the red boat " * 60
OF_PROMPTS = {"prompt": [LONG] * 10, "max_tokens": 0, "prompt_logprobs": 20}


class Server:
    """A server in a process of its own. From the first request on it may take so many more bytes."""

    def __init__(self, *options: str, more: int, errors: int | None = None) -> None:
        arguments = [*PROGRAM, "serve", "--port=0", "--json", "--num-threads=2", *options]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=errors, env=ENVIRONMENT)
        assert self.process.stdout is not None
        self.url = json.loads(self.process.stdout.readline())["url"]
        assert self.post("/v1/completions", {"prompt": "One day", "max_tokens": 2})[0] == 200
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        limit = int(re.findall(r"VmSize:\s+(\d+) kB", status)[0]) * 1024 + more
        resource.prlimit(self.process.pid, resource.RLIMIT_AS, (limit, limit))

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def post(self, path: str, body: dict[str, object]) -> tuple[int, bytes]:
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=50) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def check(self) -> None:
        """It lives, and answers."""
        status, answer = self.post("/v1/completions", {"prompt": "One day", "max_tokens": 2})
        assert (status, self.process.poll()) == (200, None), (status, answer[:200], self.process.poll())


def answers() -> None:
    """Answers of megabytes of log-probabilities and events: values of their JSON would take 200 MB and more."""
    chat = {"messages": MESSAGES, "n": 64, "logprobs": True, "top_logprobs": 20, "max_tokens": 60}
    events = {
        "prompt": "One day",
        "stream": False,
        "output_events": True,
        "do_sample": True,
        "num_return_sequences": 32,
    }
    with Server(more=112 << 20) as server:
        for path, body, least in [
            ("/v1/completions", OF_PROMPTS, 5 << 20),
            ("/v1/chat/completions", chat | {"ignore_eos": True}, 4 << 20),
            ("/rsgen/v1/generate", events | {"max_new_tokens": 40, "eos_token_id": None}, 1 << 19),
        ]:
            status, answer = server.post(path, body)
            assert (status, len(answer) > least) == (200, True), (path, status, len(answer), answer[:300])
            json.loads(answer)
            server.check()


def refused_answers() -> None:
    """An answer that does not fit is refused in words, before it is computed or as soon as memory is lacking."""
    with Server(more=16 << 20) as server:
        status, answer = server.post("/v1/completions", OF_PROMPTS)
        assert (status, b"memory" in answer) == (503, True), (status, answer[:300])
        server.check()


def bodies() -> None:
    """Hundreds of connections that send most of a body, and wait."""
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2000000\r\n\r\n"
    half = head.encode() + b'{"prompt": "' + b"a" * 1_900_000
    with Server("--max-requests=4", "--max-queue=8", more=320 << 20) as server:
        host, port = server.url.removeprefix("http://").rsplit(":", 1)
        connections = []
        for _ in range(300):
            connection = socket.create_connection((host, int(port)), timeout=20)
            connections.append(connection)
            connection.sendall(half)
        server.check()
        # What each takes as values counts, too.
        many = {"prompt": "a", "max_tokens": 1, "messages": [[]] * 600_000}
        assert server.post("/tokenize", many)[0] in (400, 503)
        server.check()
        for connection in connections:
            connection.close()
        time.sleep(0.5)
        server.check()


def run_batch(folder: Path, line: bytes, more: int) -> subprocess.CompletedProcess[bytes]:
    """Runs a batch of one line, in a process that may take so many bytes."""
    arguments = [*PROGRAM, "run-batch", "-", str(folder / f"answers-{len(line)}.jsonl"), "--num-threads=2"]
    return subprocess.run(
        arguments,
        input=line,
        capture_output=True,
        env=ENVIRONMENT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (more, more)),
    )


def lines(folder: Path) -> None:
    """Lines whose values, and lines whose answers, would take many times their text."""
    folder.mkdir()
    begin = b'{"custom_id": "a", "url": "/v1/completions", "body": {"prompt": "One day", "max_tokens": 1, "user": '
    for item in (b"0,", b"[],", b"{},", b'"",', b'{"a":0},'):
        line = begin + b"[" + item * ((24 << 20) // len(item)) + b"0]}}"
        ended = run_batch(folder, line, 1 << 30)
        assert ended.returncode in (1, 2), (item, ended.returncode, ended.stderr[-300:])
        assert b"bytes of memory" in ended.stderr, ended.stderr[-300:]
    body = {"messages": MESSAGES, "n": 64, "logprobs": True, "top_logprobs": 20, "max_tokens": 60}
    request = {"custom_id": "a", "url": "/v1/chat/completions", "body": body | {"ignore_eos": True}}
    ended = run_batch(folder, json.dumps(request).encode(), 1 << 30)
    assert ended.returncode == 0, (ended.returncode, ended.stderr[-300:])


def cases(root: Path) -> list[Callable[[], Iterator[Step]]]:
    """A child for each kind."""
    steps: list[Step] = [
        ("large answers", answers),
        ("answers that do not fit", refused_answers),
        ("unfinished bodies", bodies),
        ("large lines", lambda: lines(root / "lines")),
    ]
    return [lambda step=step: iter([step]) for step in steps]
