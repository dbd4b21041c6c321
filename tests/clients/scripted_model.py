"""A tiny llama that follows a script: after each token comes the one that the script says, so an agent gets the calls of a task.

Its hidden state is the embedding of the last token alone. The template ends a prompt with a token that tells what has happened,
which it reads from the results of the tools in the messages: without them the task does not go on.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from tiny_llama import llama_config, llama_tensors, write_safetensors

#: What the tools of the task give, and what the model says once it has read both.
SUN = "sun for 2 days"
FAR = "690 km"
ANSWER = "Take the train: it is 690 km, and there is sun for 2 days."

#: What the model writes, token by token, after the token of this name.
SCRIPT = {
    # Goes on as the next one does. Where the grammar asks for a call there is no text before it.
    "<|look|>": ["I look.\n", '<tool_call>\n{"name": '],
    "<|weather|>": [
        '<tool_call>\n{"name": ',
        '"weather", "arguments"',
        ': {"city": "Rome"',
        ', "days": 2}',
        "}\n</tool_call>",
    ],
    "<|distance|>": [
        '<tool_call>\n{"name": "dis',
        'tance", "arguments": {"to"',
        ': "Rome"}}\n',
        "</tool_call>",
    ],
    "<|both|>": [
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "days": 2}}\n</tool_call>\n',
        '<tool_call>\n{"name": "distance", "arguments": {"to": "Rome"}}\n</tool_call>',
    ],
    "<|answer|>": ["Take the train: ", "it is 690 km, ", "and there is sun ", "for 2 days."],
    "<|submit|>": [
        '<tool_call>\n{"name": "final_answer", "arguments"',
        f': {{"answer": "{ANSWER}"',
        "}}\n</tool_call>",
    ],
}

#: Chooses what comes by what the tools have said. It shows the tools and all that was said, in Hermes' form.
TEMPLATE = (
    """{{ tools | tojson if tools }}{% set said = namespace(text='') %}{% for m in messages %}
{{ m.role }}: {{ m.content or '' }}
{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}
{% if m.role in ['tool', 'user'] %}{% set said.text = said.text ~ (m.content or '') %}{% endif %}{% endfor %}
{% if not add_generation_prompt %}{% elif '"""
    + SUN
    + "' in said.text and '"
    + FAR
    + """' in said.text %}{{ '<|submit|>' if 'final_answer' in tools | tojson else '<|answer|>' }}
{%- elif '"""
    + SUN
    + """' in said.text %}<|distance|>{% elif 'both' in said.text %}<|both|>
{%- else %}{{ '<|weather|>' if 'final_answer' in tools | tojson else '<|look|>' }}{% endif %}"""
)

END = "<|end|>"
#: More than the tokens of the script.
HIDDEN = 64


def write(folder: Path) -> Path:
    """Writes the model's folder."""
    special = [END, *SCRIPT]
    pieces = [piece for chain in SCRIPT.values() for piece in chain]
    letters = byte_letters()
    vocab = {letters[byte]: byte for byte in range(256)}
    for piece in pieces:
        vocab.setdefault("".join(letters[byte] for byte in piece.encode()), len(vocab))
    ids = {token: len(vocab) + index for index, token in enumerate(special)}
    next_id = following(vocab, letters, ids)
    folder.mkdir(parents=True)
    write_config(folder, len(vocab) + len(special), ids[END])
    write_tokenizer(folder, vocab, ids)
    config = llama_config(
        vocab_size=len(vocab) + len(special),
        hidden_size=HIDDEN,
        num_hidden_layers=1,
        tie_word_embeddings=False,
    )
    tensors = {
        name: tensor if "norm" in name else np.zeros_like(tensor)
        for name, tensor in llama_tensors(config, np.random.default_rng(0)).items()
    }
    embeddings = tensors["model.embed_tokens.weight"]
    head = np.zeros_like(embeddings)
    embeddings[:, 0] = 1.0
    for dimension, (before, after) in enumerate(next_id.items(), start=1):
        embeddings[before] = 0.0
        embeddings[before, dimension] = 1.0
        # Normalized, the embedding is 8 there: e to the power of 32 times as probable as any other token.
        head[after, dimension] = 4.0
    write_safetensors(folder / "model.safetensors", tensors | {"lm_head.weight": head})
    return folder


def following(vocab: dict[str, int], letters: list[str], ids: dict[str, int]) -> dict[int, int]:
    """The token after each token of the script."""
    following = {}
    for first, chain in SCRIPT.items():
        before = ids[first]
        for piece in chain:
            after = vocab["".join(letters[byte] for byte in piece.encode())]
            following[before] = after
            before = after
        following[before] = ids[END]
    assert len(following) < HIDDEN
    return following


def byte_letters() -> list[str]:
    """The letters that a byte-level vocabulary has for bytes."""
    shown = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    letters, others = [], 0
    for byte in range(256):
        if byte in shown:
            letters.append(chr(byte))
        else:
            letters.append(chr(0x100 + others))
            others += 1
    return letters


def write_config(folder: Path, vocab_size: int, end: int) -> None:
    config = llama_config(
        vocab_size=vocab_size,
        hidden_size=HIDDEN,
        num_hidden_layers=1,
        tie_word_embeddings=False,
        max_position_embeddings=32_768,
        eos_token_id=end,
    )
    (folder / "config.json").write_text(json.dumps(config))


def write_tokenizer(folder: Path, vocab: dict[str, int], ids: dict[str, int]) -> None:
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": number, "content": token} | flags for token, number in ids.items()],
        "pre_tokenizer": level,
        "decoder": level,
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
