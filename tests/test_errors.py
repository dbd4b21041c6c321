"""Errors: each of its class, with a message that names what is wrong and what to do."""

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import rsgen
from rsgen.processors import TopKLogitsWarper
from rsgen.stopping_criteria import MaxLengthCriteria
from tiny_llama import llama_tensors, write_safetensors

PROMPT = "Once upon a time"


def test_every_error_is_an_rsgen_error_and_a_built_in_one():
    for error, built_in in {
        rsgen.ConfigError: ValueError,
        rsgen.LoadError: OSError,
        rsgen.InputError: ValueError,
        rsgen.ParseError: ValueError,
        rsgen.CapacityError: MemoryError,
        rsgen.NumericalError: ArithmeticError,
        rsgen.CallbackError: ValueError,
        rsgen.CancelledError: Exception,
        rsgen.ForkError: RuntimeError,
        rsgen.InternalError: RuntimeError,
    }.items():
        assert issubclass(error, rsgen.RsgenError)
        assert issubclass(error, built_in)
        assert error.__module__ == "rsgen"
        assert error.__doc__
        copy = pickle.loads(pickle.dumps(error("why")))
        assert (type(copy), str(copy)) == (error, "why")


def test_an_unknown_keyword_is_a_type_error_that_knows_better(gen):
    with pytest.raises(TypeError, match=r"generate\(\) got an unexpected keyword.*did you mean `top_p`\?"):
        gen.generate(PROMPT, topp=0.9)
    with pytest.raises(TypeError, match=r"stream\(\).*did you mean `max_new_tokens`\?"):
        gen.stream(PROMPT, max_tokens=5)
    with pytest.raises(TypeError, match=r"GenerationConfig\(\).*did you mean `repetition_penalty`\?"):
        rsgen.GenerationConfig(repitition_penalty=1.2)
    with pytest.raises(
        TypeError, match=r"`banana` is not a field of GenerationConfig, or not one of this version"
    ):
        gen.sample(PROMPT, banana=1)
    with pytest.raises(TypeError):
        rsgen.Generator(colour="red")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"top_k": 2.5}, "`top_k` must be an integer of 0 or more, but is 2.5"),
        ({"max_new_tokens": 0}, "`max_new_tokens` must be 1 or more, but is 0"),
        ({"max_new_tokens": -3}, "`max_new_tokens` must be an integer of 1 or more, but is -3"),
        ({"max_new_tokens": 10**30}, "`max_new_tokens` must be an integer"),
        ({"max_new_tokens": 10**50}, "`max_new_tokens` must be an integer"),
        ({"max_new_tokens": True}, "`max_new_tokens` must be an integer of 1 or more, but is true"),
        ({"do_sample": 1}, "`do_sample` must be true or false, but is 1"),
        ({"temperature": "hot", "do_sample": True}, '`temperature` must be a number, but is "hot"'),
        ({"temperature": float("nan"), "do_sample": True}, "`temperature` must be"),
        ({"temperature": -1.0, "do_sample": True}, "`temperature` must be"),
        ({"top_p": 1.5, "do_sample": True}, "`top_p` must be"),
        ({"num_beams": 2, "num_return_sequences": 3}, "`num_return_sequences` must be at most `num_beams`"),
        ({"stop_strings": ["a", 5]}, "`stop_strings` must be a text or a list of texts"),
        ({"stop_strings": object()}, "`stop_strings` must be a text or a list of texts"),
        (
            {"eos_token_id": 5000},
            "`eos_token_id` must be an id of the model's vocabulary, 0 to 2047, but is 5000",
        ),
        ({"num_return_sequences": 3}, "`num_return_sequences` must be 1 in greedy search"),
    ],
)
def test_a_field_that_is_not_possible_is_named(gen, fields, message):
    with pytest.raises(rsgen.ConfigError) as raised:
        gen.generate(PROMPT, **fields)
    assert message in str(raised.value)
    assert len(str(raised.value)) < 400


def test_a_list_that_holds_itself_is_refused(gen):
    endless: list = []
    endless.append(endless)
    for fields in ({"stop_strings": endless}, {"seed": endless}, {"eos_token_id": [endless, 1]}):
        with pytest.raises(rsgen.ConfigError):
            gen.generate(PROMPT, **fields)
    for prompt in (endless, [1, endless], ["a", endless]):
        with pytest.raises(TypeError):
            gen.generate(prompt)


@pytest.mark.parametrize(
    ("fields", "same"),
    [
        ({"max_new_tokens": np.int64(4)}, {"max_new_tokens": 4}),
        (
            {"max_new_tokens": 4, "do_sample": np.True_, "seed": np.uint64(7)},
            {"max_new_tokens": 4, "seed": 7},
        ),
        (
            {"max_new_tokens": 4, "top_p": np.float32(0.5), "seed": 1},
            {"max_new_tokens": 4, "top_p": 0.5, "seed": 1},
        ),
        (
            {"max_new_tokens": 4, "temperature": 2, "seed": 1},
            {"max_new_tokens": 4, "temperature": 2.0, "seed": 1},
        ),
        (
            {"max_new_tokens": 4, "eos_token_id": np.array([1, 3])},
            {"max_new_tokens": 4, "eos_token_id": [1, 3]},
        ),
        ({"max_new_tokens": 4, "top_k": None}, {"max_new_tokens": 4}),
    ],
)
def test_numbers_of_numpy_are_numbers(fields, same):
    same = {**same, "do_sample": True} if "do_sample" in fields else same
    assert rsgen.GenerationConfig(**fields) == rsgen.GenerationConfig(**same)


@pytest.mark.parametrize("method", ["generate", "stream", "forward", "score"])
def test_ids_outside_of_the_vocabulary_are_refused(gen, method):
    call = getattr(gen, method)
    for ids in ([1, -1], np.array([1, -1]), [1, 2**40], [1, 2**70], np.array([1, 2**63], np.uint64)):
        with pytest.raises(rsgen.InputError, match=r"token ids must be 0 or more.*at position 1"):
            call(ids)
    for ids in ([1, 2048], np.array([1, 2**32 - 1])):
        with pytest.raises(rsgen.InputError, match="vocabulary"):
            call(ids)


@pytest.mark.parametrize("method", ["generate", "stream", "forward", "score"])
def test_what_is_no_prompt_is_a_type_error(gen, method):
    call = getattr(gen, method)
    if method in ("forward", "score"):
        with pytest.raises(TypeError):
            call(None)
    for prompt in (
        5,
        2.5,
        b"bytes",
        {"a": 1},
        {1, 2},
        object(),
        [1, 2.5],
        [1.5],
        [True],
        [1, None],
        np.array([1.0, 2.0]),
        np.array([True]),
        np.array(5.0),
    ):
        with pytest.raises(TypeError):
            call(prompt)
    for prompt in ([[1, 2], 5], [[1, 2], None], [PROMPT, b"x"]):
        with pytest.raises(TypeError):
            call(prompt)


@pytest.mark.parametrize("method", ["generate", "stream", "forward"])
def test_prompts_of_an_impossible_shape_are_input_errors(gen, method):
    call = getattr(gen, method)
    for prompt in ([], (), np.array([]), np.zeros((0, 3), int), np.zeros((2, 0), int)):
        with pytest.raises(rsgen.InputError, match="at least one"):
            call(prompt)
    with pytest.raises(rsgen.InputError, match="one or two dimensions, got 3"):
        call(np.ones((1, 1, 1), int))
    with pytest.raises(rsgen.InputError, match="one or two dimensions, got 0"):
        call(np.array(5))


def test_a_prompt_beyond_the_context_is_refused(gen):
    for call in (gen.generate, gen.stream, gen.forward):
        with pytest.raises(rsgen.InputError, match="context"):
            call([5] * 513)
    # Nothing follows the last token of a text that is scored.
    assert len(gen.score([5] * 513)) == 513
    with pytest.raises(rsgen.InputError, match="context"):
        gen.score([5] * 514)


def test_a_text_that_is_no_unicode_is_refused(gen):
    with pytest.raises(rsgen.InputError, match="must be Unicode, but has a lone surrogate at position 0"):
        gen.generate("\ud800", max_new_tokens=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"dtype": "float8"},
            '`dtype` must be "auto" or one of "float32", "bfloat16", "float16", "int8", "int4", got "float8"',
        ),
        (
            {"kv_dtype": "float16"},
            '`kv_dtype` must be "auto" or one of "float32", "bfloat16", "int8", got "float16"',
        ),
        (
            {"compute_dtype": "float16"},
            '`compute_dtype` must be one of "float32", "bfloat16", "int8", got "float16"',
        ),
        (
            {"compute_dtype": "bfloat16", "dtype": "float32"},
            '`dtype` must be "bfloat16", "int8", "int4" or unset beside a `compute_dtype` of "bfloat16", got "float32"',
        ),
        ({"num_threads": 0}, "`num_threads` must be 1 or more, got 0"),
        ({"num_threads": -2}, "`num_threads` must be 1 or more, got -2"),
        ({"kv_cache_bytes": -1}, "`kv_cache_bytes` must be 1 or more, got -1"),
        ({"local_files_only": False}, "`local_files_only` must be True, because rsgen never downloads"),
    ],
)
def test_an_option_that_is_not_possible_is_named(options, message):
    with pytest.raises(rsgen.ConfigError) as raised:
        rsgen.Generator(**options)
    assert message in str(raised.value)


def test_a_model_that_is_not_there_is_a_load_error(tmp_path):
    for model in (tmp_path, tmp_path / "nowhere", str(tmp_path / "nowhere"), "nobody/nothing"):
        with pytest.raises(rsgen.LoadError) as raised:
            rsgen.Generator(model)
        assert isinstance(raised.value, OSError)
    with pytest.raises(TypeError, match="`model` must be a folder"):
        rsgen.Generator(5)


def test_a_damaged_model_is_a_load_error(make_llama):
    folder = make_llama()
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    for damaged in (b"", whole[:100], whole[:-4], b"\xff" * 64):
        weights.write_bytes(damaged)
        with pytest.raises(rsgen.LoadError, match=r"model\.safetensors"):
            rsgen.Generator(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(rsgen.LoadError, match=r"config\.json"):
        rsgen.Generator(folder)


def test_a_cache_that_is_too_small_is_a_capacity_error(make_llama):
    folder = make_llama()
    ample = rsgen.Generator(folder, num_threads=1, kv_cache_bytes=1 << 20).stats()
    block = ample.bytes_total // ample.blocks_total
    gen = rsgen.Generator(folder, num_threads=1, kv_cache_bytes=2 * block + 1)
    assert (gen.stats().blocks_total, gen.stats().bytes_total) == (2, 2 * block)
    assert gen.generate([1] * 20, max_new_tokens=40).usage.generated_tokens == 40
    with pytest.raises(rsgen.CapacityError, match="raise `kv_cache_bytes`"):
        gen.generate([1] * 20, max_new_tokens=50)
    with pytest.raises(MemoryError):
        gen.stream([1] * 20, max_new_tokens=50)
    assert len(list(gen.stream([1] * 20))) >= 40, "without a limit a stream goes on to the end of the cache"
    assert len(gen.generate([[1] * 20] * 5, max_new_tokens=40)) == 5, "what does not fit at once takes turns"
    with pytest.raises(rsgen.CapacityError):
        rsgen.Generator(folder, kv_cache_bytes=16)


def test_weights_that_overflow_are_a_numerical_error(make_llama):
    folder = make_llama()
    config = json.loads((folder / "config.json").read_text())
    tensors = llama_tensors(config, np.random.default_rng(0))
    tensors["model.norm.weight"] = np.full(config["hidden_size"], 3e38, "<f4")
    write_safetensors(folder / "model.safetensors", tensors)
    gen = rsgen.Generator(folder, num_threads=1)
    with pytest.raises(rsgen.NumericalError, match="NaN or infinity"):
        gen.generate([1, 2], max_new_tokens=2)


def test_nothing_is_printed(tmp_path):
    program = """
import rsgen
gen = rsgen.Generator()
gen.generate("Once", max_new_tokens=3)
try:
    rsgen.Generator("nowhere")
except rsgen.LoadError:
    pass
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, cwd=tmp_path)
    assert (run.returncode, run.stdout, run.stderr) == (0, b"", b"")


@pytest.mark.parametrize("value", [-1, -(10**30), 10**30, "x", 1.5, True, np.int64(-1)])
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("top_logprobs", lambda gen, value: gen.score("a", top_logprobs=value)),
        ("max_length", lambda gen, value: MaxLengthCriteria(value)),
        ("max_position_embeddings", lambda gen, value: MaxLengthCriteria(5, value)),
        ("max_cache_size", lambda gen, value: rsgen.WatermarkDetector(gen, max_cache_size=value)),
        ("beam_group_idx", lambda gen, value: TopKLogitsWarper(2)([[1]], [[0.0] * 4], beam_group_idx=value)),
        ("pad_token_id", lambda gen, value: setattr(rsgen.Tokenizer(), "pad_token_id", value)),
        ("num_threads", lambda gen, value: rsgen.Generator(num_threads=value)),
        ("kv_cache_bytes", lambda gen, value: rsgen.Generator(kv_cache_bytes=value)),
        ("port", lambda gen, value: rsgen.serve(gen, port=value)),
        ("max_requests", lambda gen, value: rsgen.serve(gen, max_requests=value)),
        ("max_queue", lambda gen, value: rsgen.serve(gen, max_queue=value)),
        ("max_requests_per_key", lambda gen, value: rsgen.serve(gen, max_requests_per_key=value)),
    ],
)
def test_a_count_that_is_none_is_named_with_its_value(gen, name, call, value):
    """Never Python's own OverflowError, which names neither."""
    is_integer = not isinstance(value, bool) and hasattr(value, "__index__")
    with pytest.raises(
        rsgen.ConfigError if is_integer else TypeError, match=f"`{name}` must be .*got "
    ) as raised:
        call(gen, value)
    assert str(value)[:5] in str(raised.value)


def test_errors_of_a_list_name_the_prompt(gen):
    wrong = [[5], [10**6]]
    for call in (gen.generate, gen.greedy_search, gen.beam_search, gen.prefill, gen.embed):
        with pytest.raises(rsgen.InputError, match=r"^prompt 1: "):
            call(wrong)
    embeddings = [np.zeros((2, 192), np.float32), np.full((2, 192), np.nan, np.float32)]
    with pytest.raises(rsgen.InputError, match=r"^prompt 1: "):
        gen.generate(inputs_embeds=embeddings, max_new_tokens=2)


def test_names_of_transformers_say_what_to_use():
    for name, remedy in (
        ("AutoTokenizer", r"rsgen\.Tokenizer"),
        ("AutoModelForCausalLM", r"rsgen\.Generator"),
    ):
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'; .*{remedy}"):
            getattr(rsgen, name)
