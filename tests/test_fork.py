"""Forked processes: an error at once for what was made before the fork, and a model of their own; never a hang."""

import asyncio
import contextlib
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
import rsgen

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

if hasattr(os, "fork"):
    from forked import in_fork

PROMPT = "Once upon a time"


def own_generator() -> str:
    """What a generator writes that is opened here."""
    return rsgen.Generator(num_threads=2).generate(PROMPT, max_new_tokens=8).text


async def wait_for(stream: rsgen.TokenStream) -> object:
    return await anext(stream)


def uses(gen: rsgen.Generator, stream: rsgen.TokenStream) -> dict[str, Callable[[], object]]:
    return {
        "generate": lambda: gen.generate(PROMPT),
        "list": lambda: gen.generate([PROMPT, PROMPT]),
        "greedy_search": lambda: gen.greedy_search(PROMPT),
        "sample": lambda: gen.sample(PROMPT),
        "stream": lambda: gen.stream(PROMPT),
        "astream": lambda: gen.astream(PROMPT),
        "forward": lambda: gen.forward([1, 2]),
        "score": lambda: gen.score(PROMPT),
        "stats": gen.stats,
        "next": lambda: next(stream),
        "send": lambda: stream.send(None),
        "anext": lambda: asyncio.run(wait_for(stream)),
    }


def refused(gen: rsgen.Generator, stream: rsgen.TokenStream) -> dict[str, str]:
    """The errors of all uses, by the use."""
    messages = {}
    for name, use in uses(gen, stream).items():
        try:
            use()
        except rsgen.ForkError as error:
            messages[name] = str(error)
    return messages


def test_every_use_in_a_forked_process_is_a_fork_error_with_the_remedy(gen):
    stream = gen.stream(PROMPT, max_new_tokens=5)
    next(stream)
    messages = in_fork(lambda: refused(gen, stream))
    assert messages.keys() == uses(gen, stream).keys()
    for message in messages.values():
        for part in ("forked", str(os.getpid()), "open a new Generator", "spawn", "forkserver"):
            assert part in message
    assert len(list(stream)) == 4, "the stream goes on where it was"


def test_what_computes_nothing_goes_on_in_a_forked_process(gen):
    stream = gen.stream(PROMPT)

    def rest() -> tuple[object, ...]:
        repr(gen), repr(stream)
        stream.close()
        ids = gen.tokenizer.encode(PROMPT)
        reopened = pickle.loads(pickle.dumps(gen))
        text = reopened.generate(ids, max_new_tokens=8).text
        return gen.name_or_path, gen.tokenizer.decode(ids, skip_special_tokens=True), gen.num_threads, text

    expected = (gen.name_or_path, PROMPT, 2, gen.generate(PROMPT, max_new_tokens=8).text)
    assert in_fork(rest) == expected
    stream.close()


def test_a_forked_process_opens_a_model_of_its_own_and_forks_again(gen):
    expected = gen.generate(PROMPT, max_new_tokens=8).text

    def parent() -> tuple[str, str, bool]:
        mine = rsgen.Generator(num_threads=2)

        def child() -> tuple[str, bool]:
            with contextlib.suppress(rsgen.ForkError):
                mine.score(PROMPT)
                return "", False
            return own_generator(), True

        text, was_refused = in_fork(child)
        return text, mine.generate(PROMPT, max_new_tokens=8).text, was_refused

    assert in_fork(parent) == (expected, expected, True)


def test_a_fork_before_anything_is_loaded():
    program = """
import os, sys
import rsgen
if os.fork() == 0:
    print(rsgen.Generator(num_threads=2).generate("Once upon a time", max_new_tokens=8).text)
    sys.exit()  # with all that the end of an interpreter brings
assert os.wait()[1] == 0
print(rsgen.Generator(num_threads=2).generate("Once upon a time", max_new_tokens=8).text)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    first, second = run.stdout.splitlines()
    assert (first, run.stderr) == (second, "")


def test_a_forked_process_ends_in_an_orderly_way_with_what_it_has_inherited():
    """Modules, generators and streams are torn down although their threads are not there."""
    program = """
import os, sys, asyncio, threading, warnings
import rsgen
warnings.simplefilter("ignore", DeprecationWarning)
gen = rsgen.Generator(num_threads=2)
stream = gen.stream("Once upon a time")
next(stream)
def work():
    while True:
        gen.generate("Once upon a time", max_new_tokens=50)
for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
async def first():
    return await anext(gen.astream("Once"))
asyncio.run(first())
for _ in range(10):
    if os.fork() == 0:
        del stream
        sys.exit()
    assert os.wait()[1] == 0
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


@pytest.mark.parametrize("work", ["generate", "stream", "astream", "score", "callback"])
def test_a_fork_in_the_middle_of_another_threads_work_hangs_nothing(gen, work):
    expected = gen.generate(PROMPT, max_new_tokens=8).text
    stream = gen.stream(PROMPT)
    done = threading.Event()

    async def read():
        async def one(seed):
            async for _ in gen.astream(PROMPT, do_sample=True, seed=seed, max_new_tokens=10):
                pass

        await asyncio.gather(*map(one, range(8)))

    once = {
        "generate": lambda: gen.generate([PROMPT] * 3, max_new_tokens=20),
        "stream": lambda: list(gen.stream(PROMPT, max_new_tokens=20)),
        "astream": lambda: asyncio.run(read()),
        "score": lambda: gen.score([5] * 100),
        "callback": lambda: gen.generate(PROMPT, logits_processor=lambda _, scores: scores, max_new_tokens=5),
    }[work]

    def repeat():
        while not done.is_set():
            once()

    threads = [threading.Thread(target=repeat) for _ in range(2)]
    for thread in threads:
        thread.start()

    def child() -> tuple[int, str]:
        return len(refused(gen, stream)), own_generator()

    try:
        for _ in range(5):
            assert in_fork(child) == (len(uses(gen, stream)), expected)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    stream.close()


def test_a_fork_out_of_a_callback_is_refused_when_it_comes_back():
    program = """
import os, sys, rsgen
gen = rsgen.Generator(num_threads=2)
parent = os.getpid()
def forking(ids, scores):
    if os.getpid() == parent and ids.shape[1] == 6:
        child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 7 << 8
    return scores
try:
    text = gen.generate("Once upon a time", logits_processor=forking, max_new_tokens=8).text
except rsgen.ForkError:
    os._exit(7)
assert text == gen.generate("Once upon a time", max_new_tokens=8).text
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], timeout=60, check=True)


inherited: rsgen.Generator | None = None


def use_what_is_inherited(prompt: str) -> str:
    assert inherited is not None
    return inherited.generate(prompt).text


def open_and_write(prompt: str) -> str:
    return rsgen.Generator(num_threads=1).generate(prompt, max_new_tokens=8).text


def test_a_pool_of_forked_workers_reports_the_error(gen, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "inherited", gen)
    expected = gen.generate(PROMPT, max_new_tokens=8).text
    with pytest.warns() if sys.version_info >= (3, 12) else contextlib.nullcontext():
        pool = multiprocessing.get_context("fork").Pool(2)
    with pool:
        with pytest.raises(rsgen.ForkError, match="open a new Generator"):
            pool.map(use_what_is_inherited, [PROMPT])
        assert pool.map(open_and_write, [PROMPT] * 2) == [expected] * 2
