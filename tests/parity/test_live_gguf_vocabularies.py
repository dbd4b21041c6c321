"""Compares the tokenizers of GGUF files with the ids that llama.cpp keeps for published vocabularies.

RSGEN_LLAMA_CPP_MODELS names the folder `models` of llama.cpp's source, which llama-cpp-python's source package has as well. Its
`ggml-vocab-*.gguf` come with texts (`.inp`) and the ids that transformers gave them (`.out`).
"""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import pytest
import rsgen

FOLDER = os.environ.get("RSGEN_LLAMA_CPP_MODELS")
SEPARATOR = "\n__ggml_vocab_test__\n"
#: Vocabularies of models that are not supported, by a kind of tokenizer or by their architecture.
REFUSED = {"baichuan", "bert-bge", "deepseek-llm", "gemma-4", "mpt", "refact"}
#: What transformers 5 gives other ids than the versions of its time: a space that a text of Llama 2 begins with is not doubled, and
#: Qwen3.5 composes characters.
CHANGED = {
    "llama-spm": lambda text: text[:1] == " ",
    "qwen35": lambda text: text != unicodedata.normalize("NFC", text),
}
FILES = sorted(Path(FOLDER).glob("ggml-vocab-*.gguf.inp")) if FOLDER else []

pytestmark = pytest.mark.skipif(not FILES, reason="RSGEN_LLAMA_CPP_MODELS names no folder of vocabularies")


@pytest.mark.parametrize("texts", FILES, ids=lambda path: path.name[len("ggml-vocab-") : -len(".gguf.inp")])
def test_published_vocabularies_give_the_ids_of_transformers(texts: Path) -> None:
    name = texts.name[len("ggml-vocab-") : -len(".gguf.inp")]
    if name in REFUSED:
        with pytest.raises(rsgen.LoadError, match="is not supported"):
            rsgen.Tokenizer(texts.with_suffix(""))
        return
    tokenizer = rsgen.Tokenizer(texts.with_suffix(""))
    given = texts.read_text(encoding="utf-8", errors="strict").split(SEPARATOR)
    expected = texts.with_suffix(".out").read_text(encoding="utf-8").split("\n")
    compared = 0
    for text, ids in zip(given, expected, strict=False):
        if not CHANGED.get(name, lambda _: False)(text):
            found = list(tokenizer.encode(text, add_special_tokens=False))
            assert found == [int(word) for word in ids.split()], text
            compared += 1
    assert compared > 30
