"""What users of transformers bring along works as it does there, or says what to do instead."""

import json
import pickle
import sys
import warnings
from collections import UserDict
from types import SimpleNamespace

import numpy as np
import pytest
import rsgen
from rsgen import _transformers, processors, stopping_criteria

PROMPT = "Once upon a time"
LIMIT = {"max_new_tokens": 8}


def foreign(name, bases=(object,), module="transformers.generation.logits_process", **attributes):
    """An object of a class of transformers', which is not installed here."""
    cls = type(name, bases, {"__module__": module})
    item = cls()
    item.__dict__.update(attributes)
    return item


class Tensor:
    """What torch's tensors have of numpy's arrays."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)

    def tolist(self):
        return self.values


def test_what_a_tokenizer_returns_is_a_prompt(gen):
    encoding = gen.tokenizer(PROMPT, return_tensors="np")
    expected = gen.generate(PROMPT, **LIMIT).sequences
    ids = encoding["input_ids"]
    for output in (
        gen.generate(**encoding, **LIMIT),
        gen.generate(encoding, **LIMIT),
        gen.generate(UserDict(encoding), **LIMIT),
        gen.generate(inputs=ids, **LIMIT),
        gen.generate(input_ids=ids.tolist(), attention_mask=np.ones_like(ids), **LIMIT),
        gen.generate(input_ids=gen.tokenizer(PROMPT)["input_ids"], **LIMIT),
        gen.greedy_search(**encoding, **LIMIT),
    ):
        np.testing.assert_array_equal(output.sequences, expected)
    with gen.stream(**encoding, **LIMIT) as stream:
        list(stream)
    np.testing.assert_array_equal(stream.output.sequences, expected)


def test_a_padded_batch_gives_what_its_prompts_give_alone(gen):
    texts = ["Once upon a time", "One day"]
    output = gen.generate(**gen.tokenizer(texts, padding=True, return_tensors="np"), **LIMIT)
    assert output.texts == [gen.generate(text, **LIMIT).text for text in texts]
    # Lists of one length are the same as an array.
    output = gen.generate(**gen.tokenizer(texts, padding=True), **LIMIT)
    assert output.texts == [gen.generate(text, **LIMIT).text for text in texts]
    with pytest.raises(rsgen.InputError, match=r"pad the rows: tokenizer\(texts, padding=True\)"):
        gen.generate(**gen.tokenizer(texts), **LIMIT)


def test_no_prompt_begins_at_the_beginning(gen):
    begun = gen.generate([gen.tokenizer.bos_token_id], **LIMIT)
    np.testing.assert_array_equal(gen.generate(**LIMIT).sequences, begun.sequences)
    assert gen.generate(bos_token_id=5, **LIMIT)[0][0] == 5
    with gen.stream(**LIMIT) as stream:
        assert "".join(token.text for token in stream) == begun.text


def test_prompts_that_are_none_are_refused_with_a_remedy(gen):
    with pytest.raises(TypeError, match="given twice"):
        gen.generate("a", input_ids=[1])
    with pytest.raises(TypeError, match="given twice"):
        gen.generate(inputs="a", input_ids=[1])
    with pytest.raises(TypeError, match=r"with `input_ids`, got .*messages go to `chat`"):
        gen.generate({"role": "user", "content": "Hello"})


def test_texts_of_numpy_are_texts(gen):
    expected = [gen.generate(text, **LIMIT).text for text in ("One day", "Tom")]
    for texts in (np.array(["One day", "Tom"]), np.array(["One day", "Tom"], dtype=object)):
        assert gen.generate(texts, **LIMIT).texts == expected
    assert gen.generate(np.str_("Tom"), **LIMIT).text == expected[1]
    assert gen.generate(np.array("Tom"), **LIMIT).text == expected[1]
    assert gen.generate([np.str_("Tom")], **LIMIT).texts == [expected[1]]
    np.testing.assert_array_equal(gen.score(np.str_("One day")), gen.score("One day"))


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_columns_of_tables_are_lists(gen, library):
    module = pytest.importorskip(library, reason=f"{library} is not installed")
    column = module.array if library == "pyarrow" else module.Series
    texts = ["One day", "Tom", "Tom had a dog"]
    assert gen.generate(column(texts), **LIMIT).texts == gen.generate(texts, **LIMIT).texts
    assert gen.rank("One day", column(texts)) == gen.rank("One day", texts)
    vectors = gen.embed(texts, pooling="mean")
    np.testing.assert_array_equal(gen.embed(column(texts), pooling="mean"), vectors)
    assert gen.generate(column([5, 6]), **LIMIT).texts == gen.generate([5, 6], **LIMIT).texts
    with pytest.raises(TypeError, match=r"prompt 1: .*, got (None|nan)"):
        gen.generate(column(["One day", None]), **LIMIT)


class GenerationConfig:
    """As transformers' class of that name gives its fields."""

    def __init__(self, **fields):
        self.fields = fields

    def to_dict(self):
        return {"top_k": None, "_from_model_config": True, **self.fields, "transformers_version": "5.23.0"}

    def to_diff_dict(self):
        return self.fields | {"transformers_version": "5.23.0"}


def test_a_configuration_of_transformers_is_taken(gen):
    config = GenerationConfig(num_beams=3, no_repeat_ngram_size=2, top_p=None, **LIMIT)
    expected = gen.generate(PROMPT, num_beams=3, no_repeat_ngram_size=2, **LIMIT)
    assert gen.generate(PROMPT, config) == expected
    assert gen.generate(PROMPT, generation_config=config, num_beams=1) == gen.generate(
        PROMPT, no_repeat_ngram_size=2, **LIMIT
    )
    with pytest.raises(rsgen.ConfigError, match="`forced_decoder_ids`"):
        gen.generate(PROMPT, GenerationConfig(forced_decoder_ids=[[1, 2]]))
    for other in ({"num_beams": 2}, 5, gen.tokenizer):
        with pytest.raises(TypeError, match="`generation_config` must be a GenerationConfig"):
            gen.generate(PROMPT, generation_config=other)


def test_processors_and_criteria_of_transformers_run_as_those_of_rsgen(gen):
    theirs = [
        foreign(
            "RepetitionPenaltyLogitsProcessor", penalty=1.7, prompt_ignore_length=None, cu_seq_lens_q=None
        ),
        # Without the end token by itself, which transformers' constructor leaves out.
        foreign(
            "NoBadWordsLogitsProcessor",
            bad_word_ids=[[263], [1]],
            sequence_bias={(263,): -np.inf},
            prepared_bias_variables=False,
        ),
        foreign(
            "MinNewTokensLengthLogitsProcessor",
            prompt_length_to_skip=5,
            min_new_tokens=4,
            eos_token_id=Tensor([1]),
        ),
        foreign("TypicalLogitsWarper", mass=0.9, filter_value=-np.inf, min_tokens_to_keep=1),
        foreign("LogitNormalization"),
    ]
    ours = [
        processors.RepetitionPenaltyLogitsProcessor(1.7),
        processors.NoBadWordsLogitsProcessor([[263]]),
        processors.MinNewTokensLengthLogitsProcessor(5, 4, 1),
        processors.TypicalLogitsWarper(0.9),
        processors.LogitNormalization(),
    ]
    listed = type("LogitsProcessorList", (list,), {"__module__": "transformers.generation"})(theirs)
    output = gen.generate(PROMPT, logits_processor=listed, **LIMIT)
    assert output == gen.generate(PROMPT, logits_processor=ours, **LIMIT)
    assert output != gen.generate(PROMPT, **LIMIT)
    module = "transformers.generation.stopping_criteria"
    limit = foreign("MaxLengthCriteria", module=module, max_length=7, max_position_embeddings=None)
    assert gen.generate(PROMPT, stopping_criteria=[limit]).sequences.shape == (1, 7)
    end = foreign("EosTokenCriteria", module=module, eos_token_id=Tensor([263]))
    assert gen.generate(PROMPT, stopping_criteria=end, **LIMIT).finish_reasons == ["eos"]


def test_what_constructors_of_transformers_derive_is_read_back():
    """Each object computes what one of rsgen's made from the same arguments does, on scores at the edges."""
    encoder_ids = [[5, 6, 5, 6, 7], [8, 8, 8, 9, 8]]
    ids, scores = np.array([[1, 5], [2, 8]]), np.linspace(-3, 3, 24, dtype=np.float32).reshape(2, 12)
    own_function = [lambda batch_id, input_ids: [batch_id + 3, int(input_ids[-1])]]
    for ngram in (1, 2, 3, 5, 6):
        ngrams = [{} for _ in encoder_ids]
        for row, found in zip(encoder_ids, ngrams, strict=True):
            for start in range(len(row) - ngram + 1):
                *before, last = row[start : start + ngram]
                found.setdefault(tuple(before), []).append(last)
        theirs = foreign(
            "EncoderNoRepeatNGramLogitsProcessor",
            ngram_size=ngram,
            generated_ngrams=ngrams,
            batch_size=len(encoder_ids),
        )
        ours = processors.EncoderNoRepeatNGramLogitsProcessor(ngram, encoder_ids)
        np.testing.assert_array_equal(_transformers.counterpart(theirs)(ids, scores), ours(ids, scores))
    for penalty in np.random.default_rng(0).uniform(0.05, 5, 200).tolist():
        theirs = foreign(
            "EncoderRepetitionPenaltyLogitsProcessor",
            penalty=1 / penalty,
            encoder_input_ids=Tensor(encoder_ids),
        )
        ours = processors.EncoderRepetitionPenaltyLogitsProcessor(penalty, encoder_ids)
        np.testing.assert_array_equal(_transformers.counterpart(theirs)(ids, scores), ours(ids, scores))
    for theirs, ours in (
        (
            foreign(
                "ExponentialDecayLengthPenalty",
                regulation_start=1,
                regulation_factor=1.5,
                eos_token_id=Tensor([3, 4]),
            ),
            processors.ExponentialDecayLengthPenalty((1, 1.5), [3, 4], 0),
        ),
        (
            foreign(
                "PrefixConstrainedLogitsProcessor", _prefix_allowed_tokens_fn=own_function[0], _num_beams=1
            ),
            processors.PrefixConstrainedLogitsProcessor(own_function[0], 1),
        ),
        (
            foreign(
                "WatermarkLogitsProcessor",
                vocab_size=12,
                greenlist_size=3,
                bias=2.0,
                hash_key=7,
                seeding_scheme="lefthash",
                context_width=1,
            ),
            processors.WatermarkLogitsProcessor(12, "cpu", 0.25, 2.0, 7, "lefthash", 1),
        ),
    ):
        np.testing.assert_array_equal(_transformers.counterpart(theirs)(ids, scores), ours(ids, scores))


def test_what_computes_on_tensors_says_how(gen):
    base = type("LogitsProcessor", (), {"__module__": "transformers.generation.logits_process"})
    own = foreign("Louder", (base,), module="my_code")
    for item, remedy in (
        (own, r"derive it from rsgen\.processors\.LogitsProcessor and compute with numpy"),
        (foreign("WhisperTimeStampLogitsProcessor", (base,)), "derive it from"),
        (
            foreign("SynthIDTextWatermarkLogitsProcessor", ngram_len=5, keys=Tensor([1, 2])),
            r"give rsgen\.processors\.SynthIDTextWatermarkLogitsProcessor made from the same arguments",
        ),
        (foreign("ExponentialDecayLengthPenalty", regulation_start=5), "made from the same arguments"),
    ):
        with pytest.raises(TypeError, match=f"{type(item).__name__} computes on torch's tensors.*{remedy}"):
            gen.generate(PROMPT, logits_processor=[item], **LIMIT)
    strings = foreign(
        "StopStringCriteria", module="transformers.generation.stopping_criteria", stop_strings=("a",)
    )
    with pytest.raises(TypeError, match="StopStringCriteria computes on torch's tensors"):
        gen.generate(PROMPT, stopping_criteria=[strings], **LIMIT)


def test_where_torch_is_imported_they_get_its_tensors_and_a_warning(gen, monkeypatch):
    class OfTorch:
        """What torch makes of an array, in its memory."""

        def __init__(self, array):
            self.array = array

        def detach(self):
            return self

        cpu = detach

        def numpy(self):
            return self.array

    def only(self, input_ids, scores):
        assert isinstance(input_ids, OfTorch)
        assert input_ids.array.dtype == np.int64
        scores.array[:] = -np.inf
        scores.array[:, 7] = 0.0
        return scores

    def after_two(self, input_ids, scores):
        return OfTorch(np.full(len(input_ids.array), input_ids.array.shape[1] >= 4))

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(from_numpy=OfTorch))
    processor = foreign(
        "Only", (type("LogitsProcessor", (), {"__module__": "transformers.x", "__call__": only}),), "mine"
    )
    criterion = foreign(
        "Two",
        (type("StoppingCriteria", (), {"__module__": "transformers.x", "__call__": after_two}),),
        "mine",
    )
    with pytest.warns(
        UserWarning, match="computes on torch's tensors after each token; derive it from .* faster"
    ) as told:
        out = gen.generate(
            [5, 6], logits_processor=[processor], stopping_criteria=[criterion], max_new_tokens=9
        )
    assert out.token_ids[0].tolist() == [7, 7]
    assert out.finish_reasons == ["stop"]
    assert [str(warning.message).split()[0] for warning in told] == ["Only", "Two"]


def test_a_criterion_of_length_is_a_limit():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        limit = stopping_criteria.MaxLengthCriteria(42)
        output = rsgen.Generator(num_threads=1).generate(PROMPT, stopping_criteria=limit, eos_token_id=[])
    assert output.sequences.shape == (1, 42), (
        "as in transformers 5.23, which lets it take the place of 20 new tokens"
    )


def test_an_output_is_used_as_the_array_that_transformers_returns(gen):
    output = gen.generate(["One day", "Tom"], **LIMIT)
    np.testing.assert_array_equal(output[0], output.sequences[0])
    np.testing.assert_array_equal(output[:, -3:], output.sequences[:, -3:])
    assert [row.tolist() for row in output] == output.sequences.tolist()
    assert len(output) == 2
    np.testing.assert_array_equal(np.asarray(output), output.sequences)
    assert np.asarray(output, dtype=np.int32).dtype == np.int32
    assert output["texts"] == output.texts
    assert gen.tokenizer.batch_decode(output) == gen.tokenizer.batch_decode(output.sequences)
    with pytest.raises(IndexError):
        output[2]
    with pytest.raises(KeyError):
        output["past_key_values"]


def test_outputs_are_equal_by_value(gen):
    fields = {"num_beams": 2, "output_scores": True, "output_logits": True, "top_logprobs": 2, **LIMIT}
    output, again = gen.generate(PROMPT, **fields), gen.generate(PROMPT, **fields)
    assert output == again == pickle.loads(pickle.dumps(output))
    assert output != gen.generate("One day", **fields)
    assert output != gen.generate(PROMPT, **fields | {"output_scores": False})
    assert output != 5
    sampled = [gen.sample(PROMPT, seed=seed, **LIMIT) for seed in (1, 1, 2)]
    assert sampled[0] == sampled[1] != sampled[2]
    uneven = [gen.generate(["One day", "Tom"], output_scores=True, eos_token_id=263, **LIMIT) for _ in "ab"]
    assert uneven[0] == uneven[1], "NaN where a row has ended is equal to NaN"


def test_an_output_as_a_dict_is_plain(gen):
    output = gen.sample(PROMPT, seed=1, output_scores=True, top_logprobs=2, **LIMIT)
    values = output.to_dict()
    assert values["sequences"] == output.sequences.tolist()
    assert values["usage"].pop("cached_prompt_tokens") <= 5
    assert values["usage"] == {"prompt_tokens": 5, "generated_tokens": 8}
    assert values["scores"][0] == output.scores[0].tolist()
    assert values["seeds"] == [1]
    assert json.loads(json.dumps(values))["text"] == output.text
    assert all(hasattr(output, name) for name in values)


def test_objects_have_the_attributes_of_transformers():
    penalty = processors.RepetitionPenaltyLogitsProcessor(1.5)
    assert (penalty.penalty, penalty.prompt_ignore_length) == (1.5, None)
    warper = processors.TopKLogitsWarper(5, min_tokens_to_keep=2)
    assert (warper.top_k, warper.filter_value, warper.min_tokens_to_keep) == (5, -np.inf, 2)
    assert stopping_criteria.MaxLengthCriteria(5).max_length == 5
    assert stopping_criteria.MaxLengthCriteria(5, 9).max_position_embeddings == 9
    timed = stopping_criteria.MaxTimeCriteria(2.5)
    assert timed.max_time == 2.5
    assert timed.initial_timestamp > 1_700_000_000
    assert stopping_criteria.EosTokenCriteria([1, 2]).eos_token_id == [1, 2]
    assert stopping_criteria.ConfidenceCriteria(0.5).assistant_confidence_threshold == 0.5
    tokenizer = rsgen.Tokenizer()
    assert stopping_criteria.StopStringCriteria(tokenizer, ["a"]).stop_strings == ["a"]
    phrase = rsgen.constraints.PhrasalConstraint([5, 6])
    assert phrase.fulfilled_idx == -1
    phrase.update(5)
    assert phrase.fulfilled_idx == 0
    either = rsgen.constraints.DisjunctiveConstraint([[5, 6], [7]])
    either.update(5)
    assert either.current_seq == [5]
    either.update(7)
    assert either.current_seq == []


class Named:
    """A type as torch names it."""

    def __init__(self, name):
        self.name = name

    def __str__(self):
        return f"torch.{self.name}"


Named.__name__ = "dtype"


def test_types_of_torch_and_numpy_name_themselves(make_llama):
    folder = make_llama()
    for given in (Named("bfloat16"), "bfloat16"):
        for keywords in (
            {"dtype": given},
            {"torch_dtype": given},
            {"dtype": "bfloat16", "torch_dtype": given},
        ):
            opened = rsgen.Generator(folder, num_threads=1, **keywords)
            assert opened.__reduce__()[1][2]["dtype"] == "bfloat16"
    for given in (np.float16, np.dtype("float16")):
        assert rsgen.Generator(folder, torch_dtype=given).__reduce__()[1][2] == {"dtype": "float16"}
    with pytest.raises(rsgen.ConfigError, match="are one option"):
        rsgen.Generator(folder, dtype="float32", torch_dtype="bfloat16")
    with pytest.raises(TypeError, match=r"a type of torch or numpy, got 5 \(int\)"):
        rsgen.Generator(folder, dtype=5)


def test_arguments_that_ask_for_nothing_are_taken_and_others_name_a_remedy(make_llama):
    folder = make_llama()
    rsgen.Generator(
        folder,
        load_in_8bit=False,
        quantization_config=None,
        device_map="auto",
        device="cpu",
        low_cpu_mem_usage=True,
        trust_remote_code=False,
        attn_implementation="sdpa",
    )
    for name, value, remedy in (
        ("load_in_8bit", True, 'dtype="int8"'),
        ("load_in_4bit", True, 'dtype="int4"'),
        ("device_map", "cuda", "on CPUs"),
        ("trust_remote_code", True, "never runs code"),
    ):
        with pytest.raises(rsgen.ConfigError, match=rf"`{name}` must be .*got {value!r} .*{remedy}"):
            rsgen.Generator(folder, **{name: value})


def test_a_cache_folder_is_named_by_the_call(make_llama, monkeypatch, tmp_path):
    repository = tmp_path / "models--org--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "snapshots").mkdir()
    (repository / "refs" / "main").write_text("feed")
    make_llama().rename(repository / "snapshots" / "feed")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "elsewhere"))
    with pytest.raises(rsgen.LoadError, match="elsewhere"):
        rsgen.Generator("org/name")
    monkeypatch.chdir(tmp_path.parent)
    opened = rsgen.Generator("org/name", cache_dir=tmp_path.name, num_threads=1)
    monkeypatch.chdir("/")
    assert pickle.loads(pickle.dumps(opened)).config == opened.config
