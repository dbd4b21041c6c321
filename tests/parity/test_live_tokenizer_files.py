"""Folders that `Tokenizer.save_pretrained` writes, opened by the installed transformers: the same ids and offsets."""

import json
import random
import shutil
from pathlib import Path

import pytest

transformers = pytest.importorskip("transformers", reason="live parity needs transformers")

import rsgen  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden"
TEXTS = json.loads((GOLDEN / "offsets.json").read_text())["texts"]
CLASSES = {"byte_level": "GPT2Tokenizer", "pieces": "LlamaTokenizer", "unigram": "T5Tokenizer"}


@pytest.mark.parametrize("name", ["story", *CLASSES])
def test_transformers_opens_what_is_saved(name, tmp_path):
    if name == "story":
        tokenizer = rsgen.Tokenizer()
        tokenizer.pad_token = tokenizer.eos_token
    else:
        first = tmp_path / "first"
        first.mkdir()
        shutil.copy(GOLDEN / "tokenizers" / f"{name}.json", first / "tokenizer.json")
        (first / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": CLASSES[name], "pad_token": "<pad>"})
        )
        tokenizer = rsgen.Tokenizer(first)
    tokenizer.padding_side = "left"
    tokenizer.save_pretrained(tmp_path / "saved")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    chance = random.Random(name)
    drawn = [" ".join(chance.choices(TEXTS, k=3)) for _ in range(100)]
    ours = tokenizer([*TEXTS, *drawn], return_offsets_mapping=True, padding=True)
    expected = theirs([*TEXTS, *drawn], return_offsets_mapping=True, padding=True)
    for key in ("input_ids", "attention_mask", "offset_mapping"):
        assert ours[key] == expected[key], key
