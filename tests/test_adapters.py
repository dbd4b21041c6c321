"""LoRA adapters through Python and the command; tests/suite/adapters.rs compares every weight with PEFT's."""

import json
import pickle
import time
from pathlib import Path

import numpy as np
import pytest
import rsgen
from stopwatch import not_longer
from tiny_llama import write_adapter

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


#: Names of the tensors of an adapter, for each number, and fields of its configuration.
LARGE = {
    "factors": (["layers.{}.q_proj.lora_A.weight", "layers.{}.q_proj.lora_B.weight"], {}),
    "copies": (["layers.{}.q_proj.weight", "layers.{}.q_proj.modules_to_save.weight"], {}),
    "originals": (["layers.{}.q_proj.weight", "layers.{}.q_proj.original_module.weight"], {}),
    "lists": (
        ["layers.{}.q_proj.lora_A.weight", "layers.{}.q_proj.lora_B.weight"],
        {
            "target_modules": [f"{index}_proj" for index in range(30_000)],
            "exclude_modules": [f"{index}_proj" for index in range(30_000)],
            "layers_to_transform": list(range(30_000)),
        },
    ),
}


@pytest.mark.parametrize("kind", LARGE)
def test_an_adapter_of_many_modules_takes_time_for_each_and_not_for_each_pair(kind, make_llama, tmp_path):
    names, fields = LARGE[kind]
    base, taken = make_llama(), []
    for count in (2_000, 20_000):
        listed = [name.format(index) for index in range(count) for name in names]
        folder = write_adapter(tmp_path / str(count), listed, **fields)
        start = time.process_time()
        with pytest.raises(rsgen.LoadError, match="another model"):
            rsgen.Generator(base, adapter=folder, num_threads=1)
        taken.append(time.process_time() - start)
    # Ten times the modules take about ten times as long; all pairs would take a hundred times.
    not_longer(taken[1], 40 * taken[0])


def test_patterns_are_compared_with_so_many_modules(make_llama, tmp_path):
    patterns = {"rank_pattern": {f"x{index}": 4 for index in range(2_000)}}
    names = LARGE["factors"][0]
    listed = [name.format(index) for index in range(6_000) for name in names]
    folder = write_adapter(tmp_path / "large", listed, **patterns)
    with pytest.raises(rsgen.LoadError, match="at most 1666 patterns for 6000 modules, found 2000"):
        rsgen.Generator(make_llama(), adapter=folder)
