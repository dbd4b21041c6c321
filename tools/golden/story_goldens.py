"""What is asked of the bundled story model and of its tokenizer."""

from __future__ import annotations

import random
from typing import Any

#: Label, prompts (None: the chat prompt, given as ids), fields. Several prompts form one left-padded batch.
STORY_REQUESTS: list[tuple[str, list[str | None], dict[str, Any]]] = [
    ("greedy", ["Once upon a time"], {"do_sample": False, "max_new_tokens": 200}),
    ("greedy_defaults_of_the_file", ["One day, a girl named"], {}),
    ("greedy_chat", [None], {"do_sample": False, "max_new_tokens": 120}),
    ("greedy_min_new_tokens", ["The end."], {"do_sample": False, "min_new_tokens": 30, "max_new_tokens": 40}),
    (
        "greedy_stop_string",
        ["Once upon a time"],
        {"do_sample": False, "max_new_tokens": 100, "stop_strings": ["."]},
    ),
    (
        "greedy_stop_strings_over_tokens",
        ["Once upon a time"],
        {"do_sample": False, "max_new_tokens": 100, "stop_strings": ["ed the", 'said, "', "e to"]},
    ),
    (
        "greedy_left_padded",
        ["Once upon a time", "In a big green forest there lived", "A cat"],
        {"do_sample": False, "max_new_tokens": 40},
    ),
    ("sample_defaults", ["Once upon a time"], {"do_sample": True, "max_new_tokens": 200}),
    (
        "sample_top_p",
        ["Once upon a time"],
        {"do_sample": True, "top_k": 0, "top_p": 0.9, "max_new_tokens": 120},
    ),
    (
        "sample_hot_min_p",
        ["There was a small"],
        {"do_sample": True, "temperature": 1.6, "top_k": 0, "min_p": 0.05, "max_new_tokens": 80},
    ),
    (
        "sample_num_return_sequences",
        ["Once upon a time"],
        {"do_sample": True, "temperature": 1.2, "num_return_sequences": 4, "max_new_tokens": 40},
    ),
    (
        "sample_to_eos",
        ["They all went home"],
        {"do_sample": True, "num_return_sequences": 3, "max_new_tokens": 256},
    ),
    (
        "sample_left_padded",
        ["Once upon a time", "A fox and a", "It was a sunny day and Tom"],
        {"do_sample": True, "repetition_penalty": 1.1, "top_p": 0.95, "max_new_tokens": 40},
    ),
    (
        "sample_stop_string",
        ["One morning"],
        {"do_sample": True, "temperature": 1.1, "max_new_tokens": 100, "stop_strings": ["!", "ing"]},
    ),
]

#: Texts that tokenizers get wrong: white space, accents, scripts, joined emoji, controls, special tokens.
AWKWARD_TEXTS = [
    "",
    " ",
    "  ",
    "\n",
    "\t\n \n",
    "a",
    "Once upon a time",
    " Once upon a time",
    "Once  upon   a time ",
    "ONCE UPON",
    "don't can't we'll I'm they've she'd it's",
    "Hello, world!",
    "...?!;:--",
    "(\"quoted\") 'single' `tick`",
    "3.14159 and 1,000,000",
    "0123456789",
    "x=y+z*2/3",
    "tabs\tand\r\nlines\r",
    "trailing newline\n\n",
    "caf\u00e9",
    "cafe\u0301",
    "na\u00efve \u00c5ngstr\u00f6m \u00df",
    "\u00dcberma\u00df",
    "\u0441\u043a\u0430\u0437\u043a\u0430",
    "\u4ece\u524d\u6709\u4e00\u5ea7\u5c71",
    "\u3080\u304b\u3057\u3080\u304b\u3057",
    "\uc61b\ub0a0 \uc61b\uc801\uc5d0",
    "\u0643\u0627\u0646 \u064a\u0627 \u0645\u0627 \u0643\u0627\u0646",
    "\u05e9\u05dc\u05d5\u05dd",
    "\U0001f98a",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U0001f1e9\U0001f1ea flag",
    "zero\u200bwidth\ufeffmark",
    "no\u00a0break\u2003em\u3000ideographic",
    "\u201ccurly\u201d \u2018quotes\u2019 \u2014 dash\u2026",
    "\u0000nul\u0001\u007f",
    "\ud7ff\ue000\uffff\U0010ffff",
    "<s>",
    "</s> <pad>",
    "<|user|>Tell me a story.<|assistant|>",
    "<| user |> < s >",
    "a<s>b</s>c",
    "word" * 40,
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "\\n is not a newline",
    "e\u0301\u0323\u0302 stacked",
]

CHAT = [{"role": "user", "content": "Tell me a story about a fox and a kite."}]


def chat_prompt(tokenizer: Any) -> str:
    """A question through the chat template, which writes the beginning-of-sequence token itself."""
    return tokenizer.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)


def tokenizer_golden(tokenizer: Any) -> dict[str, Any]:
    """Ids of awkward texts with and without special tokens, and texts of awkward ids."""
    return {
        "encode": [
            {
                "text": text,
                "ids": tokenizer(text)["input_ids"],
                "ids_without_special": tokenizer(text, add_special_tokens=False)["input_ids"],
            }
            for text in AWKWARD_TEXTS
        ],
        "decode": [_decoded(tokenizer, ids) for ids in _awkward_ids(tokenizer)],
        "chat": {"messages": CHAT, "text": chat_prompt(tokenizer)},
    }


def _decoded(tokenizer: Any, ids: list[int]) -> dict[str, Any]:
    """The text of ids, with special tokens and without."""
    return {
        "ids": ids,
        "text": tokenizer.decode(ids),
        "text_without_special": tokenizer.decode(ids, skip_special_tokens=True),
    }


def _awkward_ids(tokenizer: Any) -> list[list[int]]:
    """Whole texts, halves of them (cut within characters), reversed ones and random ids."""
    rng = random.Random(5)
    encoded = [tokenizer(text)["input_ids"] for text in AWKWARD_TEXTS]
    halves = [ids[: 1 + len(ids) // 2] for ids in encoded[19:36]]
    backwards = [ids[::-1] for ids in encoded[24:31]]
    noise = [[rng.randrange(len(tokenizer)) for _ in range(12)] for _ in range(8)]
    return [*encoded, *halves, *backwards, *noise, [], [0, 1, 2, 3, 4]]
