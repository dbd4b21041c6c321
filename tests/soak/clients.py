"""Clients of the soak: those that wait for their answers, and those that leave, dawdle, read nothing or send nonsense."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable

from soak.drawn import WRONG, Case, difference, told
from soak.server import PATIENCE_SECONDS, Served

HEADERS = {"content-type": "application/json"}
#: Answers of a request that is right: the second when the server is full or ends, and says when to come again.
RIGHT = (200, 503)
#: How often each kind of client comes.
KINDS = {"whole": 55, "leaves": 15, "wrong": 10, "slow": 6, "reads nothing": 2, "asks": 12}
ASKED = ["/metrics", "/v1/models", "/health", "/openapi.json", "/api/tags", "/v1/responses/none", "/nowhere"]
GONE = (OSError, http.client.HTTPException)


class Crowd:
    """Clients on threads, which share one server, what was answered first, and what was wrong."""

    def __init__(self, cases: list[Case], seed: int) -> None:
        self.cases, self.seed = cases, seed
        self.streams = [case for case in cases if case.is_stream]
        self.answers: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self.lock = threading.Lock()
        self.life = 0

    def begin(self, served: Served, number: int) -> None:
        """Lets so many clients ask a server until it ends."""
        self.served, self.is_over, self.life = served, False, self.life + 1
        self.unread: list[http.client.HTTPConnection] = []
        self.may_ask = threading.Event()
        self.may_ask.set()
        self.asking = 0
        self.threads = [threading.Thread(target=self.run, args=(index,)) for index in range(number)]
        for thread in self.threads:
            thread.start()

    def pause(self) -> None:
        """Waits until each client has its answer."""
        self.may_ask.clear()
        # Counted and not by the clock: a machine may stop the server and its clients together.
        for _ in range(9000):
            if not self.asking:
                return self.forget_unread()
            time.sleep(0.01)
        raise AssertionError(f"{self.asking} requests do not end")

    def forget_unread(self) -> None:
        with self.lock:
            for connection in self.unread:
                connection.close()
            self.unread.clear()

    def resume(self) -> None:
        self.may_ask.set()

    def end(self) -> None:
        """After the end of the server: the clients find that it is gone."""
        self.may_ask.set()
        for thread in self.threads:
            thread.join(timeout=PATIENCE_SECONDS)
        assert not any(thread.is_alive() for thread in self.threads), (
            "a client waits for an answer that never comes"
        )
        self.forget_unread()

    def fail(self, why: str) -> None:
        with self.lock:
            self.failures.append(f"life {self.life}: {why}")

    def count(self, what: str) -> None:
        with self.lock:
            self.counts[what] += 1

    def run(self, index: int) -> None:
        rng = random.Random(f"{self.seed} {self.life} {index}")
        ways: dict[str, Callable[[random.Random], None]] = {
            "whole": lambda rng: self.read(rng.choice(self.cases)),
            "leaves": self.leave,
            "wrong": self.send_wrong,
            "slow": lambda rng: self.read(rng.choice(self.streams), slowly=True),
            "reads nothing": self.read_nothing,
            "asks": self.ask,
        }
        while not self.is_over:
            with self.lock:
                self.asking += self.may_ask.is_set()
                asks = self.may_ask.is_set()
            if not asks:
                time.sleep(0.01)
                continue
            kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
            try:
                ways[kind](rng)
                self.count(kind)
            except GONE as error:
                # A server that was killed, or that listens no more, answers nobody.
                if not self.is_over:
                    self.fail(f"{kind}: {error!r}")
            except Exception as error:
                self.fail(f"{kind}: {error!r}")
            finally:
                with self.lock:
                    self.asking -= 1

    def send(self, case: Case, receive_bytes: int = 0) -> http.client.HTTPConnection:
        connection = self.served.connection(receive_bytes)
        connection.request("POST", case.path, json.dumps(case.body), HEADERS)
        return connection

    def read(self, case: Case, *, slowly: bool = False) -> None:
        """Reads a whole answer, which has to be that of the first time."""
        connection = self.send(case, receive_bytes=2048 if slowly else 0)
        response = connection.getresponse()
        parts = []
        while part := response.read(256 if slowly else None):
            parts.append(part)
            time.sleep(0.02 if slowly else 0)
        connection.close()
        answer = b"".join(parts)
        self.count(f"answers {response.status}")
        if response.status == 503:
            assert self.is_over or response.headers["retry-after"], answer
            return
        if response.status != 200:
            return self.fail(f"{case.name}: {response.status} {answer[:500]!r}")
        if b"shutting_down" in answer[-500:]:
            return None
        try:
            text = told(case, answer)
        except (ValueError, KeyError, TypeError) as error:
            if not self.is_over:
                self.fail(f"{case.name}: {error!r}, {answer[-500:]!r}")
            return None
        first = self.answers.setdefault(case.name, text)
        if text != first:
            self.fail(f"{case.name}: another answer than before: {difference(text, first)}")
        return None

    def leave(self, rng: random.Random) -> None:
        """Leaves before the first byte of an answer, or after some."""
        case = rng.choice(self.cases)
        connection = self.send(case)
        if rng.random() < 0.5:
            time.sleep(rng.random() * 0.2)
        else:
            connection.getresponse().read(rng.randrange(1, 600))
        connection.close()

    def send_wrong(self, rng: random.Random) -> None:
        body, path = rng.choice(WRONG), rng.choice(self.cases).path
        connection = self.served.connection()
        connection.request("POST", path, body, HEADERS)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        self.count(f"answers {response.status}")
        if response.status not in (400, 404, 413, 503):
            self.fail(f"{path} with {body[:80]!r}: {response.status} {text[:300]!r}")

    def read_nothing(self, rng: random.Random) -> None:
        connection = self.send(rng.choice(self.streams), receive_bytes=2048)
        with self.lock:
            self.unread.append(connection)
            oldest = self.unread.pop(0) if len(self.unread) > 4 else None
        if oldest is not None:
            oldest.close()

    def ask(self, rng: random.Random) -> None:
        path = rng.choice(ASKED)
        connection = self.served.connection()
        connection.request("GET", path)
        status = connection.getresponse().status
        connection.close()
        assert status in ((404, 503) if path in ASKED[-2:] else RIGHT), (path, status)
