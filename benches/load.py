"""Hard times for the server: slow connections, clients that leave, and more requests than it takes.

python benches/load.py target/peers/models/S             # all three, in full length: two minutes
python benches/load.py --quick                           # a tenth of it, of the story model
python benches/load.py --task refusals

It needs the Python package, with the command `rsgen serve`. Everything happens on 127.0.0.1 and ends by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from serving import Server, events, metric

# Seconds between two bytes of a slow connection: the server never sees it idle.
DRIBBLE = 1.0
# The most seconds that anything here waits for.
PATIENCE = 60.0
# Connections that are refused at the same time.
AT_ONCE = 4


def prompt_ids(length: int) -> list[int]:
    """A prompt that no request had before."""
    return [random.randrange(10, 2000) for _ in range(length)]


def request_body(prompt: int, new_tokens: int) -> dict[str, object]:
    """A stream of so many tokens after a prompt of so many. With ids, as the peers' models have no tokenizer."""
    body = {"prompt": prompt_ids(prompt), "max_tokens": new_tokens, "temperature": 0, "ignore_eos": True}
    return {**body, "stream": True, "return_token_ids": True}


def post(server: Server, body: dict[str, object]) -> bytes:
    """The bytes of a request, whose connection closes after the answer."""
    content = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


def connect(server: Server) -> socket.socket:
    """A new connection."""
    return socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)


@contextmanager
def slow_connections(server: Server, number: int) -> Iterator[None]:
    """Holds connections that send a byte of their head each second, and connects again when the server closes one."""
    allow_files(2 * number)
    ends, loop, open_now = threading.Event(), asyncio.new_event_loop(), set()

    async def dribble(index: int) -> None:
        while not ends.is_set():
            with suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                open_now.add(index)
                try:
                    writer.write(
                        f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nX-Slow: ".encode()
                    )
                    while not ends.is_set() and not reader.at_eof():
                        writer.write(b"a")
                        await writer.drain()
                        await asyncio.sleep(DRIBBLE)
                finally:
                    writer.close()

    async def all_of_them() -> None:
        await asyncio.gather(*(dribble(index) for index in range(number)))

    thread = threading.Thread(target=loop.run_until_complete, args=(all_of_them(),))
    thread.start()
    try:
        wait_until(lambda: len(open_now) == number, f"{number} open connections")
        yield
    finally:
        ends.set()
        thread.join()
        loop.close()


def first_token_seconds(server: Server, calls: int) -> list[float]:
    """From the connection until the first event with text, call by call."""
    seconds = []
    for _ in range(calls):
        begin = time.perf_counter()
        stream = events(server, "/v1/completions", request_body(64, 4))
        next(stream)
        seconds.append(time.perf_counter() - begin)
        list(stream)
    return seconds


@dataclass
class Slow:
    """The median seconds until the first token, before and beside the slow connections."""

    alone: float
    beside: float


def slow(server: Server, number: int = 1000, calls: int = 50) -> Slow:
    """One client beside many slow connections."""
    first_token_seconds(server, 5)
    alone = first_token_seconds(server, calls)
    with slow_connections(server, number):
        beside = first_token_seconds(server, calls)
    return Slow(statistics.median(alone), statistics.median(beside))


def leave(server: Server, clients: int = 50, prompt: int = 400, new_tokens: int = 100) -> list[float]:
    """Clients leave at random points of a prompt or stream: the seconds until the server holds nothing of theirs."""
    begin = time.perf_counter()
    list(events(server, "/v1/completions", request_body(prompt, new_tokens)))
    whole = time.perf_counter() - begin
    seconds = []
    for _ in range(clients):
        with connect(server) as connection:
            connection.sendall(post(server, request_body(prompt, new_tokens)))
            time.sleep(random.uniform(0, 0.9 * whole))
            reset_on_close(connection)
        begin = time.perf_counter()
        wait_until(lambda: is_idle(server), "a server that has nothing to do")
        seconds.append(time.perf_counter() - begin)
    return seconds


def is_idle(server: Server) -> bool:
    """Whether no request runs or waits, and no block of the cache is in use."""
    names = ("rsgen_requests_running", "rsgen_requests_waiting", "rsgen_kv_cache_usage_ratio")
    return all(metric(server, name) == 0 for name in names)


@dataclass
class Refused:
    """The 99th percentile of a refusal's seconds, and the median time between tokens of the stream that runs."""

    refusals: int
    p99: float
    gap_alone: float
    gap_beside: float


def refusals(server: Server, seconds: float = 60.0, rate: int = 200) -> Refused:
    """A server of one place has a stream; so many further requests a second are refused."""
    answers: list[float] = []
    gaps = {False: [], True: []}
    is_full, ends = threading.Event(), threading.Event()

    def stream() -> None:
        while not ends.is_set():
            before = None
            try:
                for _ in events(server, "/v1/completions", request_body(32, 400)):
                    now = time.perf_counter()
                    if before is not None:
                        gaps[is_full.is_set()].append(now - before)
                    before = now
            except RuntimeError as error:
                # Between two streams the place is free, and another request may take it.
                if not str(error).startswith("503:"):
                    raise

    def refuse(index: int) -> None:
        body, begin = post(server, request_body(16, 1)), time.perf_counter()
        for turn in range(index, int(seconds * rate), AT_ONCE):
            time.sleep(max(0.0, begin + turn / rate - time.perf_counter()))
            sent = time.perf_counter()
            with connect(server) as connection:
                connection.sendall(body)
                answer = b"".join(iter(lambda: connection.recv(65536), b""))
            if answer.startswith(b"HTTP/1.1 503 "):
                answers.append(time.perf_counter() - sent)

    reader = threading.Thread(target=stream)
    reader.start()
    try:
        time.sleep(seconds / 4)
        is_full.set()
        clients = [threading.Thread(target=refuse, args=(index,)) for index in range(AT_ONCE)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
    finally:
        ends.set()
        reader.join()
    p99 = statistics.quantiles(answers, n=100)[98]
    return Refused(len(answers), p99, statistics.median(gaps[False]), statistics.median(gaps[True]))


def wait_until(holds: object, what: str) -> None:
    """Waits until a function returns something true."""
    begin = time.perf_counter()
    while not holds():
        if time.perf_counter() - begin > PATIENCE:
            raise TimeoutError(f"waited {PATIENCE:.0f} seconds for {what}")
        time.sleep(0.002)


def reset_on_close(connection: socket.socket) -> None:
    """Lets the connection end as that of a client that crashes."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def allow_files(number: int) -> None:
    """Lets this process have so many open files, as far as the system does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = number + 100 if hard == resource.RLIM_INFINITY else min(number + 100, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", help="a folder; the story model if not given")
    parser.add_argument(
        "--task", action="append", choices=["slow", "leave", "refusals"], help="all if not given"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a tenth of everything, to see that it works; the figures say little",
    )
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    part = 10 if arguments.quick else 1
    tasks = arguments.task or ["slow", "leave", "refusals"]
    command = [*([arguments.model] if arguments.model else []), "--num-threads", str(arguments.threads)]
    with Server(command) as server:
        if "slow" in tasks:
            found = slow(server, number=1000 // part, calls=50 // part)
            print(f"{1000 // part:,} slow connections beside one client")
            print(
                f"  first token {1e3 * found.beside:.1f} ms, {found.beside / found.alone:.3f} of that alone"
            )
        if "leave" in tasks:
            seconds = leave(server, clients=50 // part)
            print(f"{len(seconds)} clients that leave at random points")
            print(
                f"  blocks free after {1e3 * statistics.median(seconds):.1f} ms, at most {1e3 * max(seconds):.1f}"
            )
    if "refusals" in tasks:
        with Server([*command, "--max-requests", "1", "--max-queue", "0"]) as server:
            full = refusals(server, seconds=60 / part)
        print(f"{full.refusals} requests that a full server refuses, 200 a second")
        print(f"  99 of 100 refused within {1e3 * full.p99:.2f} ms")
        print(f"  between tokens of the stream {full.gap_beside / full.gap_alone:.3f} of the time alone")


if __name__ == "__main__":
    main()
