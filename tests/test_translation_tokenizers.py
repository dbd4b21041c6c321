"""Tokenizers of encoder-decoder models through Python, against the goldens of `tests/golden/translation`."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import rsgen

GOLDEN = Path(__file__).parent / "golden" / "translation"
TEXTS = json.loads((GOLDEN / "texts.json").read_text())["texts"]
ROWS = json.loads((GOLDEN / "rows.json").read_text())


def with_rows(value: Any) -> Any:
    """The golden with what its results share."""
    if isinstance(value, dict):
        return (
            ROWS[value["row"]]
            if list(value) == ["row"]
            else {key: with_rows(part) for key, part in value.items()}
        )
    return [with_rows(part) for part in value] if isinstance(value, list) else value


CASES = {case["name"]: case for case in with_rows(json.loads((GOLDEN / "cases.json").read_text())["cases"])}


def folder(case: dict[str, Any], path: Path) -> Path:
    """Writes the files of a case."""
    for name, content in case["files"].items():
        if isinstance(content, str) and content.startswith("@"):
            shutil.copy(GOLDEN / f"{content[1:]}.model", path / name)
        else:
            (path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize("name", CASES)
def test_a_folder_has_the_tokenizer_of_transformers(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    tokenizer = rsgen.Tokenizer(folder(case, tmp_path))
    assert tokenizer(TEXTS, padding=False).input_ids == case["ids"]
    some = TEXTS[: len(case["targets"])]
    assert tokenizer(text_target=some).input_ids == case["targets"]
    assert tokenizer(some, text_target=some).labels == case["targets"]
    for ids, text, without_special in case["decode"]:
        assert tokenizer.decode(ids) == text
        assert tokenizer.decode(ids, skip_special_tokens=True) == without_special


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "languages" in case])
def test_languages_are_set_as_in_transformers(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    source, target = case["languages"]
    tokenizer = rsgen.Tokenizer(folder(case, tmp_path))
    assert {source, target} <= set(tokenizer.languages)
    tokenizer.src_lang = source
    tokenizer.tgt_lang = target
    opened = rsgen.Tokenizer(tmp_path, src_lang=source, tgt_lang=target)
    for same in (tokenizer, opened, pickle.loads(pickle.dumps(tokenizer))):
        assert (same.src_lang, same.tgt_lang) == (source, target)
        found = [[same.encode(text), same.encode_target(text)] for text in TEXTS[:3]]
        assert found == case["in_languages"]
    with pytest.raises(rsgen.InputError, match=r'the language "xyz" must be one of its \d+ languages'):
        tokenizer.tgt_lang = "xyz"


def test_sources_are_padded_on_the_right(tmp_path: Path, gen: rsgen.Generator) -> None:
    tokenizer = rsgen.Tokenizer(folder(CASES["marian"], tmp_path))
    rows = tokenizer(["The house", "The house is small."], text_target="Das Haus", padding=True)
    assert rows.attention_mask[0][-1] == 0
    assert rows.labels == tokenizer.encode_target("Das Haus")
    assert (tokenizer.padding_side, gen.tokenizer.padding_side) == ("right", "left")
    assert (gen.tokenizer.languages, gen.tokenizer.src_lang, gen.tokenizer.tgt_lang) == ([], None, None)
    with pytest.raises(rsgen.InputError, match="this tokenizer has no languages"):
        gen.tokenizer.src_lang = "de"
    with pytest.raises(ValueError, match="needs `text` or `text_target`"):
        tokenizer()
