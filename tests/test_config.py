"""GenerationConfig as a Python object."""

import copy
import json
import pickle

import pytest
import rsgen
from rsgen.types import GenerationFields

FIELDS = [name for name, value in vars(rsgen.GenerationConfig).items() if isinstance(value, property)]


def test_the_types_know_every_field():
    assert set(GenerationFields.__annotations__) == set(FIELDS)


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_is_an_attribute_with_a_doc(name):
    assert getattr(rsgen.GenerationConfig(), name) is None
    doc = getattr(rsgen.GenerationConfig, name).__doc__
    assert "Must be " in doc
    assert "Default: " in doc


def test_fields_are_as_they_were_set():
    config = rsgen.GenerationConfig(
        top_p=0.9, max_new_tokens=5, stop_strings=["a", "b"], do_sample=True, seed=2**64 - 1
    )
    assert (config.top_p, config.max_new_tokens, config.stop_strings) == (0.9, 5, ["a", "b"])
    assert config.do_sample is True
    assert config.seed == 2**64 - 1
    assert config.temperature is None
    assert config.to_dict() == {
        "max_new_tokens": 5,
        "stop_strings": ["a", "b"],
        "do_sample": True,
        "top_p": 0.9,
        "seed": 2**64 - 1,
    }
    assert (
        repr(rsgen.GenerationConfig(top_k=3, stop_strings="x"))
        == "GenerationConfig(stop_strings='x', top_k=3)"
    )
    assert eval(repr(config), {"GenerationConfig": rsgen.GenerationConfig}) == config


def test_a_config_is_a_value_that_does_not_change():
    config = rsgen.GenerationConfig(top_p=0.9)
    changed = config.update(top_p=None, seed=3)
    assert (config.top_p, config.seed) == (0.9, None)
    assert (changed.top_p, changed.seed) == (None, 3)
    assert config == rsgen.GenerationConfig(top_p=0.9)
    assert config != changed
    assert config != "config"
    for name in ("top_p", "banana"):
        with pytest.raises(AttributeError, match=rf"config\.update\({name}="):
            setattr(config, name, 0.5)
    with pytest.raises(AttributeError, match="did you mean `top_p`"):
        _ = config.topp
    with pytest.raises(TypeError, match="did you mean `top_p`"):
        config.update(topp=1)


def test_a_config_goes_into_a_file_and_back(tmp_path):
    config = rsgen.GenerationConfig.from_dict(
        {"do_sample": True, "top_k": 7, "custom": {"a": [1, None, 2.5, "x"]}, "eos_token_id": [1, 2]}
    )
    config.save_pretrained(tmp_path / "new" / "folder")
    path = tmp_path / "new" / "folder" / "generation_config.json"
    assert json.loads(path.read_text()) == config.to_dict()
    assert rsgen.GenerationConfig.from_pretrained(path) == config
    assert rsgen.GenerationConfig.from_pretrained(str(path.parent)) == config
    assert config.to_dict()["custom"] == {"a": [1, None, 2.5, "x"]}
    for copied in (pickle.loads(pickle.dumps(config)), copy.copy(config), copy.deepcopy(config)):
        assert copied == config


def test_what_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(rsgen.LoadError, match=r"generation_config\.json cannot be read"):
        rsgen.GenerationConfig.from_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"top_k": "many"}')
    with pytest.raises(rsgen.LoadError, match="`top_k` must be an integer"):
        rsgen.GenerationConfig.from_pretrained(tmp_path)
    with pytest.raises(rsgen.ConfigError, match="`top_k` must be an integer"):
        rsgen.GenerationConfig.from_dict({"top_k": "many"})
    endless: list = []
    endless.append(endless)
    for value in (object(), float("nan"), endless):
        with pytest.raises(rsgen.ConfigError, match="JSON"):
            rsgen.GenerationConfig.from_dict({"custom": value})


def test_fields_of_a_call_go_before_those_of_a_file(tmp_path):
    rsgen.GenerationConfig(do_sample=True, top_k=7, top_p=0.5).save_pretrained(tmp_path)
    config = rsgen.GenerationConfig.from_pretrained(tmp_path, top_k=3, top_p=None)
    assert config == rsgen.GenerationConfig(do_sample=True, top_k=3)
    with pytest.raises(TypeError, match=r"from_pretrained\(\).*did you mean `top_k`"):
        rsgen.GenerationConfig.from_pretrained(tmp_path, topk=3)


def test_a_config_is_checked_without_a_model(tmp_path):
    rsgen.GenerationConfig(do_sample=True, top_p=0.9, stop_strings="x", seed=[1, 2]).validate(strict=True)
    useless = rsgen.GenerationConfig(top_p=0.9, length_penalty=2.0)
    with pytest.warns(UserWarning, match="has no effect") as warned:
        useless.validate()
    assert len(warned) == 2
    with pytest.raises(rsgen.ConfigError, match=r"`top_p` has no effect.*; `length_penalty` has no effect"):
        useless.validate(strict=True)
    impossible = rsgen.GenerationConfig(top_p=1.5)
    for strict in (False, True):
        with pytest.raises(rsgen.ConfigError, match="`top_p` must be"):
            impossible.validate(strict)
    with pytest.warns(UserWarning, match="has no effect"):
        useless.save_pretrained(tmp_path)
    assert rsgen.GenerationConfig.from_pretrained(tmp_path) == useless
    with pytest.raises(rsgen.ConfigError, match="`top_p` must be"):
        impossible.save_pretrained(tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("logits_processor", [], "pass it to the call"),
        ("streamer", 1, "the method `stream`"),
        ("use_mtp", True, "not possible in this version"),
        ("cache_implementation", "static", "leave it out"),
        ("forced_decoder_ids", [[1, 2]], "at the end of the prompt"),
        ("assistant_tokenizer", 1, "leave it out"),
    ],
)
def test_what_transformers_knows_and_rsgen_does_not_is_refused_with_a_remedy(gen, name, value, remedy):
    with pytest.raises(rsgen.ConfigError, match=f"^`{name}` .*{remedy}"):
        rsgen.GenerationConfig(**{name: value})
    assert rsgen.GenerationConfig(**{name: None}) == rsgen.GenerationConfig()
    assert rsgen.GenerationConfig.from_dict({name: value}).to_dict() == {name: value}
    if name not in ("logits_processor", "streamer", "assistant_tokenizer"):
        with pytest.raises(rsgen.ConfigError, match=f"^`{name}` .*{remedy}"):
            gen.generate("Once", max_new_tokens=1, **{name: value})
        assert len(gen.generate("Once", max_new_tokens=1, **{name: None}).token_ids[0]) == 1


def test_the_call_goes_before_a_passed_config_and_that_before_the_models(make_llama):
    folder = make_llama(eos_token_id=1)
    (folder / "generation_config.json").write_text(
        '{"max_new_tokens": 3, "num_beams": 2, "eos_token_id": 63}'
    )
    gen = rsgen.Generator(folder, num_threads=1)
    assert len(gen.generate([5, 6]).token_ids[0]) == 3
    passed = rsgen.GenerationConfig(max_new_tokens=5)
    assert len(gen.generate([5, 6], passed).token_ids[0]) == 5
    assert gen.generate([5, 6], passed).beam_indices is not None, "what it leaves unset is the model's"
    assert len(gen.generate([5, 6], passed, max_new_tokens=7).token_ids[0]) == 7
    # In 4.49 a passed config takes the place of the model's, but for the special tokens.
    old = passed.update(compat="4.49")
    assert gen.generate([5, 6], old).beam_indices is None
    assert gen.generate([5, 6], compat="4.49", max_new_tokens=5).beam_indices is not None
    token = int(gen.generate([5, 6], old).token_ids[0][1])
    (folder / "generation_config.json").write_text(f'{{"eos_token_id": {token}}}')
    again = rsgen.Generator(folder, num_threads=1)
    assert again.generate([5, 6], old).finish_reasons == ["eos"]


def test_a_max_length_of_20_is_20_new_tokens_in_4_49_unless_the_call_says_it(make_llama):
    folder = make_llama()
    gen = rsgen.Generator(folder, num_threads=1)
    prompt = list(range(5, 15))

    def generated(*configs, **fields):
        return len(gen.generate(prompt, *configs, **fields).token_ids[0])

    passed = rsgen.GenerationConfig(max_length=20)
    assert generated(passed) == 10
    assert generated(max_length=20, compat="4.49") == 10
    assert generated(passed, max_length=20, compat="4.49") == 10
    assert generated(passed.update(max_length=21), compat="4.49") == 11
    with pytest.warns(UserWarning, match="stops after 20 new tokens"):
        assert generated(passed, compat="4.49") == 20
    (folder / "generation_config.json").write_text('{"max_length": 20}')
    gen = rsgen.Generator(folder, num_threads=1)
    assert generated() == 10
    with pytest.warns(UserWarning, match="stops after 20 new tokens"):
        assert generated(compat="4.49") == 20


def test_the_models_config_has_its_defaults(gen):
    config = gen.generation_config
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (0, 1, 2)
    assert config.to_dict()["transformers_version"]


def test_none_in_a_call_switches_a_field_off_and_in_a_config_leaves_it_to_the_model(make_llama):
    folder = make_llama(seed=3)
    plain = rsgen.Generator(folder, num_threads=1)
    prompt = [5, 6, 7]
    tokens = plain.generate(prompt, max_new_tokens=12).token_ids[0].tolist()
    (folder / "generation_config.json").write_text(
        json.dumps({"eos_token_id": tokens[2], "max_new_tokens": 12, "repetition_penalty": 5.0, "top_k": 1})
    )
    gen = rsgen.Generator(folder, num_threads=1)

    def generated(*configs, **fields):
        return gen.generate(prompt, *configs, **fields).token_ids[0].tolist()

    ended = tokens[: tokens.index(tokens[2]) + 1]
    assert generated(repetition_penalty=None) == ended != tokens
    assert generated(repetition_penalty=None, eos_token_id=None) == tokens
    assert generated(repetition_penalty=None, eos_token_id=-1) == tokens
    passed = rsgen.GenerationConfig(eos_token_id=None, repetition_penalty=1.0)
    assert passed == rsgen.GenerationConfig(repetition_penalty=1.0)
    assert generated(passed) == ended
    assert generated(passed.update(eos_token_id=None), eos_token_id=None) == tokens
    assert generated(passed.update(eos_token_id=tokens[1]), eos_token_id=None) == tokens
    off = {"repetition_penalty": None, "eos_token_id": None, "do_sample": True, "temperature": 9.0, "seed": 1}
    assert generated(**off) == tokens, "the model's top_k of 1 leaves a single token"
    drawn = {"max_new_tokens": 12, "do_sample": True, "temperature": 9.0, "seed": 1}
    every = plain.generate(prompt, **drawn, top_k=0).token_ids[0].tolist()
    fifty = plain.generate(prompt, **drawn).token_ids[0].tolist()
    assert generated(**off, top_k=None) == every != fifty
    assert [token for token, _ in zip(gen.stream(prompt, **off), range(3), strict=False)]
    with pytest.raises(rsgen.ConfigError, match=r"`num_beams` must be 2 or more in beam_search\(\)"):
        gen.beam_search(prompt, num_beams=None)


@pytest.mark.parametrize(
    "fields",
    [
        {"use_cache": False},
        {"output_attentions": False},
        {"output_hidden_states": False},
        {"guidance_scale": 1.0},
        {"token_healing": False},
        {"synced_gpus": False},
        {"cache_implementation": "dynamic"},
        {"device": "cpu"},
    ],
)
def test_values_that_ask_for_nothing_are_taken(gen, fields):
    expected = gen.generate("Once", max_new_tokens=3).token_ids[0].tolist()
    assert gen.generate("Once", max_new_tokens=3, **fields).token_ids[0].tolist() == expected


def test_what_a_models_file_asks_for_and_is_not_supported_is_said(make_llama):
    folder = make_llama()
    file = folder / "generation_config.json"
    file.write_text('{"forced_decoder_ids": [[1, 2]], "generation_kwargs": {"a": 2.5}, "max_new_tokens": 3}')
    with pytest.warns(UserWarning, match="`forced_decoder_ids`, `generation_kwargs` would change the tokens"):
        gen = rsgen.Generator(folder, num_threads=1)
    assert gen.generation_config.to_dict()["forced_decoder_ids"] == [[1, 2]]
    with pytest.warns(UserWarning, match="`forced_decoder_ids`"):
        rsgen.GenerationConfig.from_pretrained(folder)
    ignoring = rsgen.Generator(folder, num_threads=1, generation_config="ignore")
    assert ignoring.generation_config == rsgen.GenerationConfig()
    assert pickle.loads(pickle.dumps(ignoring)).generation_config == rsgen.GenerationConfig()
    with pytest.raises(rsgen.ConfigError, match='`generation_config` must be one of "auto", "ignore"'):
        rsgen.Generator(folder, generation_config="none")
    # As transformers 5.23 saves what asks for nothing.
    file.write_text(
        '{"guidance_scale": null, "output_attentions": false, "output_hidden_states": false, "use_cache": true,'
        ' "token_healing": false, "watermarking_config": null, "transformers_version": "5.23.0"}'
    )
    rsgen.Generator(folder, num_threads=1)


def test_the_fields_of_a_models_config(gen):
    config = rsgen.GenerationConfig.from_model_config(gen.config)
    assert (config.bos_token_id, config.eos_token_id) == (
        gen.config["bos_token_id"],
        gen.config["eos_token_id"],
    )

    class Foreign:
        def to_dict(self):
            return {"eos_token_id": [2, 3], "hidden_size": 8, "pad_token_id": None}

    assert rsgen.GenerationConfig.from_model_config(Foreign()) == rsgen.GenerationConfig(eos_token_id=[2, 3])
    with pytest.raises(TypeError, match="must be a dict or have a method to_dict"):
        rsgen.GenerationConfig.from_model_config([1])


def test_the_mode_that_fields_select():
    for fields, mode in [
        ({}, "greedy_search"),
        ({"do_sample": True}, "sample"),
        ({"num_beams": 2}, "beam_search"),
        ({"penalty_alpha": 0.6, "top_k": 4}, "contrastive_search"),
    ]:
        assert rsgen.GenerationConfig(**fields).get_generation_mode() == mode
    assert rsgen.GenerationConfig(prompt_lookup_num_tokens=3).get_generation_mode() == "prompt_lookup"
    assert rsgen.GenerationConfig(assistant_early_exit=1).get_generation_mode() == "assisted_decoding"
    assert rsgen.GenerationConfig().get_generation_mode(rsgen.Generator()) == "assisted_decoding"
    with pytest.raises(TypeError):
        rsgen.GenerationConfig().get_generation_mode(object())
