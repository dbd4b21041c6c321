"""Folders of encoder-decoder models with all that their tokenizers read, as published and as transformers saves them.

Files are JSON values or texts; `@name` is a SentencePiece model beside the goldens.
"""

from __future__ import annotations

import io
import itertools
import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from sentencepiece_models import slim, small_nmt_nfkc
from transformers import AutoTokenizer, NllbTokenizer
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES
from translation_texts import LINES, drawn_lines

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "golden" / "translation"
Files = dict[str, Any]

BASE: dict[str, Any] = {"model_type": "unigram", "vocab_size": 420, "character_coverage": 0.995}
T5: dict[str, Any] = BASE | {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
FAIRSEQ: dict[str, Any] = BASE | {"unk_id": 0, "bos_id": 1, "eos_id": 2}
BPE: dict[str, Any] = FAIRSEQ | {"model_type": "bpe", "vocab_size": 460}
MARIAN: dict[str, Any] = BASE | {"eos_id": 0, "unk_id": 1, "bos_id": -1, "vocab_size": 360}


def train(options: dict[str, Any], rules: Path | None, seed: int) -> bytes:
    """A model trained on lines that are drawn from a seed."""
    out = io.BytesIO()
    if rules is not None:
        options = options | {"normalization_rule_tsv": str(rules)}
    lines = LINES * 3 + drawn_lines(700, seed)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=out, num_threads=1, minloglevel=2, **options
    )
    return slim(out.getvalue())


def models(folder: Path) -> dict[str, bytes]:
    """All models, by name; `folder` is for a table that training reads."""
    rules = small_nmt_nfkc(folder)
    return {
        "t5": train(T5, rules, 1),
        "fairseq": train(FAIRSEQ, rules, 2),
        "bpe": train(BPE | {"user_defined_symbols": ["<sym>"]}, rules, 3),
        "source": train(MARIAN, rules, 4),
        "target": train(MARIAN | {"byte_fallback": True, "vocab_size": 600}, rules, 5),
    }


def pieces(model: bytes) -> list[str]:
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    return [piece.piece for piece in proto.pieces]


def marian_vocab(*sides: list[str], codes: list[str]) -> dict[str, int]:
    """A joint vocabulary in an order of its own that lacks some pieces, `<pad>` at the end."""
    rng = random.Random(9)
    tokens = [piece for piece in dict.fromkeys(itertools.chain(*sides)) if piece not in ("</s>", "<unk>")]
    tokens = [token for token in tokens if rng.random() < 0.95]
    rng.shuffle(tokens)
    listed = ["</s>", "<unk>", *codes, *tokens, "<pad>"]
    return {token: index for index, token in enumerate(listed)}


def flagged(content: str, **flags: bool) -> dict[str, Any]:
    plain = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    return {"content": content, **plain, **flags}


def byte_vocab() -> tuple[dict[str, int], str]:
    """A vocab.json and a merges.txt of bytes, in BART's order."""
    model = json.loads((ROOT / "tests" / "golden" / "tokenizers" / "byte_level.json").read_text())["model"]
    merges = model["merges"]
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *model["vocab"], "<mask>"]
    lines = [merge if isinstance(merge, str) else " ".join(merge) for merge in merges]
    return {token: i for i, token in enumerate(tokens)}, "#version: 0.2\n" + "\n".join(lines) + "\n"


def published(made: dict[str, bytes]) -> dict[str, Files]:
    """Folders as they are published."""
    extra = [f"<extra_id_{i}>" for i in range(100)]
    named = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    source, target, bpe = (pieces(made[name]) for name in ("source", "target", "bpe"))
    joint = marian_vocab(source, target, codes=[])
    many = marian_vocab(source, target, codes=[">>fra<<", ">>deu<<", ">>cmn_Hans<<"])
    m2m = {token: i for i, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", *bpe[3:]])}
    m2m_tokens = [f"__{code}__" for code in FAIRSEQ_LANGUAGE_CODES["m2m100"]]
    vocab, merges = byte_vocab()
    return {
        "t5": {
            "config.json": {"model_type": "t5"},
            "spiece.model": "@t5",
            "tokenizer_config.json": named
            | {"extra_ids": 100, "additional_special_tokens": extra, "model_max_length": 512},
        },
        "t5 alone": {"config.json": {"model_type": "t5"}, "spiece.model": "@t5"},
        "t5 map": {
            "config.json": {"model_type": "t5"},
            "spiece.model": "@t5",
            "tokenizer_config.json": {"model_max_length": 512},
            "special_tokens_map.json": named | {"additional_special_tokens": extra},
        },
        "mt5": {
            "config.json": {"model_type": "mt5"},
            "spiece.model": "@t5",
            "tokenizer_config.json": named
            | {
                "additional_special_tokens": None,
                "extra_ids": 0,
                "sp_model_kwargs": {},
                "tokenizer_class": "T5Tokenizer",
            },
            "special_tokens_map.json": named,
        },
        "t5 with other ids": {
            "config.json": {"model_type": "t5"},
            "spiece.model": "@fairseq",
            "tokenizer_config.json": {
                "extra_ids": 0,
                "tokenizer_class": "T5Tokenizer",
                "clean_up_tokenization_spaces": True,
            },
        },
        "t5 with symbols": {"config.json": {"model_type": "t5"}, "spiece.model": "@symbols"},
        "pegasus": {
            "config.json": {"model_type": "pegasus"},
            "spiece.model": "@t5",
            # Without the second mask, 5.24 leaves it out and numbers the pieces from one less.
            "tokenizer_config.json": {
                "model_max_length": 512,
                "mask_token_sent": "<mask_1>",
                "tokenizer_class": "PegasusTokenizer",
            },
            "special_tokens_map.json": named
            | {
                "mask_token": "<mask_2>",
                "additional_special_tokens": ["<mask_1>", *[f"<unk_{i}>" for i in range(2, 103)]],
            },
        },
        "pegasus alone": {"config.json": {"model_type": "pegasus"}, "spiece.model": "@t5"},
        "mbart": {
            "config.json": {"model_type": "mbart"},
            "sentencepiece.bpe.model": "@fairseq",
            "tokenizer_config.json": {
                "src_lang": "de_DE",
                "tgt_lang": "ro_RO",
                "tokenizer_class": "MBartTokenizer",
            },
        },
        "mbart alone": {"config.json": {"model_type": "mbart"}, "sentencepiece.bpe.model": "@fairseq"},
        "mbart50": {
            "config.json": {"model_type": "mbart"},
            "sentencepiece.bpe.model": "@fairseq",
            "tokenizer_config.json": {
                "src_lang": None,
                "tgt_lang": None,
                "tokenizer_class": "MBart50Tokenizer",
            },
            "special_tokens_map.json": named
            | {
                "bos_token": "<s>",
                "sep_token": "</s>",
                "cls_token": "<s>",
                "mask_token": flagged("<mask>", lstrip=True, normalized=True),
                "additional_special_tokens": ["ar_AR", "cs_CZ", "de_DE", "en_XX", "ro_RO", "fr_XX"],
            },
        },
        "bart": {
            "config.json": {"model_type": "bart"},
            "vocab.json": vocab,
            "merges.txt": merges,
            "tokenizer_config.json": {"model_max_length": 1024},
        },
        "bart map": {
            "config.json": {"model_type": "bart"},
            "vocab.json": vocab,
            "merges.txt": merges,
            "tokenizer_config.json": {
                "tokenizer_class": "BartTokenizer",
                "add_prefix_space": True,
                "mask_token": {"__type": "AddedToken", **flagged("<mask>", lstrip=True, normalized=True)},
            },
        },
        "codet5": {
            "config.json": {"model_type": "t5"},
            "vocab.json": vocab,
            "merges.txt": merges,
            "tokenizer_config.json": {
                "tokenizer_class": "RobertaTokenizer",
                "additional_special_tokens": [
                    flagged(f"<extra_id_{i}>", lstrip=True, normalized=True) | {"__type": "AddedToken"}
                    for i in (2, 1, 0)
                ],
            },
        },
        "byt5": {
            "config.json": {"model_type": "t5", "tokenizer_class": "ByT5Tokenizer"},
            "tokenizer_config.json": {
                name: {"__type": "AddedToken", **flagged(token, normalized=True)}
                for name, token in named.items()
            }
            | {
                "extra_ids": 125,
                "additional_special_tokens": [f"<extra_id_{i}>" for i in range(125)],
                "tokenizer_class": "ByT5Tokenizer",
            },
        },
        "byt5 alone": {
            "config.json": {"model_type": "t5"},
            "tokenizer_config.json": {"tokenizer_class": "ByT5Tokenizer"},
        },
        "marian": {
            "config.json": {"model_type": "marian"},
            "source.spm": "@source",
            "target.spm": "@target",
            "vocab.json": joint,
            "tokenizer_config.json": {"source_lang": "eng", "target_lang": "deu", "model_max_length": 512},
        },
        "marian to many": {
            "config.json": {"model_type": "marian"},
            "source.spm": "@source",
            "target.spm": "@target",
            "vocab.json": many,
            "tokenizer_config.json": {"target_lang": "mul", "clean_up_tokenization_spaces": True},
            "special_tokens_map.json": named | {"additional_special_tokens": ["<2de>"]},
            "added_tokens.json": {"<2de>": len(many), "<n>": len(many) + 1},
        },
        "marian with two vocabularies": {
            "config.json": {"model_type": "marian"},
            "source.spm": "@source",
            "target.spm": "@target",
            "vocab.json": marian_vocab(source, codes=[">>fra<<"]),
            "target_vocab.json": marian_vocab(target, codes=[]),
            "tokenizer_config.json": {
                "separate_vocabs": True,
                "source_lang": "en",
                "target_lang": "fr",
                "tokenizer_class": "MarianTokenizer",
            },
        },
        "m2m100": {
            "config.json": {"model_type": "m2m_100"},
            "sentencepiece.bpe.model": "@bpe",
            "vocab.json": m2m,
            "tokenizer_config.json": {"num_madeup_words": 8, "tokenizer_class": "M2M100Tokenizer"},
            "special_tokens_map.json": named
            | {"bos_token": "<s>", "sep_token": "</s>", "additional_special_tokens": m2m_tokens},
        },
        "m2m100 alone": {
            "config.json": {"model_type": "m2m_100"},
            "sentencepiece.bpe.model": "@bpe",
            "vocab.json": m2m,
        },
        "wmt21": {
            "config.json": {"model_type": "m2m_100"},
            "sentencepiece.bpe.model": "@fairseq",
            "vocab.json": {
                token: i
                for i, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces(made["fairseq"])[3:]])
            },
            "tokenizer_config.json": {
                "language_codes": "wmt21",
                "tgt_lang": "de",
                "additional_special_tokens": [
                    f"__{code}__" for code in ("en", "ha", "is", "ja", "cs", "ru", "zh", "de")
                ],
            },
        },
        "nllb pieces": {
            "config.json": {"model_type": "m2m_100"},
            "sentencepiece.bpe.model": "@bpe",
            "tokenizer_config.json": {
                "tokenizer_class": "NllbTokenizer",
                "additional_special_tokens": ["ace_Arab", "deu_Latn", "eng_Latn", "fra_Latn"],
            },
        },
    }


def write(folder: Path, files: Files, made: dict[str, bytes]) -> None:
    """Writes the files of a folder."""
    for name, content in files.items():
        if isinstance(content, str) and content.startswith("@"):
            (folder / name).write_bytes(made[content[1:]])
        else:
            (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))


def saved(files: Files, made: dict[str, bytes], change: Callable[[Files], None] | None = None) -> Files:
    """The folder as transformers saves it: with a tokenizer.json, without the pieces."""
    with tempfile.TemporaryDirectory() as before, tempfile.TemporaryDirectory() as after:
        write(Path(before), files, made)
        AutoTokenizer.from_pretrained(before).save_pretrained(after)
        names = ["tokenizer.json", "tokenizer_config.json"]
        result = {"config.json": files["config.json"]}
        result |= {name: json.loads((Path(after) / name).read_text()) for name in names}
    if change is not None:
        change(result)
    return result


def listed(files: Files) -> None:
    """As version 4 saved it: the added tokens are in both files, and extra ones under their old name."""
    config = files["tokenizer_config.json"]
    tokens = files["tokenizer.json"]["added_tokens"]
    config["added_tokens_decoder"] = {
        str(token["id"]): {name: value for name, value in token.items() if name != "id"} for token in tokens
    }
    if "extra_special_tokens" in config:
        config["additional_special_tokens"] = config.pop("extra_special_tokens")


def legacy(files: Files) -> None:
    """The older form of NLLB's rows, and other languages."""
    files["tokenizer_config.json"] |= {
        "legacy_behaviour": True,
        "src_lang": "deu_Latn",
        "tgt_lang": "fra_Latn",
    }


def umt5(files: Files) -> None:
    """A type of model without a class of its own."""
    files["config.json"] = {"model_type": "umt5"}


def plain(files: Files) -> None:
    """A file that says something else than the class: no map, and other stages."""
    files["tokenizer.json"] |= {"normalizer": {"type": "Lowercase"}, "pre_tokenizer": None}


def folders(made: dict[str, bytes]) -> dict[str, Files]:
    """All folders by name."""
    all_folders = published(made)
    with_json: dict[str, tuple[str, Callable[[Files], None] | None]] = {
        "t5 saved": ("t5", None),
        "t5 saved by 4": ("t5", listed),
        "t5 with a plain file": ("t5", plain),
        "umt5 saved": ("t5", umt5),
        "mt5 saved": ("mt5", None),
        "pegasus saved": ("pegasus", None),
        "pegasus saved by 4": ("pegasus alone", listed),
        "pegasus with a plain file": ("pegasus", plain),
        "mbart saved": ("mbart", None),
        "mbart saved by 4": ("mbart alone", listed),
        "mbart50 saved": ("mbart50", None),
        "mbart50 saved by 4": ("mbart50", listed),
        "bart saved": ("bart map", None),
        "bart saved by 4": ("bart", listed),
        "codet5 saved": ("codet5", None),
    }
    for name, (of, change) in with_json.items():
        all_folders[name] = saved(all_folders[of], made, change)
    with tempfile.TemporaryDirectory() as before, tempfile.TemporaryDirectory() as after:
        # Its ids are not those of the models: the mask is before the languages.
        write(Path(before), all_folders.pop("nllb pieces"), made)
        read = AutoTokenizer.from_pretrained(before)
        backend = json.loads(read.backend_tokenizer.to_str())
        charsmap = sentencepiece_model_pb2.ModelProto.FromString(
            made["bpe"]
        ).normalizer_spec.precompiled_charsmap
        NllbTokenizer(
            vocab=backend["model"]["vocab"],
            merges=[tuple(merge) for merge in backend["model"]["merges"]],
            _spm_precompiled_charsmap=charsmap,
        ).save_pretrained(after)
        nllb = {"config.json": {"model_type": "m2m_100"}}
        nllb |= {
            name: json.loads((Path(after) / name).read_text())
            for name in ("tokenizer.json", "tokenizer_config.json")
        }
    all_folders["nllb"] = nllb
    old = json.loads(json.dumps(nllb))
    legacy(old)
    all_folders["nllb legacy"] = old
    by_4 = json.loads(json.dumps(nllb))
    listed(by_4)
    all_folders["nllb saved by 4"] = by_4
    return all_folders
