"""Model folders that are damaged, hostile, or of a kind that is not read: each gives one clear error, and nothing else.

A case says how the folder is made from a healthy one, and what the message must hold: the file or the field, the rule,
the value, the remedy. After each, another model answers as before and no block of its cache is in use.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import rsgen
from bad_folders import CASES
from hostile import Folder, model, replacement, split
from stopwatch import Stopwatch

PROMPT = "Once upon a time"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "model").mkdir()
    return Folder(tmp_path / "model")


@pytest.fixture(autouse=True)
def another_model_answers_as_before(gen: rsgen.Generator) -> Iterator[None]:
    before = gen.generate(PROMPT, max_new_tokens=6).token_ids[0].tolist()
    yield
    assert gen.generate(PROMPT, max_new_tokens=6).token_ids[0].tolist() == before


def test_there_are_cases_enough_and_no_two_alike():
    assert len({case.name for case in CASES}) == len(CASES) >= 150


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_bad_folder_is_refused_in_words(folder, case):
    case.edit(folder)
    watch = Stopwatch()
    with pytest.raises(rsgen.LoadError) as raised:
        rsgen.Generator(folder.path, num_threads=1)
    message = str(raised.value)
    watch.assert_clock_within(10)
    assert [word for word in case.words if word not in message] == [], message
    assert len(message) < 800


def test_the_healthy_folder_loads(folder):
    folder.tokenizer()
    folder.index(lambda _: None)
    gen = rsgen.Generator(folder.path, num_threads=1)
    assert gen.generate([1, 2, 3], max_new_tokens=5).usage.generated_tokens == 5
    assert gen.tokenizer.decode(gen.tokenizer.encode(PROMPT), skip_special_tokens=True) == PROMPT


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_file_that_may_not_be_read_is_named(name, tmp_path_factory):
    # Root may read everything, so the test becomes somebody else for a moment.
    path = tmp_path_factory.mktemp("closed")
    folder = Folder(path)
    folder.tokenizer()
    (path / name).chmod(0)
    for parent in (path, *path.parents[:2]):
        parent.chmod(0o755)
    is_root = os.geteuid() == 0
    try:
        if is_root:
            os.seteuid(65534)
        with pytest.raises(rsgen.LoadError, match=rf"{name} cannot be read: Permission denied"):
            rsgen.Generator(path, num_threads=1)
    finally:
        if is_root:
            os.seteuid(0)


@pytest.mark.parametrize(
    ("edit", "prompt", "words"),
    [
        (
            model(type="WordLevel", vocab={"a": 0}, unk_token="zz", merges=None),
            "b",
            ("[UNK]", "may be damaged"),
        ),
        (split(r"(?:a|aa){18}b(?!\S)|a"), "a" * 20_000, ("it takes too long, more than 11 seconds",)),
        (split(r"(?:a|aa){60}b(?!\S)|a"), "a" * 80, ("takes too long on this text",)),
        (
            replacement({"Regex": "."}, "x" * 1000),
            "a" * 300_000,
            ("at most 8388608 bytes of text", "found up to 300000000", "shorten it"),
        ),
    ],
    ids=["unknown word", "slow expression", "expression without end", "growth"],
)
def test_a_tokenizer_that_fails_on_a_prompt_says_so(folder, edit, prompt, words):
    edit(folder)
    gen = rsgen.Generator(folder.path, num_threads=1)
    watch = Stopwatch()
    with pytest.raises(rsgen.InputError) as raised:
        gen.tokenizer.encode(prompt)
    watch.assert_clock_within(60)
    assert [word for word in words if word not in str(raised.value)] == [], raised.value


def test_a_value_of_the_models_file_that_is_not_possible_is_said_to_be_the_files(folder):
    folder.json("generation_config.json", {"temperature": -1.0, "do_sample": True, "max_new_tokens": 3})
    gen = rsgen.Generator(folder.path, num_threads=1)
    with pytest.raises(
        rsgen.ConfigError, match=r"^the model's generation_config\.json: `temperature` must be"
    ):
        gen.generate([1, 2])
    with pytest.raises(rsgen.ConfigError, match=r"^`temperature` must be"):
        gen.generate([1, 2], temperature=-2.0)
    assert gen.generate([1, 2], temperature=1.0, seed=1).usage.generated_tokens == 3


FIELDS = {
    "num_return_sequences": 2,
    "temperature": -1.0,
    "num_beams": 0,
    "repetition_penalty": -1.0,
}


@pytest.mark.parametrize("field", FIELDS)
def test_the_file_that_a_default_is_from_is_named(folder, field):
    values = {"do_sample": field == "temperature", field: FIELDS[field]}
    path = Path(folder.path) / "config.json"
    config = json.loads(path.read_text())
    others = Path(folder.path) / "generation_config.json"
    for name in ("config.json", "generation_config.json"):
        others.unlink(missing_ok=True)
        folder.json("config.json", config | (values if name == "config.json" else {}))
        if name != "config.json":
            folder.json(name, values)
        gen = rsgen.Generator(folder.path, num_threads=1)
        with pytest.raises(rsgen.RsgenError) as raised:
            gen.generate([1, 2], max_new_tokens=2)
        message = str(raised.value)
        assert message.startswith(f"the model's {name}: "), message
        assert field in message
