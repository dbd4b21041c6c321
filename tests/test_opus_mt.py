"""A tiny opus-mt as the first ones were published: weights in a `pytorch_model.bin`, settings in `config.json`."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import rsgen

GOLDEN = Path(__file__).parent / "golden"
EXPECTED = json.loads((GOLDEN / "opus_mt" / "expected.json").read_text())
TEXTS = EXPECTED["texts"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files of the repository, and no others."""
    path = tmp_path_factory.mktemp("hub") / "opus-mt-en-de"
    path.mkdir()
    for name in ("config.json", "pytorch_model.bin", "tokenizer_config.json", "vocab.json"):
        shutil.copy(GOLDEN / "opus_mt" / name, path / name)
    for side in ("source", "target"):
        shutil.copy(GOLDEN / "translation" / f"{side}.model", path / f"{side}.spm")
    return path


def without_fill(row, pad):
    """A row up to its end."""
    return row[: row.index(pad, 1)] if pad in row[1:] else row


@pytest.mark.parametrize("request_", EXPECTED["requests"], ids=lambda request: str(request["call"]))
def test_it_translates_as_transformers_does(folder, request_):
    gen = rsgen.Generator(folder)
    assert [gen.tokenizer.encode(text) for text in TEXTS] == EXPECTED["sources"]
    call, pad = request_["call"], gen.generation_config.pad_token_id
    # Each text has the seed of the call there.
    seeds = {"seed": [call["seed"]] * len(TEXTS)} if "seed" in call else {}
    out = gen.translate(TEXTS, **call | seeds)
    rows = [without_fill(row, pad) for row in request_["sequences"]]
    assert [without_fill(row.tolist(), pad) for row in out.sequences] == rows
    assert out.texts == request_["texts"]


def test_its_settings_are_those_of_config_json(folder):
    config = rsgen.Generator(folder).generation_config
    assert (config.num_beams, config.max_length, config.bad_words_ids) == (6, 24, [[587]])
    assert (config.decoder_start_token_id, config.eos_token_id) == (587, 0)


def test_the_command_translates_its_lines(folder, tmp_path):
    command = [sys.executable, "-m", "rsgen"]
    (tmp_path / "text.txt").write_text("\n".join(TEXTS) + "\n")
    arguments = [
        "translate",
        "--model",
        str(folder),
        str(tmp_path / "text.txt"),
        "-o",
        str(tmp_path / "out.txt"),
    ]
    subprocess.run(command + arguments, check=True, timeout=60)
    assert (tmp_path / "out.txt").read_text().splitlines() == EXPECTED["requests"][0]["texts"]
    described = subprocess.run(
        [*command, "inspect", str(folder), "--json"], check=True, capture_output=True, text=True, timeout=60
    )
    assert json.loads(described.stdout)["supported"] is True
