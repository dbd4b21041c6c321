"""Compares rsgen with Google's `sentencepiece` on fresh models: the golden ones with other scores, kinds and settings."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sentencepiece = pytest.importorskip("sentencepiece", reason="live parity needs sentencepiece==0.2.3")
pytest.importorskip("google.protobuf", reason="live parity needs protobuf")

import rsgen  # noqa: E402
from parity_settings import BASE_SEED, CASES, ROOT  # noqa: E402
from sentencepiece import sentencepiece_model_pb2  # noqa: E402
from sentencepiece_texts import random_texts  # noqa: E402

GOLDEN = ROOT / "tests" / "golden" / "sentencepiece"
KINDS = sentencepiece_model_pb2.ModelProto.SentencePiece


def draw_model(name: str, rng: random.Random) -> bytes:
    """A golden model after random changes."""
    proto = sentencepiece_model_pb2.ModelProto.FromString((GOLDEN / f"{name}.model").read_bytes())
    normal = [piece for piece in proto.pieces if piece.type == KINDS.NORMAL]
    steps = rng.choice([None, 3, 40])
    for piece in normal:
        if steps is not None:
            piece.score = -rng.randrange(steps) / rng.choice([1.0, 3.0])
        if rng.random() < 0.05:
            piece.type = rng.choice([KINDS.UNUSED, KINDS.USER_DEFINED, KINDS.CONTROL])
    known = {piece.piece for piece in proto.pieces}
    for _ in range(30):
        joined = "".join(rng.choice(normal).piece for _ in range(2))
        if joined not in known and len(joined.encode()) < 40:
            known.add(joined)
            proto.pieces.add(piece=joined, score=-float(rng.randrange(12)))
    if steps is not None and rng.random() < 0.5:
        proto.trainer_spec.model_type = rng.choice([1, 2])
    for field in ["add_dummy_prefix", "remove_extra_whitespaces", "escape_whitespaces"]:
        if rng.random() < 0.2:
            setattr(proto.normalizer_spec, field, rng.random() < 0.5)
    if rng.random() < 0.2:
        proto.trainer_spec.treat_whitespace_as_suffix = rng.random() < 0.5
    return proto.SerializeToString()


@pytest.mark.parametrize("seed", range(BASE_SEED, BASE_SEED + CASES))
def test_texts_are_cut_as_sentencepiece_cuts_them(seed: int, make_llama: Callable[..., Path]) -> None:
    rng = random.Random(seed)
    name = rng.choice([path.stem for path in sorted(GOLDEN.glob("*.model"))])
    model = draw_model(name, rng)
    folder = make_llama(vocab_size=2000)
    (folder / "tokenizer.model").write_bytes(model)
    # Texts of special tokens are plain text to the library.
    config = {"split_special_tokens": True, "bos_token": None, "eos_token": None}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = rsgen.Generator(folder).tokenizer
    library: Any = sentencepiece.SentencePieceProcessor(model_proto=model)
    for text in random_texts(500, seed):
        expected = [library.piece_to_id(piece) for piece in library.encode(text, out_type=str)]
        found = list(tokenizer.encode(text, add_special_tokens=False))
        assert found == expected, f"seed {seed}, {name}: {text!r}"
