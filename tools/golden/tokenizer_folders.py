"""Writes `tests/golden/tokenizers/folders.json`: folders with the files that transformers reads beside a tokenizer.json, there,
absent and contradicting each other, and what it makes of them.

    python tools/golden/tokenizer_folders.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import transformers
from tokenizer_goldens import CHAT, FORMAT, MESSAGES, OUT, TEXTS
from transformers import AutoTokenizer

Files = dict[str, Any]


def flagged(content: str, **flags: bool) -> dict[str, Any]:
    """A token of special_tokens_map.json or of `added_tokens_decoder`."""
    plain = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    return {"content": content, **plain, **flags}


def file(name: str) -> dict[str, Any]:
    return json.loads((OUT / f"{name}.json").read_text())


def part(name: str) -> Any:
    """A file beside the golden, or what can be made of it: its vocabulary, its merges, or itself with cutting and padding."""
    if name == "chat":
        return CHAT
    name, _, which = name.partition("#")
    if which == "vocab":
        return file(name)["model"]["vocab"]
    if which == "merges":
        return "#version: 0.2\n" + "".join(" ".join(merge) + "\n" for merge in file(name)["model"]["merges"])
    if which == "":
        return file(name)
    padding = {"strategy": {"Fixed": 9}, "direction": "Left", "pad_to_multiple_of": None, "pad_id": 2}
    padding |= {"pad_type_id": 0, "pad_token": "</s>"}
    truncation = {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
    return file(name) | {"padding": padding, "truncation": truncation}


MAP = {
    "bos_token": flagged("<b>", lstrip=True),
    "pad_token": "<pad>",
    "image_token": "<image>",
    "additional_special_tokens": ["<x>", "<|mid|>"],
}
LISTED_MAP = {"eos_token": "</s>", "extra_special_tokens": ["<y>", "<|end|>"]}
ADDED = {"newword": 950, "<|end|>": 951, "<|mid|>": 952, "later": 990, "<x>": 980, "<pad>": 970}
DECODER = {
    "0": flagged("<unk>", special=True),
    "960": flagged("<z>", rstrip=True),
    "961": flagged("<|end|>", special=True),
}
CONFIGS: dict[str, Files] = {
    "nothing": {},
    "tokens": {"bos_token": "<s>", "eos_token": "<|end|>", "extra_special_tokens": ["<w>"]},
    "old_list": {"additional_special_tokens": ["<w>"], "unk_token": None, "image_token": "<|mid|>"},
    "named_list": {"extra_special_tokens": {"video_token": "<v>", "image_token": "<|mid|>"}},
    "empty_list": {"extra_special_tokens": []},
    "decoder": {"added_tokens_decoder": DECODER, "eos_token": "<z>", "pad_token": "<|end|>"},
}
TEMPLATE = "@chat"
TEMPLATES: dict[str, Files] = {
    "config": {"tokenizer_config.json": {"chat_template": TEMPLATE}},
    "jinja": {"tokenizer_config.json": {"chat_template": "no"}, "chat_template.jinja": TEMPLATE},
    "json": {
        "tokenizer_config.json": {"chat_template": TEMPLATE},
        "chat_template.json": {"chat_template": "{{ 1 }}"},
        "processor_config.json": {"chat_template": "{{ 2 }}"},
    },
    "one_of_two": {
        "chat_template.jinja": TEMPLATE,
        "additional_chat_templates/rag.jinja": "{{ 3 }}",
        "additional_chat_templates/readme.md": "no",
    },
    "without_default": {
        "tokenizer_config.json": {"chat_template": TEMPLATE},
        "additional_chat_templates/rag.jinja": "{{ 3 }}",
    },
    "named_default": {"additional_chat_templates/default.jinja": TEMPLATE},
    "both_defaults": {"chat_template.jinja": "{{ 4 }}", "additional_chat_templates/default.jinja": TEMPLATE},
    "list": {
        "tokenizer_config.json": {
            "chat_template": [{"name": "default", "template": TEMPLATE}, {"name": "x", "template": "{{ 5 }}"}]
        }
    },
    "object": {"tokenizer_config.json": {"chat_template": {"default": TEMPLATE, "tool_use": "{{ 6 }}"}}},
    "none": {},
}


def folders() -> list[tuple[str, Files]]:
    """Each folder by its name. A text is the content of a file, `@name` a `part`."""
    made: list[tuple[str, Files]] = []

    def add(name: str, **files: Any) -> None:
        made.append((name, {key.replace("__", "."): value for key, value in files.items()}))

    for base, model_type, named in (
        ("pieces", "llama", "LlamaTokenizer"),
        ("byte_level", "qwen2", None),
        ("byte_level", "cohere", None),
    ):
        for config, settings in CONFIGS.items():
            for beside in ("", "map", "list", "added", "map+added"):
                files: Files = {"tokenizer.json": f"@{base}", "config.json": {"model_type": model_type}}
                files["tokenizer_config.json"] = settings | ({"tokenizer_class": named} if named else {})
                if "map" in beside:
                    files["special_tokens_map.json"] = MAP
                if beside == "list":
                    files["special_tokens_map.json"] = LISTED_MAP
                if "added" in beside:
                    files["added_tokens.json"] = ADDED
                made.append((f"{model_type} {named} {config} {beside}", files))
    llama = {"model_type": "llama"}
    add("no config", tokenizer__json="@pieces", config__json=llama)
    add(
        "class in config.json",
        tokenizer__json="@pieces",
        config__json=llama | {"tokenizer_class": "LlamaTokenizerFast"},
    )
    add("class twice", tokenizer__json="@pieces", config__json=llama | {"tokenizer_class": "LlamaTokenizerFast"},
        tokenizer_config__json={"tokenizer_class": "PreTrainedTokenizerFast"})  # fmt: skip
    for named in ("PreTrainedTokenizerFast", "LlamaTokenizer", "GPT2Tokenizer", "Qwen2Tokenizer"):
        add(f"padded {named}", tokenizer__json="@pieces#padded", config__json=llama,
            tokenizer_config__json={"tokenizer_class": named})  # fmt: skip
    for model_type, flags in (
        ("gpt2", {}),
        ("gpt2", {"add_bos_token": True, "add_eos_token": True}),
        ("qwen2", {}),
        ("qwen2", {"add_bos_token": True, "bos_token": "the", "add_eos_token": False}),
        ("gpt_neox", {"add_bos_token": True}),
        ("phi", {"tokenizer_class": "CodeGenTokenizer"}),
        ("llama", {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}),
        ("cohere", {}),
        ("llama", {}),
        ("starcoder2", {"errors": "replace"}),
    ):
        add(f"merges {model_type} {sorted(flags)}", vocab__json="@byte_level#vocab", merges__txt="@byte_level#merges",
            config__json={"model_type": model_type}, tokenizer_config__json=flags, added_tokens__json=ADDED)  # fmt: skip
    add("merges beside", tokenizer__json="@byte_level", vocab__json={"a": 0}, merges__txt="#version: 0.2\na b\n",
        config__json={"model_type": "gpt2"})  # fmt: skip
    add("older file", **{"tokenizer.json": "@byte_level", "tokenizer.4.0.json": "@pieces"}, config__json=llama,
        tokenizer_config__json={"fast_tokenizer_files": ["tokenizer.4.0.json", "tokenizer.9.0.json", "tokenizer.json"]})  # fmt: skip
    for name, files in TEMPLATES.items():
        made.append((f"template {name}", {"tokenizer.json": "@pieces", "config.json": llama, **files}))
    return made


def fill(folder: Path, files: Files) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        if isinstance(content, str) and content.startswith("@"):
            content = part(content[1:])
        text = content if isinstance(content, str) else json.dumps(content)
        path.write_text(text.replace('"@chat"', json.dumps(CHAT)))


def result(folder: Path) -> dict[str, Any]:
    """What a folder gives: ids, texts and the prompt of a conversation, each or that it fails."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        ids = [tokenizer(text, truncation=False, padding=False)["input_ids"] for text in SHORT]
    except Exception as error:
        print(repr(error)[:150], flush=True)
        return {"error": type(error).__name__}
    try:
        chat = tokenizer.apply_chat_template(MESSAGES, tokenize=False)
    except Exception:
        chat = None
    special = [tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id]
    return {
        "vocab_size": len(tokenizer),
        "bos_eos_pad_unk": special,
        "ids": ids,
        "named": tokenizer.special_tokens_map,
        "chat": chat,
        "text": tokenizer.decode(range(0, len(tokenizer), 40), skip_special_tokens=True),
        "end": tokenizer.decode(range(len(tokenizer) - 16, len(tokenizer)), skip_special_tokens=True),
    }


SHORT = [
    TEXTS[7],
    TEXTS[20],
    TEXTS[24],
    "a<b> <b>x<x> newword <y><w>later<pad> <|end|> <|mid|> <image><z> <v>.",
]


def main() -> None:
    transformers.logging.set_verbosity_error()
    lines = []
    for name, files in folders():
        with tempfile.TemporaryDirectory() as folder:
            fill(Path(folder), files)
            found = result(Path(folder))
        lines.append(json.dumps([name, files, found], ensure_ascii=False, separators=(",", ":")))
    head = {
        "format": FORMAT,
        "made_with": {"transformers": transformers.__version__},
        "chat_template": CHAT,
        "messages": MESSAGES,
        "texts": SHORT,
    }
    text = json.dumps(head, ensure_ascii=False)[:-1] + ',"folders":[\n' + ",\n".join(lines) + "]}\n"
    (OUT / "folders.json").write_text(text)


if __name__ == "__main__":
    main()
