"""Calls on threads of the generator's: futures of `submit`, and `agenerate`, `achat` and `ascore` on an event loop."""

import asyncio
import concurrent.futures
import gc
import signal
import threading
import time
import weakref
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, as_completed, wait

import numpy as np
import pytest
import rsgen
from stopwatch import Stopwatch

PROMPT = "Once upon a time"
PROMPTS = [PROMPT, "One day", "Tom had"]
LONG = [1 + index % 60 for index in range(30_000)]
CHAT = "{% for message in messages %}{{ message.content }}{% endfor %}"


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


def is_at_work(gen: rsgen.Generator) -> bool:
    return gen.stats().blocks_used > 0


def until(condition, seconds: float = 0.25) -> None:
    """Waits until it is so, for so much processor time at most."""
    watch = Stopwatch()
    while not condition():
        watch.assert_within(seconds)
        time.sleep(0.001)


def test_a_call_is_a_future_of_what_generate_returns(gen):
    call = gen.submit(PROMPT, max_new_tokens=8, do_sample=True, seed=3)
    assert isinstance(call, Future)
    assert call.result(timeout=30) == gen.generate(PROMPT, max_new_tokens=8, do_sample=True, seed=3)
    assert call.done()
    assert not call.running()
    assert not call.cancelled()
    assert not call.cancel()
    assert call.exception() is None


def test_calls_together_give_what_they_give_alone(gen):
    calls = {gen.submit(prompt, num_beams=3, max_new_tokens=12): prompt for prompt in PROMPTS * 5}
    for call in as_completed(calls, timeout=60):
        assert call.result() == gen.generate(calls[call], num_beams=3, max_new_tokens=12)


def test_they_run_at_the_same_time(gen):
    meeting = threading.Barrier(3)

    def meet(ids, scores):
        meeting.wait(30)
        return scores

    calls = [gen.submit([5, 6, index], max_new_tokens=1, logits_processor=meet) for index in range(2)]
    meeting.wait(30)
    assert [call.result(30).usage.generated_tokens for call in calls] == [1, 1]


def test_errors_come_out_of_the_future(gen):
    wrong = gen.submit(PROMPT, topp=0.9)
    assert isinstance(wrong.exception(timeout=30), TypeError)
    with pytest.raises(rsgen.ConfigError, match="num_beams"):
        gen.submit(PROMPT, num_beams=0).result(30)

    def fail(ids, scores):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        gen.submit(PROMPT, max_new_tokens=3, logits_processor=fail).result(30)


def test_cancelling_ends_the_work_in_the_middle_of_a_prompt(slow):
    call, told = slow.submit(LONG, max_new_tokens=5), threading.Event()
    call.add_done_callback(lambda call: told.set())
    until(lambda: is_at_work(slow), 5)
    assert call.running()
    assert not call.done()
    with pytest.raises(concurrent.futures.TimeoutError):
        call.result(timeout=0.01)
    assert call.running(), "a reader that gives up does not end it"
    assert call.cancel()
    assert call.cancelled()
    assert not call.running()
    assert told.is_set()
    with pytest.raises(CancelledError):
        call.result()
    until(lambda: not is_at_work(slow))
    assert call.cancel()
    done, others = wait([call], timeout=30)
    assert (done, others) == ({call}, set())


def test_of_several_the_first_may_end_the_others(slow):
    calls = [slow.submit(LONG, max_new_tokens=5), slow.submit([1, 2, 3], max_new_tokens=2)]
    done, others = wait(calls, timeout=60, return_when=FIRST_COMPLETED)
    assert done == {calls[1]}
    for call in others:
        assert call.cancel()
    until(lambda: not is_at_work(slow))
    assert calls[1].result().usage.generated_tokens == 2


def test_those_that_wait_for_a_thread_are_cancelled_before_they_begin(gen):
    go, begun = threading.Event(), []

    def hold(ids, scores):
        begun.append(1)
        go.wait(60)
        return scores

    calls = [gen.submit([5, 6], max_new_tokens=1, logits_processor=hold) for _ in range(300)]
    last = calls[-1]
    assert not last.running()
    assert last.cancel()
    go.set()
    for call in calls[:-1]:
        assert call.result(60).usage.generated_tokens == 1
    assert len(begun) == 299


def test_closing_the_generator_ends_them(make_llama):
    gen = rsgen.Generator(make_llama(max_position_embeddings=65536), num_threads=1)
    call = gen.submit([1, 2, 3], max_new_tokens=60_000)
    until(lambda: is_at_work(gen), 5)
    gen.close()
    with pytest.raises(rsgen.CancelledError, match="the generator was closed"):
        call.result(30)
    with pytest.raises(rsgen.InputError, match="closed"):
        gen.submit([1, 2, 3])


def test_nothing_of_a_call_is_left_but_its_result(gen):
    class Prompt(list):
        pass

    prompt = Prompt([5, 6])
    gone = weakref.ref(prompt)
    gc.disable()
    try:
        call = gen.submit(prompt, max_new_tokens=1)
        del prompt
        call.result(30)
        until(lambda: gone() is None)
        failed = gen.submit(Prompt([10**9]))
        error = weakref.ref(failed.exception(30))
        del failed
        until(lambda: error() is None)
    finally:
        gc.enable()


def test_a_loop_awaits_what_the_methods_return(gen, run):
    messages = [{"role": "user", "content": PROMPT}]

    async def call():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.001)

        ticking = asyncio.create_task(tick())
        one, *several = await asyncio.gather(
            gen.agenerate(PROMPT, max_new_tokens=30),
            *(gen.agenerate(prompt, num_beams=2, max_new_tokens=10) for prompt in PROMPTS),
        )
        assert ticks > 5, "the loop goes on"
        reply = await gen.achat(messages, chat_template=CHAT, max_new_tokens=5)
        scores = await gen.ascore([PROMPT, "One day"], top_logprobs=2)
        logprobs = await gen.ascore(PROMPT)
        ticking.cancel()
        return one, several, reply, scores, logprobs

    one, several, reply, scores, logprobs = run(call())
    assert one == gen.generate(PROMPT, max_new_tokens=30)
    assert several == [gen.generate(prompt, num_beams=2, max_new_tokens=10) for prompt in PROMPTS]
    assert reply == gen.chat(messages, chat_template=CHAT, max_new_tokens=5)
    assert scores == gen.score([PROMPT, "One day"], top_logprobs=2)
    np.testing.assert_array_equal(logprobs, gen.score(PROMPT))


def test_errors_of_awaited_calls_are_raised(gen, run):
    async def call():
        with pytest.raises(rsgen.ConfigError, match="num_beams"):
            await gen.agenerate(PROMPT, num_beams=0)
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            await gen.ascore(PROMPT, banana=1)

    run(call())


@pytest.mark.parametrize(
    "call",
    [
        lambda gen: gen.agenerate(LONG, max_new_tokens=5),
        lambda gen: gen.achat([{"role": "user", "content": "a" * 30_000}], chat_template=CHAT),
        lambda gen: gen.ascore([LONG] * 9),
    ],
    ids=["agenerate", "achat", "ascore"],
)
@pytest.mark.parametrize("way", ["cancel", "timeout"])
def test_cancelling_the_task_ends_the_work_at_once(slow, gen, run, call, way, request):
    # Conversations need a tokenizer; the story model has one, and a long text is refused there.
    used = slow if "achat" not in request.node.name else gen
    if used is gen:

        def call(gen):
            return gen.achat(
                [{"role": "user", "content": "hi"}],
                chat_template=CHAT,
                num_return_sequences=64,
                do_sample=True,
            )

    async def cancel():
        task = asyncio.create_task(call(used))
        while not is_at_work(used):
            await asyncio.sleep(0.001)
        watch = Stopwatch()
        if way == "cancel":
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(task, 0.01)
        while is_at_work(used):
            watch.assert_within(0.25)
            await asyncio.sleep(0.001)

    run(cancel())


def test_the_loop_may_end_while_a_call_runs(slow):
    async def leave():
        task = asyncio.create_task(slow.agenerate(LONG, max_new_tokens=5))
        while not is_at_work(slow):
            await asyncio.sleep(0.001)
        return task

    task = asyncio.run(leave())
    assert task.cancelled()
    until(lambda: not is_at_work(slow))


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there is no alarm")
@pytest.mark.parametrize("way", ["agenerate", "astream"])
def test_a_loop_that_sleeps_sees_what_a_signal_handler_asks_of_it(slow, way):
    """As the kernel of a notebook cancels a cell: by `call_soon`, which wakes no loop."""

    async def cell():
        if way == "agenerate":
            await slow.agenerate(LONG, max_new_tokens=5)
        async for _ in slow.astream(LONG, max_new_tokens=5):
            pass

    async def interrupted():
        loop, task = asyncio.get_running_loop(), asyncio.create_task(cell())
        while not is_at_work(slow):
            await asyncio.sleep(0.001)
        pressed = []

        def press(*_):
            loop.call_soon(task.cancel)
            pressed.append(Stopwatch())

        before = signal.signal(signal.SIGALRM, press)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.15)
            with pytest.raises(asyncio.CancelledError):
                await task
        finally:
            signal.signal(signal.SIGALRM, before)
        pressed[0].assert_within(0.35)
        until(lambda: not is_at_work(slow))

    asyncio.run(interrupted())


def test_a_loop_is_woken_only_while_calls_are_awaited(gen):
    async def call():
        await asyncio.gather(*(gen.agenerate(prompt, max_new_tokens=2) for prompt in PROMPTS))
        return [handle for handle in asyncio.get_running_loop()._scheduled if not handle.cancelled()]

    assert asyncio.run(call()) == []
