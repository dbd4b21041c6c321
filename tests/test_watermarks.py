"""Watermarks: the classes of their settings, marked texts in every search, and the detectors."""

import json
import pickle
import types

import numpy as np
import pytest
import rsgen
from tiny_llama import write_detector

PROMPT = "Once upon a time"
GREEN = rsgen.WatermarkingConfig(greenlist_ratio=0.5, bias=5.0, hashing_key=99)
SYNTHID = rsgen.SynthIDTextWatermarkingConfig(ngram_len=3, keys=[5, 6, 7, 8])
SAMPLE = {"do_sample": True, "seed": 4, "max_new_tokens": 60}


def foreign(config):
    """An object of transformers' class, which is not installed here."""
    cls = type(type(config).__name__, (), {"__module__": "transformers.generation.configuration_utils"})
    item = cls()
    item.to_dict = config.to_dict
    return item


@pytest.mark.parametrize("config", [GREEN, SYNTHID])
def test_settings_are_values(config):
    cls = type(config)
    assert eval(repr(config), vars(rsgen)) == config
    assert cls.from_dict(config.to_dict()) == config == cls(**config.to_dict())
    assert pickle.loads(pickle.dumps(config)) == config
    assert all(getattr(config, name) == value for name, value in config.to_dict().items())
    config.validate()


def test_defaults_are_those_of_transformers():
    assert rsgen.WatermarkingConfig().to_dict() == {
        "greenlist_ratio": 0.25,
        "bias": 2.0,
        "hashing_key": 15485863,
        "seeding_scheme": "lefthash",
        "context_width": 1,
    }
    assert rsgen.SynthIDTextWatermarkingConfig(5, [1]).to_dict() == {
        "ngram_len": 5,
        "keys": [1],
        "context_history_size": 1024,
        "sampling_table_seed": 0,
        "sampling_table_size": 65536,
        "skip_first_ngram_calls": False,
        "debug_mode": False,
    }


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: rsgen.WatermarkingConfig(bias="big"), rsgen.ConfigError, "a `bias` that is a number"),
        (lambda: rsgen.WatermarkingConfig(bais=1.0), TypeError, "bais"),
        (
            lambda: rsgen.WatermarkingConfig(1.5).validate(),
            rsgen.ConfigError,
            "`greenlist_ratio` must be above 0",
        ),
        (lambda: rsgen.WatermarkingConfig(seeding_scheme="x"), ValueError, '"lefthash" or "selfhash"'),
        (lambda: rsgen.SynthIDTextWatermarkingConfig(5), TypeError, "keys"),
        (lambda: rsgen.SynthIDTextWatermarkingConfig(5, 3), ValueError, "`keys` that is a list of integers"),
        (lambda: rsgen.SynthIDTextWatermarkingConfig(0, [1]).validate(), ValueError, "`ngram_len` must be 1"),
        (lambda: rsgen.GenerationConfig(watermarking_config=3), ValueError, "must be a WatermarkingConfig"),
        (lambda: rsgen.GenerationConfig(watermarking_config={"x": 3}), ValueError, '"x", which is no field'),
    ],
)
def test_wrong_settings_are_explained(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_call_names_the_field_that_is_wrong(gen):
    with pytest.raises(rsgen.ConfigError, match="`watermarking_config`: `greenlist_ratio` must be above 0"):
        gen.generate(PROMPT, watermarking_config={"greenlist_ratio": 1.0})


@pytest.mark.parametrize("config", [GREEN, SYNTHID])
def test_objects_dicts_and_those_of_transformers_mark_alike(gen, config):
    expected = gen.generate(PROMPT, watermarking_config=config, **SAMPLE)
    assert expected.text != gen.generate(PROMPT, **SAMPLE).text
    for given in (config.to_dict(), foreign(config)):
        assert gen.generate(PROMPT, watermarking_config=given, **SAMPLE) == expected
        passed = rsgen.GenerationConfig(watermarking_config=given, **SAMPLE)
        assert passed.watermarking_config == config
        assert gen.generate(PROMPT, passed) == expected
    assert gen.generate(PROMPT, watermarking_config=None, **SAMPLE) == gen.generate(PROMPT, **SAMPLE)


@pytest.mark.parametrize("config", [GREEN, SYNTHID])
def test_a_configuration_keeps_it(tmp_path, config):
    kept = rsgen.GenerationConfig(watermarking_config=config, max_new_tokens=5)
    assert eval(repr(kept), vars(rsgen)) == kept
    assert pickle.loads(pickle.dumps(kept)) == kept
    assert rsgen.GenerationConfig.from_dict(kept.to_dict()) == kept
    kept.save_pretrained(tmp_path)
    assert rsgen.GenerationConfig.from_pretrained(tmp_path) == kept
    saved = json.loads((tmp_path / "generation_config.json").read_text())["watermarking_config"]
    assert saved == config.to_dict()


def test_the_file_of_a_model_switches_it_on(make_llama):
    folder = make_llama()
    (folder / "generation_config.json").write_text('{"watermarking_config": {"bias": 9.0}}')
    gen = rsgen.Generator(folder, num_threads=1)
    marked = gen.generate([1, 2, 3], max_new_tokens=20)
    off = gen.generate([1, 2, 3], max_new_tokens=20, watermarking_config=None)
    assert marked.token_ids[0].tolist() != off.token_ids[0].tolist()
    assert gen.generation_config.watermarking_config == rsgen.WatermarkingConfig(bias=9.0)


@pytest.mark.parametrize("config", [GREEN, SYNTHID])
@pytest.mark.parametrize(
    "fields",
    [{}, {"num_beams": 3}, {"do_sample": True, "num_return_sequences": 2}, {"prompt_lookup_num_tokens": 4}],
    ids=["greedy", "beams", "rows", "lookup"],
)
def test_each_prompt_of_a_list_is_marked_as_it_is_alone(gen, config, fields):
    prompts = ["Once upon a time", "One day", "Tom had a red ball and a red ball and"]
    fields = fields | {"max_new_tokens": 16, "watermarking_config": config}
    seeds = [{"seed": 5 + place} if "do_sample" in fields else {} for place in range(3)]
    together = gen.generate(prompts, **fields, **({"seed": 5} if "do_sample" in fields else {}))
    alone = [gen.generate(prompt, **fields, **seed) for prompt, seed in zip(prompts, seeds, strict=True)]
    assert together.texts == [text for out in alone for text in out.texts]
    with gen.stream(prompts[0], **fields, **seeds[0]) as stream:
        list(stream)
    assert stream.output.texts == alone[0].texts


def test_requests_that_make_room_for_others_are_marked_as_alone():
    small = rsgen.Generator(num_threads=1, kv_cache_bytes=2 << 20)
    fields = {"max_new_tokens": 120, "do_sample": True, "watermarking_config": SYNTHID}
    out = small.generate([PROMPT] * 4, seed=[1, 2, 3, 4], **fields)
    large = rsgen.Generator(num_threads=1)
    assert out.texts == [large.generate(PROMPT, seed=seed, **fields).text for seed in (1, 2, 3, 4)]


def test_green_lists_are_found_with_their_key_alone(gen):
    out = gen.generate(PROMPT, watermarking_config=GREEN, **SAMPLE)
    found = rsgen.WatermarkDetector(gen, "cpu", GREEN)(out.token_ids, return_dict=True)
    assert found.prediction.tolist() == [True]
    assert found.z_score[0] > 3
    assert found.confidence[0] == 1 - found.p_value[0]
    assert found.green_fraction[0] == found.num_green_tokens[0] / found.num_tokens_scored[0]
    other = rsgen.WatermarkDetector(gen, "cpu", GREEN.to_dict() | {"hashing_key": 1})
    assert other(out.token_ids).tolist() == [False]
    assert repr(found).startswith("<rsgen.WatermarkDetectorOutput of z_score [")
    for name in (
        "num_tokens_scored",
        "num_green_tokens",
        "green_fraction",
        "z_score",
        "p_value",
        "confidence",
    ):
        assert getattr(found, name).dtype == np.float64
    assert found.prediction.dtype == np.bool_


def test_texts_of_any_lengths_are_judged_one_by_one(gen):
    model = types.SimpleNamespace(vocab_size=gen.config["vocab_size"], bos_token_id=1)
    detector = rsgen.WatermarkDetector(model, watermarking_config=GREEN)
    texts = [[5, 9, 30, 7], [1, 5, 9, 30, 7], [5, 9, 30, 7, 8, 2]]
    found = detector(texts, return_dict=True)
    assert found.num_tokens_scored.tolist() == [3, 3, 5]
    assert found.num_green_tokens[0] == found.num_green_tokens[1]
    for text, z_score in zip(texts, found.z_score, strict=True):
        assert detector(np.array([text]), return_dict=True).z_score == z_score
    assert detector(texts, z_threshold=-100.0).all()
    for config in (gen.config, gen.config | {"bos_token_id": None}):
        rsgen.WatermarkDetector(config, "cpu", GREEN)(texts)


def test_repeated_ngrams_count_once_on_request(gen):
    text = [5, 9] * 10
    for ignore, scored in ((False, 19), (True, 2)):
        detector = rsgen.WatermarkDetector(gen, "cpu", GREEN, ignore_repeated_ngrams=ignore)
        assert detector(text, return_dict=True).num_tokens_scored.tolist() == [scored]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda gen: rsgen.WatermarkDetector(5), TypeError, "`model_config` must be a Generator"),
        (
            lambda gen: rsgen.WatermarkDetector(gen, "cpu", SYNTHID),
            ValueError,
            "SynthIDTextWatermarkDetector",
        ),
        (lambda gen: rsgen.WatermarkDetector(gen)([5]), rsgen.InputError, "more tokens than `context_width`"),
        (lambda gen: rsgen.WatermarkDetector(gen)("text"), TypeError, "encode it"),
        (
            lambda gen: rsgen.SynthIDTextWatermarkDetector(None, GREEN),
            ValueError,
            "`logits_processor` must be",
        ),
        (lambda gen: rsgen.SynthIDTextWatermarkDetector(), ValueError, "`logits_processor` must be"),
        (lambda gen: rsgen.SynthIDTextWatermarkDetector(3, SYNTHID), ValueError, "`detector_module` must be"),
        (
            lambda gen: rsgen.SynthIDTextWatermarkDetector(None, SYNTHID, "x"),
            ValueError,
            "`tokenizer` must have an `eos_token_id`",
        ),
        (
            lambda gen: rsgen.SynthIDTextWatermarkDetector(None, SYNTHID)([5, 6, 7]),
            ValueError,
            "`detector_module` must be given for probabilities",
        ),
        (
            lambda gen: rsgen.SynthIDTextWatermarkDetector(None, SYNTHID).mean_scores([5, 6]),
            rsgen.InputError,
            "at least `ngram_len` tokens, 3",
        ),
        (
            lambda gen: rsgen.SynthIDTextWatermarkDetector(None, SYNTHID).compute_g_values(
                [[5, 6, 7], [5] * 4]
            ),
            rsgen.InputError,
            "texts of one length",
        ),
        (lambda gen: rsgen.BayesianDetectorModel.from_pretrained("/no"), rsgen.LoadError, "/no"),
        (lambda gen: rsgen.BayesianDetectorModel(), TypeError, "cannot create"),
    ],
)
def test_detectors_say_what_is_wrong(gen, make, error, message):
    with pytest.raises(error, match=message):
        make(gen)


def test_synthids_mark_shows_in_the_means(gen):
    detector = rsgen.SynthIDTextWatermarkDetector(None, SYNTHID, gen.tokenizer)
    marked = gen.generate(PROMPT, watermarking_config=SYNTHID, **SAMPLE | {"max_new_tokens": 150})
    plain = gen.generate(PROMPT, **SAMPLE | {"max_new_tokens": 150})
    for scores in (detector.mean_scores, detector.weighted_mean_scores):
        assert scores(marked.token_ids)[0] > 0.53 + scores(plain.token_ids)[0] - 0.5


def test_g_values_and_masks_have_the_shapes_of_transformers():
    processor = rsgen.processors.SynthIDTextWatermarkLogitsProcessor(
        ngram_len=3, keys=[5, 6, 7], sampling_table_size=65536, sampling_table_seed=0, context_history_size=4
    )
    ids = np.array([[1, 2, 1, 2, 3, 1, 2, 9, 1]] * 2)
    detector = rsgen.SynthIDTextWatermarkDetector(None, processor, 9)
    g_values = detector.compute_g_values(ids)
    assert (g_values.shape, g_values.dtype) == ((2, 7, 3), np.int64)
    contexts, ends = detector.compute_context_repetition_mask(ids), detector.compute_eos_token_mask(ids)
    assert (contexts.shape, ends.shape) == ((2, 7), (2, 9))
    assert ends[0].tolist() == [True] * 7 + [False] * 2
    mask = contexts[0] & ends[0][2:]
    mean = g_values[0][mask].mean()
    assert detector.mean_scores(ids) == pytest.approx([mean, mean], abs=1e-15)


def test_a_trained_model_gives_probabilities(tmp_path):
    write_detector(tmp_path, SYNTHID)
    model = rsgen.BayesianDetectorModel.from_pretrained(tmp_path)
    assert (model.watermarking_depth, model.model_name, model.watermarking_config) == (4, "a/b", SYNTHID)
    detector = rsgen.SynthIDTextWatermarkDetector(model)
    ids = np.random.default_rng(0).integers(0, 99, (3, 40))
    found = detector(ids)
    assert (found.shape, found.dtype) == ((3,), np.float32)
    # With these parameters all layers are alike: a one raises the odds by as much as a zero lowers them.
    two = 1 / (1 + np.exp(2.5))
    ones, zeros = np.log(1.5 * two + 1 - two), np.log(0.5 * two + 1 - two)
    for row, probability in zip(ids, found, strict=True):
        g_values = detector.compute_g_values(row)[0][detector.compute_context_repetition_mask(row)[0]]
        odds = np.where(g_values == 1, ones, zeros).sum()
        assert probability == pytest.approx(1 / (1 + np.exp(-odds)), rel=1e-4)
    with pytest.raises(rsgen.ConfigError, match="`keys` must be as many as the model was trained for, 4"):
        rsgen.SynthIDTextWatermarkDetector(model, {"ngram_len": 3, "keys": [1]})


def test_the_processors_of_transformers_run_as_ours(gen):
    base = {"__module__": "transformers.generation.logits_process"}
    theirs = type("WatermarkLogitsProcessor", (), base)()
    vocab_size = gen.config["vocab_size"]
    theirs.__dict__.update(
        vocab_size=vocab_size, greenlist_size=vocab_size // 2, bias=5.0, hash_key=99, seeding_scheme="lefthash",
        context_width=1,
    )  # fmt: skip
    expected = gen.generate(PROMPT, watermarking_config=GREEN, max_new_tokens=20)
    assert gen.generate(PROMPT, logits_processor=[theirs], max_new_tokens=20) == expected
