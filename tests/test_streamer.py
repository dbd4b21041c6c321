"""Streamers: objects that are given the ids of a call while it runs, and the one that prints."""

import contextlib
import signal
import sys
import threading

import numpy as np
import pytest
import rsgen
from test_stream import PROMPT, SEARCHES, blocks


class Streamer:
    """Keeps what it is given."""

    def __init__(self):
        self.values = []
        self.ends = 0

    def put(self, value):
        assert self.ends == 0
        assert value.dtype == np.int64
        self.values.append(value)

    def end(self):
        self.ends += 1


@pytest.mark.parametrize("name", SEARCHES)
def test_a_streamer_is_given_the_prompt_and_then_each_token(gen, name):
    fields = SEARCHES[name] | {"num_return_sequences": 1, "max_new_tokens": 8}
    streamer = Streamer()
    out = gen.generate(PROMPT, streamer=streamer, **fields)
    expected = gen.generate(PROMPT, **fields)
    np.testing.assert_array_equal(out.sequences, expected.sequences)
    np.testing.assert_array_equal(out.logprobs[0], expected.logprobs[0])
    assert (out.texts, out.finish_reasons, out.usage) == (
        expected.texts,
        expected.finish_reasons,
        expected.usage,
    )
    prompt, *tokens = streamer.values
    assert prompt.shape == (1, out.usage.prompt_tokens)
    assert {token.shape for token in tokens} == {(1,)}
    np.testing.assert_array_equal(np.concatenate([prompt[0], *tokens]), out.sequences[0])
    assert streamer.ends == 1


def test_the_methods_of_strategies_and_chat_take_streamers(gen):
    for method, fields in ((gen.greedy_search, {}), (gen.sample, {"seed": 1}), (gen.beam_search, {})):
        streamer = Streamer()
        out = method(PROMPT, streamer=streamer, max_new_tokens=4, **fields)
        assert [int(token[0]) for token in streamer.values[1:]] == out.token_ids[0].tolist()
    streamer = Streamer()
    messages = [{"role": "user", "content": "A story"}]
    template = "{{ messages[0].content }}:"
    out = gen.chat(messages, chat_template=template, streamer=streamer, max_new_tokens=4)
    np.testing.assert_array_equal(np.concatenate([streamer.values[0][0], *streamer.values[1:]]), out[0])
    assert gen.generate(PROMPT, streamer=None, max_new_tokens=4).text


def test_a_padded_prompt_is_given_with_its_padding(gen):
    ids = [[0, 0, 5, 6]]
    streamer = Streamer()
    gen.generate(ids, attention_mask=[[0, 0, 1, 1]], streamer=streamer, max_new_tokens=2)
    np.testing.assert_array_equal(streamer.values[0], ids)


def test_progress_is_told_as_well(gen):
    told = []
    gen.generate(
        PROMPT, streamer=Streamer(), progress=lambda done, total: told.append((done, total)), max_new_tokens=2
    )
    assert told == [(1, 1)]


def test_a_streamer_takes_one_row(gen):
    for prompt, fields, got in (
        ([PROMPT, PROMPT], {}, "got 2 prompts"),
        (PROMPT, {"num_beams": 3, "num_return_sequences": 2}, "got 2 rows"),
        (np.array([[5, 6], [7, 8]]), {}, "got 2 rows"),
    ):
        streamer = Streamer()
        with pytest.raises(rsgen.ConfigError, match=f"one prompt and one returned row, {got}"):
            gen.generate(prompt, streamer=streamer, max_new_tokens=2, **fields)
        assert (streamer.values, streamer.ends) == ([], 0)


@pytest.mark.parametrize("given", [1, "text", object(), print, type("Half", (), {"put": print})()])
def test_what_is_no_streamer_is_refused(gen, given):
    with pytest.raises(
        TypeError, match=r"`streamer` must be an object with the methods put\(ids\) and end\(\)"
    ):
        gen.generate(PROMPT, streamer=given)


def test_streams_take_no_streamer_and_there_is_no_iterator(gen):
    with pytest.raises(rsgen.ConfigError, match="the method `stream`"):
        gen.stream(PROMPT, streamer=Streamer())
    with pytest.raises(AttributeError, match=r"iterate over gen.stream\(...\)"):
        _ = rsgen.TextIteratorStreamer
    with pytest.raises(AttributeError, match=r"iterate over gen.astream\(...\)"):
        _ = rsgen.AsyncTextIteratorStreamer


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("at", [0, 1, 2, "end"])
@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_what_a_streamer_raises_ends_the_call(gen, beams, at, error):
    raised = error("enough")

    class Fails(Streamer):
        def put(self, value):
            if len(self.values) == at:
                raise raised
            super().put(value)

        def end(self):
            super().end()
            if at == "end":
                raise raised

    streamer = Fails()
    with pytest.raises(error) as caught:
        gen.generate(PROMPT, streamer=streamer, num_beams=beams, max_new_tokens=12)
    assert caught.value is raised
    assert streamer.ends == int(at == "end")
    assert blocks(gen) == 0


def test_a_streamer_may_use_the_generator(gen):
    class Curious(Streamer):
        def put(self, value):
            super().put(value)
            gen.generate(PROMPT, max_new_tokens=1)
            next(gen.stream(PROMPT, num_beams=2, max_new_tokens=2))

    gen.generate(PROMPT, streamer=Curious(), max_new_tokens=3)


def test_a_streamer_runs_on_the_thread_of_the_call(gen):
    threads = set()

    class Notes(Streamer):
        def put(self, value):
            threads.add(threading.get_ident())

    gen.generate(PROMPT, streamer=Notes(), num_beams=2, max_new_tokens=3)
    assert threads == {threading.get_ident()}


@pytest.mark.skipif(sys.platform == "win32", reason="there is no signal to send")
def test_signals_are_handled_between_the_tokens(gen):
    class Presses(Streamer):
        def put(self, value):
            super().put(value)
            if len(self.values) == 3:
                # Its handler runs with the next instruction of Python, or between two steps.
                signal.raise_signal(signal.SIGINT)

    streamer = Presses()
    with pytest.raises(KeyboardInterrupt):
        gen.generate(PROMPT, streamer=streamer, max_new_tokens=30)
    assert (len(streamer.values), streamer.ends) == (3, 0)
    assert blocks(gen) == 0


class Pieces:
    """A tokenizer whose tokens are the pieces of a text."""

    def __init__(self, pieces):
        self.pieces = pieces

    def decode(self, ids, suffix=""):
        return "".join(self.pieces[token] for token in ids) + suffix


# What the TextStreamer of transformers 5.24 prints for these pieces, one put each.
@pytest.mark.parametrize(
    ("pieces", "printed"),
    [
        (["One", " day", ",", " a", " fox", "."], ["One", " day", "", ", ", "a fox", "", ".\n"]),
        (["a", " b\n", "c", " d"], ["a", " b\n", "c", " d", "\n"]),
        (["字", "典", "x", " ", "々 "], ["字", "典", "x", " ", "々 ", "\n"]),
        (["\n", "\n"], ["\n", "\n", "\n"]),
        (["", "カ", "ナ ", "한", "\U00020000"], ["", "カ", "ナ ", "한", "\U00020000", "\n"]),
        (["x\n", "  ", "y", "\n", "z"], ["x\n", "  ", "y", "\n", "z", "\n"]),
        (["ส", "วั", "1", "!", "a", " b"], ["ส", "วั", "1", "", "", "!a ", "b\n"]),
        (
            ["e", "\u0301", "<", "br", "> ", "\ufffd", "ok"],
            ["e", "\u0301", "", "", "<br> ", "", "", "\ufffdok\n"],
        ),
    ],
)
def test_it_prints_what_the_one_of_transformers_prints(pieces, printed, capsys):
    streamer = rsgen.TextStreamer(Pieces(pieces))
    shown = []
    for value in (np.array([[0]]), *(np.array([token]) for token in range(1, len(pieces)))):
        streamer.put(value)
        shown.append(capsys.readouterr().out)
    streamer.end()
    shown.append(capsys.readouterr().out)
    assert shown == printed


def test_it_prints_the_text_of_a_call(gen, capsys):
    out = gen.generate(PROMPT, streamer=rsgen.TextStreamer(gen), max_new_tokens=20)
    assert capsys.readouterr().out == f"<s>{PROMPT}{out.text}\n"
    streamer = rsgen.TextStreamer(gen.tokenizer, skip_prompt=True, skip_special_tokens=True)
    for fields in ({}, {"num_beams": 3}):
        out = gen.generate("One day", streamer=streamer, **fields, max_new_tokens=200)
        assert capsys.readouterr().out == f"{out.text}\n"
    with pytest.raises(TypeError, match="skip_everything"):
        gen.generate(PROMPT, streamer=rsgen.TextStreamer(gen, skip_everything=True), max_new_tokens=2)


def test_it_takes_one_row_and_passes_arguments_to_the_tokenizer(capsys):
    streamer = rsgen.TextStreamer(Pieces(["a", "b"]), suffix=" ")
    with pytest.raises(ValueError, match="prints one row, got 2"):
        streamer.put(np.array([[0], [1]]))
    streamer.put(np.array([0]))
    assert capsys.readouterr().out == "a "


def test_a_subclass_sends_the_text_elsewhere(gen):
    class Collects(rsgen.TextStreamer):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.pieces = []

        def on_finalized_text(self, text, stream_end=False):
            self.pieces.append((text, stream_end))

    streamer = Collects(gen, skip_prompt=True)
    out = gen.generate(PROMPT, streamer=streamer, max_new_tokens=20)
    assert "".join(text for text, _ in streamer.pieces) == out.text
    assert [end for _, end in streamer.pieces] == [False] * 20 + [True]


def test_a_streamer_is_let_go_when_the_call_ends(gen):
    import gc
    import weakref

    for fails in (False, True):
        streamer = Streamer()
        streamer.itself = streamer
        if fails:
            streamer.end = None
        with contextlib.suppress(TypeError):
            gen.generate(PROMPT, streamer=streamer, max_new_tokens=2)
        gone = weakref.ref(streamer)
        del streamer
        gc.collect()
        assert gone() is None
