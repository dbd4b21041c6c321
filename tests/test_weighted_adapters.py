"""Weighted lists of adapters: the sum of their products, in calls, rows, caches and scores."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import rsgen
from test_loaded_adapters import KINDS, PROMPTS, SEARCHES, STORY, drawn_adapter, logits

ROOT = Path(__file__).parents[1]
CASES = json.loads((ROOT / "tests/golden/weighted_adapters.json").read_text())["cases"]
LIMIT = {"max_new_tokens": 12, "output_logits": True}


@pytest.fixture(scope="module")
def gen():
    gen = rsgen.Generator(num_threads=2)
    gen.load_adapter(STORY, name="a")
    gen.load_adapter(STORY, name="b")
    return gen


@pytest.mark.parametrize("name", CASES)
def test_the_sum_is_that_of_peft(name):
    case = CASES[name]
    gen = rsgen.Generator(ROOT / case["base"], num_threads=2)
    for folder in {folder for folder, _ in case["adapters"]}:
        gen.load_adapter(ROOT / folder, name=folder)
    weighted = [tuple(pair) for pair in case["adapters"]]
    expected = np.array(case["logits"], np.float32)
    found = gen.forward([case["input_ids"]], adapter=weighted)[0, -1]
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    plain = gen.forward([case["input_ids"]])[0, -1]
    assert np.abs(plain - expected).max() > 1e-3, "the adapters change nothing"
    backwards = gen.forward([case["input_ids"]], adapter=weighted[::-1])[0, -1]
    np.testing.assert_array_equal(backwards, found)


@pytest.mark.parametrize("search", SEARCHES)
def test_every_search_gives_what_the_merged_models_give(make_llama, tmp_path, search):
    """Adapters of other ranks and alphas are merged one after the other into folders of their own."""
    rng = np.random.default_rng(7)
    base = make_llama(num_hidden_layers=4, max_position_embeddings=128)
    folders = [drawn_adapter(tmp_path / name, base, rng, rank) for name, rank in (("a", 4), ("b", 1))]
    weights = (0.75, -0.5)
    for folder, weight in zip(folders, weights, strict=True):
        # The weight of a merged adapter is its alpha's.
        merged = json.loads((folder / "adapter_config.json").read_text())
        scaled = folder.with_name(f"{folder.name} scaled")
        scaled.mkdir()
        (scaled / "adapter_config.json").write_text(json.dumps(merged | {"lora_alpha": 3 * weight}))
        (scaled / "adapter_model.safetensors").write_bytes(
            (folder / "adapter_model.safetensors").read_bytes()
        )
    merged = rsgen.Generator(base, adapter=tmp_path / "a scaled", num_threads=2)
    merged.load_adapter(tmp_path / "b scaled", name="b")
    gen = rsgen.Generator(base, num_threads=2)
    for folder in folders:
        gen.load_adapter(folder, name=folder.name)
    fields = SEARCHES[search] | {"max_new_tokens": 20, "eos_token_id": [], "pad_token_id": 0}
    differing = 0
    for _ in range(10):
        prompt = rng.integers(3, 30, int(rng.integers(1, 40))).tolist()
        weighted = [("a", weights[0]), ("b", weights[1])]
        found = gen.generate(prompt, adapter=weighted, **fields).sequences.tolist()
        assert found == merged.generate(prompt, adapter="b", **fields).sequences.tolist()
        differing += found != gen.generate(prompt, adapter="a", **fields).sequences.tolist()
    assert differing >= 5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("search", ["greedy", "sampling", "beams"])
def test_each_row_of_a_mixed_call_has_the_bits_that_it_has_alone(kind, search):
    gen = rsgen.Generator(num_threads=2, **KINDS[kind])
    for name in ("a", "b", "c"):
        gen.load_adapter(STORY, name=name)
    # The order in which a pass meets the adapters differs from row to row.
    adapters = [[("c", 0.7), ("a", 0.3), ("b", -0.2)], None, "b", [("a", 0.3), ("b", 0.4), ("c", 1.3)]]
    fields = LIMIT | SEARCHES[search]
    seeds = {"seed": [3] * len(PROMPTS)} if search == "sampling" else {}
    for order in ([0, 1, 2, 3], [3, 2, 0, 1]):
        mixed = gen.generate(
            [PROMPTS[row] for row in order], adapter=[adapters[row] for row in order], **fields | seeds
        )
        for place, row in enumerate(order):
            alone = gen.generate(PROMPTS[row], adapter=adapters[row], **fields)
            assert mixed.texts[place] == alone.text
            if search == "greedy":
                np.testing.assert_array_equal(logits(mixed)[place], logits(alone)[0])


def test_lists_that_change_the_model_alike_have_the_same_bits(gen):
    def found(adapter):
        return gen.score(PROMPTS[1], adapter=adapter)

    for same in (
        ["a", [("a", 1.0)], ("a", 1), ["a"], [("a", 0.5), ("a", 0.5)], [("a", 1), ("b", 0.0)], [["a", 1.0]]],
        [None, [], [("a", 0.0)], [("a", 0.5), ("a", -0.5)], [("b", -0.0)], ("a", 0)],
        [["a", "b"], ("a", "b"), [("b", 1.0), "a"], [("a", np.float32(1.0)), ("b", np.int64(1))]],
        [[("a", 0.3), ("b", 0.7)], [("b", 0.7), ("a", 0.3)]],
    ):
        for adapter in same[1:]:
            np.testing.assert_array_equal(found(adapter), found(same[0]), err_msg=str(adapter))
    different = ["a", None, ["a", "b"], [("a", 0.5)], [("a", -1.0)]]
    for one, other in itertools.combinations(different, 2):
        assert not np.array_equal(found(one), found(other)), (one, other)


def test_lists_for_a_call_and_for_rows(gen):
    def texts(prompts, adapter):
        return gen.generate(prompts, adapter=adapter, max_new_tokens=8).texts

    weighted = [("a", 2.0), ("b", 1.5)]
    one = gen.generate("Once", adapter=weighted, max_new_tokens=8).text
    plain = gen.generate("Once", max_new_tokens=8).text
    both = gen.generate("Once", adapter=["a", "b"], max_new_tokens=8).text
    a = gen.generate("Once", adapter="a", max_new_tokens=8).text
    two = ["Once", "Once"]
    assert texts(two, weighted) == [one, one]
    assert texts(two, [weighted, None]) == [one, plain]
    assert texts(two, [["a", "b"], []]) == [both, plain]
    assert texts(two, ["a", "b"]) == [a, a], "a list of names is one for each prompt"
    assert texts(two, ["a", weighted]) == [a, one]
    assert texts(two, [weighted]) == [one, one]
    assert texts(two, []) == [plain, plain]
    assert texts(
        ["Once"],
        [
            "a",
        ],
    ) == [a]
    assert "".join(token.text for token in gen.stream("Once", adapter=weighted, max_new_tokens=8)) == one
    assert [row["text"] for row in gen.map(two, adapter=weighted, max_new_tokens=8)] == [one, one]
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    chat = {"chat_template": template, "max_new_tokens": 8}
    messages = [{"role": "user", "content": "Once"}]
    replies = gen.chat([messages, messages], adapter=[weighted, "a"], **chat)
    assert replies.texts == [gen.chat(messages, adapter=one, **chat).text for one in (weighted, "a")]


def test_all_methods_take_them(gen):
    weighted = [("a", 0.7), ("b", 0.3)]
    text = "Once upon a time, there was a"
    ranked = gen.rank(text, [" girl", " dog"], adapter=weighted)
    score = gen.score(text + " girl", adapter=weighted)
    assert not np.array_equal(score, gen.score(text + " girl", adapter="a"))
    cache = gen.prefill(text, adapter=weighted)
    rest = gen.score(" girl", cache=cache, adapter=weighted[::-1])
    np.testing.assert_allclose(rest.sum(), next(one for one in ranked if one.index == 0).logprob, rtol=1e-5)
    np.testing.assert_allclose(
        gen.perplexity(text + " girl", adapter=weighted), math.exp(-score[1:].mean()), 1e-4
    )
    assert gen.embed(text, adapter=weighted).shape == gen.embed(text).shape
    assert gen.classify(text, [" girl", " dog"], adapter=weighted) is not None


def test_computed_prompts_are_shared_between_the_same_sums_only(gen):
    prompt = "There was a little fox who lived in the wood. " * 10
    sums = [None, "a", "b", ["a", "b"], [("a", 0.5), ("b", 0.5)], [("a", 0.5), ("b", 0.25)], [("a", 0.5)]]
    fresh = rsgen.Generator(num_threads=2, prefix_caching=False)
    for name in ("a", "b"):
        fresh.load_adapter(STORY, name=name)
    expected = [logits(fresh.generate(prompt, adapter=adapter, **LIMIT))[0] for adapter in sums]
    for _ in range(2):
        for adapter, own in zip(sums, expected, strict=True):
            out = gen.generate(prompt, adapter=adapter, **LIMIT)
            np.testing.assert_array_equal(logits(out)[0], own)
    again = gen.generate(prompt, adapter=[("b", 0.25), ("a", 0.5)], max_new_tokens=1)
    assert again.usage.cached_prompt_tokens > 0
    new = gen.generate(prompt, adapter=[("b", 0.26), ("a", 0.5)], max_new_tokens=1)
    assert new.usage.cached_prompt_tokens == 0


def test_kept_caches_go_on_with_their_sum(gen):
    weighted = [("a", 0.7), ("b", 0.3)]
    first = gen.generate("Once upon a time", adapter=weighted, return_cache=True, max_new_tokens=10)
    rest = gen.generate(" and then", adapter=weighted[::-1], cache=first.cache, **LIMIT)
    whole = [*first.sequences[0].tolist(), *gen.tokenizer.encode(" and then", add_special_tokens=False)]
    np.testing.assert_array_equal(logits(rest)[0], logits(gen.generate(whole, adapter=weighted, **LIMIT))[0])
    for adapter in ("a", None, [("a", 0.7), ("b", 0.31)], ["a", "b"]):
        with pytest.raises(rsgen.InputError, match="must be that of the call which the cache comes from"):
            gen.generate("a", cache=first.cache, adapter=adapter, max_new_tokens=1)


@pytest.mark.parametrize("weight", [math.nan, math.inf, -math.inf, 1e39, 10**400])
def test_weights_must_be_finite(gen, weight):
    for adapter in ([("a", weight)], [("a", 1.0), ("b", weight)], [("a", weight), ("a", 1.0)]):
        with pytest.raises(rsgen.InputError, match="`adapter` must have weights that are finite numbers"):
            gen.generate("Once", adapter=adapter, max_new_tokens=1)
        with pytest.raises(rsgen.InputError, match="`adapter` must have weights that are finite numbers"):
            gen.score("Once", adapter=adapter)


def test_sums_of_weights_must_be_finite(gen):
    with pytest.raises(rsgen.InputError, match="the sum of those of one adapter"):
        gen.generate("Once", adapter=[("a", 3e38), ("a", 3e38)], max_new_tokens=1)


def test_weights_that_overflow_the_logits_say_so(gen):
    with pytest.raises(rsgen.NumericalError, match="logits hold NaN or infinity"):
        gen.generate("Once", adapter=[("a", 3e38)], max_new_tokens=2)
    assert gen.generate("Once", adapter=[("a", 1e-45)], max_new_tokens=2).text


@pytest.mark.parametrize(
    "adapter",
    [
        [("a", 0.5), None],
        [("a", 0.5), ["b"]],
        [["a", None]],
        [[["a", 0.5], [["b"]]]],
        [("a", "b", 0.5), 3],
        3,
        [3],
        {"a": 0.5},
        [{"a": 0.5}],
        b"a",
        [("a", 1j)],
    ],
    ids=str,
)
def test_what_names_no_adapters_is_a_type_error(gen, adapter):
    for call in (
        lambda: gen.generate("Once", adapter=adapter, max_new_tokens=1),
        lambda: gen.generate(["Once", "The"], adapter=adapter, max_new_tokens=1),
        lambda: gen.score("Once", adapter=adapter),
    ):
        with pytest.raises(
            TypeError, match="`adapter` must be the name of a loaded adapter, or a list of names"
        ):
            call()


def test_unknown_names_and_numbers_of_lists_are_input_errors(gen):
    for adapter in ("c", [("c", 0.5)], ["a", "c"], [("a", 1.0), ("c", 0.0)]):
        with pytest.raises(rsgen.InputError, match=r'got "c" \(loaded: "a", "b"\); load it first'):
            gen.generate("Once", adapter=adapter, max_new_tokens=1)
    with pytest.raises(rsgen.InputError, match=r"one for all prompts or one for each \(2\), got 3"):
        gen.generate(["Once", "The"], adapter=["a", "b", None], max_new_tokens=1)
    with pytest.raises(rsgen.InputError, match=r"must be the same for all rows of an array of ids"):
        gen.generate(np.array([[5, 6], [7, 8]]), adapter=["a", None], max_new_tokens=1)
    assert len(gen.generate(np.array([[5, 6], [7, 8]]), adapter=["a", "a"], max_new_tokens=1).sequences) == 2


def test_a_sum_of_which_one_is_unloaded_goes_on():
    gen = rsgen.Generator(num_threads=2)
    for name in ("a", "b"):
        gen.load_adapter(STORY, name=name)
    weighted = [("a", 0.7), ("b", 0.3)]
    expected = gen.generate("Once upon a time", adapter=weighted, max_new_tokens=40).text
    stream = gen.stream("Once upon a time", adapter=weighted, max_new_tokens=40)
    first = next(stream).text
    gen.unload_adapter("b")
    assert first + "".join(token.text for token in stream) == expected
    with pytest.raises(rsgen.InputError, match=r'got "b" \(loaded: "a"\); load it first'):
        gen.generate("Once", adapter=weighted)


def test_inspect_says_what_is_in_memory():
    gen = rsgen.Generator(num_threads=1)
    plain = gen.inspect()
    assert plain["adapters"] == {}
    assert plain["model"] == gen.name_or_path
    assert plain["architecture"] == "LlamaForCausalLM"
    assert plain["weight_bytes"] > 1_000_000
    assert plain["kv_cache_bytes_total"] == gen.stats().bytes_total
    gen.load_adapter(STORY, name="a")
    facts = {"path": str(STORY), "rank": 2, "modules": ["q_proj", "v_proj"], "bytes": gen.adapters["a"]}
    assert gen.inspect()["adapters"] == {"a": facts}
    assert gen.inspect()["weight_bytes"] == plain["weight_bytes"]
    gen.unload_adapter("a")
    assert gen.inspect()["adapters"] == {}
