"""Texts that tokenizers get wrong: chosen by hand, and drawn at random from what they get wrong."""

from __future__ import annotations

import random

#: White space, marks, scripts, controls, and what tokens are written with.
BY_HAND = [
    "",
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n",
    " \n ",
    "\t",
    "\r\n",
    "\t\n \n",
    "\u00a0",
    "\u3000",
    "a",
    " a",
    "  a",
    "a ",
    "a  ",
    " a  b   c    ",
    "\u2581",
    "\u2581a",
    " \u2581 a\u2581 ",
    "a\u2581\u2581b",
    "Once upon a time",
    " Once upon a time",
    "Once  upon   a time ",
    "ONCE UPON A TIME",
    "the the the",
    "thethethe",
    " the\u2581the the ",
    "singing ing ringing",
    "don't can't we'll I'm they've",
    "Hello, world!",
    "...?!;:--",
    "(\"quoted\") 'single' `tick`",
    "0123456789",
    "3.14159 and 1,000,000",
    "x=y+z*2/3",
    "    if (x == y):  # indented\n\t\treturn x\n",
    "tabs\tand\r\nlines\r",
    "trailing newline\n\n",
    "caf\u00e9",
    "cafe\u0301",
    "na\u00efve \u00c5ngstr\u00f6m \u00df",
    "\u00dcberma\u00df",
    "e\u0301\u0323\u0302 stacked",
    "\u0301",
    "a\u0301\u0301\u0301\u0301\u0301",
    "\u0441\u043a\u0430\u0437\u043a\u0430 \u043e \u043b\u0438\u0441\u0435",
    "\u4ece\u524d\u6709\u4e00\u5ea7\u5c71\uff0c\u5c71\u4e0a\u6709\u4e00\u53ea\u72d0\u72f8\u3002",
    "\u9f98\u9f98\u9f98",
    "\u3080\u304b\u3057\u3080\u304b\u3057",
    "\uff76\uff9e\uff77\uff9e\uff78\uff9e",
    "\uc61b\ub0a0 \uc61b\uc801\uc5d0",
    "\u1112\u1161\u11ab\u1100\u1173\u11af",
    "\u0643\u0627\u0646 \u064a\u0627 \u0645\u0627 \u0643\u0627\u0646",
    "\ufdfa \ufdfb",
    "\u05e9\u05dc\u05d5\u05dd",
    "\u0e01\u0e33\u0e19\u0e33",
    "\u0915\u094d\u0937\u093f",
    "\U0001f98a",
    "\U0001f98a\U0001f98a\U0001f98a",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U0001f44d\U0001f3fd\u2764\ufe0f",
    "\U0001f1e9\U0001f1ea flag",
    "zero\u200bwidth\ufeffmark\u00adsoft",
    "no\u00a0break\u2003em\u3000ideographic",
    "\u201ccurly\u201d \u2018quotes\u2019 \u2014 dash\u2026",
    "\uff28\uff45\uff4c\uff4c\uff4f\u3000\uff11\uff12\uff13",
    "\ufb01\ufb02 \u2460\u00b2\u00bd \u2122 \u212b",
    "\u0000",
    "nul\u0000in\u0000side",
    "\u0001\u007f\u0085\u001c x",
    "\ud7ff\ue000\uffff\U0010ffff",
    "\ufffd",
    "<s>",
    "</s>",
    "<unk>",
    "<pad>",
    "<s>hello</s>",
    "hello</s>world",
    "hello </s> world",
    "hello  </s>  world",
    "</s></s> </s>",
    " </s>",
    "a<s>b</s>c",
    "< s > <s / >",
    "<unk>x <unk> x",
    "<0x0A>",
    "<0x41><0xE2><0x96>",
    "<|user|>Tell me a story.<|assistant|>",
    "<| user |><|user|><|user|> ",
    "<ctrl>x<ctrl>",
    "\u00a7 5 \u00a7\u00a7",
    "[INST] hi [/INST] yes",
    "[INST][INST] [/INST]\n[INST]",
    "a <new> b<new>c  <new>",
    "word<word>word <word> word",
    "<left>  <left>\n\n<left>x",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "aaa aaaaa aaaaaaa",
    "ababababababababab",
    "baaaaaaab",
    "word" * 40,
    "\u0416\u0416\u0416\u0416\u0416",
    "\\n is not a newline",
    "quququ equip q u",
]

SPACES = [" ", " ", " ", "  ", "   ", "\n", "\t", "\r\n", "\u00a0", "\u3000", "\u2581", "\u200b", "\u2009"]
WORDS = [
    "the",
    "a",
    "fox",
    "Once",
    "upon",
    "time",
    "there",
    "was",
    "little",
    "ing",
    "singing",
    "qu",
    "equal",
    "Clara",
    "ball's",
    "don't",
    "12",
    "3.5",
    "--",
    "...",
]
LETTERS = list("aaabbcdefghinorstuvwxyzABCTH0123456789.,;:!?'\"()<>/|[]{}#$%&*+-=@^_`~\\")
WIDE = list(
    "\u00e9\u00e8\u00df\u00fc\u0301\u0323\u0308\u0441\u043a\u0430\u0416\u4e00\u4ece\u524d\u9f98\u3042\u30ab\u3099\uff76"
    "\uff9e\uff21\uff11\ufb01\u2460\u00bd\u212b\u1112\u1161\u11ab\uc61b\u05e9\u0643\u0627\u0e01\u0e33\u0915\u094d\ufeff"
    "\u200d\ufe0f\u00ad\u0000\u0001\u007f\u0085\u001c\ufffd\ufdfa\u2028"
)
EMOJI = [
    "\U0001f98a",
    "\U0001f468\u200d\U0001f469",
    "\U0001f44d\U0001f3fd",
    "\U0001f1e9\U0001f1ea",
    "\u2764\ufe0f",
]
TOKENS = [
    "<s>",
    "</s>",
    "<unk>",
    "<pad>",
    "<0x0A>",
    "<|user|>",
    "<ctrl>",
    "§",
    "[INST]",
    "[/INST]",
    "<new>",
    "<left>",
    "<word>",
    "<unk",
    "<s",
]
#: Few letters, so that many ways to cut overlap.
RUNS = ["a", "aa", "b", "aba", "\U0001f98a", "\u0416", "x y", "i", "n", "g", "q", "u", "\u2581", " "]


def random_text(rng: random.Random) -> str:
    """One text of up to 40 parts of one or several kinds."""
    kinds = [SPACES, WORDS, LETTERS, WIDE, EMOJI, TOKENS, RUNS]
    weights = rng.choice(
        [[2, 5, 2, 1, 1, 0, 0], [1] * 7, [2, 0, 1, 8, 2, 1, 0], [1, 0, 0, 0, 0, 0, 9], [3, 2, 1, 0, 0, 5, 0]]
    )
    length = rng.choice([1, 2, 3, 5, 8, 8, 13, 20, 40])
    parts = [rng.choice(rng.choices(kinds, weights)[0]) for _ in range(length)]
    if rng.random() < 0.05:
        parts.append(chr(rng.choice([rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)])))
    joint = rng.choice(["", "", " "])
    return joint.join(parts)


def random_texts(count: int, seed: int) -> list[str]:
    """Different texts from a seed."""
    rng = random.Random(seed)
    texts: dict[str, None] = {}
    while len(texts) < count:
        texts[random_text(rng)] = None
    return list(texts)


def awkward_texts() -> list[str]:
    """The texts of the goldens."""
    return list(dict.fromkeys(BY_HAND + random_texts(220, seed=11)))
