"""What a stream on an event loop does before its first token: beside the loop, which goes on meanwhile."""

import asyncio
import gc
import json
import time
import weakref
from pathlib import Path

import pytest
import rsgen
from stopwatch import Stopwatch

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
        assert ticks.longest < 0.25
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
