"""Pickles: a generator as its recipe, results by value, and work in progress not at all."""

import concurrent.futures
import copy
import multiprocessing
import os
import pickle
import pickletools
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import rsgen
from hostile import STORY

PROMPT = "Once upon a time"
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_generator_is_opened_again(gen, protocol):
    data = pickle.dumps(gen, protocol)
    assert len(data) < 500, "no weights, no tokenizer"
    again = pickle.loads(data)
    assert (again.name_or_path, again.num_threads) == (gen.name_or_path, gen.num_threads)
    assert again.generate(PROMPT, max_new_tokens=10).text == gen.generate(PROMPT, max_new_tokens=10).text


def test_the_recipe_holds_the_place_and_the_options_and_nothing_else(make_llama):
    folder = make_llama()
    gen = rsgen.Generator(
        folder,
        dtype="bfloat16",
        compute_dtype="bfloat16",
        kv_dtype="int8",
        num_threads=1,
        kv_cache_bytes=1 << 20,
        progress=lambda *_: None,
    )
    _, (cls, arguments, options) = gen.__reduce__()
    assert (cls, arguments) == (rsgen.Generator, (str(folder),))
    assert options == {
        "dtype": "bfloat16",
        "compute_dtype": "bfloat16",
        "kv_dtype": "int8",
        "num_threads": 1,
        "kv_cache_bytes": 1 << 20,
    }
    again = pickle.loads(pickle.dumps(gen))
    assert again.stats() == gen.stats()
    np.testing.assert_array_equal(again.forward([1, 2, 3]), gen.forward([1, 2, 3]))
    named = {
        argument for _, argument, _ in pickletools.genops(pickle.dumps(gen)) if isinstance(argument, str)
    }
    assert named <= {
        "rsgen",
        "Generator",
        "rsgen._later",
        "opened_later",
        str(folder),
        "bfloat16",
        "int8",
        *options,
    }


def test_a_relative_path_is_made_absolute_when_it_is_opened(make_llama, monkeypatch, tmp_path):
    folder = make_llama()
    monkeypatch.chdir(folder.parent)
    gen = rsgen.Generator(folder.name, num_threads=1)
    assert gen.name_or_path == folder.name
    monkeypatch.chdir(tmp_path)
    again = pickle.loads(pickle.dumps(gen))
    assert again.name_or_path == str(folder)
    assert again.config == gen.config


def test_a_gguf_file_and_what_belongs_to_it_are_found_from_another_folder(make_llama, monkeypatch, tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(
        Path(__file__).parent / "golden" / "gguf_blocks" / "gpt2.gguf", tmp_path / "models" / "a.gguf"
    )
    shutil.copytree(STORY, tmp_path / "models" / "tokenizer")
    monkeypatch.chdir(tmp_path)
    options = {"tokenizer": "models/tokenizer", "assistant": "models/a.gguf", "num_threads": 1}
    gen = rsgen.Generator("models/a.gguf", **options)
    data = pickle.dumps(gen)
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = pickle.loads(data)
    assert again.name_or_path == str(tmp_path / "models" / "a.gguf")
    np.testing.assert_array_equal(again.forward([[1, 2, 3]]), gen.forward([[1, 2, 3]]))
    assert again.tokenizer.encode("One day") == gen.tokenizer.encode("One day")
    assert pickle.loads(pickle.dumps(gen.tokenizer)).encode("One day") == gen.tokenizer.encode("One day")


def test_a_model_of_the_hub_cache_keeps_its_id_and_revision(make_llama, monkeypatch, tmp_path):
    repository = tmp_path / "models--org--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "snapshots").mkdir()
    (repository / "refs" / "v1").write_text("feed")
    make_llama().rename(repository / "snapshots" / "feed")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    gen = rsgen.Generator("org/name", revision="v1", num_threads=1)
    assert gen.__reduce__()[1][1:] == (("org/name",), {"revision": "v1", "num_threads": 1})
    assert pickle.loads(pickle.dumps(gen)).name_or_path == "org/name"


def test_the_bundled_model_is_that_of_the_package_that_unpickles(gen):
    assert gen.__reduce__()[1][1] == (None,)
    assert rsgen.Generator.from_pretrained(num_threads=2).__reduce__()[1] == gen.__reduce__()[1]


def test_a_model_that_is_gone_is_a_load_error(make_llama):
    folder = make_llama()
    data = pickle.dumps(rsgen.Generator(folder, num_threads=1))
    (folder / "config.json").unlink()
    again = pickle.loads(data)
    for _ in range(2):
        with pytest.raises(rsgen.LoadError, match=r"config\.json"):
            again.generate([1, 2], max_new_tokens=1)


def test_a_copy_is_the_same_object(gen):
    for value in (gen, gen.tokenizer):
        assert copy.copy(value) is value
        assert copy.deepcopy(value) is value
        assert copy.deepcopy([value, {"a": value}]) == [value, {"a": value}]


def attributes(value: object) -> dict[str, object]:
    # A kept cache belongs to its engine: it is no value.
    kept = {"cache", "caches", "past_key_values"}
    names = [name for name in dir(value) if not name.startswith("_") and name not in kept]
    return {name: getattr(value, name) for name in names if not callable(getattr(value, name))}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_results_are_pickled_by_value(gen, protocol):
    output = gen.sample(
        ["One day", "Tom"],
        seed=[1, 2],
        num_return_sequences=2,
        max_new_tokens=7,
        output_scores=True,
        output_logits=True,
    )
    stream = gen.stream(PROMPT, max_new_tokens=5)
    values = [output, *stream, stream.output, output.usage, output.timings, gen.stats()]
    values.append(gen.generation_config.update(top_p=0.5, stop_strings=["a"]))
    for value in values:
        for same in (pickle.loads(pickle.dumps(value, protocol)), copy.deepcopy(value)):
            assert type(same) is type(value)
            assert repr(same) == repr(value)
            expected = attributes(value)
            assert attributes(same).keys() == expected.keys()
            for name, attribute in expected.items():
                np.testing.assert_equal(getattr(same, name), attribute, err_msg=name)
            if not isinstance(value, rsgen.GenerationOutput):
                assert same == value


def test_what_is_work_in_progress_is_refused_with_a_remedy(gen):
    stream = gen.stream(PROMPT)
    for protocol in PROTOCOLS:
        with pytest.raises(TypeError, match=r"a TokenStream cannot be pickled, because .*pickle its output"):
            pickle.dumps(stream, protocol)
    with pytest.raises(TypeError, match="cannot be pickled"):
        copy.copy(stream)


class AfterFour(rsgen.stopping_criteria.StoppingCriteria):
    def __init__(self, number):
        self.number = number


class Limit(rsgen.stopping_criteria.MaxLengthCriteria):
    def __init__(self, max_length):
        self.note = "mine"


class Phrase(rsgen.constraints.PhrasalConstraint):
    def __init__(self, token_ids):
        self.note = "mine"


class Own(rsgen.constraints.Constraint):
    def __init__(self, number):
        self.number = number


class Warper(rsgen.processors.TopKLogitsWarper):
    def __init__(self, top_k):
        self.note = "mine"


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_criteria_constraints_and_processors_are_copied_and_pickled(gen, again):
    criteria, constraints = rsgen.stopping_criteria, rsgen.constraints
    ids = np.array([[5, 6, 7], [5, 6, 2]])
    scores = np.log(np.full((2, 8), 1 / 8, dtype=np.float32))
    for value in (
        criteria.MaxLengthCriteria(3),
        criteria.MaxTimeCriteria(60.0, initial_timestamp=time.time() - 61),
        criteria.MaxTimeCriteria(60.0),
        criteria.EosTokenCriteria([2, 3]),
        criteria.ConfidenceCriteria(0.5),
        criteria.StopStringCriteria(gen.tokenizer, "fox"),
        Limit(3),
        rsgen.processors.TopKLogitsWarper(2),
        Warper(2),
    ):
        same = again(value)
        assert type(same) is type(value)
        np.testing.assert_array_equal(same(ids, scores), value(ids, scores))
        for name, attribute in attributes(value).items():
            np.testing.assert_equal(getattr(same, name), attribute, err_msg=name)
    for constraint in (
        constraints.PhrasalConstraint([5, 6, 7]),
        constraints.DisjunctiveConstraint([[5, 6, 7], [8, 9]]),
        Phrase([5, 6, 7]),
    ):
        constraint.update(5)
        same = again(constraint)
        assert type(same) is type(constraint)
        assert attributes(same) == attributes(constraint)
        assert same.remaining() == 2
        same.update(6)
        assert constraint.remaining() == 2, "a copy goes its own way"
    for value in (AfterFour(4), Own(4)):
        assert again(value).number == 4


def test_a_damaged_pickle_is_an_error():
    for values in (
        ("text", None, None, None),
        ({"rows": 5}, None, None, None),
        ({}, 1, 2, 3),
        (None, None, None, None),
        5,
    ):
        with pytest.raises((rsgen.RsgenError, TypeError)):
            rsgen.GenerationOutput._restore(values)
    with pytest.raises(rsgen.InputError, match="finish reason"):
        rsgen.StreamedToken._restore((1, "a", 0, 0.0, 0.0, "banana"))


def write(arguments: tuple[rsgen.Generator, str]) -> tuple[str, rsgen.GenerationOutput, int]:
    gen, prompt = arguments
    output = gen.generate(prompt, max_new_tokens=8)
    return output.text, output, os.getpid()


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_worker_processes_open_the_model_themselves(gen, method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"there is no {method} here")
    prompts = [PROMPT, "One day", "Tom"]
    expected = gen.generate(prompts, max_new_tokens=8).texts
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        answers = pool.map(write, [(gen, prompt) for prompt in prompts])
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as executor:
        answers += executor.map(write, [(gen, prompt) for prompt in prompts])
    assert [text for text, _, _ in answers] == expected * 2
    assert [output.text for _, output, _ in answers] == expected * 2
    assert os.getpid() not in {process for _, _, process in answers}


def test_cloudpickle_takes_closures_over_a_generator(gen):
    cloudpickle = pytest.importorskip("cloudpickle")
    data = cloudpickle.dumps(lambda prompt: gen.generate(prompt, max_new_tokens=5).text)
    program = "import sys, pickle; print(pickle.loads(sys.stdin.buffer.read())('Once upon a time'), end='')"
    run = subprocess.run([sys.executable, "-c", program], input=data, capture_output=True, check=True)
    assert run.stdout.decode() == gen.generate(PROMPT, max_new_tokens=5).text


def test_errors_are_pickled_with_their_message():
    error = pickle.loads(pickle.dumps(rsgen.ForkError("why")))
    assert (type(error), str(error)) == (rsgen.ForkError, "why")
