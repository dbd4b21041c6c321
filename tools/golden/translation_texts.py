"""Texts in twelve scripts, and texts that tokenizers of encoder-decoder models get wrong."""

from __future__ import annotations

import random

from sentencepiece_texts import BY_HAND, random_texts

#: A few words of each script, to train small models with and to draw lines from.
LINES = [
    "The house is small, and the garden behind it is full of old apple trees.",
    "Das Haus ist klein, aber der Garten dahinter ist voller alter Apfelbäume und Blüten.",
    "La maison est petite, mais le jardin derrière elle est plein de vieux pommiers où l'été chante.",
    "Дом маленький, но сад за ним полон старых яблонь, и дети играют там весь день.",
    "Το σπίτι είναι μικρό, αλλά ο κήπος πίσω του είναι γεμάτος παλιές μηλιές.",
    "البيت صغير لكن الحديقة خلفه مليئة بأشجار التفاح القديمة والأطفال يلعبون هناك",
    "הבית קטן אבל הגן מאחוריו מלא בעצי תפוח ישנים והילדים משחקים שם",
    "घर छोटा है लेकिन उसके पीछे का बगीचा पुराने सेब के पेड़ों से भरा है।",
    "বাড়িটা ছোট কিন্তু পিছনের বাগান পুরানো আপেল গাছে ভরা এবং শিশুরা খেলে।",
    "บ้านหลังเล็กแต่สวนข้างหลังเต็มไปด้วยต้นแอปเปิ้ลเก่าและเด็กๆเล่นที่นั่น",
    "სახლი პატარაა მაგრამ ბაღი მის უკან სავსეა ძველი ვაშლის ხეებით",
    "Տունը փոքր է բայց այգին նրա հետևում լի է հին խնձորենիներով",
    "집은 작지만 뒤에 있는 정원은 오래된 사과나무로 가득하고 아이들이 놀고 있다.",
    "房子很小，但是后面的花园里种满了老苹果树，孩子们整天在那里玩。",
    "家は小さいが、裏の庭は古いリンゴの木でいっぱいで、子供たちが一日中遊んでいる。",
]
#: What the tokenizers of these classes treat in ways of their own.
AWKWARD = [
    ">>fra<< Hello world",
    ">>fra<<Hello",
    " >>fra<< Hello",
    ">>xyz<< Hello",
    ">>fra Hello",
    ">>fra<< >>deu<< x",
    "in the middle >>fra<< of it",
    ">>a b<< x",
    ">><<",
    ">>",
    "<<>>",
    ">>fra<<",
    "</s>>>fra<< after",
    "__fr__ Hello",
    "Hello __fr__",
    "__fr__",
    "__xx__ hello",
    "en_XX Hello",
    "Hello de_DE",
    "fra_Latn Hello eng_Latn",
    "<2de> Hello",
    "summarize: the house",
    "translate English to German: The house is small.",
    "<extra_id_0> and <extra_id_1>",
    "a<extra_id_99>b",
    "<extra_id_100>",
    "<mask>",
    "a <mask> b",
    "a  <mask>  b",
    "a<mask>b",
    "<mask_1><mask_2> <unk_2>",
    "x<unk_102>y",
    "<n>line<n> two",
    "text </s>",
    "text</s>",
    "text</s></s>",
    "<pad><pad> x",
    "a<pad>",
    " <pad> ",
    "two  blanks   three",
    " leading and trailing ",
    "tab\there",
    "line\nbreak\n\nblank",
    "\u2028separator",
    "ﬁne ＡＢＣ ①",
    "ᄒ\u1161\u11ab",
    "e\u0301te\u0301",
    "🦊 fox 🦊🦊",
    "unknown ꙮ ꙮꙮ 𒀀 word",
    "▁▁ under ▁line",
    "def f(x):\n    return x + 1",
]


def drawn_line(rng: random.Random) -> str:
    """Words of one line, or of two, in another order, now and then with other white space."""
    words = rng.choice(LINES).split() + (rng.choice(LINES).split() if rng.random() < 0.3 else [])
    if len(words) < 2:
        words = list(words[0])
    rng.shuffle(words)
    words = words[: rng.randint(1, 14)]
    if rng.random() < 0.1:
        words.insert(rng.randrange(len(words) + 1), rng.choice(AWKWARD))
    space = rng.choice([" "] * 8 + ["  ", "\t", "\n", "\u3000"])
    return space.join(words)


def drawn_lines(count: int, seed: int) -> list[str]:
    """Different lines from a seed."""
    rng = random.Random(seed)
    lines: dict[str, None] = {}
    while len(lines) < count:
        lines[drawn_line(rng)] = None
    return list(lines)


def translation_texts() -> list[str]:
    """The texts of the goldens."""
    texts = LINES + AWKWARD + BY_HAND[::4] + random_texts(12, seed=5) + drawn_lines(12, seed=6)
    return list(dict.fromkeys(texts))
