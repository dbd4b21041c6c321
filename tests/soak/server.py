"""The server that the soak is about, in a process of its own, and what the system says of it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

#: Blocks, kept responses and two of the three models: full after minutes, so that what grows later is a leak.
LIMITS = (
    *("--models-max=2", "--kv-cache-bytes=16M", "--max-stored-responses=64", "--max-stored-bytes=1M"),
    *("--max-requests=8", "--num-threads=2", "--grace=30"),
)
#: With an arena for each thread glibc keeps memory that another thread gave back, and what grows is no leak.
ENVIRONMENT = {**os.environ, "MALLOC_ARENA_MAX": "1"}


#: Longer than any answer takes, also where the machine stops this process and the server for minutes.
PATIENCE_SECONDS = 600


class Rest(NamedTuple):
    """What a server holds while nobody asks."""

    seconds: float
    resident: int
    files: int
    threads: int


class Served:
    """A server of these models, on the port of the one before where there was one."""

    def __init__(self, models: dict[str, Path], port: int = 0, log: Path | None = None) -> None:
        named = [f"{name}={path}" for name, path in models.items()]
        arguments = [sys.executable, "-m", "rsgen", "serve", *named, f"--port={port}", "--json", *LIMITS]
        with open(log or os.devnull, "ab") as errors:
            self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=errors, env=ENVIRONMENT)
        assert self.process.stdout is not None
        started = self.process.stdout.readline()
        assert started, f"the server does not start: {self.process.wait()}"
        self.port = int(json.loads(started)["url"].rsplit(":", 1)[1])
        self.models = list(models)
        self.started = time.monotonic()

    def connection(self, receive_bytes: int = 0) -> http.client.HTTPConnection:
        """A new connection, which may receive so little at a time that the server has to wait for its reader."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        connection.sock = socket.socket()
        if receive_bytes:
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.sock.settimeout(PATIENCE_SECONDS)
        try:
            connection.sock.connect(("127.0.0.1", self.port))
        except OSError:
            connection.close()
            raise
        return connection

    def get(self, path: str) -> str:
        connection = self.connection()
        connection.request("GET", path)
        text = connection.getresponse().read().decode()
        connection.close()
        return text

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
        connection = self.connection()
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, text

    def health(self) -> dict[str, Any]:
        return json.loads(self.get("/health"))

    def rest(self) -> Rest:
        """Waits until nothing runs, and measures. The same models are loaded each time."""
        for _ in range(500):
            health = self.health()
            is_idle = not health["running"] + health["waiting"]
            if is_idle and health["free_blocks"] == health["max_blocks"]:
                break
            time.sleep(0.02)
        else:
            raise AssertionError(f"something runs or holds blocks while nobody asks: {health}")
        for name in [*self.models, *self.models[:2]]:
            status, text = self.post("/tokenize", {"model": name, "prompt": "a"})
            assert status == 200, text
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        resident, threads = (int(re.findall(rf"{name}:\s+(\d+)", status)[0]) for name in ("VmRSS", "Threads"))
        files = len(os.listdir(f"/proc/{self.process.pid}/fd"))
        return Rest(time.monotonic() - self.started, resident << 10, files, threads)

    def kill(self) -> None:
        """Ends it as the system does that has no memory left."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """Ends it as an operator does. Returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE_SECONDS)
