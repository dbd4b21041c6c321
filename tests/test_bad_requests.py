"""Calls with arguments that are not possible: each gives one clear error, and the generator goes on as before.

Fields and options are walked by reflection, so that a new one is tested as soon as it is there.
"""

import inspect
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import rsgen
from hostile import CONFIG, Folder
from stopwatch import Stopwatch, not_longer
from tiny_llama import llama_tensors, write_safetensors

PROMPT = "Once upon a time"
FIELDS = [name for name, value in vars(rsgen.GenerationConfig).items() if isinstance(value, property)]
OPTIONS = [name for name in inspect.signature(rsgen.Generator).parameters if name != "model"]

NUMBERS = [
    *(0, -1, 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), 10**40),
    *(0.0, -0.0, 0.5, -1.5, float("nan"), float("inf"), -float("inf"), 1e308, 1e-320, True, False),
]
OTHERS = ["", "5", "x" * 100_000, "\ud800", [], [1], [None], [[1]], [float("nan")], {}, b"x", object()]
# A field that takes these takes anything.
#: Values of types that no field has, but for those that do.
TAKEN: dict[str, Any] = {
    "bad_words_ids": [[1]],
    "force_words_ids": [[1]],
    "glossary": {},
    "json_schema": {},
    "logit_bias": {},
    "negative_prompt_attention_mask": [[1]],
    "negative_prompt_ids": [[1]],
    "sequence_bias": {},
    "watermarking_config": {},
}
NEVER = [[None], [[1]], {}, b"x", object, 1j, {1}, "\ud800"]


def outcome(call: Callable[[], object]) -> tuple[Any, str]:
    """What a call gives, or what its error says, the notes that Python adds included."""
    try:
        return call(), ""
    except (rsgen.ConfigError, rsgen.CapacityError, rsgen.LoadError, TypeError, ValueError) as error:
        told = [str(error), *getattr(error, "__notes__", [])]
    return None, "\n".join(told)


@pytest.fixture(autouse=True)
def the_generator_answers_as_before(gen: rsgen.Generator) -> Iterator[None]:
    def answer() -> list[int]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return gen.generate(PROMPT, max_new_tokens=6).token_ids[0].tolist()

    before = answer()
    yield
    assert answer() == before


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("do_sample", [False, True])
@pytest.mark.parametrize("field", FIELDS)
def test_any_value_of_any_field_gives_tokens_or_an_error_that_names_it(gen, field, do_sample):
    for value in NUMBERS + OTHERS:
        fields = {"max_new_tokens": 2, "do_sample": do_sample, "seed": 1, field: value}
        if field == "max_length":
            del fields["max_new_tokens"]
        watch = Stopwatch()
        output, message = outcome(lambda fields=fields: gen.generate(PROMPT, **fields))
        watch.assert_clock_within(10)
        if message:
            assert f"`{field}`" in message, value
            assert len(message) < 600
        else:
            assert len(output) >= 1
            assert all(0 <= token < 2048 for row in output.token_ids for token in row)


@pytest.mark.parametrize("field", FIELDS)
def test_a_value_of_a_type_that_no_field_has_is_refused_by_every_field(gen, field):
    for value in (value for value in NEVER if value != TAKEN.get(field)):
        for make in (gen.generate, gen.stream):
            with pytest.raises(rsgen.ConfigError, match=rf"`{field}` must be .*None leaves it unset"):
                make(PROMPT, **{field: value})
        with pytest.raises(rsgen.ConfigError, match=rf"`{field}` must be"):
            rsgen.GenerationConfig(**{field: value})


@pytest.mark.parametrize(
    "field", [name for name in FIELDS if rsgen.GenerationConfig(**{name: None}) is not None]
)
def test_none_leaves_a_field_unset(field):
    assert rsgen.GenerationConfig(**{field: None}) == rsgen.GenerationConfig()


@pytest.mark.parametrize("option", OPTIONS)
def test_any_value_of_any_option_opens_the_model_or_is_refused(option):
    for value in [*NUMBERS, *OTHERS, -5, 10**6, "float8", None, lambda *_: None]:
        opened, message = outcome(lambda value=value: rsgen.Generator(**{"num_threads": 1, option: value}))
        if message:
            assert option in message, value
            assert len(message) < 600
        else:
            assert opened.generate(PROMPT, max_new_tokens=1).usage.generated_tokens == 1


def test_an_unknown_option_is_refused_with_the_one_that_was_meant():
    with pytest.raises(TypeError, match=r"Generator\(\).*'num_thread'.*did you mean `num_threads`\?"):
        rsgen.Generator(num_thread=2)
    with pytest.raises(TypeError, match=r"'banana'.*it takes model, dtype,"):
        rsgen.Generator(banana="auto")
    with pytest.raises(TypeError, match=r"did you mean `max_new_tokens`\?"):
        rsgen.Generator.from_pretrained().generate(PROMPT, max_token=2)


def prompts() -> list[tuple[object, type, str]]:
    """What is given as a prompt, the class of the error, and what its message must hold."""
    no_prompt, no_ids = "a prompt must be a text, token ids", "token ids must be integers"
    too_large = "token ids must be 0 or more, and less than the size of the vocabulary"
    return [
        *(
            (value, TypeError, no_prompt)
            for value in (5, 2.5, True, b"x", bytearray(b"x"), {}, set(), object())
        ),
        *((value, TypeError, no_prompt) for value in (iter([1]), (i for i in [1]), lambda: 1)),
        ([1.5], TypeError, f"{no_ids}, got 1.5 (float) at position 0"),
        ([1, float("nan")], TypeError, f"{no_ids}, got nan (float) at position 1"),
        ([True, False], TypeError, f"{no_ids}, got True (bool)"),
        ([1, "a"], TypeError, f"{no_ids}, got 'a' (str) at position 1"),
        ([1, None], TypeError, f"{no_ids}, got None"),
        ([[1, 2], 5], TypeError, f"prompt 1: {no_prompt}"),
        (["a", None], TypeError, f"prompt 1: {no_prompt}"),
        (["a", [[1]]], TypeError, f"prompt 1: {no_ids}"),
        ([[["a"]]], TypeError, f"prompt 0: {no_ids}"),
        (np.array([1.0]), TypeError, "got an array of float64; convert it"),
        (np.array([1, None], object), TypeError, f"{no_ids}, got None"),
        (np.array([1], np.complex64), TypeError, "got an array of complex64"),
        (np.array([True]), TypeError, "got an array of bool"),
        (np.zeros((1, 1, 1), int), rsgen.InputError, "one or two dimensions, got 3"),
        (np.array(5), rsgen.InputError, "one or two dimensions, got 0"),
        ([], rsgen.InputError, "at least one token"),
        (np.zeros((2, 0), int), rsgen.InputError, "at least one token"),
        *(
            ([1, bad], rsgen.InputError, f"{too_large}, got {bad} (int) at position 1")
            for bad in (-1, 2**32, 2**40, 2**64, 10**40)
        ),
        (np.array([1, -1]), rsgen.InputError, too_large),
        (np.array([1, 2**63], np.uint64), rsgen.InputError, too_large),
        (
            [5, 2048],
            rsgen.InputError,
            "the prompt holds the id 2048 (token 1), but the model's vocabulary has the ids 0 to 2047",
        ),
        ([[1], [5, 4000]], rsgen.InputError, "prompt 1: the prompt holds the id 4000 (token 1)"),
        (
            [5] * 512,
            rsgen.InputError,
            "512 tokens, but the model's context holds 512 and at least 1 is to be generated; shorten",
        ),
        ([5] * 513, rsgen.InputError, "513 tokens, but the model's context holds 512 and at least 1"),
        (
            ["a", "x " * 600],
            rsgen.InputError,
            "prompt 1: the prompt has 1201 tokens, but the model's context holds 512",
        ),
        ("a" * 10_000_000, rsgen.InputError, "10000000 bytes, more than 256 for each of the 512 tokens"),
        ("a\ud800b", rsgen.InputError, "lone surrogate at position 1: 'a\\ud800b' (str); replace it"),
        (["ok", "\udfff"], rsgen.InputError, "prompt 1: a text must be Unicode"),
    ]


@pytest.mark.parametrize(("prompt", "error", "words"), prompts())
def test_a_prompt_that_cannot_be_used_is_refused_in_words(gen, prompt, error, words):
    watch = Stopwatch()
    with pytest.raises(error) as raised:
        gen.generate(prompt, max_new_tokens=1)
    assert words in str(raised.value)
    watch.assert_clock_within(1)


def test_the_longest_prompt_leaves_room_for_one_token(gen):
    with pytest.warns(UserWarning, match="has room for 1 new tokens"):
        assert gen.generate([5] * 511, max_new_tokens=9).finish_reasons == ["length"]
    assert gen.score([5] * 512).shape == (512,)
    # Nothing follows the last token of a text that is scored.
    assert gen.score([5] * 513).shape == (513,)
    with pytest.raises(rsgen.InputError, match="context and one token more, 513 tokens, got 514"):
        gen.score([5] * 514)
    with pytest.raises(rsgen.InputError, match="context of 512 tokens, got 513"):
        gen.forward([5] * 513)
    for call in (gen.score, gen.forward):
        with pytest.raises(rsgen.InputError, match=r"vocabulary, 0 to 2047, got 2048 at position 1"):
            call([5, 2048])


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        ([1], "row 0 has 1 entries for 2 ids"),
        ([], "row 0 has 0 entries for 2 ids"),
        ([[1, 1], [1, 1]], "2 rows for 1 prompts"),
        (5, "shape of the ids, which have 1 dimensions, got 0"),
        ("x", "shape of the ids"),
        (np.ones((1, 2, 1)), "got 3"),
        ([2, 1], "1 for a token and 0 for padding, got 2"),
        ([float("nan"), 1], "got nan"),
        ([None, 1], "got None"),
        ([0, 0], "all padding"),
        ([[1], [1, 2]], "`attention_mask` must have rows of one length"),
        (object(), "shape of the ids"),
    ],
)
def test_a_mask_of_another_shape_is_refused(gen, mask, words):
    with pytest.raises(rsgen.InputError) as raised:
        gen.generate([5, 6], attention_mask=mask, max_new_tokens=1)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("stop_strings", "words"),
    [
        ("", 'entry 0 is ""'),
        (["a", ""], 'entry 1 is ""'),
        (["a"] * 10_000, "at most 1024 texts, but holds 10000"),
        (["a", "z" * 5000], "at most 4096 bytes, but entry 1 has 5000"),
        (["a", 5], "a text or a list of texts"),
        ("\ud800", "which is no Unicode"),
    ],
)
def test_stop_strings_that_cannot_stop_are_refused(gen, stop_strings, words):
    with pytest.raises(rsgen.ConfigError) as raised:
        gen.generate(PROMPT, stop_strings=stop_strings)
    assert "`stop_strings`" in str(raised.value)
    assert words in str(raised.value)


def test_a_thousand_stop_strings_of_the_longest_kind_cost_little(gen):
    near_misses = [f"{index:04}" + "ab" * 2000 + " time" for index in range(1024)]
    watch = Stopwatch()
    output = gen.generate(PROMPT, stop_strings=near_misses, max_new_tokens=50)
    assert output.usage.generated_tokens == 50
    watch.assert_clock_within(10)


def test_other_arguments_of_a_wrong_type_are_named(gen):
    for keyword, value in [("logits_processor", 5), ("logits_processor", [5]), ("stopping_criteria", "x")]:
        with pytest.raises(TypeError, match=f"`{keyword}` must be a callable"):
            gen.generate(PROMPT, **{keyword: value})
    with pytest.raises(TypeError, match="GenerationConfig"):
        gen.generate(PROMPT, {"max_new_tokens": 3})
    with pytest.raises(rsgen.ConfigError, match=r"a list of one for each prompt \(2\), got a list of 3"):
        gen.generate(["a", "b"], do_sample=True, seed=[1, 2, 3])


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> rsgen.Generator:
    """A llama whose weights are finite, but in which token 7, and no other, ends in infinity minus infinity."""
    folder = Folder(tmp_path_factory.mktemp("poisoned"))
    folder.json("config.json", {**CONFIG, "tie_word_embeddings": False})
    tensors = llama_tensors(CONFIG, np.random.default_rng(3))
    embedding = tensors["model.embed_tokens.weight"]
    tensors["lm_head.weight"] = embedding.copy()
    tensors["lm_head.weight"][7] = 0.0  # so that it is never chosen
    # Only token 7 has something in the first dimension, and the first MLP multiplies that by itself.
    embedding[:, 0] = 0.0
    embedding[7] = np.eye(32, dtype="<f4")[0]
    tensors["model.layers.0.self_attn.o_proj.weight"][0] = 0.0
    for part in ("gate_proj", "up_proj"):
        tensors[f"model.layers.0.mlp.{part}.weight"][:, 0] = 1e30
    write_safetensors(folder.path / "model.safetensors", tensors)
    return rsgen.Generator(folder.path, num_threads=1)


def test_numbers_that_are_none_end_their_own_request_with_an_error_and_no_other(poisoned):
    damaged = "logits hold NaN or infinity"
    healthy: list[list[int]] = [[1, 2], [3], [4, 5, 6]]
    calls: list[Callable[..., rsgen.GenerationOutput]] = [
        poisoned.greedy_search,
        lambda prompt, **fields: poisoned.sample(prompt, top_k=5, seed=3, **fields),
    ]
    for call in calls:
        alone = [call(prompt, max_new_tokens=8, output_logits=True) for prompt in healthy]
        stream = poisoned.stream([1, 2], max_new_tokens=30)
        first = next(stream)
        with pytest.raises(rsgen.NumericalError, match=f"^step 0.*{damaged}.*may be damaged"):
            call([1, 7], max_new_tokens=8)
        with pytest.raises(rsgen.NumericalError, match=f"^prompt 2: step 0.*{damaged}"):
            call([*healthy[:2], [2, 7, 3], healthy[2]], max_new_tokens=8)
        for prompt, before in zip(healthy, alone, strict=True):
            after = call(prompt, max_new_tokens=8, output_logits=True)
            assert np.array_equal(after.sequences, before.sequences)
            assert all(np.array_equal(a, b) for a, b in zip(after.logits, before.logits, strict=True))
        tokens = [first.id, *(token.id for token in stream)]
        assert tokens == poisoned.generate([1, 2], max_new_tokens=30).token_ids[0].tolist()
    stats = poisoned.stats()
    assert (stats.blocks_used, stats.blocks_reserved) == (0, 0)


def test_numbers_that_are_none_are_named_with_their_place_by_score_and_forward(poisoned):
    assert np.isfinite(poisoned.score([1, 2, 3])).all()
    assert np.isfinite(poisoned.forward([[1, 2, 3]])).all()
    for call in (lambda: poisoned.score([1, 2, 7, 3]), lambda: poisoned.forward([1, 2, 7, 3])):
        with pytest.raises(rsgen.NumericalError, match=r"after token 2 hold NaN or infinity.*may be damaged"):
            call()


@pytest.mark.parametrize(
    ("texts", "wrong"),
    [
        # A text that the wrong one begins with ends before its row.
        ([[1, 2, 7], [1, 2, 7, 3]], 1),
        ([[1, 2, 9], [1, 2, 7, 3], [1, 2, 7, 4]], 1),
        # The row of the second scores the last token of the first.
        ([[1, 2, 7, 4], [1, 2, 7, 3, 5], [1, 2]], 0),
        ([[1, 2], [1, 2, 9, 9], [1, 2, 9], [1, 2, 9, 7, 5], [3, 7]], 3),
    ],
)
def test_numbers_that_are_none_are_those_of_the_texts_that_have_the_row(poisoned, texts, wrong):
    place = texts[wrong].index(7)
    with pytest.raises(rsgen.NumericalError, match=f"^text {wrong}: .* after token {place} hold NaN"):
        poisoned.score(texts)
    healthy = [text for text in texts if 7 not in text[:-1]]
    alone = [poisoned.score(text) for text in healthy]
    for together, scores in zip(poisoned.score(healthy), alone, strict=True):
        assert np.array_equal(together, scores)


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_numbers_that_are_none_end_the_vector_of_their_own_text(poisoned, pooling):
    assert np.isfinite(poisoned.embed([[1, 2, 3], [4]], pooling=pooling)).all()
    with pytest.raises(
        rsgen.NumericalError, match=r"^text 1: the hidden states of a text hold NaN or infinity"
    ):
        poisoned.embed([[1, 2], [3, 7], [4]], pooling=pooling)


def test_prompts_that_wait_for_room_cost_little(make_llama):
    folder = make_llama()
    block = rsgen.Generator(folder, num_threads=1, kv_cache_bytes=1 << 20).stats()
    gen = rsgen.Generator(folder, num_threads=1, kv_cache_bytes=3 * (block.bytes_total // block.blocks_total))

    def seconds(prompts: int) -> float:
        start = time.process_time()
        out = gen.sample([[5, 6, 7]] * prompts, max_new_tokens=4, eos_token_id=None)
        assert len(out.token_ids) == prompts
        return time.process_time() - start

    # Four where each costs the same, sixteen where each pass looks at all that wait.
    few, many, again = seconds(400), seconds(1600), seconds(400)
    not_longer(many, 7 * (few + again) / 2)


def test_every_request_ends_when_the_cache_is_too_small_for_all(make_llama):
    folder = make_llama()
    block = rsgen.Generator(folder, num_threads=1, kv_cache_bytes=1 << 20).stats()
    gen = rsgen.Generator(folder, num_threads=1, kv_cache_bytes=6 * (block.bytes_total // block.blocks_total))
    expected = {n: gen.generate([1] * n, max_new_tokens=40).token_ids[0].tolist() for n in range(1, 50)}
    outcomes: list[str] = []

    def work(worker: int) -> None:
        for round_ in range(12):
            n = (worker * 7 + round_ * 11) % 49 + 1
            try:
                if round_ % 3 == 0:
                    tokens = [token.id for token in gen.stream([1] * n, max_new_tokens=40)]
                elif round_ % 3 == 1:
                    stream = gen.stream([1] * n, max_new_tokens=40)
                    tokens = expected[n] if next(stream).id == expected[n][0] else []
                    stream.close()
                else:
                    rows = gen.generate([[1] * n, [1] * n, [1] * n], max_new_tokens=40).token_ids
                    tokens = expected[n] if all(row.tolist() == expected[n] for row in rows) else []
                outcomes.append("right" if tokens == expected[n] else f"wrong: {n} {tokens}")
            except rsgen.CapacityError as error:
                outcomes.append("refused" if "wait for running requests" in str(error) else str(error))

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
    assert len(outcomes) == 16 * 12
    assert set(outcomes) <= {"right", "refused"}
    assert "right" in outcomes
    stats = gen.stats()
    assert (stats.blocks_used, stats.blocks_reserved, stats.blocks_free) == (0, 0, 6)
    with pytest.raises(rsgen.CapacityError, match=r"needed.*free.*in total; raise `kv_cache_bytes` to"):
        gen.generate([1] * 100, max_new_tokens=100)


class Interrupting:
    """A value during whose type check a signal arrives: the check reads `__class__`."""

    @property
    def __class__(self) -> type:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    "call",
    [
        lambda gen, value: gen.generate(value),
        lambda gen, value: gen.generate([value, 5]),
        lambda gen, value: gen.chat(value),
        lambda gen, value: gen.chat([{"role": "user", "content": "x"}, value]),
        lambda gen, value: gen.tokenizer.decode([[5], value]),
        lambda gen, value: gen.tokenizer.decode(value),
    ],
)
def test_an_interrupt_while_arguments_are_checked_is_not_swallowed(
    gen: rsgen.Generator, call: Callable[[rsgen.Generator, Any], object], capfd: pytest.CaptureFixture[str]
):
    with pytest.raises(KeyboardInterrupt):
        call(gen, Interrupting())
    assert capfd.readouterr().err == ""
