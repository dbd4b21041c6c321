"""A panic in any function of the extension is an `InternalError`, and the generator goes on.

`_panic_after(n)` makes the n-th function of the extension that this thread enters panic, so a function that forgets its
guard is found by calling it.
"""

import asyncio
import types

import numpy as np
import pytest
import rsgen
from rsgen import _rsgen
from rsgen._rsgen import _RowFile, _tables, cli

_panic_after = getattr(_rsgen, "_panic_after", None)
pytestmark = pytest.mark.skipif(_panic_after is None, reason="releases do not panic on purpose")

PROMPT = [5, 6]
#: The arguments of the functions that need some.
ARGUMENTS = {
    "GenerationConfig.from_dict": ({},),
    "GenerationConfig.from_pretrained": ("nowhere",),
    "GenerationConfig.from_model_config": ({},),
    "GenerationConfig.save_pretrained": ("nowhere",),
    "GenerationConfig.__setattr__": ("banana", 1),
    "GenerationConfig.update": (),
    "Generator.from_pretrained": ("nowhere",),
    "Generator.from_tensors": ({}, {}),
    "Tokenizer.apply_chat_template": ([],),
    "Generator.apply_chat_template": ([],),
    "Generator.map": ([PROMPT],),
    "Generator.submit": (PROMPT,),
    "Generator.agenerate": (PROMPT,),
    "Generator.achat": ([],),
    "Generator.ascore": (PROMPT,),
    "Generator._start": (print,),
    "Generator._later": ("nowhere", {}, []),
    "Generator.embed": (PROMPT,),
    "Generator.load_adapter": ("nowhere", "new"),
    "Generator.unload_adapter": ("new",),
    "Generator.forward": (PROMPT,),
    "Generator.score": (PROMPT,),
    "Generator.rank": (PROMPT, [" a", " b"]),
    "Generator.classify": (PROMPT, [" a", " b"]),
    "Generator.perplexity": (PROMPT,),
    "Tokenizer.encode": ("text",),
    "Tokenizer.encode_target": ("text",),
    "Tokenizer.decode": (PROMPT,),
    "Tokenizer.batch_decode": ([PROMPT],),
    "Tokenizer.tokenize": ("text",),
    "Tokenizer.convert_ids_to_tokens": (PROMPT,),
    "Tokenizer.convert_tokens_to_ids": ("text",),
    "Tokenizer.from_pretrained": ("nowhere",),
    "Tokenizer.save_pretrained": ("/dev/null/nowhere",),
    "Tokenizer._offsets": ("text", True),
    "Seed.manual_seed": (5,),
    "Seed.set_state": (b"",),
    "Seed._restore": (b"",),
    "TokenTrie.open": ("nowhere",),
    "TokenTrie.save": ("nowhere/at/all",),
    "TokenTrie.payload": (0,),
    "TokenTrie._restore": (b"",),
    "TokenTrie.__contains__": ([5],),
    "__getitem__": (0,),
    "__setstate__": ((None, []),),
    "TokenStream.send": (None,),
    "TokenStream.throw": (KeyError,),
    "GenerationOutput.save_trace": ("nowhere.json",),
    "GenerationOutput.to_html": ("nowhere/at/all.html",),
    "GenerationOutput.get": ("text",),
    "GenerationOutput.__contains__": ("text",),
    "GenerationOutput._restore": (({}, [None, None], [None] * 6, None),),
    "_Batch.add": (0, PROMPT, False, {}),
    "_RowFile.read": (0, ""),
    "_RowFile.write": (0, "", ([], [], [], None)),
    "__class_getitem__": (int,),
    "__getattr__": ("banana",),
    "__getattribute__": ("banana",),
    "__deepcopy__": ({},),
    "WatermarkDetector.__call__": (PROMPT,),
    "SynthIDTextWatermarkDetector.__call__": (PROMPT,),
    "mean_scores": (PROMPT,),
    "weighted_mean_scores": (PROMPT,),
    "compute_g_values": (PROMPT,),
    "compute_context_repetition_mask": (PROMPT,),
    "compute_eos_token_mask": (PROMPT,),
    "does_advance": (5,),
    "update": (5,),
    "__call__": ([PROMPT], np.zeros((1, 8), dtype=np.float32)),
}
#: Read by PyO3 itself, and what every object has.
OF_PYO3 = {"__doc__", "__module__", "__hash__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"}
OF_PYO3 |= {"__delattr__", "__signature__", "__new__", "__dict__", "__weakref__"}


@pytest.fixture
def objects(tmp_path):
    """An object of each class, and a stream that is not read."""
    gen = rsgen.Generator(num_threads=1)
    output = gen.prompt_lookup(PROMPT, max_new_tokens=2)
    with gen.stream(PROMPT, max_new_tokens=50) as stream:
        yield [
            gen,
            rsgen.GenerationConfig(top_k=5),
            output,
            stream,
            gen.tokenizer,
            rsgen.TokenTrie([[5]]),
            rsgen.Seed(7),
            rsgen.WatermarkDetector(gen),
            rsgen.SynthIDTextWatermarkDetector(None, rsgen.SynthIDTextWatermarkingConfig(5, [1, 2])),
            rsgen.constraints.PhrasalConstraint(PROMPT),
            rsgen.constraints.DisjunctiveConstraint([PROMPT]),
            rsgen.stopping_criteria.EosTokenCriteria(5),
            rsgen.processors.TopKLogitsWarper(5),
            gen._batch(),
            _RowFile(tmp_path / "rows.jsonl"),
        ]


def panics(call, after):
    """Whether a call ends with the error of a panic."""
    _panic_after(after)
    try:
        call()
    except BaseException as error:
        shown = repr(error)
    else:
        shown = "no error"
    assert _panic_after(0) == 0, "it is not guarded"
    parts = ("InternalError", "a panic of the test", "crates/python/src/panics.rs", "report it")
    assert all(part in shown for part in parts), shown


def functions(value):
    """What Python can call of an object: name and call."""
    for cls in type(value).__mro__:
        if not cls.__module__.startswith("rsgen"):
            continue
        for name, attribute in vars(cls).items():
            full = f"{cls.__name__}.{name}"
            # What is written in Python cannot panic.
            if name in OF_PYO3 or isinstance(attribute, types.FunctionType):
                continue
            if isinstance(attribute, types.GetSetDescriptorType | property):
                yield full, lambda name=name: getattr(value, name)
            elif callable(attribute) or isinstance(attribute, classmethod):
                fields = "generation_config" in (getattr(attribute, "__text_signature__", None) or "")
                given = ARGUMENTS.get(full, ARGUMENTS.get(name, (PROMPT,) if fields else ()))
                yield full, lambda name=name, given=given: getattr(value, name)(*given)


def test_a_panic_in_any_function_is_an_internal_error(objects):
    called = set()
    for value in objects:
        for name, call in functions(value):
            try:
                panics(call, 1)
            except AssertionError as error:
                pytest.fail(f"{name}: {error}")
            called.add(name)
    assert len(called) > 100


@pytest.mark.parametrize(
    "call",
    [
        lambda: rsgen.Generator("nowhere"),
        lambda: rsgen.Tokenizer("nowhere"),
        lambda: rsgen.TokenTrie([[5]]),
        lambda: rsgen.Seed(7),
        lambda: _RowFile("/dev/null/nowhere"),
        rsgen.GenerationConfig,
        lambda: rsgen.constraints.PhrasalConstraint(PROMPT),
        lambda: rsgen.constraints.DisjunctiveConstraint([PROMPT]),
        lambda: rsgen.stopping_criteria.MaxLengthCriteria(5),
        lambda: rsgen.stopping_criteria.MaxTimeCriteria(5.0),
        lambda: rsgen.stopping_criteria.StopStringCriteria(None, "a"),
        lambda: rsgen.stopping_criteria.EosTokenCriteria(5),
        lambda: rsgen.stopping_criteria.ConfidenceCriteria(0.5),
        lambda: rsgen.processors.TopKLogitsWarper(5),
        lambda: cli(["--version"]),
        _tables,
    ],
)
def test_so_is_one_in_a_constructor_or_a_function(call):
    panics(call, 1)


def test_so_is_one_in_an_event_loop_and_the_generator_goes_on():
    gen = rsgen.Generator(num_threads=1)

    async def on_a_loop():
        stream = gen.astream(PROMPT, max_new_tokens=5)
        for name in ("__anext__", "aclose", "__aenter__", "__aexit__"):
            panics(getattr(stream, name), 1)
        return [token.id async for token in stream]

    expected = gen.generate(PROMPT, max_new_tokens=5).token_ids[0].tolist()
    assert asyncio.run(on_a_loop()) == expected
    assert gen.stats().blocks_used == gen.stats().blocks_reserved == 0


def test_so_is_one_on_a_thread_that_computes_for_an_event_loop():
    gen = rsgen.Generator(num_threads=1)

    is_armed = False

    def panic_soon(input_ids, scores):
        nonlocal is_armed
        if not is_armed:
            _panic_after(2)  # after the token is handed over, in the next step
        is_armed = True
        return scores

    async def on_a_loop():
        return [token async for token in gen.astream(PROMPT, logits_processor=panic_soon, max_new_tokens=50)]

    with pytest.raises(rsgen.InternalError, match="a panic of the test"):
        asyncio.run(on_a_loop())
    assert gen.stats().blocks_used == gen.stats().blocks_reserved == 0
