"""Several threads, Ctrl-C, and Python that goes on meanwhile."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
import rsgen
from stopwatch import Stopwatch, not_longer

PROMPT = "Once upon a time"


def test_more_threads_than_cores_are_warned_of():
    watch = Stopwatch()
    with pytest.warns(UserWarning, match="`num_threads` asks for 1000 threads, but this process may use"):
        gen = rsgen.Generator(num_threads=1000)
    # With all of them a text takes more than a minute on two cores.
    assert gen.generate(PROMPT, max_new_tokens=2).text
    watch.assert_clock_within(20)


def test_four_threads_share_a_generator(gen):
    prompts = [PROMPT, "One day", "Tom and Sue", "The cat"]
    expected = [
        gen.sample(prompt, seed=index, max_new_tokens=20).text for index, prompt in enumerate(prompts)
    ]

    def work(index):
        for _ in range(5):
            assert gen.sample(prompts[index], seed=index, max_new_tokens=20).text == expected[index]
            stream = gen.stream(prompts[index], do_sample=True, seed=index, max_new_tokens=20)
            assert "".join(token.text for token in stream) == expected[index]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


@pytest.fixture(scope="module")
def slow(make_llama) -> rsgen.Generator:
    """A model whose prompts take seconds."""
    folder = make_llama(
        hidden_size=512,
        intermediate_size=1536,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=8,
        head_dim=64,
        max_position_embeddings=65536,
    )
    return rsgen.Generator(folder, num_threads=1, kv_dtype="bfloat16")


LONG = [1 + index % 60 for index in range(30_000)]


def calls(gen):
    return {
        "generate": lambda: gen.generate(LONG, max_new_tokens=5),
        "list": lambda: gen.generate([LONG[:9000]] * 3, max_new_tokens=5),
        "stream": lambda: list(gen.stream(LONG)),
        "score": lambda: gen.score(LONG),
        "forward": lambda: gen.forward(LONG),
        "callback": lambda: gen.generate([1, 2], logits_processor=spin, max_new_tokens=5),
    }


def spin(_, __):
    while True:
        time.sleep(0.001)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no timer that signals")
@pytest.mark.parametrize("call", ["generate", "list", "stream", "score", "forward", "callback"])
def test_ctrl_c_ends_any_call_within_a_quarter_of_a_second(slow, call):
    sent = []

    def press():
        time.sleep(0.4)
        sent.append(Stopwatch())
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            calls(slow)[call]()
        sent[0].assert_within(0.25)
    finally:
        presser.join()
    stats = slow.stats()
    assert (stats.blocks_used, stats.blocks_reserved) == (0, 0)
    assert slow.generate([1, 2, 3], max_new_tokens=2).usage.generated_tokens == 2


def test_ctrl_c_between_the_tokens_of_a_loop_in_c(gen):
    def press(_, scores):
        os.kill(os.getpid(), signal.SIGINT)
        return scores

    with pytest.raises(KeyboardInterrupt):
        list(gen.stream(PROMPT, logits_processor=press))
    assert gen.generate(PROMPT, max_new_tokens=2).usage.generated_tokens == 2


class Enough(Exception):
    """What a handler raises to end a call."""


@pytest.fixture
def alarm() -> Iterator[Callable[[float, Callable[[], None]], None]]:
    """Calls a function in a signal handler again and again, every so many seconds."""
    if not hasattr(signal, "setitimer"):
        pytest.skip("there is no timer that signals")
    before = signal.getsignal(signal.SIGALRM)

    def set_alarm(seconds, function):
        signal.signal(signal.SIGALRM, lambda *_: function())
        signal.setitimer(signal.ITIMER_REAL, seconds, seconds)

    yield set_alarm
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_handler_that_raises_nothing_lets_the_call_go_on(slow, alarm):
    fired = []

    def handler():
        fired.append(True)
        if len(fired) == 2:
            raise Enough
        with pytest.raises(RuntimeError, match="a signal handler cannot compute"):
            slow.score([1, 2])

    alarm(0.2, handler)
    with pytest.raises(Enough):
        slow.generate(LONG, max_new_tokens=1)
    assert len(fired) == 2


def test_python_goes_on_while_the_model_computes(slow, alarm):
    # In processor time: what other processes take of the cores is no matter.
    ticks, rung = [], []
    done = threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.process_time())
            time.sleep(0.005)

    def enough():
        rung.append(Stopwatch())
        raise Enough

    ticker = threading.Thread(target=tick)
    ticker.start()
    alarm(1.0, enough)
    try:
        start = time.process_time()
        with pytest.raises(Enough):
            slow.score(LONG)
        rung[0].assert_within(0.25)
        end = time.process_time()
    finally:
        done.set()
        ticker.join()
    during = [each for each in ticks if start <= each <= end]
    assert len(during) > 20
    not_longer(max(b - a for a, b in pairwise([start, *during, end])), 0.3)


def test_a_program_that_is_interrupted_ends_by_keyboard_interrupt(tmp_path):
    program = "import rsgen; gen = rsgen.Generator(); print('ready', flush=True)\nwhile True: list(gen.stream('Once'))"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=10)
    assert process.returncode != 0
    assert errors.rstrip().endswith("KeyboardInterrupt")


def kinds_of_calls(gen, seed):
    """One call of each kind, all of them with results that can be compared."""
    prompt = [PROMPT, "One day", "Tom and Sue", "The cat"][seed % 4]
    sampled = {"do_sample": True, "seed": seed, "max_new_tokens": 6}
    return [
        lambda: gen.generate(prompt, **sampled).text,
        lambda: [token.id for token in gen.stream(prompt, **sampled)],
        lambda: gen.score(prompt).tolist(),
        lambda: gen.forward(gen.tokenizer.encode(prompt)).tobytes(),
        lambda: gen.tokenizer.decode(gen.tokenizer.encode(prompt)),
    ]


def test_sixteen_threads_make_a_hundred_calls_each_with_equal_results(gen):
    expected = [[call() for call in kinds_of_calls(gen, seed)] for seed in range(4)]
    all_there = threading.Barrier(16)

    def work(thread):
        all_there.wait()
        for index in range(20):
            seed = (thread + index) % 4
            for call, result in zip(kinds_of_calls(gen, seed), expected[seed], strict=True):
                assert call() == result

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(16)))


def count_for(seconds):
    """How far this thread counts."""
    count, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        count += 1
    return count


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="a core to spare is needed")
def test_another_thread_keeps_most_of_its_speed_while_the_model_computes(slow):
    """The best of several attempts, because other processes come and go."""

    def fraction():
        alone = count_for(0.2)
        stop = threading.Event()

        def generate():
            while not stop.is_set():
                slow.generate(LONG[:300], max_new_tokens=4)

        worker = threading.Thread(target=generate)
        worker.start()
        time.sleep(0.05)
        beside = count_for(0.2)
        stop.set()
        worker.join()
        return beside / alone

    assert any(fraction() > 0.5 for _ in range(10))
