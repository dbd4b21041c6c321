"""Streams on an event loop: the same tokens, bounded threads, and nothing left however they are left."""

import asyncio
import contextlib
import gc
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import rsgen
from stopwatch import Stopwatch

PROMPT = "Once upon a time"
LONG = [1 + index % 60 for index in range(30_000)]


def blocks(gen) -> int:
    stats = gen.stats()
    return stats.blocks_used + stats.blocks_reserved


async def soon(condition: Callable[[], bool], seconds: float = 0.25) -> None:
    """Waits until it is so, for so much processor time at most."""
    watch = Stopwatch()
    while not condition():
        watch.assert_within(seconds)
        await asyncio.sleep(0.001)


def test_an_asynchronous_stream_is_what_a_stream_is(gen, run):
    async def read():
        stream = gen.astream(PROMPT, do_sample=True, seed=3, max_new_tokens=30)
        assert stream.__aiter__() is stream
        assert isinstance(stream, rsgen.TokenStream)
        return [token async for token in stream], stream.output

    tokens, output = run(read())
    stream = gen.stream(PROMPT, do_sample=True, seed=3, max_new_tokens=30)
    assert tokens == list(stream)
    np.testing.assert_array_equal(output.sequences, stream.output.sequences)
    assert output.finish_reasons == ["length"]


def test_the_same_arguments_are_taken_and_refused(gen, run):
    def only(_, scores):
        scores[:] = -np.inf
        scores[:, 7] = 0.0
        return scores

    async def read():
        config = rsgen.GenerationConfig(max_new_tokens=3)
        stream = gen.astream([1, 2, 3], config, logits_processor=only)
        assert [token.id async for token in stream] == [7, 7, 7]
        with pytest.raises(TypeError, match=r"astream\(\) got an unexpected keyword argument"):
            gen.astream(PROMPT, topp=0.9)
        with pytest.raises(rsgen.InputError, match="a stream has one prompt"):
            gen.astream([PROMPT, PROMPT])

    run(read())


def test_one_object_is_iterator_asynchronous_iterator_and_both_kinds_of_context_manager(gen, run):
    expected = [token.id for token in gen.stream(PROMPT, max_new_tokens=6)]

    async def read():
        with gen.astream(PROMPT, max_new_tokens=6) as stream:
            ids = [next(stream).id, (await anext(stream)).id, next(stream).id]
            ids += [token.id async for token in stream]
            with pytest.raises(StopAsyncIteration) as stop:
                await anext(stream)
            assert stop.value.value is stream.output if hasattr(stop.value, "value") else True
            assert await anext(stream, None) is None
        assert ids == expected
        async with gen.stream(PROMPT, max_new_tokens=6) as stream:
            assert await anext(stream) == next(gen.stream(PROMPT))
        assert stream.output.finish_reasons == ["cancelled"]
        assert blocks(gen) == 0

    run(read())


def test_the_last_stop_carries_the_output(gen, run):
    async def read():
        stream = gen.astream(PROMPT, max_new_tokens=2)
        [token async for token in stream]
        with pytest.raises(StopAsyncIteration) as stop:
            await anext(stream)
        assert stop.value.args == (stream.output,)
        return stream.output.text

    assert run(read()) == gen.generate(PROMPT, max_new_tokens=2).text


def test_a_stream_that_only_a_future_refers_to_goes_on(gen, run):
    async def read():
        return (await anext(gen.astream(PROMPT))).text

    assert run(read()) == next(gen.stream(PROMPT)).text


def test_leaving_the_loop_in_any_way_frees_the_blocks(gen, run):
    async def leave_by_break():
        async for _ in gen.astream(PROMPT):
            assert blocks(gen) > 0
            break
        assert blocks(gen) == 0

    async def leave_by_exception():
        with contextlib.suppress(ZeroDivisionError):
            async for _ in gen.astream(PROMPT):
                _ = 1 / 0
        assert blocks(gen) == 0

    async def leave_a_with_block():
        async with gen.astream(PROMPT) as stream:
            await anext(stream)
        assert blocks(gen) == 0
        assert stream.output.usage.generated_tokens == 1

    async def close():
        stream = gen.astream(PROMPT)
        await stream.aclose()
        await stream.aclose()
        assert blocks(gen) == 0
        assert stream.output.usage.generated_tokens == 0

    async def drop():
        stream = gen.astream(PROMPT)
        await anext(stream)
        del stream
        assert blocks(gen) == 0

    for leave in (leave_by_break, leave_by_exception, leave_a_with_block, close, drop):
        run(leave())
        assert blocks(gen) == 0, leave.__name__


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


def test_a_cancelled_task_stops_in_the_middle_of_a_prompt(slow, run):
    async def read(stream):
        async for _ in stream:
            raise AssertionError("the prompt takes longer")

    async def cancel():
        stream = slow.astream(LONG)
        task = asyncio.create_task(read(stream))
        await asyncio.sleep(0.3)
        assert slow.stats().blocks_used > 0, "it is at work"
        task.cancel()
        await soon(lambda: blocks(slow) == 0)
        with pytest.raises(asyncio.CancelledError):
            await task
        await stream.aclose()
        assert stream.output.finish_reasons == ["cancelled"]
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    run(cancel())
    assert slow.generate([1, 2, 3], max_new_tokens=2).usage.generated_tokens == 2


def test_a_time_limit_ends_the_stream(slow, run):
    async def limit():
        async with slow.astream(LONG) as stream:
            watch = Stopwatch()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(anext(stream), 0.05)
            watch.assert_within(0.25)
        assert blocks(slow) == 0, "leaving the block waits for the work to stop"
        watch.assert_within(0.3)

    run(limit())


def test_closing_from_another_task_waits_for_the_work_to_stop(slow, run):
    async def read(stream):
        with pytest.raises(rsgen.CancelledError):
            await anext(stream)

    async def close():
        stream = slow.astream(LONG)
        task = asyncio.create_task(read(stream))
        await soon(lambda: blocks(slow) > 0, 5)
        watch = Stopwatch()
        await stream.aclose()
        assert (blocks(slow), stream.output.finish_reasons) == (0, ["cancelled"])
        watch.assert_within(0.25)
        await task

    run(close())


def test_who_waits_for_a_turn_can_be_cancelled_too(slow, run):
    """Also while a pass of another stream takes its time."""

    async def cancel():
        tasks = [asyncio.ensure_future(anext(slow.astream(LONG))) for _ in range(8)]
        await asyncio.sleep(0.2)
        for task in tasks:
            task.cancel()
        await soon(lambda: blocks(slow) == 0)
        await asyncio.gather(*tasks, return_exceptions=True)

    run(cancel())


def test_a_loop_that_is_closed_early_ends_its_streams(slow):
    loop = asyncio.new_event_loop()
    future = None

    async def begin():
        nonlocal future
        future = anext(slow.astream(LONG))
        await asyncio.sleep(0.1)

    loop.run_until_complete(begin())
    assert blocks(slow) > 0
    loop.close()
    watch = Stopwatch()
    while blocks(slow) > 0:
        watch.assert_within(0.25)
        time.sleep(0.005)
    del future
    gc.collect()


def test_a_loop_that_is_stopped_and_forgotten_leaves_nothing(gen):
    loop = asyncio.new_event_loop()
    loop.run_until_complete(asyncio.sleep(0))

    async def begin():
        return anext(gen.astream(PROMPT, max_new_tokens=50))

    future = loop.run_until_complete(begin())
    time.sleep(0.1)
    loop.close()
    del future, loop
    gc.collect()
    assert blocks(gen) == 0


def test_outside_of_a_loop_there_is_no_waiting(gen):
    stream = gen.astream(PROMPT, max_new_tokens=2)
    with pytest.raises(RuntimeError, match="no running event loop"):
        stream.__anext__()
    assert len(list(stream)) == 2, "but it is a stream like others"


def test_one_reader_at_a_time(slow, run):
    async def read():
        stream = slow.astream(LONG)
        first = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.05)
        for read in (stream.__anext__, stream.__next__):
            with pytest.raises(ValueError, match="being read already"):
                read()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await stream.aclose()

    run(read())


def test_what_a_callback_raises_comes_out_of_the_loop(gen, run):
    class Mine(Exception):
        pass

    def fail(ids, scores):
        if ids.shape[1] > 7:
            raise Mine
        return scores

    async def read():
        stream = gen.astream(PROMPT, logits_processor=fail)
        with pytest.raises(Mine):
            async for _ in stream:
                pass
        assert stream.output is None
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    run(read())


def num_threads() -> int:
    return len(os.listdir("/proc/self/task"))


needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted in /proc")


@needs_proc
def test_a_hundred_streams_on_one_loop_share_passes_and_their_threads_end(gen, run):
    count, length = 100, 30
    expected = [
        gen.sample(PROMPT, seed=seed, max_new_tokens=length, eos_token_id=[]).token_ids[0].tolist()
        for seed in range(count)
    ]
    before, most_threads = num_threads(), 0
    done: Counter[int] = Counter()
    spread = 0

    async def read(seed):
        nonlocal most_threads, spread
        ids = []
        stream = gen.astream(PROMPT, do_sample=True, seed=seed, max_new_tokens=length, eos_token_id=[])
        async for token in stream:
            ids.append(token.id)
            done[seed] += 1
            spread = max(spread, max(done.values()) - min(done[seed] for seed in range(count)))
        most_threads = max(most_threads, num_threads())
        return ids

    async def all_of_them():
        return await asyncio.gather(*map(read, range(count)))

    assert run(all_of_them()) == expected
    assert most_threads <= before + 2 * count, (
        "one that waits has a thread, and one may be on its way to rest"
    )
    assert spread <= length // 2, "nobody is left behind, though the system wakes threads in its own order"
    deadline = time.monotonic() + 5
    while num_threads() > before:
        assert time.monotonic() < deadline, "threads that have nothing to do end"
        time.sleep(0.05)


def test_a_long_prompt_does_not_hold_the_others_up(slow, run):
    async def read():
        long = asyncio.ensure_future(anext(slow.astream(LONG)))
        await asyncio.sleep(0.1)
        tokens = [token async for token in slow.astream([1, 2, 3], max_new_tokens=3)]
        assert not long.done()
        long.cancel()
        await asyncio.gather(long, return_exceptions=True)
        await soon(lambda: blocks(slow) == 0)
        return len(tokens)

    assert run(read()) == 3


def test_the_loop_goes_on_while_the_model_computes(slow, run):
    async def tick():
        for _ in range(100):
            watch = Stopwatch()
            await asyncio.sleep(0.005)
            watch.assert_within(0.25)

    async def both():
        long = asyncio.ensure_future(anext(slow.astream(LONG)))
        await tick()
        assert not long.done()
        long.cancel()
        await soon(lambda: blocks(slow) == 0)

    run(both())


def test_a_slow_reader_makes_nothing_pile_up(gen, run):
    computed = []

    def count(ids, scores):
        computed.append(ids.shape[1])
        return scores

    async def read():
        stream = gen.astream(PROMPT, logits_processor=count, max_new_tokens=50)
        for taken in range(1, 6):
            await anext(stream)
            await asyncio.sleep(0.05)
            assert len(computed) == taken, "what nobody has asked for is not computed"
        await stream.aclose()

    run(read())


def test_streams_of_two_loops_in_two_threads(gen):
    expected = gen.generate(PROMPT, max_new_tokens=40).text
    texts = []

    async def read():
        return "".join([str(token) async for token in gen.astream(PROMPT, max_new_tokens=40)])

    threads = [threading.Thread(target=lambda: texts.append(asyncio.run(read()))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [expected] * 2


def test_cancelled_at_random_moments_nothing_is_left(gen, run):
    rng = np.random.default_rng(0)

    async def read(seed):
        async for _ in gen.astream(PROMPT, do_sample=True, seed=seed, num_return_sequences=2):
            await asyncio.sleep(0)

    async def storm():
        tasks = set()
        for seed in range(300):
            tasks.add(asyncio.create_task(read(seed)))
            if rng.random() < 0.7:
                await asyncio.sleep(rng.random() * 0.002)
            if len(tasks) > 20 or rng.random() < 0.5:
                task = tasks.pop()
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # It computes on two threads.
        await soon(lambda: blocks(gen) == 0, 0.5)

    run(storm())


@pytest.mark.skipif(sys.platform == "win32", reason="there is no signal to send")
def test_ctrl_c_ends_an_asynchronous_program_within_a_quarter_of_a_second(slow):
    sent = []

    def press():
        time.sleep(0.4)
        sent.append(Stopwatch())
        os.kill(os.getpid(), signal.SIGINT)

    async def read():
        async for _ in slow.astream(LONG):
            pass

    presser = threading.Thread(target=press)
    presser.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(read())
        sent[0].assert_within(0.25)
    finally:
        presser.join()
    watch = Stopwatch()
    while blocks(slow) > 0:
        watch.assert_within(0.25)
        time.sleep(0.005)
    assert slow.generate([1, 2, 3], max_new_tokens=2).usage.generated_tokens == 2


def test_the_output_is_there_when_closing_is_cancelled_too(gen):
    """anyio cancels a task again at each await, also at that of the end of the work."""

    async def main():
        stream = gen.astream(PROMPT, max_new_tokens=400, eos_token_id=None)

        async def read():
            async with stream:
                async for _ in stream:
                    pass

        task = asyncio.ensure_future(read())
        await asyncio.sleep(0.1)
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
        return stream.output

    for _ in range(5):
        output = asyncio.run(main())
        assert output is not None
        assert output.finish_reasons == ["cancelled"]
    assert gen.stats().blocks_used == gen.stats().blocks_reserved == 0
