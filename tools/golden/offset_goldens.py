"""Writes `tests/golden/offsets.json`: the characters of each token, as transformers' tokenizers return them."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import transformers
from transformers import AutoTokenizer

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
OUT = GOLDEN / "offsets.json"
STORY = ROOT / "python" / "rsgen" / "models" / "story-3m"

#: The file of each tokenizer, and its class.
TOKENIZERS = {
    "story": None,
    "byte_level": "GPT2Tokenizer",
    "pieces": "LlamaTokenizer",
    "unigram": "T5Tokenizer",
}
#: Texts of the goldens of tokenizers, and what else a character may be.
FURTHER = ["", " ", "  the fox", "the\nfox", "a\u0301 e\u0301\u0323", "𝔘𝔫𝔦 𐍈", "נ֣ the"]
#: How a list of texts is encoded.
CALLS: list[dict[str, Any]] = [
    {},
    {"add_special_tokens": False},
    {"truncation": True, "max_length": 5},
    {"padding": True, "padding_side": "left"},
    {"padding": "max_length", "max_length": 9, "truncation": True, "padding_side": "right"},
]


def folder_of(name: str, into: Path) -> Path:
    """A folder with such a tokenizer."""
    if name == "story":
        return STORY
    into.mkdir()
    shutil.copy(GOLDEN / "tokenizers" / f"{name}.json", into / "tokenizer.json")
    settings = {"tokenizer_class": TOKENIZERS[name], "pad_token": "<pad>"}
    (into / "tokenizer_config.json").write_text(json.dumps(settings))
    return into


def main() -> None:
    """Encodes all texts with each tokenizer in each way."""
    texts = [*json.loads((GOLDEN / "tokenizers" / "cases.json").read_text())["texts"], *FURTHER]
    cases = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in TOKENIZERS:
            folder = folder_of(name, Path(temporary) / name)
            tokenizer = AutoTokenizer.from_pretrained(folder)
            for call in CALLS:
                found = tokenizer(texts, return_offsets_mapping=True, **call)
                case = {"tokenizer": name, "class": TOKENIZERS[name], "call": call}
                cases.append(
                    case | {"input_ids": found["input_ids"], "offset_mapping": found["offset_mapping"]}
                )
    head = json.dumps({"format": 1, "made_with": {"transformers": transformers.__version__}, "texts": texts})[
        :-1
    ]
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    OUT.write_text(f'{head}, "cases": [\n{lines}\n]}}\n')
    print(f"{OUT.relative_to(ROOT)}: {len(cases)} cases")


if __name__ == "__main__":
    main()
