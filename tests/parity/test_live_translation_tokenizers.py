"""Compares tokenizers of encoder-decoder models with transformers on fresh SentencePiece models and drawn lines."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", minversion="5.24", reason="live parity needs transformers==5.24.0")
pytest.importorskip("sentencepiece", reason="live parity needs sentencepiece==0.2.3")
pytest.importorskip("google.protobuf", reason="live parity needs protobuf")

import rsgen
from parity_settings import BASE_SEED, CASES
from sentencepiece_models import small_nmt_nfkc
from sentencepiece_texts import random_texts
from transformers import AutoTokenizer
from translation_folders import BPE, FAIRSEQ, MARIAN, T5, folders, train, write
from translation_goldens import LANGUAGES
from translation_texts import AWKWARD, LINES, drawn_lines


def drawn_models(seed: int, folder: Path) -> dict[str, bytes]:
    """Models of each kind with other vocabularies, kinds of pieces and normalizers."""
    rng = random.Random(seed)
    rules = small_nmt_nfkc(folder)

    def drawn(options: dict[str, Any]) -> bytes:
        more: dict[str, Any] = {"vocab_size": rng.randrange(360, 520), "hard_vocab_limit": False}
        if rng.random() < 0.3:
            more |= {"byte_fallback": True, "vocab_size": more["vocab_size"] + 256}
        if rng.random() < 0.3:
            more["user_defined_symbols"] = ["<sym>", "ou", "▁the"]
        if options["model_type"] == "unigram" and rng.random() < 0.2:
            more["split_by_whitespace"] = False
        return train(options | more, rng.choice([rules, rules, None]), rng.randrange(1 << 30))

    marian = MARIAN | {"model_type": rng.choice(["unigram", "unigram", "bpe"])}
    kinds = {"t5": T5, "fairseq": FAIRSEQ, "bpe": BPE, "source": marian, "target": marian, "symbols": T5}
    return {name: drawn(options) for name, options in kinds.items()}


# A case takes a minute.
@pytest.mark.filterwarnings("ignore:This sequence already has")
@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
@pytest.mark.parametrize("seed", range(BASE_SEED, BASE_SEED + max(CASES // 4, 1)))
def test_lines_are_cut_and_put_together_as_transformers_does(seed: int) -> None:
    lines = [*LINES, *AWKWARD, *drawn_lines(2000, seed), *random_texts(200, seed)]
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as table:
        made = drawn_models(seed, Path(table))
        every = folders(made)
    for name, files in every.items():
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), files, made)
            theirs: Any = AutoTokenizer.from_pretrained(folder)
            ours = rsgen.Tokenizer(folder)
        some = rng.sample(lines, 100)
        languages = LANGUAGES.get(type(theirs).__name__)
        if languages is not None:
            theirs.src_lang, theirs.tgt_lang = ours.src_lang, ours.tgt_lang = languages
        # Of two vocabularies only the targets' is decoded: other ids may be an error there.
        of_targets = getattr(theirs, "target_encoder", None)
        vocabulary = sorted(set((of_targets or theirs.get_vocab()).values()))
        assert len(ours) == len(theirs), name
        for line in lines if name in LINES_OF_ALL else some:
            ids = theirs(line)["input_ids"]
            assert ours.encode(line) == ids, f"seed {seed}, {name}: {line!r}"
            if of_targets is not None:
                ids = theirs(text_target=line)["input_ids"]
            for skip in (False, True):
                found, expected = (it.decode(ids, skip_special_tokens=skip) for it in (ours, theirs))
                assert found == expected, f"seed {seed}, {name}: {ids}"
        for line in some:
            plain = theirs(line, add_special_tokens=False)["input_ids"]
            assert ours.encode(line, add_special_tokens=False) == plain, f"seed {seed}, {name}: {line!r}"
            target = theirs(text_target=line)["input_ids"]
            assert ours.encode_target(line) == target, f"seed {seed}, {name}: {line!r}"
            ids = rng.choices(vocabulary, k=rng.randint(1, 12))
            for skip in (False, True):
                found, expected = (it.decode(ids, skip_special_tokens=skip) for it in (ours, theirs))
                assert found == expected, f"seed {seed}, {name}: {ids}"


#: The folders whose classes differ; each is compared on all lines.
LINES_OF_ALL = (
    "t5",
    "pegasus",
    "mbart",
    "mbart50",
    "bart",
    "byt5",
    "marian",
    "marian with two vocabularies",
    "m2m100",
    "nllb",
)
