"""Draws inputs for the live comparison of logits processors: scores of every awkward kind, ids, arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

INFINITY = float("inf")

Random = np.random.RandomState
Arguments = dict[str, Any]


@dataclass
class Batch:
    """What a processor is called with, and what its arguments may be made from."""

    random: Random
    input_ids: np.ndarray
    scores: np.ndarray

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.scores.shape[0]

    @property
    def vocab(self) -> int:
        """The number of scores of a row."""
        return self.scores.shape[1]

    @property
    def length(self) -> int:
        """The number of ids of a row."""
        return self.input_ids.shape[1]

    def ids(self, low: int, high: int) -> list[int]:
        """Between ``low`` and ``high`` random ids of the vocabulary."""
        return self.random.randint(0, self.vocab, self.random.randint(low, high + 1)).tolist()

    def one_or_more_ids(self) -> int | list[int]:
        """An id, or a list of some."""
        return (self.random.choice([0, 1]) and self.ids(1, 3)) or self.ids(1, 1)[0]

    def choice(self, *values: Any) -> Any:
        """One of the values."""
        return values[self.random.randint(len(values))]

    def uniform(self, low: float, high: float) -> float:
        """A number."""
        return float(self.random.uniform(low, high))


@dataclass(frozen=True)
class Processor:
    """How to compare a processor."""

    name: str
    arguments: Callable[[Batch], Arguments]
    #: Which rows without a finite maximum it takes: those that transformers itself takes.
    nan: bool = True
    infinite: bool = True
    #: The relative difference allowed in values; 0 where equality is expected.
    tolerance: float = 0.0
    versions: tuple[str, ...] = ("4", "5")
    #: Arguments of the call besides ids and scores.
    call: Callable[[Batch, Arguments], Arguments] = field(default=lambda batch, arguments: {})


def _filter(batch: Batch, arguments: Arguments, keep: bool = True) -> Arguments:
    """Adds, now and then, the two arguments that the warpers share."""
    if keep and batch.random.rand() < 0.4:
        arguments["min_tokens_to_keep"] = batch.choice(1, 2, 3, 7)
    if batch.random.rand() < 0.1:
        arguments["filter_value"] = batch.choice(-1000.0, 0.0)
    return arguments


def _prompts(batch: Batch) -> np.ndarray:
    """The prompts of the rows: as many, or one for several rows."""
    each = batch.choice(*[n for n in (1, 2, 4) if batch.rows % n == 0])
    width = batch.random.randint(1, 12)
    prompts = batch.random.randint(0, min(batch.vocab, 6), (batch.rows // each, width))
    return prompts.astype(np.int64)


def _sequences(batch: Batch) -> list[list[int]]:
    """Sequences of 1 to 4 tokens, some of which the ids end with but for the last token."""
    sequences: dict[tuple[int, ...], None] = {}
    for _ in range(batch.random.randint(1, 12)):
        if batch.random.rand() < 0.5 and batch.length:
            first = batch.input_ids[batch.random.randint(batch.rows)][-batch.random.randint(1, 4) :]
            sequences[(*first.tolist(), *batch.ids(1, 1))] = None
        else:
            sequences[tuple(batch.ids(1, 4))] = None
    return [list(sequence) for sequence in sequences]


def _sequence_bias(batch: Batch) -> Arguments:
    biases = [[sequence, batch.choice(batch.uniform(-9, 9), -INFINITY)] for sequence in _sequences(batch)]
    # transformers 4.49 refuses the id 0 in a list.
    if batch.random.rand() < 0.5 or batch.vocab == 1:
        return {"sequence_bias": {tuple(sequence): bias for sequence, bias in biases}}
    return {"sequence_bias": [[[max(i, 1) for i in s], b] for s, b in biases]}


def _bad_words(batch: Batch) -> Arguments:
    words = _sequences(batch)
    eos = batch.choice(None, words[0][0], batch.ids(1, 3))
    return {"bad_words_ids": words} | ({} if eos is None else {"eos_token_id": eos})


def _repetition(batch: Batch) -> Arguments:
    arguments: Arguments = {"penalty": batch.uniform(0.5, 2.0)}
    kind = batch.random.randint(3)
    if kind == 1:
        arguments["prompt_ignore_length"] = int(batch.random.randint(0, batch.length + 2))
    if kind == 2:
        arguments["prompt_ignore_length"] = batch.random.randint(0, batch.length + 1, batch.rows)
    return arguments


def _hamming(batch: Batch) -> Arguments:
    groups = batch.choice(*[n for n in (1, 2, 4) if batch.rows % n == 0])
    return {"diversity_penalty": batch.uniform(0.1, 3.0), "num_beams": groups * 2, "num_beam_groups": 2}


def _hamming_call(batch: Batch, arguments: Arguments) -> Arguments:
    tokens = batch.random.randint(0, min(batch.vocab, 4), batch.rows * 2)
    return {"current_tokens": tokens, "beam_group_idx": batch.choice(0, 1, 1)}


def _allowed(batch: Batch) -> Arguments:
    beams = batch.choice(*[n for n in (1, 2, 4) if batch.rows % n == 0])
    chosen = batch.ids(1, 4)

    def function(batch_id: int, input_ids: Any) -> list[int]:
        return [(token + batch_id + int(sum(input_ids[-2:]))) % batch.vocab for token in chosen]

    return {"prefix_allowed_tokens_fn": function, "num_beams": beams}


def _watermark(batch: Batch) -> Arguments:
    # transformers fails where there are fewer candidates than selfhash looks at, and where none of them is green.
    scheme = batch.choice("lefthash", "lefthash", "selfhash") if 40 <= batch.vocab < 5000 else "lefthash"
    return {
        "vocab_size": batch.vocab,
        "device": "cpu",
        "greenlist_ratio": batch.uniform(0.5 if scheme == "selfhash" else 0.01, 0.99),
        "bias": batch.uniform(-3, 10),
        "hashing_key": batch.choice(15485863, 0, -7, 2**63 - 1, -(2**63), 10**15),
        "seeding_scheme": scheme,
        "context_width": batch.choice(1, 1, 2, 4),
    }


def _synthid_text(batch: Batch) -> Arguments:
    keys = batch.random.randint(-(2**63), 2**63 - 1, batch.random.randint(1, 12), dtype=np.int64)
    return {
        "ngram_len": batch.choice(1, 2, 5),
        "keys": keys.tolist(),
        "sampling_table_size": batch.choice(1, 2, 1000, 65536),
        "sampling_table_seed": batch.choice(0, 12345, 2**40 + 3),
        "context_history_size": batch.choice(0, 1, 1024),
        "device": "cpu",
        "skip_first_ngram_calls": batch.choice(True, False),
        "debug_mode": batch.choice(True, False, False),
    }


PROCESSORS = [
    Processor("SequenceBiasLogitsProcessor", _sequence_bias),
    Processor("HammingDiversityLogitsProcessor", _hamming, versions=("4",), call=_hamming_call),
    Processor(
        "EncoderRepetitionPenaltyLogitsProcessor",
        lambda b: {"penalty": b.uniform(0.5, 2.0), "encoder_input_ids": _prompts(b)},
        tolerance=1e-6,
    ),
    Processor("RepetitionPenaltyLogitsProcessor", _repetition, tolerance=1e-6),
    Processor("NoRepeatNGramLogitsProcessor", lambda b: {"ngram_size": b.choice(1, 2, 2, 3, 4, 9)}),
    Processor(
        "EncoderNoRepeatNGramLogitsProcessor",
        lambda b: {"encoder_ngram_size": b.choice(1, 2, 2, 3, 9), "encoder_input_ids": _prompts(b)},
    ),
    Processor("NoBadWordsLogitsProcessor", _bad_words),
    Processor(
        "MinLengthLogitsProcessor",
        lambda b: {"min_length": b.choice(0, 3, b.length, b.length + 1), "eos_token_id": b.one_or_more_ids()},
    ),
    Processor(
        "MinNewTokensLengthLogitsProcessor",
        lambda b: {
            "prompt_length_to_skip": b.choice(0, 2, b.length),
            "min_new_tokens": b.choice(0, 1, 5, 30),
            "eos_token_id": b.one_or_more_ids(),
        },
    ),
    Processor("PrefixConstrainedLogitsProcessor", _allowed),
    Processor("ForcedBOSTokenLogitsProcessor", lambda b: {"bos_token_id": b.ids(1, 1)[0]}),
    Processor(
        "ForcedEOSTokenLogitsProcessor",
        lambda b: {"max_length": b.choice(1, b.length + 1, b.length), "eos_token_id": b.one_or_more_ids()},
    ),
    Processor("InfNanRemoveLogitsProcessor", lambda b: {}),
    Processor(
        "ExponentialDecayLengthPenalty",
        lambda b: {
            "exponential_decay_length_penalty": (b.choice(0, 1, 5), b.uniform(0.9, 2.0)),
            "eos_token_id": b.one_or_more_ids(),
            "input_ids_seq_length": b.choice(0, 1, 2, b.length),
        },
    ),
    Processor("SuppressTokensLogitsProcessor", lambda b: {"suppress_tokens": b.ids(0, 9)}),
    Processor(
        "SuppressTokensAtBeginLogitsProcessor",
        lambda b: {"begin_suppress_tokens": b.ids(0, 9), "begin_index": b.choice(0, b.length)},
    ),
    Processor("TemperatureLogitsWarper", lambda b: {"temperature": b.uniform(0.05, 5.0)}, tolerance=1e-6),
    Processor(
        "TopHLogitsWarper",
        lambda b: _filter(b, {"top_h": b.uniform(0.01, 0.999)}, keep=False),
        nan=False,
        infinite=False,
        versions=("5",),
    ),
    Processor("TopKLogitsWarper", lambda b: _filter(b, {"top_k": b.choice(1, 2, 5, 50, 1000, 10**6)})),
    Processor(
        "TopPLogitsWarper", lambda b: _filter(b, {"top_p": b.choice(0.0, 1.0, *[b.uniform(0, 1)] * 6)})
    ),
    Processor(
        "MinPLogitsWarper", lambda b: _filter(b, {"min_p": b.choice(0.0, 1.0, *[b.uniform(0, 0.5)] * 6)})
    ),
    Processor("TypicalLogitsWarper", lambda b: _filter(b, {"mass": b.uniform(0.01, 0.999)})),
    Processor("EpsilonLogitsWarper", lambda b: _filter(b, {"epsilon": 10 ** b.uniform(-5, -0.1)})),
    Processor(
        "EtaLogitsWarper",
        lambda b: _filter(b, {"epsilon": 10 ** b.uniform(-5, -0.1)}),
        nan=False,
        infinite=False,
    ),
    Processor("WatermarkLogitsProcessor", _watermark, nan=False),
    Processor(
        "SynthIDTextWatermarkLogitsProcessor", _synthid_text, nan=False, infinite=False, tolerance=1e-6
    ),
    Processor("LogitNormalization", lambda b: {}),
]


def batches(processor: Processor, seed: int, rows: int) -> Iterator[Batch]:
    """Batches with at least ``rows`` rows altogether."""
    random = Random(seed)
    drawn = 0
    while drawn < rows:
        vocab = int(np.exp(random.uniform(0, np.log(50_000)))) if random.rand() < 0.98 else 50_000
        count = int(random.choice([1, 4, 8, 12])) if vocab > 2000 else int(random.choice([4, 16, 40]))
        scores = np.stack([_row(random, vocab, processor) for _ in range(count)])
        # Few different ids, so that n-grams repeat; sometimes padding on the left.
        length = int(random.choice([1, 1, 2, 5, 20]))
        ids = random.randint(0, min(vocab, int(random.choice([2, 4, 50_000]))), (count, length))
        if random.rand() < 0.3:
            ids[:, : random.randint(length)] = 0
        yield Batch(random, ids.astype(np.int64), scores.astype(np.float32))
        drawn += count


def _row(random: Random, vocab: int, processor: Processor) -> np.ndarray:
    """A row of scores."""
    with np.errstate(over="ignore"):
        kind = random.randint(16)
        row = random.normal(0, random.choice([0.1, 1.0, 3.0, 10.0, 40.0]), vocab)
        if kind in (0, 1):
            row = np.round(row * random.choice([0.5, 1.0, 4.0]))  # ties
        elif kind in (2, 3):
            row[random.rand(vocab) < random.rand()] = -INFINITY
        elif kind == 4:
            row[:] = random.choice([0.0, -1.5, 3e38])
        elif kind == 5:
            row[random.permutation(vocab)[random.randint(1, 60) :]] = -INFINITY  # few are left
        elif kind == 6:
            row = np.round(row)
            row[random.rand(vocab) < 0.5] = -INFINITY
        elif kind == 7:
            row *= random.choice([1e-30, 1e-6, 1e4, 1e37])
        elif kind == 8:
            row = row - np.log(np.exp(row - row.max()).sum()) - row.max()  # log-probabilities
        elif kind == 9:
            row[:] = np.sort(row)[:: random.choice([1, -1])]
        elif kind == 10:
            row = random.choice(random.normal(0, 3, 7), vocab)  # many equal ones
        elif kind == 11 and random.rand() < 0.5:
            special = random.randint(3)
            if special == 0 and processor.nan:
                row[random.rand(vocab) < random.choice([0.01, 0.5])] = np.nan
            elif special == 1 and processor.infinite:
                row[random.rand(vocab) < random.choice([0.01, 0.5])] = INFINITY
            elif special == 2 and processor.infinite:
                row[:] = -INFINITY
        if not processor.infinite and not (row > -INFINITY).any():
            row[random.randint(vocab)] = 0.0
    return np.clip(row, -3.4e38, 3.4e38) if np.isfinite(row).all() else row
