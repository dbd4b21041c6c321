"""Trains the small SentencePiece models of the goldens, on the stories that the bundled models were trained on.

Each stands for a kind of `tokenizer.model` that llama checkpoints come with; the last one is edited by hand into what
training does not give: equal scores, unused pieces, pieces whose parts are no pieces.
"""

from __future__ import annotations

import io
import random
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "story_model"))

from story_corpus import write_stories  # noqa: E402

#: Lines that give the vocabularies something besides English.
OTHER_LINES = [
    "    if (x == y):  # indented\n\treturn x+y",
    "caf\u00e9 na\u00efve \u00dcberma\u00df \u00e9t\u00e9 d\u00e9j\u00e0",
    "\u0441\u043a\u0430\u0437\u043a\u0430 \u043e \u043b\u0438\u0441\u0435",
    "\u4ece\u524d\u6709\u4e00\u5ea7\u5c71 \u5c71\u4e0a\u6709\u4e00\u53ea\u72d0\u72f8",
    "\u3080\u304b\u3057\u3080\u304b\u3057 \u3042\u308b\u3068\u3053\u308d\u306b",
    "aaaa aaaaaaaa bababa  two   three    four        eight",
    "0 1 2 3 12 123 1,000,000 3.14159",
    "https://example.org/a?b=c&d=e#f [x](y) {z} <tag/> a_b-c",
]

LLAMA: dict[str, Any] = {
    "model_type": "bpe",
    "vocab_size": 1000,
    "byte_fallback": True,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "split_digits": True,
    "allow_whitespace_only_pieces": True,
    "character_coverage": 0.9998,
}
SYMBOLS: dict[str, Any] = {
    "model_type": "bpe",
    "vocab_size": 700,
    "normalization_rule_name": "identity",
    "user_defined_symbols": ["<|user|>", "ing", "  ", "\u2581the\u2581", "\u4e00", "qu"],
    "control_symbols": ["<ctrl>", "\u00a7"],
    "character_coverage": 0.999,
}
UNIGRAM: dict[str, Any] = {"model_type": "unigram", "vocab_size": 800, "character_coverage": 0.999}
SUFFIX: dict[str, Any] = {
    "model_type": "unigram",
    "vocab_size": 700,
    "byte_fallback": True,
    "normalization_rule_name": "identity",
    "treat_whitespace_as_suffix": True,
    "split_by_whitespace": False,
    "user_defined_symbols": ["<|user|>", "ing ", "aa"],
}


def lines() -> list[str]:
    """The corpus: stories line by line, and a few other lines often enough to be learnt."""
    stories = "\n".join(story.text for story in write_stories(1500, seed=7)).splitlines()
    return [line for line in stories if line] + OTHER_LINES * 60


def train(options: dict[str, Any]) -> bytes:
    """A model trained on one thread, so that it comes out the same each time."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines()), model_writer=out, num_threads=1, minloglevel=2, **options
    )
    return slim(out.getvalue())


def slim(model: bytes) -> bytes:
    """Without what only training reads."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    proto.trainer_spec.ClearField("input")
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    return proto.SerializeToString()


def charsmap_rules(charsmap: bytes) -> dict[str, str]:
    """All rules of a precompiled map: a double array after its length, then the replacements, ended by NUL."""
    size = struct.unpack_from("<I", charsmap)[0]
    units = struct.unpack_from(f"<{size // 4}I", charsmap, 4)
    blob = charsmap[4 + size :]

    def offset(unit: int) -> int:
        return (unit >> 10) << ((unit & 0x200) >> 6)

    rules, stack = {}, [(b"", offset(units[0]))]
    while stack:
        prefix, node = stack.pop()
        for byte in range(1, 256):
            unit = units[node ^ byte]
            if unit & 0x800000FF != byte:
                continue
            child = node ^ byte ^ offset(unit)
            key = prefix + bytes([byte])
            if unit >> 8 & 1:
                start = units[child] & 0x7FFFFFFF
                rules[key.decode()] = blob[start : blob.index(b"\0", start)].decode()
            stack.append((key, child))
    return rules


def small_nmt_nfkc(folder: Path) -> Path:
    """The rules of nmt_nfkc for a part of Unicode, as a table to train with: the whole map has 240 kB."""
    full = sentencepiece_model_pb2.ModelProto.FromString(
        train(UNIGRAM | {"normalization_rule_name": "nmt_nfkc"})
    )
    # Without the East Asian blocks and the pairs of several hundred Greek and Cyrillic marks.
    kept = [range(0x370), range(0x1E00, 0x1F00), range(0x2000, 0x2600), range(0x3000, 0x3100)]
    kept += [range(0xFB00, 0xFB50), range(0xFDF0, 0xFE00), range(0xFF00, 0xFFA0), range(0xFFE0, 0x10000)]
    rules = charsmap_rules(full.normalizer_spec.precompiled_charsmap)
    small = {
        key: value
        for key, value in rules.items()
        if len(key) <= 2 and all(any(ord(char) in span for span in kept) for char in key)
    }
    path = folder / "nmt_nfkc.tsv"

    def codes(text: str) -> str:
        return " ".join(f"{ord(char):X}" for char in text)

    path.write_text("".join(f"{codes(key)}\t{codes(value)}\n" for key, value in sorted(small.items())))
    return path


def edited(model: bytes, edit: Callable[[Any, random.Random], None]) -> bytes:
    """The model after a change of its pieces."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    edit(proto, random.Random(3))
    return proto.SerializeToString()


def make_ties(proto: Any, rng: random.Random) -> None:
    """Many equal scores, unused pieces, and longer pieces whose parts are no pieces."""
    kinds = sentencepiece_model_pb2.ModelProto.SentencePiece
    for piece in proto.pieces:
        if piece.type != kinds.NORMAL:
            continue
        piece.score = float(rng.randrange(-6, 1))
        if len(piece.piece) > 1 and rng.random() < 0.2:
            piece.type = kinds.UNUSED
    for text in [
        "aa",
        "aaa",
        "aaaa",
        "aaaaaa",
        "ababa",
        "aba",
        "\U0001f98a\U0001f98a",
        "\u0416\u0416",
        "x y",
    ]:
        if all(piece.piece != text for piece in proto.pieces):
            piece = proto.pieces.add(piece=text.replace(" ", "\u2581"))
            piece.score = float(rng.randrange(-3, 1))


def models(folder: Path) -> dict[str, bytes]:
    """All models, by name; `folder` is for a table that training reads."""
    llama = train(LLAMA)
    return {
        "llama": llama,
        "symbols": train(SYMBOLS),
        "nmt_nfkc": train(UNIGRAM | {"normalization_rule_tsv": str(small_nmt_nfkc(folder))}),
        "suffix": train(SUFFIX),
        "ties": edited(train(LLAMA | {"vocab_size": 600}), make_ties),
    }
