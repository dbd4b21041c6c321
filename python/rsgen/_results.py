"""Plain results of the extension: frozen dataclasses, which it constructs.

They are public as names of the package. They are not in :mod:`rsgen.types`, which imports numpy.
"""

# ruff: noqa: RUF023  (the slots are in the order of the fields)
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Self

    from .types import FinishReason


class _Result:
    """The base of them all. Their ``__slots__`` hold the docstrings of the attributes."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        cls.__module__ = "rsgen"

    def __new__(cls, *values: Any, **named: Any) -> Self:
        if not (values or named):
            raise TypeError(f"cannot create {cls.__name__!r} instances: calls return them")
        return super().__new__(cls)

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]


@final
@dataclass(frozen=True, eq=False)
class Usage(_Result):
    """The number of tokens in and out."""

    __slots__ = {
        "prompt_tokens": "int: Tokens of the prompts, without padding.",
        "cached_prompt_tokens": (
            "int: Of these, the tokens that were computed before, for a prompt with the same beginning."
        ),
        "generated_tokens": "int: Generated tokens of all rows.",
    }

    prompt_tokens: int
    cached_prompt_tokens: int
    generated_tokens: int

    def __eq__(self, other: object) -> bool:
        """What was cached does not count: the results are the same."""
        if not isinstance(other, Usage):
            return NotImplemented
        return self._counts() == other._counts()

    def __hash__(self) -> int:
        return hash(self._counts())

    def _counts(self) -> tuple[int, int]:
        return self.prompt_tokens, self.generated_tokens


@final
@dataclass(frozen=True)
class Timings(_Result):
    """The durations of a call, in seconds."""

    __slots__ = {
        "first_token": (
            "float: Seconds from the start to the first token; with beams, to the first that a stream gives."
        ),
        "total": "float: Seconds from the start to the end.",
        "encoder": (
            "float: Seconds of these in passes of the encoder; of a pass that other calls share, the part of this "
            "one. 0 without an encoder, and for sources that were encoded before."
        ),
    }

    first_token: float
    total: float
    encoder: float

    def __repr__(self) -> str:
        encoder = f", encoder={self.encoder:.4f}" if self.encoder else ""
        return f"Timings(first_token={self.first_token:.4f}, total={self.total:.4f}{encoder})"


@final
@dataclass(frozen=True)
class DraftStats(_Result):
    """The statistics of drafting in a call: in assisted decoding and prompt lookup.

    Example:
        >>> out = gen.prompt_lookup("One two three. One two", max_new_tokens=30)
        >>> out.draft_stats.acceptance
    """

    __slots__ = {
        "drafted": "int: Tokens that were drafted or looked up.",
        "verified": "int: Of these, tokens that the model checked.",
        "accepted": "int: Of these, tokens that became part of the output.",
        "rounds": "int: Verification rounds, each of which added the accepted tokens and one more to a row.",
    }

    drafted: int
    verified: int
    accepted: int
    rounds: int

    @property
    def acceptance(self) -> float | None:
        """float | None: The share of the checked tokens that were accepted; None when none was checked."""
        return self.accepted / self.verified if self.verified else None


@final
@dataclass(frozen=True)
class RankedCandidate(_Result):
    """A candidate of `Generator.rank`."""

    __slots__ = {
        "index": "int: Its place among the candidates that were given.",
        "score": "float: What it is ranked by.",
        "logprob": "float: The log-probability of its tokens given the context, in nats.",
        "num_tokens": "int: Its number of tokens.",
    }

    index: int
    score: float
    logprob: float
    num_tokens: int


@final
@dataclass(frozen=True)
class ToolCall(_Result):
    """A call of a tool that a reply makes."""

    __slots__ = {
        "name": "str: The name of the tool.",
        "arguments": "dict[str, Any] | None: The arguments; None where the text was cut off or is no JSON.",
        "text": "str: The arguments as the model wrote them, in JSON.",
        "id": "str: What the message with the result refers to.",
    }

    name: str
    arguments: dict[str, Any] | None
    text: str
    id: str


@final
@dataclass(frozen=True)
class CacheStats(_Result):
    """The usage of a generator's KV cache at one moment.

    A block holds 32 tokens of one sequence. Those of models that draft for the generator count as well.
    """

    __slots__ = {
        "blocks_used": "int: Blocks that hold keys and values. A block that sequences share counts once.",
        "blocks_reserved": "int: Blocks reserved for running requests and not yet used.",
        "blocks_free": "int: Blocks for further requests.",
        "blocks_total": "int: The most blocks within `kv_cache_bytes`.",
        "blocks_kept": (
            "int: Blocks of texts that are kept to be continued. Those that no request uses are free as well."
        ),
        "bytes_used": "int: The bytes of the used blocks.",
        "bytes_allocated": "int: The bytes that the cache has grown to so far.",
        "bytes_total": "int: The bytes of all blocks.",
        "draft_blocks_used": "int: Of the used blocks, those of models that draft.",
        "draft_bytes_allocated": "int: Of the allocated bytes, those of models that draft.",
        "prefix_cache_queries": "int: The prompt tokens that requests have looked up so far.",
        "prefix_cache_hits": "int: Of these, the tokens that were computed already.",
    }

    blocks_used: int
    blocks_reserved: int
    blocks_free: int
    blocks_total: int
    blocks_kept: int
    bytes_used: int
    bytes_allocated: int
    bytes_total: int
    draft_blocks_used: int
    draft_bytes_allocated: int
    prefix_cache_queries: int
    prefix_cache_hits: int


@final
@dataclass(frozen=True, eq=False, repr=False)
class ModelOutput(_Result):
    """The output of the model for sequences of token ids: see `Generator.forward`.

    It unpacks as a tuple does in transformers: `logits`, then what else was asked for.
    """

    __slots__ = {
        "logits": "NDArray[np.float32]: The logits after each token, `[batch, seq, vocab_size]`.",
        "hidden_states": """tuple[NDArray[np.float32], ...] | None: The states before each layer, and after the last and the norm.

Each is `[batch, seq, hidden_size]`.""",
        "attentions": """tuple[NDArray[np.float32], ...] | None: The attention weights of each layer.

Each is `[batch, num_heads, seq, seq]`.""",
    }

    logits: NDArray[np.float32]
    hidden_states: tuple[NDArray[np.float32], ...] | None
    attentions: tuple[NDArray[np.float32], ...] | None

    def __iter__(self) -> Iterator[Any]:
        return (value for value in (self.logits, self.hidden_states, self.attentions) if value is not None)

    def __repr__(self) -> str:
        hidden_states, attentions = (
            "None" if states is None else f"{len(states)} arrays"
            for states in (self.hidden_states, self.attentions)
        )
        return (
            f"<rsgen.ModelOutput: logits {self.logits.shape}, hidden_states {hidden_states}, "
            f"attentions {attentions}>"
        )


@final
@dataclass(frozen=True, repr=False)
class StreamedToken(_Result):
    """A generated token. `str()` is its text."""

    __slots__ = {
        "id": "int: The token id.",
        "text": """str: The text that it adds: empty while a character is incomplete, and for special tokens.

The texts of a row, joined, are the text of its output.""",
        "index": """int: The row that it belongs to. Several return sequences take turns; with beams, those
after the best one come at the end.""",
        "logprob": """float: Its log-probability under the model's own logits, in nats.

NaN for an end-of-sequence token that a beam search has appended without choosing it.""",
        "score": "float: Its score after all processors, as in `GenerationOutput.scores`. Not normalized.",
        "finish_reason": "FinishReason | None: Why the row ends with this token, if it does.",
    }

    id: int
    text: str
    index: int
    logprob: float
    score: float
    finish_reason: FinishReason | None

    @classmethod
    def _restore(cls, values: tuple[Any, ...]) -> Self:
        from ._errors import InputError

        token = cls(*values)
        if token.finish_reason not in (None, "eos", "stop", "length", "time", "cancelled"):
            raise InputError(f"there is no finish reason {token.finish_reason!r}")
        return token

    def __reduce__(self) -> tuple[Any, ...]:
        return self._restore, super().__reduce__()[1:]

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return (
            f"StreamedToken(id={self.id}, text={self.text!r}, index={self.index}, logprob={self.logprob:.4f}, "
            f"score={self.score:.4f}, finish_reason={self.finish_reason!r})"
        )


@final
@dataclass(frozen=True, eq=False, repr=False)
class TokenScores(_Result):
    """How likely the tokens of a text are, each given those before it. `len()` is their number."""

    __slots__ = {
        "token_ids": "NDArray[np.int64]: The tokens of the text, `[tokens]`.",
        "logprobs": """NDArray[np.float32]: The log-probability of each token in nats, `[tokens]`.

The first is 0, because nothing predicts the first token.""",
        "ranks": """NDArray[np.int64]: The rank of each token by probability, `[tokens]`. 1 is the most probable.

The rank of the first token is 0.""",
        "top_logprobs": """list[dict[int, float]]: The most probable tokens in the place of each token.

For each token a dict of ids with their log-probabilities, the most probable first. It is
empty for the first token.""",
    }

    token_ids: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    ranks: NDArray[np.int64]
    top_logprobs: list[dict[int, float]]

    def __len__(self) -> int:
        return len(self.token_ids)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TokenScores):
            return NotImplemented
        return self._values() == other._values()

    __hash__ = None  # type: ignore[assignment]

    def _values(self) -> tuple[Any, ...]:
        return self.token_ids.tolist(), self.logprobs.tolist(), self.ranks.tolist(), self.top_logprobs

    def __repr__(self) -> str:
        total = self.logprobs.sum(dtype="float64")
        return f"<rsgen.TokenScores of {len(self)} tokens: log-probability {total:.4f}>"


@final
@dataclass(frozen=True, eq=False, repr=False)
class WatermarkDetectorOutput(_Result):
    """The findings of a detector for the rows of a batch, as arrays, `[rows]`."""

    __slots__ = {
        "num_tokens_scored": "NDArray[np.float64]: The tokens that could be green.",
        "num_green_tokens": "NDArray[np.float64]: The tokens that are green.",
        "green_fraction": "NDArray[np.float64]: The part of the tokens that is green.",
        "z_score": ("NDArray[np.float64]: How many standard deviations that is above a text without a mark."),
        "p_value": "NDArray[np.float64]: How probable so many green tokens are without a mark.",
        "prediction": "NDArray[np.bool_]: Whether each text is marked.",
        "confidence": "NDArray[np.float64]: The p-values' differences from 1.",
    }

    num_tokens_scored: NDArray[np.float64]
    num_green_tokens: NDArray[np.float64]
    green_fraction: NDArray[np.float64]
    z_score: NDArray[np.float64]
    p_value: NDArray[np.float64]
    prediction: NDArray[np.bool_]
    confidence: NDArray[np.float64]

    def __repr__(self) -> str:
        more = ", …" if len(self.z_score) > 8 else ""
        return f"<rsgen.WatermarkDetectorOutput of z_score [{', '.join(f'{z:.2f}' for z in self.z_score[:8])}{more}]>"
