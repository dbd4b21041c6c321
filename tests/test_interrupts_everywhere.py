"""Ctrl-C at any moment ends every public method that can take long within a quarter of a second."""

import gc
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import rsgen
from stopwatch import not_longer

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no signal to send")

#: The longest that a call is let run, in seconds, and how often each is interrupted.
LONGEST, TIMES = 0.5, 2

CHAT = "{% for message in messages %}{{ message.content }}{% endfor %}"
CONVERSATIONS = [[{"role": "user", "content": "hello"}]] * 150_000
TEXTS = ["hello there"] * 150_000
IDS = [300] * 3_000_000
ROWS = [[300, 301, 302]] * 300_000
WATERMARK = rsgen.SynthIDTextWatermarkingConfig(5, [11, 22, 33, 44])


@cache
def texts_of_objects() -> np.ndarray:
    return np.array(TEXTS, dtype=object)


@cache
def ids() -> np.ndarray:
    return np.array(IDS)


@cache
def rows() -> np.ndarray:
    return np.full((1500, 400), 300)


@cache
def drawn() -> list[int]:
    return np.random.default_rng(0).integers(0, 2000, 30_000).tolist()


@cache
def scores() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(1500, 8000)).astype(np.float32)


@cache
def phrases() -> list[list[int]]:
    return [[i, j] for i in range(1000) for j in range(500)]


@cache
def longer_phrases() -> list[list[int]]:
    return [*phrases(), *([1, i, j] for i, j in phrases())]


@cache
def catalogue() -> rsgen.TokenTrie:
    return rsgen.TokenTrie(phrases())


@cache
def output() -> rsgen.GenerationOutput:
    gen = rsgen.Generator(num_threads=2)
    return gen.generate(
        ["One", "Two", "Three", "Four"], max_new_tokens=100, output_scores=True, output_events=True
    )


Call = Callable[[rsgen.Generator], object]
#: Calls by the methods that they are of. Several of one method have different kinds of arguments.
CALLS: dict[str, list[Call]] = {
    "Generator.generate": [
        lambda gen: gen.generate(TEXTS, max_new_tokens=1),
        lambda gen: gen.generate(texts_of_objects(), max_new_tokens=1),
        lambda gen: gen.generate("One day", max_new_tokens=400, num_return_sequences=64, do_sample=True),
    ],
    "Generator.map": [lambda gen: list(gen.map(TEXTS, max_new_tokens=1, concurrency=256))],
    "Generator.chat": [lambda gen: gen.chat(CONVERSATIONS, chat_template=CHAT, max_new_tokens=1)],
    "Generator.stream": [
        lambda gen: list(gen.stream("One day", max_new_tokens=400, num_return_sequences=32, do_sample=True))
    ],
    "Generator.prefill": [lambda gen: gen.prefill(TEXTS)],
    "Generator.score": [
        lambda gen: gen.score(TEXTS),
        lambda gen: gen.score(TEXTS, cache=gen.prefill("hello")),
    ],
    "Generator.rank": [lambda gen: gen.rank("hello", TEXTS)],
    "Generator.classify": [lambda gen: gen.classify("hello", [f" {i}" for i in range(100_000)])],
    "Generator.perplexity": [lambda gen: gen.perplexity("hello there " * 200_000)],
    "Generator.forward": [lambda gen: gen.forward(rows()[:64])],
    "Generator.embed": [lambda gen: gen.embed(TEXTS), lambda gen: gen.embed(TEXTS, pooling="mean")],
    "Tokenizer.apply_chat_template": [
        lambda gen: gen.tokenizer.apply_chat_template(CONVERSATIONS, chat_template=CHAT),
        lambda gen: gen.tokenizer.apply_chat_template(CONVERSATIONS, chat_template=CHAT, tokenize=False),
        lambda gen: gen.tokenizer.apply_chat_template(CONVERSATIONS, chat_template=CHAT, return_dict=False),
    ],
    "Generator.apply_chat_template": [
        lambda gen: gen.apply_chat_template(CONVERSATIONS, chat_template=CHAT),
        lambda gen: gen.apply_chat_template(CONVERSATIONS, chat_template=CHAT, tokenize=False),
        lambda gen: gen.apply_chat_template(CONVERSATIONS, chat_template=CHAT, return_dict=True),
    ],
    "Tokenizer.__call__": [
        lambda gen: gen.tokenizer(TEXTS, padding=True),
        lambda gen: gen.tokenizer("hello " * 1_000_000),
        lambda gen: gen.tokenizer("hello " * 1_000_000, return_offsets_mapping=True),
        lambda gen: gen.tokenizer(
            TEXTS, padding=True, truncation=True, max_length=2, return_offsets_mapping=True
        ),
    ],
    "Tokenizer.encode": [lambda gen: gen.tokenizer.encode("hello " * 1_000_000)],
    "Tokenizer.encode_target": [lambda gen: gen.tokenizer.encode_target("hello " * 1_000_000)],
    "Tokenizer.tokenize": [lambda gen: gen.tokenizer.tokenize("hello " * 1_000_000)],
    "Tokenizer.decode": [
        lambda gen: gen.tokenizer.decode(IDS),
        lambda gen: gen.tokenizer.decode(ids()),
    ],
    "Tokenizer.batch_decode": [
        lambda gen: gen.tokenizer.batch_decode(ROWS),
        lambda gen: gen.tokenizer.batch_decode(rows()),
    ],
    "Tokenizer.convert_ids_to_tokens": [lambda gen: gen.tokenizer.convert_ids_to_tokens(IDS)],
    "Tokenizer.convert_tokens_to_ids": [lambda gen: gen.tokenizer.convert_tokens_to_ids(TEXTS * 20)],
    "TokenTrie": [
        lambda gen: rsgen.TokenTrie(longer_phrases()),
        lambda gen: rsgen.TokenTrie((f" {i} and {i * i}" for i in range(100_000)), tokenizer=gen),
    ],
    "TokenTrie.payload": [lambda gen: [catalogue().payload(i) for i in range(500_000)]],
    "GenerationConfig": [
        lambda gen: rsgen.GenerationConfig(suppress_tokens=IDS),
        lambda gen: rsgen.GenerationConfig(bad_words_ids=ROWS),
    ],
    "GenerationConfig.from_dict": [lambda gen: rsgen.GenerationConfig.from_dict({"a": ROWS})],
    "GenerationConfig.update": [lambda gen: rsgen.GenerationConfig().update(suppress_tokens=IDS)],
    "GenerationOutput.to_pandas": [lambda gen: [output().to_pandas() for _ in range(50)]],
    "GenerationOutput.to_dict": [lambda gen: [output().to_dict() for _ in range(5)]],
    "GenerationOutput.compute_transition_scores": [
        lambda gen: [output().compute_transition_scores(True) for _ in range(50)]
    ],
    "WatermarkDetector.__call__": [
        lambda gen: rsgen.WatermarkDetector(gen)(drawn()),
        lambda gen: rsgen.WatermarkDetector(gen)(rows()),
    ],
    "SynthIDTextWatermarkDetector.mean_scores": [
        lambda gen: rsgen.SynthIDTextWatermarkDetector(None, WATERMARK).mean_scores(IDS)
    ],
    "SynthIDTextWatermarkDetector.weighted_mean_scores": [
        lambda gen: rsgen.SynthIDTextWatermarkDetector(None, WATERMARK).weighted_mean_scores(IDS)
    ],
    "SynthIDTextWatermarkDetector.compute_g_values": [
        lambda gen: rsgen.SynthIDTextWatermarkDetector(None, WATERMARK).compute_g_values(IDS)
    ],
    "SynthIDTextWatermarkDetector.compute_context_repetition_mask": [
        lambda gen: rsgen.SynthIDTextWatermarkDetector(None, WATERMARK).compute_context_repetition_mask(IDS)
    ],
    "SynthIDTextWatermarkDetector.compute_eos_token_mask": [
        lambda gen: rsgen.SynthIDTextWatermarkDetector(None, WATERMARK).compute_eos_token_mask(IDS)
    ],
    "constraints.DisjunctiveConstraint": [lambda gen: rsgen.constraints.DisjunctiveConstraint(phrases())],
    "constraints.PhrasalConstraint": [lambda gen: rsgen.constraints.PhrasalConstraint(IDS)],
    "processors.TopPLogitsWarper": [
        lambda gen: rsgen.processors.TopPLogitsWarper(0.9)(rows()[:, :5], scores())
    ],
    "processors.NoRepeatNGramLogitsProcessor": [
        lambda gen: rsgen.processors.NoRepeatNGramLogitsProcessor(2)(rows(), scores())
    ],
    "stopping_criteria.StopStringCriteria": [
        lambda gen: rsgen.stopping_criteria.StopStringCriteria(gen.tokenizer, ["xyz"])(rows())
    ],
    "stopping_criteria.ConfidenceCriteria": [
        lambda gen: rsgen.stopping_criteria.ConfidenceCriteria(0.9)(rows(), scores())
    ],
}

#: What is called in the same way as something above.
ALIKE = {
    "Generator": {
        *("greedy_search", "sample", "contrastive_search", "dola", "prompt_lookup", "assisted_decoding"),
        *("beam_search", "beam_sample", "group_beam_search", "constrained_beam_search", "stream_chat"),
        # Of models with an encoder.
        *("translate", "summarize"),
    },
    # They compute on a thread, which `test_astream.py` and `test_submit.py` are about.
    "Generator on a loop": {"astream", "submit", "agenerate", "achat", "ascore"},
    # They read and write files; `test_loading.py` interrupts them.
    "files": {
        "open",
        "save",
        "from_pretrained",
        "from_tensors",
        "save_pretrained",
        "save_trace",
        "to_html",
        "from_model_config",
        "load_adapter",
    },
    # They copy, count or look up what is there.
    "quick": {
        *("stats", "get_vocab", "to_dict", "validate", "from_dict", "copy", "reset", "remaining", "test"),
        *("get_generation_mode", "unload_adapter", "inspect", "keys", "values", "items", "get"),
        *("manual_seed", "initial_seed", "get_state", "set_state"),
        *("advance", "does_advance", "update", "fork", "close", "events", "send", "throw", "aclose"),
    },
}
CLASSES = [
    rsgen.Generator,
    rsgen.Tokenizer,
    rsgen.TokenTrie,
    rsgen.Seed,
    rsgen.GenerationConfig,
    rsgen.GenerationOutput,
    rsgen.TokenStream,
    rsgen.EventStream,
    rsgen.KeptCache,
    rsgen.RowResults,
    rsgen.TokenScores,
    rsgen.WatermarkDetector,
    rsgen.SynthIDTextWatermarkDetector,
    rsgen.BayesianDetectorModel,
    rsgen.WatermarkingConfig,
    rsgen.constraints.PhrasalConstraint,
]


def test_every_public_method_is_in_the_tables():
    alike = set().union(*ALIKE.values())
    for cls in CLASSES:
        for name in dir(cls):
            if name.startswith("_") or not callable(getattr(cls, name)):
                continue
            assert f"{cls.__name__}.{name}" in CALLS or name in alike, f"{cls.__name__}.{name}"


class Press(Exception):
    """What the handler raises."""


def taken(call: Call, gen: rsgen.Generator, after: float) -> float | None:
    """Interrupts a call after so much processor time; how much it took to end, or None if it was done before."""

    is_armed = True

    def press(*_: object) -> None:
        if is_armed:
            raise Press

    before = signal.signal(signal.SIGPROF, press)
    start = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, after)
    try:
        call(gen)
        is_armed = False
    except Press:
        return time.process_time() - start - after
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return None


@pytest.mark.parametrize(
    ("name", "index"), [(name, i) for name, calls in CALLS.items() for i in range(len(calls))]
)
def test_an_interrupt_at_any_moment_ends_it(gen, name, index):
    call, chance = CALLS[name][index], random.Random(f"{name} {index}")
    # Conversions by NumPy and walks of the collector look at no signal: neither is part of a call.
    for made in (texts_of_objects, ids, rows, drawn, scores, phrases, longer_phrases, catalogue, output):
        made()
    gc.freeze()
    watch = time.process_time()
    assert_prompt(call, gen, LONGEST)
    length = min(time.process_time() - watch, LONGEST)
    for _ in range(TIMES):
        assert_prompt(call, gen, chance.uniform(0.001, length))
    assert gen.generate([5], max_new_tokens=1).usage.generated_tokens == 1


def assert_prompt(call: Call, gen: rsgen.Generator, after: float) -> None:
    """Fails if the call is late to end at this moment."""
    not_longer(taken(call, gen, after) or 0.0, 0.25, f"after {after:.2f} s")
