"""The calls that generate: prompts in every form, and what comes out."""

import array
import warnings

import numpy as np
import pytest
import rsgen

PROMPT = "Once upon a time"


def test_the_quickstart_writes_a_story():
    gen = rsgen.Generator()
    out = gen.generate(PROMPT, max_new_tokens=60)
    assert out.text.startswith(", there was a little")
    assert len(out.text.split()) > 30
    assert str(out) == out.text == out.texts[0]


def test_from_pretrained_is_the_same(gen):
    other = rsgen.Generator.from_pretrained(gen.name_or_path, num_threads=1)
    assert other.generate(PROMPT, max_new_tokens=8).text == gen.generate(PROMPT, max_new_tokens=8).text


@pytest.fixture(scope="module")
def ids(gen) -> list[int]:
    return gen.tokenizer.encode(PROMPT)


@pytest.mark.parametrize(
    "form",
    [
        list,
        tuple,
        np.array,
        lambda ids: np.array(ids, np.uint16),
        lambda ids: np.array(ids, ">i4"),
        lambda ids: np.array([ids] * 3, np.int8 if max(ids) < 128 else np.int64)[1],
        lambda ids: np.array([ids, ids]).T.copy().T[0],
        lambda ids: np.array([ids]),
        lambda ids: array.array("q", ids),
        lambda ids: [np.int32(token) for token in ids],
        lambda ids: [ids],
        lambda ids: [np.array(ids)],
        lambda _: [PROMPT],
        lambda _: (PROMPT,),
    ],
)
def test_every_form_of_one_prompt_gives_the_same(gen, ids, form):
    expected = gen.generate(PROMPT, max_new_tokens=12)
    out = gen.generate(form(ids), max_new_tokens=12)
    assert out.text == expected.text
    np.testing.assert_array_equal(out.sequences, expected.sequences)


def test_a_tensor_of_another_library_is_taken_as_an_array(gen, ids):
    class Tensor:
        def __array__(self, dtype=None, copy=None):
            return np.array(ids, dtype)

        def __len__(self):
            return len(ids)

    expected = gen.generate(PROMPT, max_new_tokens=5).text
    assert gen.generate(Tensor(), max_new_tokens=5).text == expected


def test_an_empty_text_begins_with_the_first_token_of_texts(gen):
    out = gen.generate("", max_new_tokens=5)
    assert out.sequences[0, 0] == gen.tokenizer.bos_token_id
    assert out.usage.prompt_tokens == 1


def test_a_rectangle_is_padded_and_masked_as_in_transformers(gen, ids):
    pad = gen.tokenizer.pad_token_id
    short = ids[:-2]
    rows = np.array([ids, [pad, pad, *short]])
    mask = np.array([[1] * len(ids), [0, 0] + [1] * len(short)])
    inferred = gen.generate(rows, max_new_tokens=10)
    masked = gen.generate(rows, attention_mask=mask, max_new_tokens=10)
    np.testing.assert_array_equal(masked.sequences, inferred.sequences)
    np.testing.assert_array_equal(masked.sequences[:, : len(ids)], rows)
    assert masked.texts[0] == gen.generate(ids, max_new_tokens=10).text
    assert masked.texts[1] == gen.generate(short, max_new_tokens=10).text
    assert masked.usage == gen.generate(rows, attention_mask=mask.astype(bool), max_new_tokens=10).usage
    assert masked.usage.prompt_tokens == len(ids) + len(short)


def test_the_mask_of_one_prompt_has_its_shape(gen, ids):
    pad = gen.tokenizer.pad_token_id
    expected = gen.generate(ids, max_new_tokens=5).text
    assert gen.generate([pad, *ids], attention_mask=[0] + [1] * len(ids), max_new_tokens=5).text == expected
    for mask in ([1], [[1]], [1, 1, 1], 1, [[[1]]]):
        with pytest.raises(rsgen.InputError, match="attention_mask"):
            gen.generate(np.array([[5, 6]]), attention_mask=mask, max_new_tokens=5)
    with pytest.raises(rsgen.InputError, match="must hold 1 for a token and 0 for padding, got 2"):
        gen.generate([5, 6], attention_mask=[2, 1], max_new_tokens=5)
    with pytest.raises(rsgen.InputError, match="must have the shape of the ids"):
        gen.generate([[5, 6]], attention_mask=[1, 1], max_new_tokens=5)
    for prompt in ("text", ["a", "list"], [[5, 6], [7]]):
        with pytest.raises(rsgen.InputError, match="`attention_mask` goes with ids"):
            gen.generate(prompt, attention_mask=[1, 1], max_new_tokens=5)


def test_prompts_of_a_list_have_rows_in_their_order(gen, ids):
    prompts = ["The cat", ids, np.array(ids[:2]), "One day, a bird"]
    out = gen.generate(prompts, max_new_tokens=6)
    assert len(out) == 4
    assert out.prompt_indices == [0, 1, 2, 3]
    alone = [gen.generate(prompt, max_new_tokens=6) for prompt in prompts]
    assert out.texts == [each.text for each in alone]
    longest = max(each.sequences.shape[1] - 6 for each in alone)
    assert out.sequences.shape == (4, longest + 6)
    pad = gen.tokenizer.pad_token_id
    for row, each in zip(out.sequences, alone, strict=True):
        width = each.sequences.shape[1]
        np.testing.assert_array_equal(row[-width:], each.sequences[0])
        assert (row[:-width] == pad).all()


def test_the_output_tells_all_of_a_call(gen, ids):
    out = gen.sample(
        PROMPT, num_return_sequences=3, seed=5, max_new_tokens=7, output_scores=True, output_logits=True
    )
    assert len(out) == 3
    assert out.sequences.dtype == np.int64
    assert out.sequences.shape == (3, len(ids) + 7)
    assert out.finish_reasons == ["length"] * 3
    assert out.prompt_indices == [0, 0, 0]
    assert (out.seed, out.seeds) == (5, [5])
    assert out.usage == gen.sample(PROMPT, num_return_sequences=3, seed=6, max_new_tokens=7).usage
    assert (out.usage.prompt_tokens, out.usage.generated_tokens) == (len(ids), 21)
    assert 0.0 < out.timings.first_token <= out.timings.total
    assert out.timings.encoder == 0.0
    assert out.sequences is out.sequences
    for row in range(3):
        assert out.token_ids[row].dtype == np.int64
        np.testing.assert_array_equal(out.token_ids[row], out.sequences[row, len(ids) :])
        assert out.logprobs[row].dtype == np.float32
        for step in range(7):
            logits = out.logits[step][row].astype(np.float64)
            logprob = (
                logits[out.token_ids[row][step]] - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
            )
            assert out.logprobs[row][step] == pytest.approx(logprob, abs=1e-5)
            assert np.isfinite(out.scores[step][row, out.token_ids[row][step]])
            assert np.isfinite(out.scores[step][row]).sum() == 50, "top_k is 50 by default"


def test_without_being_asked_for_scores_are_not_kept(gen):
    out = gen.generate(PROMPT, max_new_tokens=2)
    assert out.scores is None
    assert out.logits is None
    assert out.seed is None
    assert out.seeds == []


def test_rows_that_ended_earlier_hold_nan_in_later_steps(gen):
    prompts = [PROMPT, "One day"]
    out = gen.generate(prompts, max_new_tokens=6, output_logits=True)
    second = int(out.token_ids[0][2])
    assert second not in out.token_ids[1].tolist()
    ended = gen.generate(prompts, max_new_tokens=6, output_logits=True, eos_token_id=second)
    assert ended.finish_reasons == ["eos", "length"]
    assert [len(ids) for ids in ended.token_ids] == [3, 6]
    assert len(ended.logits) == 6
    for step, (logits, expected) in enumerate(zip(ended.logits, out.logits, strict=True)):
        np.testing.assert_array_equal(logits[1], expected[1])
        assert np.isnan(logits[0]).all() == (step > 2)
    pad = gen.tokenizer.pad_token_id
    assert (ended.sequences[0, -3:] == pad).all()


def test_a_seed_decides_what_is_drawn(gen):
    texts = {seed: gen.sample(PROMPT, seed=seed, max_new_tokens=20).text for seed in range(4)}
    assert len(set(texts.values())) > 1
    assert texts[3] == gen.generate(PROMPT, do_sample=True, seed=3, max_new_tokens=20).text
    drawn = gen.sample(PROMPT, max_new_tokens=20)
    assert drawn.text == gen.sample(PROMPT, seed=drawn.seed, max_new_tokens=20).text
    assert gen.sample(PROMPT, seed=-1, max_new_tokens=2).seed == 2**64 - 1


def test_prompts_of_a_list_draw_from_their_own_seeds(gen):
    one = gen.sample([PROMPT, PROMPT, PROMPT], seed=7, max_new_tokens=20)
    assert one.seeds == [7, 8, 9]
    many = gen.sample([PROMPT, PROMPT], seed=[9, 7], max_new_tokens=20)
    assert many.texts == [one.texts[2], one.texts[0]]
    with pytest.raises(rsgen.ConfigError, match="`seed`"):
        gen.sample([PROMPT, PROMPT], seed=[1, 2, 3], max_new_tokens=2)


def test_call_goes_before_config_goes_before_model(gen):
    config = rsgen.GenerationConfig(max_new_tokens=3, do_sample=True, seed=1)
    assert gen.generate(PROMPT, config).usage.generated_tokens == 3
    assert gen.generate(PROMPT, generation_config=config, max_new_tokens=4).usage.generated_tokens == 4
    assert gen.generate(PROMPT, config, seed=2).seed == 2
    assert gen.greedy_search(PROMPT, config).seed is None
    assert gen.generation_config.eos_token_id == gen.tokenizer.eos_token_id


def test_named_methods_refuse_to_be_another(gen):
    with pytest.raises(rsgen.ConfigError, match=r"`do_sample` cannot be set in greedy_search\(\)"):
        gen.greedy_search(PROMPT, do_sample=True)
    with pytest.raises(rsgen.ConfigError, match=r"`do_sample` cannot be set in sample\(\)"):
        gen.sample(PROMPT, do_sample=False)


def test_what_was_probably_not_meant_is_a_warning_at_the_callers_line(gen):
    with pytest.warns(
        UserWarning, match="`temperature` has no effect because `do_sample` is not set"
    ) as caught:
        gen.generate(PROMPT, max_new_tokens=2, temperature=0.5)
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="temperature"):
            gen.generate(PROMPT, max_new_tokens=2, temperature=0.5)


def test_without_a_limit_a_call_stops_after_20_tokens_and_says_so(make_llama):
    gen = rsgen.Generator(make_llama(), num_threads=1)
    with pytest.warns(UserWarning, match="stops after 20 new tokens"):
        assert gen.generate([1, 2, 3]).usage.generated_tokens == 20


def test_a_stop_string_ends_a_row_and_stays(gen):
    text = gen.generate(PROMPT, max_new_tokens=40).text
    stop = text[10:16]
    out = gen.generate(PROMPT, max_new_tokens=40, stop_strings=stop)
    assert out.finish_reasons == ["stop"]
    assert text.startswith(out.text)
    assert stop in out.text
    assert gen.generate(PROMPT, max_new_tokens=40, stop_strings=["nowhere", stop]).text == out.text


def test_forward_gives_the_logits_of_every_token(gen, ids):
    logits = gen.forward([ids, ids])
    assert logits.shape == (2, len(ids), gen.config["vocab_size"])
    assert logits.dtype == np.float32
    np.testing.assert_array_equal(logits[0], logits[1])
    np.testing.assert_array_equal(gen.forward(np.array(ids)), logits[:1])
    np.testing.assert_array_equal(gen.forward(np.array([ids, ids], np.uint32)), logits)
    first = gen.generate(ids, max_new_tokens=1, output_logits=True).logits[0]
    np.testing.assert_array_equal(logits[0, -1], first[0])
    with pytest.raises(rsgen.InputError, match="one length"):
        gen.forward([[1, 2], [3]])
    for text in (PROMPT, [PROMPT]):
        with pytest.raises(TypeError, match=r"gen\.tokenizer\.encode"):
            gen.forward(text)


def test_score_gives_the_log_probability_of_each_token(gen, ids):
    scores = gen.score(PROMPT)
    assert scores.shape == (len(ids),)
    assert scores.dtype == np.float32
    assert scores[0] == 0.0
    logits = gen.forward([ids])[0].astype(np.float64)
    logprobs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    np.testing.assert_allclose(scores[1:], logprobs[np.arange(len(ids) - 1), ids[1:]], atol=1e-5)
    np.testing.assert_array_equal(gen.score(np.array(ids)), scores)
    np.testing.assert_array_equal(gen.score(ids), scores)


def test_the_tokenizer_encodes_and_decodes(gen):
    tokenizer = gen.tokenizer
    ids = tokenizer.encode("One day, a café opened. 🎈")
    assert all(type(token) is int for token in ids)
    assert tokenizer.decode(ids, skip_special_tokens=True).strip() == "One day, a café opened. 🎈"
    assert tokenizer.decode(np.array(ids)) == tokenizer.decode(ids)
    assert len(tokenizer) == tokenizer.vocab_size == 2048
    special = [tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id]
    assert special == [0, 1, 2]
    assert tokenizer.decode(special) == "<s></s><pad>"
    assert tokenizer.decode(special, skip_special_tokens=True) == ""
    assert tokenizer.encode("<s>x", add_special_tokens=False)[0] == 0


def test_the_config_is_that_of_the_file(gen):
    assert gen.config["model_type"] == "llama"
    assert gen.config["rope_scaling"] is None
    assert gen.config["rms_norm_eps"] == 1e-5
    gen.config["model_type"] = "changed"
    assert gen.config["model_type"] == "llama"


def test_a_model_without_a_tokenizer_takes_and_gives_ids(make_llama):
    gen = rsgen.Generator(make_llama(), num_threads=1)
    out = gen.generate([1, 2, 3], max_new_tokens=5)
    assert (out.text, out.sequences.shape) == ("", (1, 8))
    with pytest.raises(rsgen.InputError, match=r"has no tokenizer\.json"):
        gen.generate("text", max_new_tokens=5)
    with pytest.raises(rsgen.InputError, match=r"has no tokenizer\.json"):
        _ = gen.tokenizer


def test_reprs_are_readable(gen):
    out = gen.generate(PROMPT, max_new_tokens=30)
    assert repr(out).startswith("GenerationOutput(text=', there was")
    assert "generated_tokens=30" in repr(out)
    assert len(repr(out)) < 200
    for part in ("story-3m", "LlamaForCausalLM", "6 layers", "2 threads", gen.isa):
        assert part in repr(gen)
    assert repr(gen.tokenizer).startswith("Tokenizer(vocab_size=2048")
    usage = out.usage
    expected = (
        f"Usage(prompt_tokens={usage.prompt_tokens}, cached_prompt_tokens={usage.cached_prompt_tokens}, "
    )
    assert repr(usage) == f"{expected}generated_tokens=30)"
    assert repr(out.timings).startswith("Timings(first_token=0.")
    assert repr(gen.stats()).startswith("CacheStats(blocks_used=0")
    token = next(iter(gen.stream(PROMPT)))
    assert repr(token).startswith(f"StreamedToken(id={token.id}, text=',', index=0, logprob=")
