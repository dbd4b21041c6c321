"""Models whose tokenizer is a SentencePiece `tokenizer.model`, against the goldens of `tests/golden/sentencepiece`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rsgen

GOLDEN = Path(__file__).parent / "golden" / "sentencepiece"
TEXTS = json.loads((GOLDEN / "texts.json").read_text())["texts"]
CASES = [
    pytest.param(path, case, id=f"{path.stem}-{case['name']}")
    for path in sorted(GOLDEN.glob("*.model"))
    for case in json.loads(path.with_suffix(".json").read_text())["cases"]
]


@pytest.mark.parametrize(("model", "case"), CASES)
def test_a_folder_with_a_tokenizer_model_has_the_tokenizer_of_transformers(
    model: Path, case: dict[str, Any], make_llama: Callable[..., Path]
) -> None:
    folder = make_llama(vocab_size=1600)
    shutil.copy(model, folder / "tokenizer.model")
    for name, content in case["files"].items():
        (folder / name).write_text(json.dumps(content))
    tokenizer = rsgen.Generator(folder).tokenizer
    assert [list(tokenizer.encode(text)) for text in TEXTS] == case["ids"]
    texts = [tokenizer.decode(row["ids"], skip_special_tokens=True) for row in case["decode"]]
    assert texts == [row["text_without_special"] for row in case["decode"]]


def test_such_a_model_generates_from_a_text(make_llama: Callable[..., Path]) -> None:
    folder = make_llama(vocab_size=1000)
    shutil.copy(GOLDEN / "llama.model", folder / "tokenizer.model")
    gen = rsgen.Generator(folder)
    out = gen.generate("Once upon a time", max_new_tokens=8)
    assert list(out.sequences[0][:-8]) == list(gen.tokenizer.encode("Once upon a time"))
    assert "".join(token.text for token in gen.stream("Once upon a time", max_new_tokens=8)) == out.text


def test_a_damaged_model_is_refused(make_llama: Callable[..., Path]) -> None:
    folder = make_llama()
    (folder / "tokenizer.model").write_bytes((GOLDEN / "llama.model").read_bytes()[:5000])
    with pytest.raises(rsgen.LoadError, match=r"tokenizer\.model: it ends within a field"):
        rsgen.Generator(folder)
