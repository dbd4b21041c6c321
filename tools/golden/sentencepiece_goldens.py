"""Writes `tests/golden/sentencepiece/`: small models, and what transformers' slow `LlamaTokenizer` makes of awkward texts.

The slow class is in transformers 4 alone: run this with transformers 4.49.0, apart from the other goldens. Every list of
ids is compared with Google's library, without the rules of the class, before it is written.
"""

from __future__ import annotations

import json
import platform
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import sentencepiece
import transformers
from transformers import LlamaTokenizer

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))

from sentencepiece_models import models  # noqa: E402
from sentencepiece_texts import awkward_texts  # noqa: E402

OUT = ROOT / "tests" / "golden" / "sentencepiece"
FORMAT = 1


def token(content: str, **flags: bool) -> dict[str, Any]:
    """An entry of `added_tokens_decoder`."""
    plain = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": False}
    return {"content": content, **plain, **flags}


#: Files beside the model, by the name of a case.
FILES: dict[str, dict[str, Any]] = {
    "legacy": {},
    "not_legacy": {"tokenizer_config.json": {"legacy": False, "add_eos_token": True}},
    "no_prefix_space": {
        "tokenizer_config.json": {"legacy": False, "add_prefix_space": False, "add_bos_token": False}
    },
    "added_tokens_decoder": {
        "tokenizer_config.json": {
            "tokenizer_class": "LlamaTokenizer",
            "legacy": False,
            "pad_token": "<pad>",
            "additional_special_tokens": ["[INST]", "[/INST]"],
            "added_tokens_decoder": {
                "0": token("<unk>", special=True),
                "1": token("<s>", special=True),
                "2": token("</s>", special=True),
                "1500": token("<new>"),
                "1501": token("<left>", lstrip=True, rstrip=True),
                "1502": token("<word>", single_word=True),
                "1503": token("[INST]", rstrip=True, special=True),
            },
        }
    },
    "split_special_tokens": {
        "tokenizer_config.json": {
            "legacy": False,
            "split_special_tokens": True,
            "clean_up_tokenization_spaces": True,
            "add_bos_token": False,
        }
    },
    "added_tokens_file": {
        "tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "legacy": None},
        "special_tokens_map.json": {
            "eos_token": "</s>",
            "pad_token": token("<pad>", lstrip=True, rstrip=True),
            "additional_special_tokens": ["[INST]"],
        },
        "added_tokens.json": {"<new>": 1500, "[INST]": 1501, "<left>": 1502},
    },
}
#: The cases of each model; all of them with the model that is most like llama's.
CASES = {
    "llama": list(FILES),
    "symbols": ["legacy", "added_tokens_decoder"],
    "nmt_nfkc": ["legacy", "added_tokens_decoder"],
    "suffix": ["legacy", "not_legacy"],
    "ties": ["legacy", "not_legacy"],
}


def write_files(folder: Path, model: Path, files: dict[str, Any]) -> None:
    """A folder with the model and what is beside it."""
    shutil.copy(model, folder / "tokenizer.model")
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))


def check_against_library(model: Path, tokenizer: Any, texts: list[str], ids: list[list[int]]) -> None:
    """Without added tokens in a text, the class adds nothing but a `<s>` to what the library gives."""
    library = sentencepiece.SentencePieceProcessor(model_file=str(model))
    for text, expected in zip(texts, ids, strict=False):
        if not any(added in text for added in tokenizer.get_added_vocab()):
            raw = [library.piece_to_id(piece) for piece in library.encode(text, out_type=str)]
            assert [tokenizer.bos_token_id, *raw] == expected, text


def awkward_ids(tokenizer: Any, ids: list[list[int]]) -> list[list[int]]:
    """Whole texts, halves of them (cut within characters), reversed ones, and random ids."""
    rng = random.Random(5)
    every = [*range(tokenizer.sp_model.get_piece_size()), *tokenizer.added_tokens_decoder]
    noise = [rng.choices(every, k=rng.choice([1, 2, 3, 6, 12])) for _ in range(30)]
    noise += [[rng.choice(rng.choice([every, [*range(12)]])) for _ in range(8)] for _ in range(20)]
    halves = [row[: 1 + len(row) // 2] for row in ids[40:90:2]]
    backwards = [row[::-1] for row in ids[21:61:2]]
    return [*ids[:100:2], *ids[100:300:10], *halves, *backwards, *noise]


def case(name: str, model: Path, texts: list[str]) -> dict[str, Any]:
    """The ids of all texts, and texts of ids."""
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder), model, FILES[name])
        tokenizer = LlamaTokenizer.from_pretrained(folder)
        ids = [tokenizer(text)["input_ids"] for text in texts]
        if name == "legacy":
            check_against_library(model, tokenizer, texts, ids)
        decode = [
            {
                "ids": row,
                "text": tokenizer.decode(row),
                "text_without_special": tokenizer.decode(row, skip_special_tokens=True),
            }
            for row in awkward_ids(tokenizer, ids)
        ]
        return {
            "name": name,
            "files": FILES[name],
            "vocab_size": len(tokenizer),
            "bos_eos_pad": [tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id],
            "ids": ids,
            "decode": decode,
        }


def write(path: Path, content: dict[str, Any]) -> None:
    """JSON with one line for each entry of its lists."""
    lines = json.dumps(content, separators=(",", ":")).replace("],[", "],\n[").replace("},{", "},\n{")
    path.write_text(lines + "\n")


def main() -> None:
    """Writes everything."""
    transformers.logging.set_verbosity_error()
    texts = awkward_texts()
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    write(OUT / "texts.json", {"format": FORMAT, "texts": texts})
    made_with = {
        "sentencepiece": sentencepiece.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }
    with tempfile.TemporaryDirectory() as folder:
        trained = models(Path(folder))
    for name, model in trained.items():
        path = OUT / f"{name}.model"
        path.write_bytes(model)
        cases = [case(which, path, texts) for which in CASES[name]]
        write(OUT / f"{name}.json", {"format": FORMAT, "made_with": made_with, "cases": cases})


if __name__ == "__main__":
    main()
