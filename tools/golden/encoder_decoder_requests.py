"""The models and requests of the goldens of models with an encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Rows = list[list[int]]

VOCAB = 61
#: Tokens from here on are words.
WORDS = 6


def bart(model_type: str, **fields: Any) -> dict[str, Any]:
    """The fields of a BART-like model: other sizes in encoder and decoder."""
    return {
        "model_type": model_type,
        "vocab_size": VOCAB,
        "d_model": 36,
        "encoder_layers": 3,
        "decoder_layers": 2,
        "encoder_ffn_dim": 40,
        "decoder_ffn_dim": 56,
        "encoder_attention_heads": 6,
        "decoder_attention_heads": 3,
        "max_position_embeddings": 96,
        **fields,
    }


def t5(model_type: str, **fields: Any) -> dict[str, Any]:
    """The fields of a T5: few buckets, so that texts go beyond the last one."""
    return {
        "model_type": model_type,
        "vocab_size": VOCAB,
        "d_model": 30,
        "d_kv": 6,
        "d_ff": 44,
        "num_layers": 3,
        "num_decoder_layers": 2,
        "num_heads": 4,
        "relative_attention_num_buckets": 12,
        "relative_attention_max_distance": 16,
        "decoder_start_token_id": 0,
        **fields,
    }


OF_BART = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
OF_T5 = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
OF_MARIAN = {
    "pad_token_id": 60,
    "eos_token_id": 0,
    "decoder_start_token_id": 60,
    "forced_eos_token_id": 0,
    "bad_words_ids": [[60]],
}
MARIAN = {"pad_token_id": 60, "decoder_start_token_id": 60, "scale_embedding": True}

#: The configuration of each model, and its `generation_config.json`.
CONFIGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "t5": (t5("t5"), OF_T5),
    "t5_gated": (t5("t5", feed_forward_proj="gated-gelu"), OF_T5),
    "mt5": (t5("mt5"), OF_T5),
    "umt5": (t5("umt5"), OF_T5),
    "bart": (bart("bart"), OF_BART | {"forced_eos_token_id": 2}),
    "marian": (bart("marian", activation_function="swish", **MARIAN), OF_MARIAN),
    "marian_two_vocabularies": (
        bart("marian", share_encoder_decoder_embeddings=False, decoder_vocab_size=64, **MARIAN),
        OF_MARIAN,
    ),
    "m2m_100": (bart("m2m_100", scale_embedding=True), OF_BART),
    "mbart": (
        bart("mbart", scale_embedding=True, activation_function="relu"),
        OF_BART | {"forced_eos_token_id": 2},
    ),
    "pegasus": (
        bart("pegasus", scale_embedding=True, activation_function="relu", pad_token_id=0, eos_token_id=1),
        OF_T5 | {"forced_eos_token_id": 1},
    ),
}

#: Tensors that are computed where a file has none.
NOT_SAVED: dict[str, tuple[str, ...]] = {
    "pegasus": ("embed_positions.weight",),
    "marian": ("embed_positions.weight",),
}

#: Version 4.55 opens no model of two vocabularies from its tensors, and scales the output of an mT5 whose head is tied.
NOT_IN_4_55 = ("marian_two_vocabularies", "mt5")


@dataclass
class Case:
    """A request."""

    name: str
    input_ids: Rows
    fields: dict[str, Any]
    attention_mask: Rows | None = None
    decoder_input_ids: Rows | None = None
    seed: int | None = None
    #: Whether the smaller model drafts.
    assisted: bool = False


@dataclass
class Sources:
    """Sources of these lengths, in a padded rectangle."""

    lens: list[int]
    pad: int
    eos: int
    words: list[int] = field(default_factory=list)

    def rows(self, *, left: bool = False) -> tuple[Rows, Rows]:
        """The ids and the mask."""
        words, width = iter(self.words), max(self.lens)
        ids, mask = [], []
        for length in self.lens:
            row = [next(words) for _ in range(length - 1)] + [self.eos]
            padding = [self.pad] * (width - length)
            hidden, seen = [0] * len(padding), [1] * length
            ids.append(padding + row if left else row + padding)
            mask.append(hidden + seen if left else seen + hidden)
        return ids, mask


#: What layers compute, as transformers names it.
STATES = (
    "encoder_hidden_states",
    "encoder_attentions",
    "decoder_hidden_states",
    "decoder_attentions",
    "cross_attentions",
)


def arrays(values: Any) -> Iterator[np.ndarray]:
    """The arrays of nested tuples."""
    if isinstance(values, tuple | list):
        for value in values:
            yield from arrays(value)
    else:
        yield np.asarray(values)


def states_request(family: str, numbers: Callable[[str, int], np.ndarray]) -> Case:
    """A request whose states are kept: two sources of different lengths with beams."""
    fields = CONFIGS[family][1]
    drawn = (np.abs(numbers(family + "states", 14)) * (VOCAB - 2 - WORDS)).astype(int) + WORDS
    ids, mask = Sources(
        [9, 5], fields["pad_token_id"], fields["eos_token_id"], [int(word) for word in drawn]
    ).rows()
    return Case("states", ids, {"num_beams": 2, "num_return_sequences": 2, "max_new_tokens": 3}, mask)


def dropped_requests(family: str, numbers: Callable[[str, int], np.ndarray]) -> Iterator[Case]:
    """Requests of the strategies that transformers 5 has dropped."""
    by_name = {case.name: case for case in requests(family, numbers)}
    three, mask = by_name["greedy of three"].input_ids, by_name["greedy of three"].attention_mask
    prompts = by_name["decoder prompts"].decoder_input_ids
    short = {"max_new_tokens": 9}
    groups = {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.7, "num_return_sequences": 4}
    yield Case("groups of beams", three, {**groups, **short}, mask)
    alone = {"num_beams": 3, "num_beam_groups": 3, "diversity_penalty": 2.0, "num_return_sequences": 2}
    yield Case("beams alone in their groups", three, {**alone, **short}, mask, prompts)
    words = {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 12}
    yield Case("a word", three, {**words, "force_words_ids": [[17]]}, mask)
    yield Case("phrases", three, {**words, "force_words_ids": [[20, 31], [14]]}, mask)
    yield Case("one of several", three, {**words, "force_words_ids": [[[20, 31], [14]]]}, mask, prompts)
    parted = {**words, "num_return_sequences": 3, "force_words_ids": [[[20, 31], [20, 14]]]}
    yield Case("4.49: one of two that begin alike", three, parted, mask)
    for alpha in (0.2, 0.6):
        # The older one takes padding for such where there is no mask.
        yield Case(f"contrast of {alpha}", three, {"penalty_alpha": alpha, "top_k": 4, **short}, mask)
    yield Case("contrast after prompts", three, {"penalty_alpha": 0.6, "top_k": 3, **short}, mask, prompts)


def requests(family: str, numbers: Callable[[str, int], np.ndarray]) -> Iterator[Case]:
    """The requests to a model."""
    fields = CONFIGS[family][1]
    pad, eos, start = (fields[f"{name}_token_id"] for name in ("pad", "eos", "decoder_start"))

    def words(name: str, count: int) -> list[int]:
        drawn = (np.abs(numbers(family + name, count)) * (VOCAB - 2 - WORDS)).astype(int) + WORDS
        return [int(word) for word in drawn]

    def sources(name: str, *lens: int, left: bool = False) -> tuple[Rows, Rows]:
        return Sources(list(lens), pad, eos, words(name, sum(lens))).rows(left=left)

    short = {"max_new_tokens": 9}
    three, mask = sources("three", 13, 9, 22)
    for length in (1, 31, 33, 65):
        yield Case(f"greedy after {length}", sources(f"one {length}", length)[0], short)
    yield Case("greedy of three", three, {"max_length": 36}, mask)
    yield Case("greedy without a mask", three, short)
    left, left_mask = sources("left", 7, 12, left=True)
    yield Case("padding on the left", left, short, left_mask)
    hole = [[1] * 12, [1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1]]
    yield Case("holes in the mask", sources("hole", 12, 12)[0], short, hole)
    drawn = {"do_sample": True, "top_k": 20, "top_p": 0.9, "num_return_sequences": 2, **short}
    yield Case("sample", three, drawn, mask, seed=11)
    beams = {"num_beams": 4, "num_return_sequences": 3, **short}
    yield Case("beams", three, {**beams, "early_stopping": True}, mask)
    yield Case("patient beams", three, {**beams, "length_penalty": 2.0}, mask)
    yield Case("beams drawn", three, {**beams, "do_sample": True, "top_k": 30}, mask, seed=5)
    prompts = [words(f"prompt {row}", 4) for row in range(3)]
    yield Case("decoder prompts", three, short, mask, prompts)
    begun = [[start, *prompt] for prompt in prompts]
    yield Case("decoder prompts with a start", three, {"num_beams": 3, **short}, mask, begun)
    mixed = [prompts[0], [start, *prompts[1][:3]], prompts[2]]
    yield Case("one decoder prompt with a start", three, short, mask, mixed)
    starts = {"decoder_start_token_id": [7, 8, 9], **short}
    yield Case("a start for each", three, starts, mask)
    forced = {"forced_bos_token_id": 8, "forced_eos_token_id": eos, "num_beams": 2, "max_length": 7}
    yield Case("forced ends", three, forced, mask)
    yield Case("forced in two tokens", three, {**forced, "max_length": 2}, mask)
    yield Case(
        "suppressed at the beginning",
        three,
        {
            "forced_bos_token_id": 8,
            "begin_suppress_tokens": list(range(9, 30)),
            "suppress_tokens": [31],
            **short,
        },
        mask,
    )
    words_out = {"bad_words_ids": [[7], [9, 10]], "no_repeat_ngram_size": 2, "repetition_penalty": 1.4}
    yield Case("no bad words", three, {**words_out, **short}, mask)
    yield Case("no bad words in beams", three, {**words_out, **beams}, mask)
    if family != "marian_two_vocabularies":
        looks = {"encoder_repetition_penalty": 1.6, "encoder_no_repeat_ngram_size": 2}
        yield Case("processors of the source", three, {**looks, **short}, mask)
        yield Case("processors of the source in beams", three, {**looks, **beams}, mask)
    lengths = {
        "min_length": 8,
        "max_length": 12,
        "num_beams": 3,
        "exponential_decay_length_penalty": [4, 1.3],
    }
    yield Case("lengths", three, lengths, mask)
    yield Case("one token", three, {"max_length": 6}, mask, prompts)
    one = sources("assisted", 17)[0]
    yield Case("assisted", one, {"max_new_tokens": 16}, assisted=True)
    if family != "marian_two_vocabularies":
        # transformers takes the size of the encoder's vocabulary there.
        yield Case("prompt lookup", one, {"max_new_tokens": 16, "prompt_lookup_num_tokens": 3})
