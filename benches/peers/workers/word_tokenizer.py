"""A tokenizer whose words are numbers, for peers that want one: "17 4" is the tokens 17 and 4."""

from __future__ import annotations

import json
from pathlib import Path

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}


def word(token: int) -> str:
    """The word of a token: the number behind a space, which byte-level tokenizers write so."""
    return f"Ġ{token}"


def with_word_tokenizer(checkpoint: Path, folder: Path) -> None:
    """Makes `folder` the checkpoint (by links) with the tokenizer."""
    for file in checkpoint.iterdir():
        (folder / file.name).symlink_to(file)
    model = json.loads((checkpoint / "config.json").read_text())
    vocab = [word(token) for token in range(model["vocab_size"])]
    if model["model_type"] == "marian":
        # By this name converters know that the last token only begins the decoder's text.
        vocab[-1] = "<pad>"
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": BYTE_LEVEL,
        "post_processor": None,
        "decoder": BYTE_LEVEL,
        "model": {
            "type": "WordLevel",
            "vocab": {text: token for token, text in enumerate(vocab)},
            "unk_token": word(0),
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": "{{ messages[0]['content'] }}"}
    # Random text: whichever tokens stand for the ends of a text, they are disabled.
    config |= {"bos_token": word(1), "eos_token": word(2), "unk_token": word(0)}
    if model["model_type"] == "t5":
        # The decoder of a T5 begins with it.
        config["pad_token"] = word(model["pad_token_id"])
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
