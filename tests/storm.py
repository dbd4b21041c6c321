"""The storm: everything that can leave work in the middle, at once, on one generator; and then nothing may be left.

``python tests/storm.py`` takes some minutes; ``tests/test_storm.py`` runs a small one. Meanwhile another process sends
SIGINT every few milliseconds. The main thread computes and is interrupted; one thread forks, and each forked process
checks that it is refused and opens a model of its own; other threads and an event loop leave streams in every way there
is. At the end all blocks are free, no thread and no file is left over, and the answer is that of the beginning.
"""

import argparse
import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

import rsgen
from forked import in_fork

PROMPT = "Once upon a time"
PROMPTS = [PROMPT, "One day", "Tom and Sue went to the lake", [5] * 300]
SIGNALLER = """
import os, random, signal, sys, time
target = int(sys.argv[1])
while os.getppid() == target:
    time.sleep(random.uniform(0.001, 0.01))
    os.kill(target, signal.SIGINT)
"""


class Enough(Exception):
    """What leaves a stream by an exception."""


class Storm:
    def __init__(self, forks: int, streams: int, seed: int) -> None:
        self.forks, self.streams, self.seed = forks, streams, seed
        self.gen = rsgen.Generator(num_threads=2)
        self.counts: Counter[str] = Counter()
        self.failures: list[BaseException] = []
        self.armed = False
        self.left = streams
        self.lock = threading.Lock()

    # What is left in the middle.

    def take_one(self) -> bool:
        """Whether there is another stream to leave."""
        with self.lock:
            self.left -= 1
            return self.left >= 0

    def count(self, what: str) -> None:
        with self.lock:
            self.counts[what] += 1

    def stream(self, rng: random.Random) -> rsgen.TokenStream:
        return self.gen.astream(
            rng.choice(PROMPTS),
            do_sample=True,
            seed=rng.randrange(1000),
            num_return_sequences=rng.choice([1, 1, 1, 3]),
            max_new_tokens=100,
            eos_token_id=[],
        )

    def leave_streams(self, seed: int) -> None:
        rng = random.Random(seed)
        while self.take_one():
            steps = rng.randrange(12)
            way = rng.choice(["break", "drop", "close", "exception", "close from another thread"])
            stream = self.stream(rng)
            if way == "break":
                for index, _ in enumerate(stream):
                    if index == steps:
                        break
            elif way == "exception":
                with contextlib.suppress(Enough), stream:
                    for index, _ in enumerate(stream):
                        if index == steps:
                            raise Enough
            elif way == "close from another thread":
                closer = threading.Timer(rng.random() * 0.005, stream.close)
                closer.start()
                with contextlib.suppress(rsgen.CancelledError):
                    for _ in stream:
                        pass
                closer.join()
            else:
                for _ in range(steps):
                    next(stream)
                if way == "close":
                    stream.close()
            del stream
            self.count(way)

    async def leave_streams_on_a_loop(self, seed: int) -> None:
        rng = random.Random(seed)

        async def read(stream: rsgen.TokenStream, steps: int) -> None:
            async for _ in stream:
                steps -= 1
                if steps == 0:
                    break

        async def leave() -> None:
            while self.take_one():
                steps = rng.randrange(12)
                way = rng.choice(["async break", "task cancel", "wait_for", "aclose", "future cancel"])
                stream = self.stream(rng)
                if way == "async break":
                    await read(stream, steps + 1)
                elif way == "task cancel":
                    task = asyncio.create_task(read(stream, 100))
                    await asyncio.sleep(rng.random() * 0.02)
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task
                elif way == "wait_for":
                    with contextlib.suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(read(stream, 100), rng.random() * 0.02)
                elif way == "aclose":
                    async with stream:
                        await read(stream, steps + 1)
                else:
                    future = stream.__anext__()
                    await asyncio.sleep(0)
                    future.cancel()
                del stream
                self.count(way)

        await asyncio.gather(*(leave() for _ in range(30)))

    def fork(self) -> None:
        stream = self.stream(random.Random(self.seed))
        next(stream)
        for _ in range(self.forks):
            answer = in_fork(
                lambda: (self.refusals(stream), self.answer(rsgen.Generator(num_threads=2))), seconds=60
            )
            assert answer == (5, self.first_answer), answer
            self.count("fork")
        stream.close()

    def refusals(self, stream: rsgen.TokenStream) -> int:
        """How many of five uses of what was made before the fork are refused."""
        gen, refused = self.gen, 0
        uses: list[Callable[[], object]] = [
            lambda: gen.generate(PROMPT),
            lambda: gen.astream(PROMPT),
            lambda: gen.score(PROMPT),
            gen.stats,
            lambda: next(stream),
        ]
        for use in uses:
            try:
                use()
            except rsgen.ForkError:
                refused += 1
        return refused

    def interrupted_work(self, rng: random.Random) -> None:
        """Work of the main thread, which signals interrupt."""
        what = rng.randrange(6)
        if what == 0:
            self.gen.generate([PROMPT] * 4, max_new_tokens=20)
        elif what == 1:
            list(self.stream(rng))
        elif what == 2:
            self.gen.score([5] * 400)
        elif what == 3:
            self.gen.forward([[5] * 200] * 2)
        elif what == 4:
            rsgen.Generator(num_threads=2, progress=lambda *_: None)
        else:
            self.gen.generate(PROMPT, logits_processor=lambda _, scores: scores, max_new_tokens=20)

    def handle(self, *_: object) -> None:
        self.counts["signal"] += 1
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt

    # The whole.

    def answer(self, gen: rsgen.Generator) -> tuple[list[str], list[float]]:
        output = gen.sample([PROMPT, "One day"], seed=7, num_return_sequences=2, max_new_tokens=30)
        return output.texts, gen.score(PROMPT).tolist()

    def guarded(self, work: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as failure:
                self.failures.append(failure)

        return run

    def run(self) -> None:
        self.first_answer = self.answer(self.gen)
        asyncio.run(self.warm_up())
        threads_before, files_before = settled(num_threads), settled(num_files)
        threads = [
            threading.Thread(target=self.guarded(work))
            for work in (
                lambda: self.leave_streams(self.seed + 1),
                lambda: self.leave_streams(self.seed + 2),
                lambda: asyncio.run(self.leave_streams_on_a_loop(self.seed + 3)),
                self.fork,
            )
        ]
        start = time.monotonic()
        before = signal.signal(signal.SIGINT, self.handle)
        signaller = subprocess.Popen([sys.executable, "-c", SIGNALLER, str(os.getpid())])
        for thread in threads:
            thread.start()
        rng = random.Random(self.seed)
        while any(thread.is_alive() for thread in threads):
            try:
                self.armed = True
                self.interrupted_work(rng)
                self.armed = False
                self.counts["not interrupted"] += 1
            except KeyboardInterrupt:
                self.counts["interrupted"] += 1
        signaller.kill()
        signaller.wait()
        signal.signal(signal.SIGINT, before)
        for thread in threads:
            thread.join()
        taken = time.monotonic() - start

        assert not self.failures, self.failures
        stats = self.gen.stats()
        assert (stats.blocks_used, stats.blocks_reserved) == (0, 0), stats
        assert settled(num_threads, threads_before) <= threads_before, "a thread is left"
        assert settled(num_files, files_before) <= files_before, "an open file is left"
        assert self.answer(self.gen) == self.first_answer
        for what, count in sorted(self.counts.items()):
            print(f"{count:8} {what}")
        print(f"{taken:8.1f} s; all blocks free, {threads_before} threads and {files_before} files as before")

    async def warm_up(self) -> None:
        """What a process opens once and keeps."""
        await anext(self.gen.astream(PROMPT))


def num_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def num_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def settled(number: Callable[[], int], expected: int = 0) -> int:
    """The number when it has come down to what is expected, or after five seconds."""
    deadline = time.monotonic() + (5 if expected else 1)
    while number() > expected and time.monotonic() < deadline:
        time.sleep(0.05)
    return number()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--forks", type=int, default=200)
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    Storm(arguments.forks, arguments.streams, arguments.seed).run()
