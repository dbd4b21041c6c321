"""What a stream on an event loop does before its first token: beside the loop, which goes on meanwhile."""

import asyncio
import gc
import json
import threading
import time
import weakref
from pathlib import Path

import pytest
import rsgen
from stopwatch import Stopwatch, not_longer

PROMPT = "Once upon a time"


class Ticks:
    """Counts the longest time for which an event loop stood still."""

    async def __aenter__(self):
        self.longest, self.task = 0.0, asyncio.ensure_future(self.tick())
        await asyncio.sleep(0)
        return self

    async def tick(self):
        while True:
            start = time.thread_time()
            await asyncio.sleep(0.001)
            self.longest = max(self.longest, time.thread_time() - start)

    async def __aexit__(self, *exception):
        self.task.cancel()


TEXT_OF_5_MB = "hello " * 850_000


@pytest.fixture(scope="module")
def patient(tmp_path_factory) -> rsgen.Generator:
    """The story model with room for long texts, which take seconds to encode."""
    folder = tmp_path_factory.mktemp("patient")
    story = Path(rsgen.__file__).parent / "models" / "story-3m"
    for file in story.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((story / "config.json").read_text()) | {"max_position_embeddings": 1 << 15}
    (folder / "config.json").write_text(json.dumps(config))
    return rsgen.Generator(folder, num_threads=2)


def test_a_long_text_is_encoded_beside_the_loop_and_its_error_comes_with_the_first_token(patient, run):
    async def read():
        async with Ticks() as ticks:
            stream = patient.astream(TEXT_OF_5_MB)
            with pytest.raises(rsgen.InputError, match="shorten the prompt"):
                await anext(stream)
        not_longer(ticks.longest, 0.25)
        assert stream.output is None
        assert repr(stream) == "<TokenStream, failed>"

    run(read())


def test_waiting_for_a_long_text_ends_when_the_caller_has_waited_enough(patient, run):
    async def read():
        stream = patient.astream(TEXT_OF_5_MB)
        watch = Stopwatch()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(anext(stream), 0.2)
        await stream.aclose()
        watch.assert_within(0.45)
        # One that nobody has read is closed at once, and has nothing to give.
        unread = patient.astream(TEXT_OF_5_MB)
        await unread.aclose()
        assert [token async for token in unread] == []

    run(read())


@pytest.mark.parametrize(
    "fields",
    [
        {"regex": "[a-z ]{30}"},
        {"json_schema": {"type": "array", "items": {"type": "integer"}, "minItems": 3}},
        {"grammar": 'start: "Once" | "One"'},
        {"negative_prompt": "One day", "guidance_scale": 1.5},
    ],
)
def test_what_is_compiled_beside_the_loop_gives_the_same_tokens(gen, run, fields):
    async def read():
        return [token async for token in gen.astream(PROMPT, max_new_tokens=20, **fields)]

    expected = list(gen.stream(PROMPT, max_new_tokens=20, **fields))
    assert run(read()) == expected
    # Read without a loop, it is opened by its first reader as well.
    assert list(gen.astream(PROMPT, max_new_tokens=20, **fields)) == expected


def test_a_callback_of_a_stream_that_nobody_has_read_is_let_go(gen):
    class Owner:
        def process(self, input_ids, scores):
            return scores

    owner = Owner()
    owner.stream = gen.astream(TEXT_OF_5_MB, logits_processor=owner.process)
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


def test_a_warning_about_a_long_call_comes_with_its_first_token(gen, run):
    async def read():
        stream = gen.astream(PROMPT, regex="[a-z ]{5}", max_new_tokens=20, temperature=0.5)
        with pytest.warns(UserWarning, match="temperature"):
            await anext(stream)
        await stream.aclose()

    run(read())


LARGE = {
    "texts": ([PROMPT] * 100_000, {}),
    "long texts": (["hello " * 1000] * 100, {}),
    "ids": ([5] * 2_000_000, {}),
    "an encoding": ({"input_ids": [[5] * 2_000_000], "attention_mask": [[1] * 2_000_000]}, {}),
    "a tuple of ids": (([5] * 2_000_000,), {}),
    "bad_words_ids": (PROMPT, {"bad_words_ids": [[i % 2000 + 3, i // 2000] for i in range(200_000)]}),
    "force_words_ids": (
        PROMPT,
        {"num_beams": 2, "force_words_ids": [[i % 2000 + 3, i // 2000] for i in range(200_000)]},
    ),
    "suppress_tokens": (PROMPT, {"suppress_tokens": [i % 1900 for i in range(1_000_000)]}),
    "sequence_bias": (PROMPT, {"sequence_bias": {(i % 2000 + 3, i // 2000): 1.0 for i in range(200_000)}}),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_arguments_are_converted_beside_the_loop_and_only_as_long_as_somebody_waits(gen, run, name):
    prompt, fields = LARGE[name]

    async def read():
        watch = Stopwatch()
        async with Ticks() as ticks:
            with pytest.raises((asyncio.TimeoutError, rsgen.RsgenError)):
                async with gen.astream(prompt, max_new_tokens=2, **fields) as stream:
                    await asyncio.wait_for(anext(stream), 0.2)
        watch.assert_within(0.45)
        not_longer(ticks.longest, 0.25)

    run(read())


def test_large_arguments_give_the_same_tokens_and_are_let_go(gen, run):
    class Owner:
        def process(self, input_ids, scores):
            return scores

    owner = Owner()
    fields = {
        "suppress_tokens": list(range(3, 300)) * 20,
        "logits_processor": owner.process,
        "max_new_tokens": 9,
    }
    fields |= {"output_events": True, "generation_config": rsgen.GenerationConfig(repetition_penalty=1.1)}
    expected = list(gen.stream(PROMPT, **fields))

    async def read(stream):
        return [token async for token in stream]

    assert run(read(gen.astream(PROMPT, **fields))) == expected
    assert len(list(gen.astream(PROMPT, **fields).events())) > 9
    for begin in [lambda _: None, next]:
        owner = Owner()
        owner.stream = gen.astream(PROMPT, **fields | {"logits_processor": owner.process})
        begin(owner.stream)
        gone = weakref.ref(owner)
        del owner
        gc.collect()
        assert gone() is None


def test_other_threads_run_while_a_large_argument_is_converted(gen):
    done = threading.Event()
    words = [[i % 2000 + 3, i // 2000] for i in range(200_000)]
    thread = threading.Thread(
        target=lambda: (gen.generate(PROMPT, bad_words_ids=words, max_new_tokens=1), done.set())
    )
    thread.start()
    count = 0
    while not done.is_set():
        time.sleep(0.001)
        count += 1
    thread.join()
    # Without a turn for others there would be a handful.
    assert count > 20


@pytest.mark.parametrize("name", ["texts", "long texts"])
def test_a_stream_of_several_texts_is_refused_before_they_are_encoded(gen, name):
    watch = Stopwatch()
    with pytest.raises(rsgen.InputError, match="a stream has one prompt"):
        gen.stream(LARGE[name][0])
    watch.assert_within(2)
