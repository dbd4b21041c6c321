"""Draws the settings of watermarks."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

#: Marked texts, in each search that transformers marks them right in, and the eras that they are compared with.
FAMILIES = {
    "watermark": ("5", "4.49"),
    "watermark_beams": ("5", "4.49"),
    "assisted_watermark": ("5",),
    "synthid_text_watermark": ("5", "4.49"),
}

#: Adds the fields of a strategy, for a number of layers and the size of a vocabulary.
Draw = Callable[[dict[str, Any], random.Random, int, int], None]


def draws(sample: Draw, beams: list[Draw], assisted: Draw) -> dict[str, Draw]:
    """The families of marked texts, on top of the draws of strategies."""

    def watermark(fields: dict[str, Any], rng: random.Random, num_layers: int, vocab_size: int) -> None:
        if rng.random() < 0.6:
            sample(fields, rng, num_layers, vocab_size)
        fields["watermarking_config"] = green_list(rng, vocab_size)

    def watermark_beams(fields: dict[str, Any], rng: random.Random, num_layers: int, vocab_size: int) -> None:
        rng.choice(beams)(fields, rng, num_layers, vocab_size)
        fields["watermarking_config"] = green_list(rng, vocab_size)

    def assisted_watermark(
        fields: dict[str, Any], rng: random.Random, num_layers: int, vocab_size: int
    ) -> None:
        assisted(fields, rng, num_layers, vocab_size)
        fields["watermarking_config"] = green_list(rng, vocab_size)

    def synthid(fields: dict[str, Any], rng: random.Random, num_layers: int, vocab_size: int) -> None:
        if rng.random() < 0.7:
            sample(fields, rng, num_layers, vocab_size)
        fields["watermarking_config"] = synthid_text(rng)

    return {
        "watermark": watermark,
        "watermark_beams": watermark_beams,
        "assisted_watermark": assisted_watermark,
        "synthid_text_watermark": synthid,
    }


def green_list(rng: random.Random, vocab_size: int) -> dict[str, Any]:
    """Settings of green lists, as fields of `WatermarkingConfig`.

    transformers fails where there are fewer candidates than selfhash looks at, and where none of them is green.
    """
    scheme = rng.choice(["lefthash", "selfhash"]) if vocab_size > 40 else "lefthash"
    drawn = {
        "greenlist_ratio": round(rng.uniform(0.4 if scheme == "selfhash" else 0.05, 0.9), 2),
        "bias": round(rng.uniform(-1.0, 8.0), 2),
        "hashing_key": rng.choice([rng.randrange(1 << 62), rng.randrange(1 << 20), -rng.randrange(1 << 40)]),
        "context_width": rng.randint(1, 5),
    }
    chosen: dict[str, Any] = {name: value for name, value in drawn.items() if rng.random() < 0.6}
    if scheme == "selfhash":
        chosen |= {"seeding_scheme": scheme, "greenlist_ratio": drawn["greenlist_ratio"]}
    return chosen


def synthid_text(rng: random.Random) -> dict[str, Any]:
    """Settings of SynthID's tournaments, as fields of `SynthIDTextWatermarkingConfig`."""
    drawn = {
        "context_history_size": rng.choice([0, 1, 3, 20, 1024]),
        "sampling_table_seed": rng.randrange(1 << 40),
        "sampling_table_size": rng.choice([1, 7, 1000, 4096, 65537]),
        "skip_first_ngram_calls": rng.random() < 0.5,
    }
    chosen: dict[str, Any] = {name: value for name, value in drawn.items() if rng.random() < 0.5}
    chosen["ngram_len"] = rng.randint(1, 6)
    chosen["keys"] = [
        rng.choice([rng.randrange(1000), rng.randrange(-(1 << 63), 1 << 63)])
        for _ in range(rng.randint(1, 20))
    ]
    return chosen
