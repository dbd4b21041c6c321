"""The server beside a thousand clients that dribble (slow loris): what they take, and what an ordinary client notices."""

import contextlib
import json
import resource
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from statistics import median

import pytest
from stopwatch import not_longer

SLOW = 1000
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
STREAM = json.dumps({"prompt": "One day", "max_tokens": 400, "stream": True, "logprobs": 5}).encode()
#: A head that goes on, a body that goes on, and an answer that is never read. Each goes on with one more byte.
KINDS = [
    (HEAD + b"X: ", b"x"),
    (HEAD + b'Content-Length: 2000\r\n\r\n{"prompt": "', b"x"),
    (HEAD + b"Content-Length: %d\r\n\r\n" % len(STREAM) + STREAM, b""),
]


@pytest.fixture
def files():
    """Room for the descriptors of a thousand connections, which the server inherits."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < 2 * SLOW:
        pytest.skip("a process may not have so many open files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 2 * SLOW), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def complete(url: str) -> float:
    """The seconds that an ordinary request takes."""
    body = json.dumps({"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}).encode()
    request = urllib.request.Request(url + "/v1/completions", body, {"content-type": "application/json"})
    started = time.monotonic()
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200
    return time.monotonic() - started


def resident(process: subprocess.Popen) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_slow_loris_a_thousand_connections_take_little_memory_and_shut_nobody_out(files):
    command = [
        sys.executable,
        "-m",
        "rsgen",
        "serve",
        "--port=0",
        "--json",
        "--num-threads=1",
        "--max-requests=400",
    ]
    with subprocess.Popen([*command, "--kv-cache-bytes=16M"], stdout=subprocess.PIPE) as process:
        try:
            url = json.loads(process.stdout.readline())["url"]
            port = int(url.rsplit(":", 1)[1])
            alone = median(complete(url) for _ in range(9))
            before = resident(process)
            slow = []
            for number in range(SLOW):
                connection = socket.create_connection(("127.0.0.1", port), timeout=20)
                # Of those whose answers are not read there are few enough to leave places.
                first, more = KINDS[number % 2 if number >= 18 else number % 3]
                connection.sendall(first)
                slow.append((connection, more))
            for _ in range(3):
                time.sleep(0.5)
                for connection, more in slow:
                    with contextlib.suppress(OSError):
                        connection.sendall(more)
            assert len(list(Path(f"/proc/{process.pid}/fd").iterdir())) > 0.9 * SLOW, "they are connected"
            beside = median(complete(url) for _ in range(9))
            more_memory = resident(process) - before
            for connection, _ in slow:
                connection.close()
            assert more_memory < 64 << 20, f"{more_memory >> 20} MiB"
            # The streams that nobody reads compute until their buffers are full.
            not_longer(beside, 1 + 20 * alone, f"beside them, {alone:.3f} s alone")
            not_longer(complete(url), 30)
        finally:
            process.kill()
