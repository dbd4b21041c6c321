"""LoRA adapters through Python and the command; tests/suite/adapters.rs compares every weight with PEFT's."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import rsgen

ROOT = Path(__file__).parents[1]
CASES = json.loads((ROOT / "tests/golden/adapters.json").read_text())["cases"]


def opened(name, **options):
    case = CASES[name]
    return rsgen.Generator(ROOT / case["base"], adapter=ROOT / case["adapter"], **options)


@pytest.mark.filterwarnings("ignore:.tie_word_embeddings. is true")
@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_the_merged_model(name):
    case = CASES[name]
    found = opened(name).forward([case["input_ids"]])[0, -1]
    np.testing.assert_allclose(found, case["logits"], rtol=1e-5, atol=1e-4)


def test_a_generator_pickles_with_its_adapter(monkeypatch):
    monkeypatch.chdir(ROOT)
    case = CASES["patterns"]
    gen = rsgen.Generator(case["base"], adapter=case["adapter"])
    data = pickle.dumps(gen)
    monkeypatch.chdir(ROOT / "tests")
    np.testing.assert_array_equal(pickle.loads(data).forward([[1, 2, 3]]), gen.forward([[1, 2, 3]]))


def test_a_packed_model_holds_the_adapter(tmp_path):
    case = CASES["fused"]
    rsgen.pack(ROOT / case["base"], tmp_path / "out", dtype="int8", adapter=ROOT / case["adapter"])
    expected = opened("fused", dtype="int8").forward([case["input_ids"]])
    np.testing.assert_array_equal(rsgen.Generator(tmp_path / "out").forward([case["input_ids"]]), expected)


def test_an_assistant_has_no_adapter(make_llama):
    case = CASES["patterns"]
    gen = opened("patterns", assistant=ROOT / case["base"])
    plain = rsgen.Generator(ROOT / case["base"])
    np.testing.assert_array_equal(gen.assistant.forward([[1, 2]]), plain.forward([[1, 2]]))
    assert "adapter" not in gen.assistant.__reduce__()[1][2]


def test_what_is_no_adapter_is_refused(make_llama, tmp_path):
    folder = make_llama()
    with pytest.raises(rsgen.LoadError, match=r"adapter_config\.json is missing"):
        rsgen.Generator(folder, adapter=folder)
    with pytest.raises(TypeError, match="`adapter` must be the folder of a LoRA adapter"):
        rsgen.Generator(folder, adapter=7)
    with pytest.raises(rsgen.LoadError, match="there is no folder"):
        rsgen.Generator(folder, adapter=str(tmp_path / "no/such"))
    with pytest.raises(rsgen.LoadError, match="belongs to another model"):
        rsgen.Generator(folder, adapter=ROOT / CASES["sharded"]["adapter"])
    with pytest.raises(rsgen.LoadError, match=r"it is a PEFT adapter .LoRA. for .*adapter=folder"):
        rsgen.Generator(ROOT / CASES["patterns"]["adapter"])


def test_none_is_no_adapter(gen):
    plain = rsgen.Generator(adapter=None)
    np.testing.assert_array_equal(plain.forward([[1, 2]]), gen.forward([[1, 2]]))
