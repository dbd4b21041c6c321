"""Closing a generator: its memory is returned, what runs ends with an error that says why, and so does what comes later."""

import asyncio
import gc
import json
import pickle
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import rsgen

PROMPT = "Once upon a time"
CLOSED = "the Generator is closed; open another"
ENDED = "(?i)the generator was closed before"

#: Calls of a closed generator.
CALLS = {
    "generate": lambda gen: gen.generate(PROMPT, max_new_tokens=2),
    "beam_search": lambda gen: gen.beam_search(PROMPT, max_new_tokens=2),
    "stream": lambda gen: gen.stream(PROMPT),
    "chat": lambda gen: gen.chat([{"role": "user", "content": "hi"}], chat_template="x"),
    "apply_chat_template": lambda gen: gen.apply_chat_template([], chat_template="x"),
    "map": lambda gen: next(gen.map([PROMPT], max_new_tokens=2)),
    "score": lambda gen: gen.score(PROMPT),
    "rank": lambda gen: gen.rank(PROMPT, [" a", " b"]),
    "classify": lambda gen: gen.classify(PROMPT, [" a", " b"]),
    "perplexity": lambda gen: gen.perplexity(PROMPT),
    "forward": lambda gen: gen.forward([[1, 2]]),
    "embed": lambda gen: gen.embed(PROMPT),
    "prefill": lambda gen: gen.prefill(PROMPT),
    "stats": lambda gen: gen.stats(),
    "tokenizer": lambda gen: gen.tokenizer,
    "config": lambda gen: gen.config,
    "serve": lambda gen: rsgen.serve(gen, port=0),
    "an assistant": lambda gen: rsgen.Generator(num_threads=1).generate(
        PROMPT, assistant_model=gen, max_new_tokens=2
    ),
    "with": lambda gen: gen.__enter__(),
}


@pytest.fixture
def opened() -> rsgen.Generator:
    return rsgen.Generator(num_threads=1)


@pytest.mark.parametrize("name", CALLS)
def test_calls_after_it_say_so(opened, name):
    opened.close()
    with pytest.raises(rsgen.InputError, match=CLOSED):
        CALLS[name](opened)


def test_a_block_closes_it_and_closing_twice_is_nothing(opened):
    assert not opened.closed
    tokenizer = opened.tokenizer
    with opened as same:
        assert same is opened
        out = opened.generate(PROMPT, max_new_tokens=3)
    assert opened.closed
    opened.close()
    with pytest.raises(ZeroDivisionError), rsgen.Generator(num_threads=1) as failing:
        _ = 1 / 0
    assert failing.closed
    assert "closed" in repr(opened)
    assert opened.name_or_path in repr(opened)
    # What does not need the model is still there.
    assert out.text
    assert tokenizer.decode(out[0])
    again = pickle.loads(pickle.dumps(opened))
    assert again.generate(PROMPT, max_new_tokens=3) == out


@pytest.mark.skipif(sys.platform != "linux", reason="the memory is read as Linux has it")
def test_the_memory_is_returned_at_once_whatever_refers_to_it(make_llama):
    folder = make_llama(hidden_size=1024, intermediate_size=4096, num_hidden_layers=4, vocab_size=8192)
    program = """
import gc, json, sys
import rsgen

def resident():
    return int(open("/proc/self/status").read().split("VmRSS:")[1].split()[0]) / 1024

def cycle():
    before = resident()
    gen = rsgen.Generator(sys.argv[1], num_threads=1)
    kept = [gen, gen.generate([1, 2, 3], max_new_tokens=40), gen.prefill([1, 2]), gen.map([[1, 2]] * 9, max_new_tokens=9)]
    next(kept[-1])
    stream = gen.stream([1, 2, 3])
    next(stream)
    events = gen.stream([1, 2, 3], output_events=True).events()
    next(events)
    during = resident()
    gen.close()
    return kept + [stream, events], before, during, resident()

gc.disable()
kept = cycle()
kept, *figures = cycle()
print(json.dumps(figures))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=True
    )
    before, during, after = json.loads(done.stdout)
    print(f"before {before:.0f} MiB, open {during:.0f} MiB, closed {after:.0f} MiB")
    assert during - before > 200
    assert after - before < 0.05 * (during - before)


def test_streams_end_with_an_error_and_keep_their_output(opened):
    stream, ended = opened.stream(PROMPT), opened.stream(PROMPT, max_new_tokens=2)
    tokens, begun = [next(stream) for _ in range(3)], opened.stream(PROMPT, output_events=True).events()
    assert len(list(ended)) == 2
    next(begun)
    opened.close()
    for _ in range(2):
        with pytest.raises(rsgen.CancelledError, match=ENDED):
            next(stream)
        with pytest.raises(rsgen.CancelledError, match=ENDED):
            next(begun)
    assert stream.output.finish_reasons == ["cancelled"]
    assert stream.output.token_ids[0].tolist() == [token.id for token in tokens]
    assert next(ended, None) is None
    assert ended.output.finish_reasons == ["length"]


def test_an_asynchronous_stream_ends_with_an_error(opened, run):
    async def read():
        stream = opened.astream(PROMPT)
        await anext(stream)
        opened.close()
        for _ in range(2):
            with pytest.raises(rsgen.CancelledError, match=ENDED):
                await anext(stream)
        assert stream.output.finish_reasons == ["cancelled"]

    run(read())


def test_calls_of_other_threads_end_with_an_error(make_llama):
    gen = rsgen.Generator(make_llama(hidden_size=512, num_hidden_layers=4, max_position_embeddings=65536))
    calls = {
        "generate": lambda: gen.generate([1, 2, 3], max_new_tokens=60_000),
        "beams": lambda: gen.generate([[1, 2, 3]] * 3, num_beams=4, max_new_tokens=20_000),
        "stream": lambda: list(gen.stream([1, 2, 3], max_new_tokens=60_000)),
        "map": lambda: list(gen.map([[1, 2, 3]] * 9, max_new_tokens=20_000)),
        "score": lambda: gen.score([[1 + i % 60 for i in range(30_000)]] * 9),
        "prefill": lambda: gen.prefill([1 + i % 60 for i in range(60_000)]),
    }
    ended: dict[str, BaseException] = {}

    def call(name):
        try:
            calls[name]()
        except Exception as error:
            ended[name] = error

    threads = [threading.Thread(target=call, args=[name]) for name in calls]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    assert not ended
    gen.close()
    for thread in threads:
        thread.join(20)
    assert set(ended) == set(calls)
    for name, error in ended.items():
        assert isinstance(error, rsgen.CancelledError | rsgen.InputError), (name, error)
        assert "closed" in str(error), (name, error)
    # Threads that were at work know that they were too late for nothing.
    assert isinstance(ended["generate"], rsgen.CancelledError)


def test_a_callback_may_close_it(opened):
    def close(ids, scores):
        opened.close()
        return scores

    with pytest.raises(rsgen.CancelledError, match=ENDED):
        opened.generate(PROMPT, max_new_tokens=5, logits_processor=close)
    assert opened.closed


def test_its_own_assistant_is_closed_with_it_and_a_given_one_is_not():
    with rsgen.Generator(assistant="draft", num_threads=1) as gen:
        own = gen.assistant
        assert gen.generate(PROMPT, max_new_tokens=4).draft_stats.rounds
    assert own.closed
    draft = rsgen.Generator(own.name_or_path, num_threads=1)
    with rsgen.Generator(assistant=draft, num_threads=1) as gen:
        expected = gen.generate(PROMPT, max_new_tokens=4)
    assert draft.generate(PROMPT, max_new_tokens=2).usage.generated_tokens == 2
    # The other way round it drafts on for those who were given it.
    gen = rsgen.Generator(assistant=draft, num_threads=1)
    draft.close()
    np.testing.assert_array_equal(gen.generate(PROMPT, max_new_tokens=4).sequences, expected.sequences)


def test_many_streams_that_are_gone_take_no_memory(opened):
    for _ in range(300):
        opened.stream(PROMPT).close()
    kept = [opened.stream(PROMPT) for _ in range(70)]
    gc.collect()
    opened.close()
    for stream in kept:
        with pytest.raises(rsgen.CancelledError):
            next(stream)


def test_a_stream_that_is_opened_while_it_is_closed_is_closed(opened):
    opens = threading.Event()

    def open_streams():
        while True:
            try:
                stream = opened.stream(PROMPT)
                opens.set()
                next(stream)
            except rsgen.InputError:
                return
            except rsgen.CancelledError:
                continue

    threads = [threading.Thread(target=open_streams) for _ in range(3)]
    for thread in threads:
        thread.start()
    opens.wait()
    opened.close()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_an_event_loop_can_close_it_in_another_thread(opened, run):
    async def close():
        stream = opened.astream(PROMPT)
        await anext(stream)
        await asyncio.to_thread(opened.close)
        assert opened.closed

    run(close())
