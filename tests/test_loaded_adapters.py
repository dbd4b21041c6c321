"""Adapters beside the model, as users meet them: mixed calls, caches, streams, threads, errors."""

import json
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import rsgen
from test_interrupts import interrupted
from tiny_llama import llama_tensors, write_safetensors

ROOT = Path(__file__).parents[1]
ADAPTERS = ROOT / "tests/golden/adapters"
STORY = ADAPTERS / "story"
PROMPTS = ["Once upon a time", "Tom had a red ball. " * 12, "The", "Once upon a time, there was a"]
LIMIT = {"max_new_tokens": 12, "output_logits": True}
KINDS = {
    "float32": {},
    "prefix caching off": {"prefix_caching": False},
    "bfloat16": {"compute_dtype": "bfloat16"},
    "int8": {"dtype": "int8"},
    "int4": {"dtype": "int4"},
    "int8 arithmetic": {"dtype": "int8", "compute_dtype": "int8"},
}
SEARCHES = {
    "greedy": {},
    "sampling": {"do_sample": True, "seed": 3},
    "beams": {"num_beams": 3},
    "contrastive": {"penalty_alpha": 0.6, "top_k": 4},
    "dola": {"dola_layers": "low"},
    "lookup": {"prompt_lookup_num_tokens": 3},
    "early exit": {"assistant_early_exit": 3},
}


def opened(**options) -> rsgen.Generator:
    gen = rsgen.Generator(num_threads=2, **options)
    gen.load_adapter(STORY, name="story")
    return gen


@pytest.fixture(scope="module")
def gen():
    return opened()


def logits(out: rsgen.GenerationOutput) -> list[np.ndarray]:
    return [np.stack([step[row] for step in out.logits]) for row in range(len(out.sequences))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("search", ["greedy", "sampling", "beams"])
def test_each_row_of_a_mixed_call_has_the_bits_that_it_has_alone(kind, search):
    gen = opened(**KINDS[kind])
    gen.load_adapter(STORY, name="other")
    adapters = ["story", None, "other", None]
    fields = LIMIT | SEARCHES[search]
    seeds = {"seed": [3] * len(PROMPTS)} if search == "sampling" else {}
    mixed = gen.generate(PROMPTS, adapter=adapters, **fields | seeds)
    for row, (prompt, adapter) in enumerate(zip(PROMPTS, adapters, strict=True)):
        alone = gen.generate(prompt, adapter=adapter, **fields)
        assert mixed.texts[row] == alone.text
        if search == "greedy":
            np.testing.assert_array_equal(logits(mixed)[row], logits(alone)[0])
            other = gen.generate(prompt, adapter=None if adapter else "story", **fields)
            assert not np.array_equal(logits(other)[0][0], logits(alone)[0][0])


def drawn_adapter(folder: Path, base: Path, rng: np.random.Generator, rank: int = 4) -> Path:
    """An adapter for all matrices in the layers of a llama."""
    config = json.loads((base / "config.json").read_text())
    tensors = {}
    for name, matrix in llama_tensors(config, rng).items():
        if ".layers." in name and matrix.ndim == 2:
            module = f"base_model.model.{name.removesuffix('.weight')}"
            outputs, inputs = matrix.shape
            tensors[f"{module}.lora_A.weight"] = rng.normal(size=(rank, inputs)).astype("<f4") / inputs**0.5
            tensors[f"{module}.lora_B.weight"] = rng.normal(size=(outputs, rank)).astype("<f4") / 4
    modules = sorted({name.split(".")[-3] for name in tensors})
    folder.mkdir()
    fields = {"peft_type": "LORA", "r": rank, "lora_alpha": 3, "target_modules": modules}
    (folder / "adapter_config.json").write_text(json.dumps(fields))
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    return folder


@pytest.mark.parametrize("search", SEARCHES)
def test_every_search_gives_what_the_merged_model_gives(make_llama, tmp_path, search):
    rng = np.random.default_rng(7)
    base = make_llama(num_hidden_layers=4, max_position_embeddings=128)
    adapter = drawn_adapter(tmp_path / "adapter", base, rng)
    merged = rsgen.Generator(base, adapter=adapter, num_threads=2)
    gen = rsgen.Generator(base, num_threads=2)
    gen.load_adapter(adapter, name="drawn")
    fields = SEARCHES[search] | {"max_new_tokens": 20, "eos_token_id": [], "pad_token_id": 0}
    differing = 0
    for _ in range(10):
        prompt = rng.integers(3, 30, int(rng.integers(1, 40))).tolist()
        found = gen.generate(prompt, adapter="drawn", **fields).sequences.tolist()
        assert found == merged.generate(prompt, **fields).sequences.tolist()
        differing += found != gen.generate(prompt, **fields).sequences.tolist()
    assert differing >= 8


def test_computed_prompts_are_shared_within_an_adapter_only(gen):
    prompt = "There was a little fox who lived in the wood. " * 10
    fresh = opened()
    expected = [fresh.generate(prompt, adapter=name, **LIMIT) for name in ("story", None)]
    for name in (None, "story", None, "story"):
        out = gen.generate(prompt, adapter=name, **LIMIT)
        np.testing.assert_array_equal(logits(out)[0], logits(expected[name is None])[0])
    assert gen.generate(prompt, adapter="story", max_new_tokens=1).usage.cached_prompt_tokens > 0


def test_an_adapter_of_the_same_name_is_another_one():
    gen = opened()
    prompt = "There was a little fox who lived in the wood. " * 10
    first = gen.generate(prompt, adapter="story", **LIMIT)
    gen.unload_adapter("story")
    assert gen.adapters == {}
    gen.load_adapter(STORY, name="story")
    again = gen.generate(prompt, adapter="story", **LIMIT)
    assert again.usage.cached_prompt_tokens == 0
    np.testing.assert_array_equal(logits(again)[0], logits(first)[0])


def test_kept_caches_go_on_with_their_adapter(gen):
    first = gen.generate("Once upon a time", adapter="story", return_cache=True, max_new_tokens=10)
    rest = gen.generate(" and then", adapter="story", cache=first.cache, **LIMIT)
    whole = [*first.sequences[0].tolist(), *gen.tokenizer.encode(" and then", add_special_tokens=False)]
    np.testing.assert_array_equal(logits(rest)[0], logits(gen.generate(whole, adapter="story", **LIMIT))[0])
    for call in (
        lambda: gen.generate("a", cache=first.cache, max_new_tokens=1),
        lambda: gen.generate("a", cache=gen.prefill("b"), adapter="story", max_new_tokens=1),
        lambda: gen.score("a", cache=first.cache),
        lambda: gen.score("a", cache=gen.prefill("b"), adapter="story"),
        lambda: gen.prefill("a", cache=first.cache),
    ):
        with pytest.raises(
            rsgen.InputError, match="`adapter` must be that of the call which the cache comes from"
        ):
            call()


def test_streams_go_on_when_their_adapter_is_unloaded():
    gen = opened()
    expected = gen.generate("Once upon a time", adapter="story", max_new_tokens=40).text
    stream = gen.stream("Once upon a time", adapter="story", max_new_tokens=40)
    first = next(stream).text
    gen.unload_adapter("story")
    assert first + "".join(token.text for token in stream) == expected
    with pytest.raises(rsgen.InputError, match="`adapter` must be the name of a loaded adapter"):
        gen.generate("Once", adapter="story")


def test_twenty_threads_use_load_and_unload_at_once():
    gen = opened()
    expected = {
        name: gen.generate("The dog", adapter=name, max_new_tokens=20).text for name in ("story", None)
    }
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            name = f"own {number}"
            gen.load_adapter(STORY, name=name)
            for adapter, text in ((name, "story"), ("story", "story"), (None, None)):
                assert gen.generate("The dog", adapter=adapter, max_new_tokens=20).text == expected[text]
            gen.unload_adapter(name)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert list(gen.adapters) == ["story"]
    assert gen.stats().blocks_used == gen.stats().blocks_reserved == 0


def test_chats_and_maps_take_an_adapter(gen):
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    messages = [{"role": "user", "content": "Once upon a time"}]
    ids = gen.tokenizer.encode("Once upon a time", add_special_tokens=False)
    expected = gen.generate(ids, adapter="story", max_new_tokens=8).text
    assert gen.chat(messages, chat_template=template, adapter="story", max_new_tokens=8).text == expected
    expected = gen.generate("Once upon a time", adapter="story", max_new_tokens=8).text
    rows = gen.map(["Once upon a time", "Once upon a time"], adapter="story", max_new_tokens=8)
    assert [row["text"] for row in rows] == [expected, expected]


def test_scores_and_embeddings_are_those_of_the_merged_model(make_llama, tmp_path):
    rng = np.random.default_rng(11)
    base = make_llama(num_hidden_layers=3, max_position_embeddings=128)
    adapter = drawn_adapter(tmp_path / "adapter", base, rng)
    merged, gen = rsgen.Generator(base, adapter=adapter), rsgen.Generator(base)
    gen.load_adapter(adapter, name="a")
    texts = [rng.integers(3, 30, length).tolist() for length in (1, 5, 40, 40, 17)]
    texts += [texts[2] + [5], texts[2][:20]]

    def ranked(gen, **fields):
        return [(one.index, round(one.logprob, 3)) for one in gen.rank(texts[4], texts[:4], **fields)]

    calls = {
        "score": lambda gen, **fields: gen.score(texts, **fields),
        "score after a cache": lambda gen, **fields: gen.score(
            texts, cache=gen.prefill(texts[2], **fields), **fields
        ),
        "rank": ranked,
        "perplexity": lambda gen, **fields: [gen.perplexity(texts[2], window=16, **fields)],
        "embed": lambda gen, **fields: gen.embed(texts, pooling="mean", **fields),
        "embed last": lambda gen, **fields: gen.embed(texts, pooling="last", **fields),
        "forward": lambda gen, **fields: gen.forward(texts[2], **fields),
    }
    for name, call in calls.items():
        found, plain, expected = call(gen, adapter="a"), call(gen), call(merged)
        for own, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-4, err_msg=name)
        assert any(not np.allclose(own, other, atol=1e-3) for own, other in zip(found, plain, strict=True)), (
            name
        )
        # Another time in the other order, out of the cache.
        for own, other in zip(call(gen), plain, strict=True):
            np.testing.assert_array_equal(own, other)


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        (
            "tied_embedding",
            "changes an embedding, which no adapter beside the model can; open the model with it",
        ),
        ("saved_more_rows", "takes the place of a whole tensor"),
        ("patterns", r"must be for a matrix of \d+ inputs and \d+ outputs|which the model does not have"),
        ("nothing", "nothing"),
    ],
)
def test_what_cannot_be_beside_the_model_says_why(gen, folder, message):
    with pytest.raises(rsgen.LoadError, match=message):
        gen.load_adapter(ADAPTERS / folder, name="new")
    assert list(gen.adapters) == ["story"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda gen: gen.load_adapter(STORY, name="story"), "`name` must be another one"),
        (lambda gen: gen.load_adapter(STORY, name=""), "`name` must be from 1 to 256 bytes"),
        (lambda gen: gen.load_adapter(3, name="new"), "`adapter` must be"),
        (lambda gen: gen.unload_adapter("new"), r'got "new" \(loaded: "story"\)'),
        (
            lambda gen: gen.generate("a", adapter="new"),
            '`adapter` must be the name of a loaded adapter, got "new"',
        ),
        (
            lambda gen: gen.generate("a", adapter=3),
            "`adapter` must be the name of a loaded adapter, or a list",
        ),
        (lambda gen: gen.generate(["a", "b"], adapter=["story"] * 3), r"one for each \(2\), got 3"),
        (lambda gen: gen.score(["a", "b"], adapter=["story", None]), "`adapter` must be one for all texts"),
    ],
)
def test_a_wrong_argument_is_named(gen, call, message):
    with pytest.raises((rsgen.RsgenError, TypeError), match=message):
        call(gen)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no signal to send")
def test_ctrl_c_ends_loading_within_a_quarter_of_a_second(make_llama, tmp_path):
    rng = np.random.default_rng(3)
    base = make_llama(hidden_size=512, intermediate_size=1024, num_hidden_layers=40)
    adapter = drawn_adapter(tmp_path / "adapter", base, rng, rank=256)
    gen = rsgen.Generator(base, num_threads=1)
    with interrupted(0.05):
        gen.load_adapter(adapter, name="drawn")
    assert gen.adapters == {}
    gen.load_adapter(adapter, name="drawn")
    assert list(gen.adapters) == ["drawn"]


def test_each_row_of_a_table_may_name_its_own(gen):
    # Tables have NaN for what is missing.
    names = ["story", None, [("story", 0.5)], float("nan")]
    rows = [{"prompt": prompt, "customer": name} for prompt, name in zip(PROMPTS, names, strict=True)]
    made = gen.map(rows, adapter=lambda row: row["customer"], max_new_tokens=12)
    names[3] = None
    assert [row["text"] for row in made] == gen.generate(PROMPTS, adapter=names, max_new_tokens=12).texts
    rows[1]["customer"] = "new"
    made = gen.map(rows, adapter=lambda row: row["customer"], max_new_tokens=12, on_error="return")
    assert [(row["error"] or "")[:15] for row in made] == ["", "row 1: `adapter", "", ""]
