"""An attack for each way in which a process once ended or went on without its caller, with little memory left.

Answers, bodies, lines and long lists are in `service` and `sizes`, panics of drawn templates in `templates`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import collected
import rsgen
from hostile import STORY
from tiny_llama import write_adapter, write_detector

from attack.children import Step
from attack.service import Server
from attack.sizes import limit_memory

LONG_TEXT = "hello " * 850_000
MESSAGES = [{"role": "user", "content": "Hi"}]


def refused(call: Callable[[], object], kind: type[Exception] = rsgen.RsgenError) -> None:
    """It must end in an error of rsgen."""
    try:
        call()
    except kind:
        return
    raise AssertionError("it was taken")


def story(folder: Path, file: str, **fields: object) -> Path:
    """A copy of the story model with other fields in a file."""
    shutil.copytree(STORY, folder)
    known = json.loads((STORY / file).read_text())
    (folder / file).write_text(json.dumps(known | fields))
    return folder


def opened(more_bytes: int, model: Path | None = None) -> rsgen.Generator:
    """The story model, in a process that may take so many more bytes."""
    gen = rsgen.Generator(model, num_threads=1)
    gen.generate("One day", max_new_tokens=1, regex="[a-z]")
    limit_memory(more_bytes)
    return gen


#: The processes that share the classes of the package: a step is to end in time on a busy machine.
PARTS = 4


def objects(folder: Path, part: int) -> None:
    """The collector runs over the classes of a part of the package, and the process ends with them."""
    folder.mkdir()
    write_detector(folder, rsgen.SynthIDTextWatermarkingConfig(5, [1, 2, 3, 4]))
    names = collected.names()[part::PARTS]
    ended = subprocess.run(
        [sys.executable, collected.__file__, str(folder), *names],
        capture_output=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30)),
    )
    assert ended.returncode == 0, (ended.returncode, ended.stdout[-200:], ended.stderr[-300:])


def grammars() -> None:
    """Grammars without end are refused, or compiled as far as they are followed; they stop nobody else's, and
    nothing goes on afterwards."""
    # Threads that compile reserve 256 MiB each, of which they use little.
    gen = opened(4 << 30)
    endless = {
        "regex": ["(" + "a*b?" * 20_000 + "){0,500}", "(a|aa|b?)" * 9_000 + "{9}"],
        "grammar": ["start: /(" + "a*b?" * 9_000 + "){0,500}/"],
        "json_schema": [{"type": "string", "pattern": "^(" + "a*b?" * 20_000 + "){0,500}$"}],
    }
    # They are one expression with a long bound.
    nested = {
        "regex": "((a{0,900}){0,900}){0,900}",
        "grammar": "start: (((a{0,900}){0,900}){0,900})\na: /x*/",
    }
    calls = [
        functools.partial(refused, functools.partial(gen.generate, "One", **{field: value}))
        for field, values in endless.items()
        for value in values * 2
    ]
    calls += [functools.partial(gen.generate, "One", **{field: value}) for field, value in nested.items()] * 2
    with ThreadPoolExecutor(len(calls)) as pool:
        running = [pool.submit(call) for call in calls]
        for _ in range(5):
            assert gen.generate("One", regex="[a-z ]{3}", max_new_tokens=4).texts
        for call in running:
            call.result()
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert peak_kb < 512 << 10, peak_kb
    before = time.process_time()
    time.sleep(1)
    assert time.process_time() - before < 0.5, "something is still compiled"


class Press(Exception):
    """What the handler of a signal raises."""


def interrupts(seed: int) -> None:
    """A signal at any moment ends what takes long."""
    gen, rng = opened(1 << 30), random.Random(seed)
    texts, ids = ["hello there"] * 50_000, [300] * 1_000_000
    calls: list[Callable[[], object]] = [
        lambda: gen.tokenizer.encode(LONG_TEXT),
        lambda: gen.tokenizer(texts),
        lambda: gen.tokenizer.batch_decode([ids[:3]] * 100_000),
        lambda: gen.prefill(texts),
        lambda: gen.score(texts),
        lambda: gen.apply_chat_template([MESSAGES] * 50_000, chat_template="{{ messages[0].content }}"),
        lambda: gen.generate("One", suppress_tokens=ids, max_new_tokens=1),
        lambda: gen.generate("One", json_schema={"enum": [str(n) for n in range(20_000)]}),
        lambda: gen.generate("One", max_new_tokens=400, num_return_sequences=16, do_sample=True),
    ]

    def press(*_: object) -> None:
        raise Press

    signal.signal(signal.SIGPROF, press)
    for call in calls * 2:
        after = rng.uniform(0.001, 0.4)
        start = time.process_time()
        with contextlib.suppress(Press):
            try:
                signal.setitimer(signal.ITIMER_PROF, after)
                call()
                continue
            except rsgen.RsgenError:
                pass
            finally:
                # Within the block: a late signal is none of the next call.
                signal.setitimer(signal.ITIMER_PROF, 0)
        late = time.process_time() - start - after
        assert late < 0.5, late


def event_loop(folder: Path) -> None:
    """A loop goes on while a long text is encoded, and need not wait for it."""
    gen = opened(2 << 30, story(folder, "config.json", max_position_embeddings=1 << 15))

    async def read() -> float:
        async def ticks() -> None:
            nonlocal longest
            while True:
                start = time.thread_time()
                await asyncio.sleep(0.001)
                longest = max(longest, time.thread_time() - start)

        longest, task = 0.0, asyncio.ensure_future(ticks())
        for _ in range(3):
            stream = gen.astream(LONG_TEXT)
            with contextlib.suppress(asyncio.TimeoutError, rsgen.InputError):
                await asyncio.wait_for(anext(stream), 0.2)
            await stream.aclose()
        task.cancel()
        return longest

    longest = asyncio.run(read())
    assert longest < 0.25, longest


def pauses() -> None:
    """A process that is stopped for three seconds goes on with its text, template and grammar."""
    gen = opened(1 << 30)
    long = [{"role": "user", "content": "a fox found a red boat " * 50}] * 20
    schema = {"type": "object", "properties": {f"field{n}": {"type": "string"} for n in range(100)}}
    template = "{% for message in messages %}{% for word in message.content.split() %}{{ word }}{% endfor %}{% endfor %}"
    for work in (
        lambda _: gen.tokenizer.encode(LONG_TEXT[:1_000_000]),
        lambda _: gen.apply_chat_template(long, chat_template=template),
        lambda n: gen.generate("One", json_schema=schema | {"title": str(n)}, max_new_tokens=1),
    ):
        pause = f"sleep 0.2; kill -STOP {os.getpid()}; sleep 3; kill -CONT {os.getpid()}"
        with subprocess.Popen(["sh", "-c", pause]) as other:
            count = 0
            while other.poll() is None:
                work(count)
                count += 1
        assert count > 0


def panics(folder: Path) -> None:
    """Templates that make their library panic are errors of their requests, and end no server."""
    story(folder, "tokenizer_config.json", chat_template="{{ '%(é' % {'é': 1} }}")
    # Its log tells of the panics.
    with Server(str(folder), more=256 << 20, errors=subprocess.DEVNULL) as server:
        for _ in range(12):
            status, answer = server.post("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 1})
            assert status == 400, (status, answer[:300])
        server.check()


def files(folder: Path) -> None:
    """What is no file of limited size is refused at once."""
    folder.mkdir()
    limit_memory(256 << 20)
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        refused(lambda path=path: rsgen.Generator.from_tensors(path, {}), rsgen.LoadError)
        refused(
            lambda path=path: rsgen.Generator.from_tensors({"model_type": "llama"}, {}, path), rsgen.LoadError
        )
        refused(lambda path=path: rsgen.Generator(path), rsgen.LoadError)
        refused(lambda path=path: rsgen.Generator(adapter=path), rsgen.LoadError)


def adapters(folder: Path) -> None:
    """An adapter of as many tensors as there may be, which belong to no model."""
    folder.mkdir()
    kinds = ["lora_A.weight", "lora_B.weight"], ["weight", "modules_to_save.weight"]
    limit_memory(512 << 20)
    for index, endings in enumerate(kinds):
        names = [f"layers.{n}.q_proj.{ending}" for n in range(45_000) for ending in endings]
        adapter = write_adapter(folder / str(index), names)
        refused(lambda adapter=adapter: rsgen.Generator(num_threads=1, adapter=adapter), rsgen.LoadError)


def stacks() -> None:
    """Nested templates and expressions on the smallest stack that threads have."""
    gen = opened(1 << 30)
    before = threading.stack_size(128 << 10)

    def run(errors: list[BaseException]) -> None:
        try:
            for depth in (20, 40, 4000):
                for template in (
                    "{{ " + "(" * depth + "1" + ")" * depth + " }}",
                    "{% if 1 %}" * depth + "1" + "{% endif %}" * depth,
                ):
                    with contextlib.suppress(*([rsgen.RsgenError] if depth > 20 else [])):
                        text = gen.apply_chat_template(MESSAGES, chat_template=template, tokenize=False)
                        assert text == "1"
                with contextlib.suppress(rsgen.RsgenError):
                    gen.generate("One", regex="(" * depth + "a" + ")" * depth, max_new_tokens=1)
        except BaseException as error:
            errors.append(error)

    errors: list[BaseException] = []
    thread = threading.Thread(target=run, args=(errors,))
    thread.start()
    thread.join()
    threading.stack_size(before)
    assert not errors, errors


def interpreters() -> None:
    """Another interpreter of the process is refused, and harms nothing."""
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    gen = opened(256 << 20)
    other = interpreters.create()
    refusal = "try:\n    import rsgen\nexcept ImportError:\n    pass\nelse:\n    raise SystemExit(1)"
    result = interpreters.run_string(other, refusal)
    assert result is None, result
    interpreters.destroy(other)
    assert gen.generate("One day", max_new_tokens=1).texts


def clients() -> None:
    """Clients that read nothing, and such as send no more."""
    with Server("--max-requests=64", more=512 << 20) as server:
        host, port = server.url.removeprefix("http://").rsplit(":", 1)

        def sent(**fields: object) -> socket.socket:
            body = json.dumps({"prompt": "One day", "max_tokens": 400, "ignore_eos": True} | fields)
            head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            connection = socket.create_connection((host, int(port)), timeout=50)
            connection.sendall((head + body).encode())
            return connection

        half = sent(max_tokens=20)
        half.shutdown(socket.SHUT_WR)
        answer = b""
        while part := half.recv(1 << 16):
            answer += part
        assert b'"completion_tokens":20' in answer, answer[-300:]
        unread = [sent(stream=True, logprobs=20) for _ in range(60)]
        server.check()
        for connection in unread:
            connection.close()
        server.check()


def cases(root: Path, seed: int) -> list[Callable[[], Iterator[Step]]]:
    """A child for each kind."""
    steps: list[Step] = [
        *(
            (f"objects under the collector {part}", functools.partial(objects, root / f"objects{part}", part))
            for part in range(PARTS)
        ),
        ("grammars without end", grammars),
        ("interrupts", lambda: interrupts(seed)),
        ("an event loop", lambda: event_loop(root / "loop")),
        ("pauses", pauses),
        ("panics", lambda: panics(root / "panics")),
        ("pipes and devices", lambda: files(root / "files")),
        ("large adapters", lambda: adapters(root / "adapters")),
        ("small stacks", stacks),
        ("another interpreter", interpreters),
        ("clients that read nothing or send no more", clients),
    ]
    return [lambda step=step: iter([step]) for step in steps]
