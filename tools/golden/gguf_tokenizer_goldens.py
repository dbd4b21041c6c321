"""Writes `tests/golden/gguf_tokenizers.json`: which ids a vocabulary of a GGUF file gives by the name of its pre-tokenizer.

    python tools/golden/gguf_tokenizer_goldens.py

What transformers has a class or an expression for comes from there; the others are put together as in the published
tokenizer.json of a model with that name. Names with the same results share an entry.
"""

from __future__ import annotations

import json
from typing import Any

import transformers
from tokenizer_goldens import OUT, TEXTS
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import CohereTokenizer, GPT2Tokenizer, GPTNeoXTokenizer, Qwen2Tokenizer
from transformers.integrations.gguf.gguf_tokenizer_mapping import (
    GGUF_PRE_TOKENIZER_SPLITS,
    convert_gguf_tokenizer,
)

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def split(regex: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(regex), "isolated")


LLAMA3 = GGUF_PRE_TOKENIZER_SPLITS["llama-bpe"]
QWEN2 = GGUF_PRE_TOKENIZER_SPLITS["qwen2"]
BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
#: The published pre-tokenizers that transformers' loader of GGUF files does not know.
PUBLISHED: dict[str, list[Any]] = {
    "jais phi-2 exaone4": [BYTE_LEVEL],
    "starcoder refact smollm codeshell exaone minerva-7b": [pre_tokenizers.Digits(True), BYTE_LEVEL],
    "falcon": [
        pre_tokenizers.Punctuation("contiguous"),
        BYTE_LEVEL,
        pre_tokenizers.Digits(False),
        split("[0-9][0-9][0-9]"),
    ],
    "bloom gpt3-finnish poro-chat": [split(BLOOM), BYTES],
    "viking": [split(BLOOM), pre_tokenizers.Digits(True), BYTES],
    "stablelm2 hunyuan": [split(QWEN2), BYTES],
    "chatglm-bpe": [split(LLAMA3), BYTES],
    "deepseek-coder": [
        split(r"[\r\n]"),
        split(r"\s?\p{L}+"),
        split(r"\s?\p{P}+"),
        split("[一-龥ࠀ-一가-퟿]+"),
        pre_tokenizers.Digits(True),
        BYTES,
    ],
    "deepseek-v3": [
        split(r"\p{N}{1,3}"),
        split("[一-龥぀-ゟ゠-ヿ]+"),
        split(
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+"
        ),
        BYTES,
    ],
    "seed-coder": [
        split(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
        ),
        BYTES,
    ],
}
CLASSES = {
    "gpt-2": GPT2Tokenizer,
    "olmo mpt": GPTNeoXTokenizer,
    "command-r": CohereTokenizer,
    "qwen2 megrez": Qwen2Tokenizer,
}
WHOLE_WORDS = ["llama-bpe", "llama3", "pixtral", "lfm2", "tekken"]


def vocabulary(name: str, unknown: str | None) -> dict[str, Any]:
    """The metadata of a GGUF file with this vocabulary."""
    file = json.loads((OUT / f"{name}.json").read_text())
    by_id = {index: token for token, index in file["model"]["vocab"].items()}
    types = dict.fromkeys(by_id, NORMAL)
    for token in file["added_tokens"]:
        by_id[token["id"]] = token["content"]
        types[token["id"]] = CONTROL if token["special"] else USER_DEFINED
    tokens = [by_id[index] for index in range(len(by_id))]
    kinds = [types[index] for index in range(len(by_id))]
    for index, token in enumerate(tokens):
        if token == unknown:
            kinds[index] = UNKNOWN
        elif len(token) == 6 and token.startswith("<0x"):
            kinds[index] = BYTE
    merges = [" ".join(merge) for merge in file["model"]["merges"]]
    return {"tokens": tokens, "token_type": kinds, "merges": merges}


def across() -> dict[str, Any]:
    """A vocabulary whose tokens go across words, digits and signs, so that each cut of a pre-tokenizer shows."""
    model = Tokenizer(models.BPE())
    model.pre_tokenizer = BYTES
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        min_frequency=1,
        max_token_length=12,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model.train_from_iterator([text for text in TEXTS for _ in range(3)], trainer)
    made = json.loads(model.to_str())["model"]
    tokens = sorted(made["vocab"], key=made["vocab"].get)
    special = ["<|endoftext|>", "<s>", "</s>", "<|user|>", "<|assistant|>", "<|end|>", "newword"]
    kinds = [NORMAL] * len(tokens) + [CONTROL] * 5 + [USER_DEFINED] * 2
    return {
        "tokens": tokens + special,
        "token_type": kinds,
        "merges": [" ".join(merge) for merge in made["merges"]],
    }


def backend(model: Tokenizer, made: dict[str, Any]) -> Tokenizer:
    """The same with the added tokens of a GGUF file, which have no flags."""
    by_text = json.loads(model.to_str())
    by_text["added_tokens"] = [
        {
            "id": index,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind != USER_DEFINED,
        }
        for index, (token, kind) in enumerate(zip(made["tokens"], made["token_type"], strict=True))
        if kind in (CONTROL, USER_DEFINED, UNKNOWN)
    ]
    return Tokenizer.from_str(json.dumps(by_text))


def byte_level(made: dict[str, Any]) -> list[dict[str, Any]]:
    vocab = {token: index for index, token in enumerate(made["tokens"])}
    merges = [tuple(merge.split(" ")) for merge in made["merges"]]
    found: dict[str, Tokenizer] = {}
    for names, own in CLASSES.items():
        model = own(vocab=vocab, merges=merges).backend_tokenizer
        found |= dict.fromkeys(names.split(), model)
    for name in GGUF_PRE_TOKENIZER_SPLITS:
        if name in found or name in ("f2llmv2", "jina-v5-nano"):
            continue
        entries = {**made, "tokenizer_type": "gpt2", "pre_tokenizer_type": name}
        model = convert_gguf_tokenizer("llama", entries)[0]
        model = Tokenizer.from_str(model.to_str())
        model.model = models.BPE(vocab, merges, ignore_merges=name in WHOLE_WORDS)
        if "qwen" in name or name == "kormo":
            model.normalizer = normalizers.NFC()
        found[name] = model
    for names, steps in PUBLISHED.items():
        for name in names.split():
            model = Tokenizer(models.BPE(vocab, merges))
            model.pre_tokenizer = pre_tokenizers.Sequence(steps)
            found[name] = model
    results: dict[str, dict[str, Any]] = {}
    for name, model in found.items():
        model = backend(model, made)
        ids = [model.encode(text, add_special_tokens=False).ids for text in TEXTS]
        results.setdefault(json.dumps(ids), {"names": [], "ids": ids})["names"].append(name)
    return list(results.values())


def pieces() -> dict[str, Any]:
    made = vocabulary("pieces", "<unk>")
    del made["merges"]
    scores = [-float(index) if kind == NORMAL else 0.0 for index, kind in enumerate(made["token_type"])]
    results = {}
    for architecture in ("llama", "phi3", "gemma3"):
        entries = {**made, "tokenizer_type": "llama", "scores": scores}
        model = backend(convert_gguf_tokenizer(architecture, entries)[0], made)
        ids = [model.encode(text, add_special_tokens=False).ids for text in TEXTS]
        results[architecture] = {"ids": ids, "decoded": [model.decode(row, False) for row in ids]}
    return {"scores": scores, **results}


def main() -> None:
    vocab = across()
    made = {
        "format": 1,
        "made_with": {"transformers": transformers.__version__},
        "texts": TEXTS,
        "vocabulary": vocab,
        "byte_level": byte_level(vocab),
        "pieces": pieces(),
        "pieces_types": vocabulary("pieces", "<unk>")["token_type"],
    }
    path = OUT.parent / "gguf_tokenizers.json"
    path.write_text(json.dumps(made, ensure_ascii=False, separators=(",", ":")) + "\n")
    print([entry["names"] for entry in made["byte_level"]], path.stat().st_size)


if __name__ == "__main__":
    main()
