"""Models in memory: from arrays, from tensors of other libraries, and what is refused."""

import array
import copy
import ctypes
import json
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import rsgen

GOLDEN = Path(__file__).parent / "golden" / "models"
STORY = Path(rsgen.__file__).parent / "models" / "story-3m"
IDS = [3, 17, 9, 40, 22]
NUMPY = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}


class Bfloat16:
    """A tensor in bfloat16 that is exported by DLPack alone, as torch's are."""

    def __init__(self, bits, device=1):
        self.bits, self.device, self.keep = bits, device, bits

    def __dlpack_device__(self):
        return (self.device, 0)

    def __dlpack__(self, **options):
        assert not options, "an export without a version is unversioned"
        # numpy exports 16-bit integers; the code of their kind follows the dimensions.
        capsule = self.bits.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        code = ctypes.c_uint8.from_address(pointer(capsule, b"dltensor") + 20)
        assert code.value == 1
        code.value = 4
        return capsule


def tensors(folder):
    """The tensors of a model, bfloat16 by DLPack."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        for name, entry in json.loads(data[8 : 8 + length]).items():
            if name != "__metadata__":
                start, end = entry["data_offsets"]
                numbers = np.frombuffer(data[8 + length + start : 8 + length + end], NUMPY[entry["dtype"]])
                numbers = numbers.reshape(entry["shape"])
                found[name] = Bfloat16(numbers.copy()) if entry["dtype"] == "BF16" else numbers
    return found


@pytest.fixture(scope="module")
def story():
    return tensors(STORY)


@pytest.fixture(scope="module")
def tied():
    return GOLDEN / "tied"


@pytest.mark.parametrize("model", ["tied", "bfloat16", "float16", "sharded", "phi3_fused", "qwen3_norms"])
def test_a_model_in_memory_has_the_bits_of_its_files(model):
    folder = GOLDEN / model
    config = json.loads((folder / "config.json").read_text())
    expected = rsgen.Generator(folder)
    gen = rsgen.Generator.from_tensors(config, tensors(folder))
    np.testing.assert_array_equal(gen.forward([IDS]), expected.forward([IDS]))
    assert gen.config == expected.config
    int8 = rsgen.Generator.from_tensors(config, tensors(folder), dtype="int8", num_threads=1)
    np.testing.assert_array_equal(int8.forward([IDS]), rsgen.Generator(folder, dtype="int8").forward([IDS]))


@pytest.mark.parametrize("form", ["contiguous", "columns", "reversed", "big", "view", "array", "dlpack"])
def test_every_form_of_a_tensor_gives_the_same(tied, form):
    class DLPack:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    made = {
        "contiguous": np.ascontiguousarray,
        "columns": np.asfortranarray,
        "reversed": lambda numbers: np.ascontiguousarray(numbers[::-1])[::-1],
        "big": lambda numbers: numbers.astype(">f4"),
        "view": memoryview,
        "array": lambda numbers: array.array("f", numbers) if numbers.ndim == 1 else numbers,
        "dlpack": lambda numbers: DLPack(np.array(numbers)),
    }[form]
    given = {name: made(numbers) for name, numbers in tensors(tied).items()}
    gen = rsgen.Generator.from_tensors(tied, given)
    np.testing.assert_array_equal(gen.forward([IDS]), rsgen.Generator(tied).forward([IDS]))


def test_a_configuration_comes_in_any_form(tied):
    class Config:
        def to_dict(self):
            return json.loads(text) | {"architectures": None}

    text = (tied / "config.json").read_text()
    expected = rsgen.Generator(tied).forward([IDS])
    for config in (text, json.loads(text), tied, str(tied), tied / "config.json", Config()):
        gen = rsgen.Generator.from_tensors(config, tensors(tied))
        np.testing.assert_array_equal(gen.forward([IDS]), expected)
    with pytest.raises(TypeError, match="`config` must be a mapping"):
        rsgen.Generator.from_tensors(7, {})
    with pytest.raises(rsgen.LoadError, match=r"no/such/config\.json cannot be read"):
        rsgen.Generator.from_tensors("no/such/config.json", {})


def test_a_tokenizer_comes_in_any_form(gen, story):
    class Fast:
        """What fast tokenizers of transformers have."""

        backend_tokenizer = type("Backend", (), {"to_str": lambda self: text})()
        bos_token, eos_token, pad_token, unk_token = "<s>", "</s>", "<pad>", None
        chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"

    text = (STORY / "tokenizer.json").read_text(encoding="utf-8")
    expected = gen.greedy_search("Once upon a time", max_new_tokens=10)
    own = rsgen.Generator.from_tensors(STORY, story, STORY)
    for tokenizer in (
        STORY,
        str(STORY / "tokenizer.json"),
        rsgen.Tokenizer(),
        gen.tokenizer,
        own.tokenizer,
        Fast(),
        Fast.backend_tokenizer,
    ):
        made = rsgen.Generator.from_tensors(STORY, story, tokenizer)
        out = made.greedy_search("Once upon a time", max_new_tokens=10)
        assert (out.text, out.sequences.tolist()) == (expected.text, expected.sequences.tolist())
    fast = rsgen.Generator.from_tensors(STORY, story, Fast())
    assert (fast.tokenizer.bos_token, fast.tokenizer.pad_token) == ("<s>", "<pad>")
    assert fast.apply_chat_template([{"role": "user", "content": "One day"}], tokenize=False) == "One day"
    with pytest.raises(TypeError, match="`tokenizer` must be a folder"):
        rsgen.Generator.from_tensors(STORY, story, object())
    with pytest.raises(rsgen.InputError, match="tokenizer"):
        rsgen.Generator.from_tensors(STORY, story).generate("Once", max_new_tokens=1)


def test_defaults_come_along(story, gen):
    defaults = rsgen.GenerationConfig(max_new_tokens=5, num_beams=2)
    made = rsgen.Generator.from_tensors(STORY, story, STORY, generation_config=defaults)
    assert made.generate("Once upon").sequences.shape[1] == len(gen.tokenizer.encode("Once upon")) + 5
    assert made.generation_config.num_beams == 2
    # Without them, the special tokens of config.json.
    assert rsgen.Generator.from_tensors(STORY, story).generation_config.eos_token_id == 1


def test_tensors_may_change_once_the_model_is_open(tied):
    given = {name: np.array(numbers) for name, numbers in tensors(tied).items()}
    gen = rsgen.Generator.from_tensors(tied, given)
    before = gen.forward([IDS])
    for numbers in given.values():
        numbers[...] = 7
    np.testing.assert_array_equal(gen.forward([IDS]), before)


def test_wrong_tensors_are_named(tied):
    good = tensors(tied)
    name = "model.layers.0.self_attn.q_proj.weight"

    def error(change, kind=rsgen.LoadError):
        given = dict(good)
        change(given)
        with pytest.raises(kind) as raised:
            rsgen.Generator.from_tensors(tied, given)
        return str(raised.value)

    assert name in error(lambda given: given.pop(name))
    shape = error(lambda given: given.update({name: good[name][1:]}))
    assert name in shape
    assert "config.json predicts the shape" in shape
    double = error(lambda given: given.update({name: good[name].astype("f8")}))
    assert name in double
    assert "must be of float32, bfloat16 or float16, found float64" in double
    integers = np.zeros((2, 2), np.int64)
    rsgen.Generator.from_tensors(tied, good | {"unused": integers})
    assert "finite" in error(lambda given: given.update({name: good[name] * np.float32("nan")}))
    text = error(lambda given: given.update({name: "weights"}), TypeError)
    assert name in text
    assert "numpy array, or have DLPack" in text
    device = error(lambda given: given.update({name: Bfloat16(np.zeros(1, np.uint16), 2)}))
    assert name in device
    assert ".cpu()" in device
    with pytest.raises(TypeError, match="`tensors` must be a mapping"):
        rsgen.Generator.from_tensors(tied, [1])
    with pytest.raises(TypeError, match="texts as names"):
        rsgen.Generator.from_tensors(tied, {1: good[name]})
    with pytest.raises(TypeError, match="unexpected keyword argument 'dtypo'"):
        rsgen.Generator.from_tensors(tied, good, dtypo="int8")


def test_prefixes_of_compiled_and_distributed_models_are_removed(tied):
    given = {f"module._orig_mod.{name}": numbers for name, numbers in tensors(tied).items()}
    gen = rsgen.Generator.from_tensors(tied, given)
    np.testing.assert_array_equal(gen.forward([IDS]), rsgen.Generator(tied).forward([IDS]))


def test_it_cannot_be_pickled_and_a_copy_is_the_same_object(story):
    gen = rsgen.Generator.from_tensors(STORY, story, STORY)
    for item in (gen, gen.tokenizer):
        with pytest.raises(TypeError, match="made of tensors in memory; save the model as a folder"):
            pickle.dumps(item)
    assert copy.copy(gen) is gen
    assert copy.deepcopy(gen) is gen
    assert "in memory" in gen.name_or_path
    assert repr(gen).startswith("<rsgen.Generator")
    assisted = rsgen.Generator(assistant=gen)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(assisted)


def test_a_model_in_memory_drafts(gen):
    draft = STORY.with_name("story-draft")
    small = rsgen.Generator.from_tensors(draft, tensors(draft), draft)
    out = gen.generate("Once upon a time", max_new_tokens=20, assistant_model=small)
    assert out.text == gen.generate("Once upon a time", max_new_tokens=20).text


def test_progress_is_told_and_ends_the_loading(tied):
    seen = []
    rsgen.Generator.from_tensors(tied, tensors(tied), progress=lambda *args: seen.append(args))
    assert seen
    assert seen[-1][1] == seen[-1][2]

    def stop(*_):
        raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        rsgen.Generator.from_tensors(tied, tensors(tied), progress=stop)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_files_that_a_caller_names_have_the_limits_of_a_folder(tmp_path):
    pipe, large, folder = tmp_path / "pipe", tmp_path / "large.json", tmp_path / "folder"
    os.mkfifo(pipe)
    large.touch()
    os.truncate(large, (64 << 20) + 1)
    folder.mkdir()
    (folder / "config.json").symlink_to("/dev/zero")
    for path in (pipe, large, folder, "/dev/zero", tmp_path / "nowhere"):
        for given in (path, str(path)):
            with pytest.raises(rsgen.LoadError, match=r"regular file|at most 67108864 bytes|No such file"):
                rsgen.Generator.from_tensors(given, {})
    config = {"model_type": "llama"}
    for path in (pipe, large, "/dev/zero"):
        with pytest.raises(rsgen.LoadError, match=r"regular file|at most 67108864 bytes"):
            rsgen.Generator.from_tensors(config, {}, path)
