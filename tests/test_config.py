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
        {"top_k": 7, "custom": {"a": [1, None, 2.5, "x"]}, "eos_token_id": [1, 2]}
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


def test_the_models_config_has_its_defaults(gen):
    config = gen.generation_config
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (0, 1, 2)
    assert config.to_dict()["transformers_version"]
