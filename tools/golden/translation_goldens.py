"""Writes `tests/golden/translation/`: small SentencePiece models, folders of encoder-decoder models, and what the tokenizers of
transformers 5.24 make of texts, targets and ids there.

    python tools/golden/translation_goldens.py

It needs sentencepiece 0.2.3 and protobuf, and no torch.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import transformers
from sentencepiece_models import SYMBOLS
from transformers import AutoTokenizer
from translation_folders import OUT, T5, Files, folders, models, train, write
from translation_texts import translation_texts

FORMAT = 1
#: Texts without special tokens, and texts as targets: so many of each.
SOME = 30
#: The languages that are set, by the class of the tokenizer: a source and a target.
LANGUAGES = {
    "NllbTokenizer": ("deu_Latn", "fra_Latn"),
    "MBartTokenizer": ("ro_RO", "fr_XX"),
    "MBart50Tokenizer": ("fr_XX", "ro_RO"),
    "M2M100Tokenizer": ("de", "ja"),
}


def rows_to_decode(tokenizer: Any, ids: list[list[int]], rng: random.Random) -> list[list[int]]:
    """Whole texts, parts of texts, and random ids."""
    every = sorted(set(tokenizer.get_vocab().values()))
    special = list(tokenizer.all_special_ids)
    noise = [rng.choices(every, k=rng.choice([1, 2, 3, 6, 12])) for _ in range(12)]
    noise += [[rng.choice(rng.choice([every, special])) for _ in range(9)] for _ in range(10)]
    halves = [row[len(row) // 3 : 1 + 2 * len(row) // 3] for row in ids[:60:10]]
    return [*ids[:120:8], *halves, *noise]


def case(name: str, files: Files, made: dict[str, bytes], texts: list[str]) -> dict[str, Any]:
    """What transformers makes of a folder."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), files, made)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        # Two lists of one class in a row share the settings of the first.
        ids = [tokenizer(text)["input_ids"] for text in texts]
        decode = [
            [row, tokenizer.decode(row), tokenizer.decode(row, skip_special_tokens=True)]
            for row in rows_to_decode(tokenizer, ids, random.Random(3))
        ]
        result: dict[str, Any] = {
            "name": name,
            "files": files,
            "class": type(tokenizer).__name__,
            "vocab_size": len(tokenizer),
            "bos_eos_pad_unk": [
                getattr(tokenizer, f"{special}_token_id") for special in ("bos", "eos", "pad", "unk")
            ],
            "ids": ids,
            "without_special": [
                tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts[:SOME]
            ],
            "decode": decode,
        }
        languages = LANGUAGES.get(result["class"])
        if result["class"] == "M2M100Tokenizer" and tokenizer.tgt_lang is None:
            # Without a target language it raises KeyError.
            tokenizer.tgt_lang = "en"
        result["targets"] = [tokenizer(text_target=text)["input_ids"] for text in texts[:SOME]]
        if languages is not None:
            result["languages"] = languages
            tokenizer.src_lang, tokenizer.tgt_lang = languages
            result["in_languages"] = [
                [tokenizer(text)["input_ids"], tokenizer(text_target=text)["input_ids"]] for text in texts[:3]
            ]
            result["language_ids"] = [
                tokenizer.convert_tokens_to_ids(language_token(result, code)) for code in languages
            ]
        return result


def language_token(result: dict[str, Any], code: str) -> str:
    return f"__{code}__" if result["class"] == "M2M100Tokenizer" else code


def shared(value: Any, rows: dict[str, int]) -> Any:
    """The result with its lists of ids and its large files as places in a table of rows."""
    if isinstance(value, dict):
        is_file = "model" in value or "extra_special_tokens" in value or len(value) > 300
        return _place(value, rows) if is_file else {key: shared(part, rows) for key, part in value.items()}
    if isinstance(value, list) and value and all(isinstance(part, int) for part in value):
        return _place(value, rows)
    return [shared(part, rows) for part in value] if isinstance(value, list) else value


def _place(value: Any, rows: dict[str, int]) -> dict[str, int]:
    return {"row": rows.setdefault(json.dumps(value, separators=(",", ":")), len(rows))}


def lines(content: Any) -> str:
    """JSON with one line for each entry of its lists."""
    return json.dumps(content, separators=(",", ":")).replace("],[", "],\n[").replace("},{", "},\n{") + "\n"


def main(out: Path, texts: list[str]) -> None:
    """Writes everything."""
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        made = models(Path(folder))
    symbols = {key: SYMBOLS[key] for key in ("normalization_rule_name",)}
    made["symbols"] = train(
        T5 | symbols | {"user_defined_symbols": ["<sym>", "ou"], "control_symbols": ["<ctrl>"]}, None, 7
    )
    out.mkdir(parents=True, exist_ok=True)
    for name, model in made.items():
        (out / f"{name}.model").write_bytes(model)
    (out / "texts.json").write_text(lines({"format": FORMAT, "texts": texts}))
    cases = [case(name, files, made, texts) for name, files in folders(made).items()]
    rows: dict[str, int] = {}
    cases = [shared(case, rows) for case in cases]
    rows_text = "[\n" + ",\n".join(rows) + "\n]"
    (out / "cases.json").write_text(lines({"format": FORMAT, "cases": cases}))
    (out / "rows.json").write_text(rows_text + "\n")


if __name__ == "__main__":
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    if count:
        from translation_texts import drawn_lines

        main(Path(sys.argv[1]), list(dict.fromkeys(translation_texts() + drawn_lines(count, 77))))
    else:
        main(OUT, translation_texts())
