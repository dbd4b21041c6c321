"""Streams: token by token, and clean-up however they are left."""

import contextlib
import gc
import threading

import numpy as np
import pytest
import rsgen

PROMPT = "Once upon a time"

#: The fields that make each search.
SEARCHES = {
    "greedy": {},
    "sample": {"do_sample": True, "seed": 3, "num_return_sequences": 3},
    "beams": {"num_beams": 3, "num_return_sequences": 2},
    "wide": {"num_beams": 6, "early_stopping": True, "repetition_penalty": 1.2},
    "short": {"num_beams": 4, "length_penalty": -1.0, "early_stopping": "never", "eos_token_id": [0, 14, 44]},
    "beam_sample": {"num_beams": 3, "do_sample": True, "seed": 3, "num_return_sequences": 2},
    "groups": {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5, "num_return_sequences": 4},
    "constrained": {"num_beams": 4, "force_words_ids": [[44]], "num_return_sequences": 2},
    "beams_4_49": {"num_beams": 3, "compat": "4.49", "eos_token_id": [0, 14], "num_return_sequences": 2},
    "beam_sample_4_49": {"num_beams": 3, "compat": "4.49", "do_sample": True, "seed": 3},
    "contrastive": {"penalty_alpha": 0.6, "top_k": 4},
    "dola": {"dola_layers": "high", "do_sample": False},
}


def blocks(gen) -> int:
    stats = gen.stats()
    return stats.blocks_used + stats.blocks_reserved


def test_a_stream_is_what_generate_gives(gen):
    stream = gen.stream(PROMPT, max_new_tokens=30)
    assert iter(stream) is stream
    assert stream.output is None
    tokens = list(stream)
    expected = gen.generate(PROMPT, max_new_tokens=30)
    assert [token.id for token in tokens] == expected.token_ids[0].tolist()
    assert "".join(map(str, tokens)) == expected.text
    assert [token.index for token in tokens] == [0] * 30
    assert [token.finish_reason for token in tokens] == [None] * 29 + ["length"]
    np.testing.assert_array_equal(stream.output.sequences, expected.sequences)
    np.testing.assert_array_equal([token.logprob for token in tokens], expected.logprobs[0])
    assert all(token.score >= token.logprob for token in tokens)


def assert_streamed(tokens, output):
    """That the tokens are those of the output, row by row."""
    scores = output.compute_transition_scores()
    for row, ids in enumerate(output.token_ids):
        of_row = [token for token in tokens if token.index == row]
        assert [token.id for token in of_row] == ids.tolist()
        assert "".join(token.text for token in of_row) == output.texts[row]
        np.testing.assert_array_equal([token.logprob for token in of_row], output.logprobs[row])
        assert [token.finish_reason for token in of_row] == [None] * (len(ids) - 1) + [
            output.finish_reasons[row]
        ]
        # In 4.49 the last token may be another one than the one that was chosen.
        np.testing.assert_array_equal([token.score for token in of_row][:-1], scores[row, : len(ids) - 1])
    assert len(tokens) == output.usage.generated_tokens


@pytest.mark.parametrize("name", SEARCHES)
def test_a_stream_of_every_search_is_what_generate_gives(gen, name):
    rows = {
        "input_ids": np.array([[0, 0, 5, 6], [7, 8, 9, 10]]),
        "attention_mask": [[0, 0, 1, 1], [1, 1, 1, 1]],
    }
    for prompt in ({"prompt": PROMPT}, rows):
        given = {"max_new_tokens": 10, "output_scores": True, "pad_token_id": 0, **prompt, **SEARCHES[name]}
        expected = gen.generate(**given)
        stream = gen.stream(**given)
        assert_streamed(list(stream), expected)
        np.testing.assert_array_equal(stream.output.sequences, expected.sequences)


@pytest.mark.parametrize("name", SEARCHES)
def test_an_asynchronous_stream_and_one_of_a_conversation_are_too(gen, name):
    import asyncio

    fields = {"max_new_tokens": 8, "output_scores": True, **SEARCHES[name]}

    async def read():
        return [token async for token in gen.astream(PROMPT, **fields)]

    assert_streamed(asyncio.run(read()), gen.generate(PROMPT, **fields))
    fields["chat_template"] = "{{ messages[0].content }}"
    messages = [{"role": "user", "content": PROMPT}]
    assert_streamed(list(gen.stream_chat(messages, **fields)), gen.chat(messages, **fields))


@pytest.mark.parametrize("name", SEARCHES)
def test_a_stream_of_every_search_can_be_left(gen, name):
    fields = {"max_new_tokens": 20, **SEARCHES[name]}
    for taken in (0, 1, 3):
        with gen.stream(PROMPT, **fields) as stream:
            tokens = [token for _, token in zip(range(taken), stream, strict=False)]
        assert blocks(gen) == 0
        for row, ids in enumerate(stream.output.token_ids):
            of_row = [token for token in tokens if token.index == row]
            assert ids[: len(of_row)].tolist() == [token.id for token in of_row]
            assert stream.output.texts[row].startswith("".join(token.text for token in of_row))
        stream = gen.stream(PROMPT, **fields)
        next(stream)
        del stream
        assert blocks(gen) == 0


def test_beams_come_before_their_end(gen):
    stream = gen.stream(PROMPT, num_beams=4, max_new_tokens=60, eos_token_id=[])
    next(stream)
    assert repr(stream) == "<TokenStream, running>"
    stream.close()
    assert stream.output.usage.generated_tokens < 60
    stream = gen.stream(PROMPT, num_beams=4, max_new_tokens=60, eos_token_id=[])
    list(stream)
    assert stream.output.timings.first_token < 0.9 * stream.output.timings.total


def test_scores_are_those_of_the_output(gen):
    stream = gen.stream(PROMPT, do_sample=True, temperature=0.5, seed=1, max_new_tokens=5, output_scores=True)
    tokens = list(stream)
    for token, scores in zip(tokens, stream.output.scores, strict=True):
        assert scores[0, token.id] == token.score


def test_leaving_the_loop_frees_the_blocks_at_once(gen):
    before = blocks(gen)
    for count, _ in enumerate(gen.stream(PROMPT, max_new_tokens=200)):
        if count == 0:
            assert blocks(gen) > before
            assert gen.stats().blocks_used == 1
        if count == 2:
            break
    assert blocks(gen) == before


def test_a_with_block_ends_the_stream(gen):
    with gen.stream(PROMPT, max_new_tokens=200) as stream:
        tokens = [next(stream) for _ in range(3)]
    assert blocks(gen) == 0
    assert stream.output.finish_reasons == ["cancelled"]
    assert stream.output.text == "".join(token.text for token in tokens)
    with pytest.raises(StopIteration) as stop:
        next(stream)
    assert stop.value.value is stream.output
    with contextlib.suppress(ZeroDivisionError), gen.stream(PROMPT) as stream:
        next(stream)
        _ = 1 / 0
    assert blocks(gen) == 0
    assert stream.output.usage.generated_tokens == 1


def test_close_and_drop_end_the_stream(gen):
    stream = gen.stream(PROMPT)
    assert repr(stream) == "<TokenStream, running>"
    assert blocks(gen) == 0, "it waits for room when its first token is asked for"
    stream.close()
    stream.close()
    assert blocks(gen) == 0
    assert repr(stream) == "<TokenStream, ended>"
    assert stream.output.usage.generated_tokens == 0
    stream = gen.stream(PROMPT)
    next(stream)
    assert blocks(gen) > 0
    del stream
    assert blocks(gen) == 0


def test_the_return_value_is_the_output(gen):
    outputs = []

    def story():
        outputs.append((yield from gen.stream(PROMPT, max_new_tokens=4)))

    tokens = list(story())
    assert len(tokens) == 4
    assert outputs[0].text == "".join(token.text for token in tokens)


def test_a_stream_is_a_generator(gen):
    from collections.abc import Generator

    stream = gen.stream(PROMPT, max_new_tokens=50)
    assert isinstance(stream, Generator)
    assert stream.send(None).text == ","
    with pytest.raises(TypeError, match="takes no values"):
        stream.send(1)
    with pytest.raises(KeyError, match="enough"):
        stream.throw(KeyError("enough"))
    assert blocks(gen) == 0
    for arguments in ((KeyError,), (KeyError, "why"), (KeyError, KeyError("why"), None)):
        with pytest.raises(KeyError):
            gen.stream(PROMPT).throw(*arguments)

    def outer():
        yield from gen.stream(PROMPT)

    generator = outer()
    next(generator)
    generator.close()
    assert blocks(gen) == 0


def test_without_a_limit_a_stream_goes_on_to_the_end(gen):
    stream = gen.stream(PROMPT)
    tokens = list(stream)
    assert len(tokens) > 20
    assert stream.output.finish_reasons[0] in ("eos", "length")
    if tokens[-1].finish_reason == "eos":
        assert tokens[-1].id == gen.tokenizer.eos_token_id
        assert tokens[-1].text == ""


def test_rows_take_turns(gen):
    stream = gen.stream(PROMPT, do_sample=True, seed=3, num_return_sequences=3, max_new_tokens=10)
    texts = ["", "", ""]
    for token in stream:
        texts[token.index] += token.text
    assert texts == stream.output.texts
    assert len(set(texts)) == 3


def test_texts_are_whole_characters(gen):
    balloon = gen.tokenizer.encode("🎈é", add_special_tokens=False)
    wanted = iter(balloon)

    def only_wanted(_, scores):
        token = next(wanted)
        scores[:] = -np.inf
        scores[:, token] = 0.0
        return scores

    tokens = list(gen.stream("A ", logits_processor=only_wanted, max_new_tokens=len(balloon)))
    pieces = [token.text for token in tokens]
    assert "".join(pieces) == "🎈é"
    assert "" in pieces, "the first bytes of the balloon are no text yet"
    assert not any("\ufffd" in piece for piece in pieces)


def test_streams_can_be_read_in_turns(gen):
    prompts = [PROMPT, "One day"]
    streams = [gen.stream(prompt, max_new_tokens=10) for prompt in prompts]
    texts = ["", ""]
    for pair in zip(*streams, strict=True):
        texts = [text + token.text for text, token in zip(texts, pair, strict=True)]
    del pair
    assert texts == gen.generate(prompts, max_new_tokens=10).texts


def test_a_stream_has_one_prompt(gen):
    with pytest.raises(rsgen.InputError, match="a stream has one prompt"):
        gen.stream([PROMPT, PROMPT])


def test_another_thread_can_close_a_stream_that_is_computing(gen):
    inside, go_on = threading.Event(), threading.Event()

    def wait(_, scores):
        inside.set()
        assert go_on.wait(10)
        return scores

    stream = gen.stream(PROMPT, logits_processor=wait)
    raised: list[BaseException] = []

    def read():
        try:
            list(stream)
        except BaseException as error:
            raised.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    assert inside.wait(10)
    with pytest.raises(ValueError, match="being read already"):
        next(stream)
    assert stream.output is None
    stream.close()
    go_on.set()
    reader.join(10)
    assert isinstance(raised[0], rsgen.CancelledError)
    assert stream.output.finish_reasons == ["cancelled"], "what there was so far is kept"
    assert repr(stream) == "<TokenStream, ended>"
    assert blocks(gen) == 0


def test_a_reader_may_meet_the_thread_that_closes_its_stream(gen):
    for index in range(200):
        stream = gen.stream(PROMPT, max_new_tokens=100, eos_token_id=[])
        closer = threading.Timer(index * 2e-5, stream.close)
        closer.start()
        with contextlib.suppress(rsgen.CancelledError):
            list(stream)
        closer.join()
        assert stream.output.finish_reasons in (["cancelled"], ["length"])
    assert blocks(gen) == 0


def test_a_stream_of_a_generator_that_is_gone_goes_on(make_llama):
    gen = rsgen.Generator(make_llama(), num_threads=1)
    stream = gen.stream([1, 2], max_new_tokens=5)
    del gen
    gc.collect()
    assert len(list(stream)) == 5
