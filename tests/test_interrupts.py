"""Ctrl-C ends within a quarter of a second whatever a call does, not only computing; and what has no end is refused."""

import contextlib
import itertools
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import rsgen
from stopwatch import Stopwatch

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no signal to send")


class Endless(Sequence):
    """Says that it has one item, and has the same one again and again, without any Python code in between."""

    def __init__(self, item: object) -> None:
        self.item = item

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> object:
        return self.item

    def __iter__(self) -> Iterator[object]:
        return itertools.repeat(self.item)


class EndlessMapping(Mapping):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, key: object) -> object:
        return key

    def __iter__(self) -> Iterator[object]:
        return itertools.repeat("role")

    def items(self) -> Iterator[tuple[str, str]]:
        return itertools.repeat(("role", "user"))


@contextlib.contextmanager
def interrupted(after: float) -> Iterator[None]:
    """Interrupts the block after so many seconds of processor time, by a timer of the system: a thread of Python's might
    have to wait until the block lets it run. The block has to end with that within a quarter of a second."""

    def press(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGPROF, press)
    watch = Stopwatch()
    signal.setitimer(signal.ITIMER_PROF, after)
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
        watch.assert_within(after + 0.25)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


MESSAGES = [{"role": "user", "content": "hello " * 1000}]
LONG_CONVERSATION = [{"role": "user", "content": "hello " * 100}] * 20_000
#: As long as its budget lasts.
SLOW_TEMPLATE = "{% for a in messages %}{% for b in messages %}{{ a.content[:5] }}{% endfor %}{% endfor %}"
PROCESSOR = rsgen.processors.TopKLogitsWarper(5)
SCORES = np.zeros((1, 8), dtype=np.float32)
#: Made before the clock runs: Python looks at no signal meanwhile, and new memory may come slowly.
MANY = [300] * 16_000_000
CALLS: dict[str, Callable[[rsgen.Generator], object]] = {
    "encoding many prompts": lambda gen: gen.generate(["hello " * 16_000] * 300),
    "encoding many prompts of a list": lambda gen: gen.greedy_search(["hello " * 1000] * 4_000),
    "encoding many texts": lambda gen: gen.tokenizer(["hello"] * 2_000_000),
    "decoding": lambda gen: gen.tokenizer.decode(MANY),
    "decoding many rows": lambda gen: gen.tokenizer.batch_decode([[300] * 4000] * 4000),
    "scoring": lambda gen: gen.score(["hello " * 16_000] * 300),
    "rows of ids": lambda gen: gen.generate(Endless(Endless(5))),
    "prompts": lambda gen: gen.generate(Endless("hello")),
    "ids of a mapping": lambda gen: gen.generate({"input_ids": Endless(5)}),
    "a mask": lambda gen: gen.generate([5], attention_mask=Endless(Endless(1))),
    "ids to decode": lambda gen: gen.tokenizer.decode(Endless(5)),
    "ids of tokens": lambda gen: gen.tokenizer.convert_tokens_to_ids(itertools.repeat("a")),
    "texts": lambda gen: gen.tokenizer(itertools.repeat("a")),
    "messages": lambda gen: gen.chat(Endless(MESSAGES[0])),
    "conversations": lambda gen: gen.apply_chat_template(Endless(MESSAGES)),
    "a message": lambda gen: gen.chat([EndlessMapping()]),
    "tools": lambda gen: gen.chat(MESSAGES, tools=Endless({"type": "function"})),
    "documents": lambda gen: gen.chat(MESSAGES, documents=Endless({"title": "a"})),
    "rendering": lambda gen: gen.apply_chat_template(LONG_CONVERSATION, chat_template=SLOW_TEMPLATE),
    "rendering for a reply": lambda gen: gen.chat(LONG_CONVERSATION, chat_template=SLOW_TEMPLATE),
    "variables": lambda gen: gen.chat(MESSAGES, chat_template_kwargs={"a": [[1] * 4000] * 4000}),
    "tokens that a callback allows": lambda gen: gen.generate(
        "hello", prefix_allowed_tokens_fn=lambda *_: itertools.repeat(5)
    ),
    "tokens of a constraint's": lambda gen: gen.generate("hello", constraints=Advance(), num_beams=2),
    "a field": lambda gen: gen.generate("hello", bad_words_ids=[[5] * 4000] * 4000),
    "a configuration": lambda gen: rsgen.GenerationConfig(suppress_tokens=MANY),
    "a dict": lambda gen: rsgen.GenerationConfig.from_dict({"a": [[5] * 4000] * 4000}),
    "what a constraint is made of": lambda gen: rsgen.constraints.PhrasalConstraint([5] * 16_000_000),
    "the state of a constraint": lambda gen: rsgen.constraints.PhrasalConstraint([5]).__setstate__(
        (None, itertools.repeat(5))
    ),
    "ids for a processor": lambda gen: PROCESSOR(Endless(Endless(5)), SCORES),
    "scores for a processor": lambda gen: PROCESSOR([[5]], Endless(Endless(5.0))),
    "a message about an argument": lambda gen: gen.generate({"text": [list(range(4000))] * 40_000}),
}


class Advance(rsgen.constraints.PhrasalConstraint):
    """A constraint of a class of the caller's that names tokens without end."""

    def __new__(cls, token_ids: object = (5,)) -> "Advance":
        return super().__new__(cls, list(token_ids))

    def advance(self) -> object:
        return MANY

    def copy(self, stateful: bool = False) -> "Advance":
        return Advance()


@pytest.mark.parametrize("what", CALLS)
def test_ctrl_c_ends_what_a_call_does_before_it_computes(gen, what):
    with interrupted(0.05):
        CALLS[what](gen)
    assert gen.generate([5], max_new_tokens=1).usage.generated_tokens == 1


STORY = Path(rsgen.__file__).parent / "models" / "story-3m"
#: The kinds of pre-tokenizers that take the longest, with their fields.
STAGES: dict[str, dict[str, object]] = {
    "BertPreTokenizer": {},
    "ByteLevel": {"add_prefix_space": False, "trim_offsets": True},
    "Punctuation": {"behavior": "Isolated"},
    "Whitespace": {},
}


@pytest.mark.parametrize("kind", STAGES)
def test_ctrl_c_ends_a_stage_of_a_tokenizer_that_takes_a_second(tmp_path, kind):
    """The `tokenizers` crate takes the whole text through each stage, and cannot be stopped within one."""
    read = json.loads((STORY / "tokenizer.json").read_text())
    read["pre_tokenizer"] = {"type": kind, **STAGES[kind]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(read))
    tokenizer = rsgen.Tokenizer(tmp_path)
    text = "a, " * 2_500_000
    for after in (0.02, 0.3, 0.7):
        with interrupted(after):
            for _ in range(20):
                tokenizer(text)
    assert tokenizer.encode("a, b", add_special_tokens=False)


HUGE = np.broadcast_to(np.int64(5), (10**10,))
TOO_LONG: dict[str, Callable[[rsgen.Generator], object]] = {
    "ids": lambda gen: gen.generate(range(10**10)),
    "ids that no machine can count": lambda gen: gen.generate(range(10**30)),
    "rows of ids": lambda gen: gen.generate([range(10**10)]),
    "an array": lambda gen: gen.generate(HUGE),
    "an array of two dimensions": lambda gen: gen.generate(np.broadcast_to(HUGE[:10], (10**9, 10))),
    "a mask": lambda gen: gen.generate([5], attention_mask=range(10**10)),
    "a mask that is an array": lambda gen: gen.generate([5], attention_mask=HUGE),
    "ids to decode": lambda gen: gen.tokenizer.decode(range(10**10)),
    "an array to decode": lambda gen: gen.tokenizer.decode(HUGE),
    "ids to score": lambda gen: gen.score(range(10**10)),
    "ids for the model": lambda gen: gen.forward(range(10**10)),
    "tokens": lambda gen: gen.tokenizer.convert_tokens_to_ids(range(10**10)),
    "messages": lambda gen: gen.chat(range(10**10)),
    "a field": lambda gen: gen.generate("a", suppress_tokens=HUGE),
    "text": lambda gen: gen.generate(["a" * 10_000_000] * 1000),
    "tokens that a callback allows": lambda gen: gen.generate(
        "a", prefix_allowed_tokens_fn=lambda *_: range(10**10), max_new_tokens=1
    ),
    "an array that a callback allows": lambda gen: gen.generate(
        "a", prefix_allowed_tokens_fn=lambda *_: HUGE, max_new_tokens=1
    ),
    "ids for a processor": lambda gen: PROCESSOR([range(10**10)], SCORES),
    "an array for a processor": lambda gen: PROCESSOR([HUGE], SCORES),
    "scores for a processor": lambda gen: PROCESSOR([[5]], np.broadcast_to(np.float32(5), (1, 10**10))),
    "processors": lambda gen: gen.generate("a", logits_processor=[PROCESSOR] * 10**6),
    "criteria": lambda gen: gen.generate("a", stopping_criteria=[lambda *_: False] * 10**6),
    "padding": lambda gen: gen.tokenizer("a", padding="max_length", max_length=10**12),
    "phrases": lambda gen: rsgen.constraints.DisjunctiveConstraint([[5] * 600_000, [6] * 600_000]),
    "many phrases": lambda gen: rsgen.constraints.DisjunctiveConstraint([[5] * 4000] * 4000),
}


@pytest.mark.parametrize("what", TOO_LONG)
def test_what_is_too_long_is_refused_at_once(gen, what):
    watch = Stopwatch()
    with pytest.raises((ValueError, TypeError), match=r"at most|has no token|bytes together|must be"):
        TOO_LONG[what](gen)
    watch.assert_within(5.0)


def test_a_disjunction_of_many_phrases_is_quick(gen):
    watch = Stopwatch()
    phrases = [[5 + i // 1000, i % 1000] for i in range(20_000)]
    constraint = rsgen.constraints.DisjunctiveConstraint(phrases)
    out = gen.beam_search("Once upon a time", constraints=constraint, num_beams=4, max_new_tokens=5)
    assert any(list(pair) in phrases for pair in itertools.pairwise(out.token_ids[0].tolist()))
    watch.assert_within(5.0)


class Raises:
    """Raises a KeyboardInterrupt, as a signal handler does, wherever Python code of its class is run."""

    def __init__(self, method: str) -> None:
        self.method = method

    def _raise_in(self, method: str) -> None:
        if method == self.method:
            raise KeyboardInterrupt

    def __repr__(self) -> str:
        self._raise_in("repr")
        return "Raises"

    def __index__(self) -> int:
        self._raise_in("index")
        return 10**30

    def __fspath__(self) -> str:
        self._raise_in("fspath")
        return "nowhere"


class NoPath:
    def __repr__(self) -> str:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("call", "method"),
    [
        (call, method)
        for method in ("repr", "index")
        for call in (
            lambda gen, value: gen.generate([value]),
            lambda gen, value: gen.generate([[value]]),
            lambda gen, value: gen.generate([5], attention_mask=[value]),
            lambda gen, value: gen.generate([5], top_k=value),
            lambda gen, value: gen.tokenizer.decode(value),
            lambda gen, value: rsgen.GenerationConfig(top_k=value),
            lambda gen, value: rsgen.Generator(num_threads=value),
            lambda gen, value: rsgen.constraints.PhrasalConstraint([value]),
            lambda gen, value: rsgen.stopping_criteria.EosTokenCriteria(value),
            lambda gen, value: rsgen.processors.TopKLogitsWarper(value),
            lambda gen, value: gen.generate(
                "a", prefix_allowed_tokens_fn=lambda *_: [value], max_new_tokens=1
            ),
        )
    ]
    + [
        (lambda gen, value: gen.generate("a", stopping_criteria=lambda *_: [value], max_new_tokens=1), "repr")
    ],
)
def test_an_interrupt_in_an_argument_comes_out(gen, call, method):
    with pytest.raises(KeyboardInterrupt):
        call(gen, Raises(method))
    assert gen.generate([5], max_new_tokens=1).usage.generated_tokens == 1


@pytest.mark.parametrize("method", ["repr", "fspath"])
def test_an_interrupt_in_the_path_of_a_model_comes_out(method):
    value = Raises(method) if method == "fspath" else NoPath()
    for load in (rsgen.Generator, rsgen.Tokenizer):
        with pytest.raises(KeyboardInterrupt):
            load(value)


def test_a_handler_may_encode_while_it_interrupts_a_computation(gen):
    encoded, refused = [], []

    def handle(*_: object) -> None:
        encoded.append(gen.tokenizer.encode("Once"))
        try:
            gen.generate("Once", max_new_tokens=1)
        except RuntimeError as error:
            refused.append(str(error))

    before = signal.signal(signal.SIGINT, handle)
    try:
        while not refused:  # The signal may arrive between two calls, where a handler may compute.
            timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            gen.generate(["Once upon a time"] * 8, max_new_tokens=400)
            timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert "cannot compute" in refused[0]
    assert encoded[0] == gen.tokenizer.encode("Once")
