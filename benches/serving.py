"""The server of the benchmarks: starting it, and reading its events."""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any

# The command, for those who have built no extension.
PROGRAM = shlex.split(os.environ.get("RSGEN_PROGRAM", "")) or [sys.executable, "-m", "rsgen"]
# Seconds that the server may take to end.
PATIENCE = 30


class Server:
    """`rsgen serve` on a free port of this machine, until the end of a `with`."""

    def __init__(self, arguments: list[str]) -> None:
        command = [*PROGRAM, "serve", *arguments, "--host", "127.0.0.1", "--port", "0"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.port = self.find_port()
        # Whatever it says later must not fill the pipe.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def find_port(self) -> int:
        """What the server says first."""
        assert self.process.stdout is not None
        said = []
        for line in self.process.stdout:
            said.append(line)
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                return int(found[1])
        raise SystemExit("the server did not start: " + "".join(said))

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def events(server: Server, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events of a stream, as they come."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {response.read().decode()}")
        while line := response.readline():
            if line.startswith(b"data: ") and line != b"data: [DONE]\n":
                event = json.loads(line[len(b"data: ") :])
                if "error" in event:
                    raise RuntimeError(str(event["error"]))
                yield event
    finally:
        connection.close()


def metric(server: Server, name: str) -> float:
    """The value of one of the server's metrics."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    values = [float(line.split()[-1]) for line in text.splitlines() if re.match(rf"{name}[ {{]", line)]
    if not values:
        raise RuntimeError(f"the server has no metric {name}")
    return sum(values)
