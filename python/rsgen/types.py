"""Types for annotations: what a prompt, a logits processor and a stopping criterion are, and the fields of a call.

Nothing of the package needs this module at run time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "AnyGenerationConfig",
    "Conversation",
    "DType",
    "Encoding",
    "FinishReason",
    "GenerationFields",
    "Ids",
    "LogitsProcessor",
    "Message",
    "PrefixAllowedTokens",
    "Prompt",
    "StoppingCriterion",
    "Streamer",
    "Tool",
]

Ids: TypeAlias = Sequence[int] | NDArray[np.integer[Any]]
"""The token ids of one prompt, in one dimension, of any integer type."""

Prompt: TypeAlias = str | Ids | Sequence[str | Ids]
"""A text; token ids; a two-dimensional array of ids (one request, padding masked); or a list of texts and ids
(independent prompts)."""

Encoding: TypeAlias = Mapping[str, Any]
"""What a tokenizer returns, rsgen's or transformers': ``input_ids``, and ``attention_mask`` where there is padding."""

DType: TypeAlias = Any
"""A type of numbers: its name, such as ``"bfloat16"``, or a type of torch or numpy."""


class AnyGenerationConfig(Protocol):
    """A ``GenerationConfig``: rsgen's or transformers'."""

    def to_dict(self) -> dict[str, Any]:
        """The fields by their names."""
        ...


Message: TypeAlias = Mapping[str, Any]
"""What somebody says in a conversation: usually with ``role`` and ``content``. The content is a text, or a list of parts
such as ``{"type": "text", "text": …}``."""

Conversation: TypeAlias = Sequence[Message]
"""Messages in their order."""

Tool: TypeAlias = Mapping[str, Any] | Callable[..., Any]
"""What a model may call: a JSON schema, or a function with type hints and a docstring in Google's form."""

FinishReason: TypeAlias = (
    Literal["eos"] | Literal["stop"] | Literal["length"] | Literal["time"] | Literal["cancelled"]
)
"""Why a row ended: an end-of-sequence token, a stop string or criterion, the limit of tokens, ``max_time``, or the
caller who left."""


class LogitsProcessor(Protocol):
    """Changes the scores of the next token. Any function of this form will do."""

    def __call__(self, input_ids: NDArray[np.int64], scores: NDArray[np.float32], /) -> ArrayLike:
        """Returns the new scores.

        ``input_ids`` is ``[rows, len]``: the rows of the request that have not ended, prompt and padding included.
        ``scores`` is ``[rows, vocab_size]``, a copy that may be changed and returned.
        """
        ...


class PrefixAllowedTokens(Protocol):
    """Says which tokens may follow. Any function of this form will do."""

    def __call__(
        self, batch_id: int, input_ids: NDArray[np.int64], /
    ) -> Iterable[int] | NDArray[np.integer[Any]]:
        """Returns the ids of the tokens that may follow, at least one.

        ``input_ids`` is ``[len]``: a row, prompt and padding included. ``batch_id`` is the place of its prompt among those
        of the call; where several rows are drawn for each prompt it is the place of the row, as in transformers.
        """
        ...


class StoppingCriterion(Protocol):
    """Says whether a row ends. Any function of this form will do."""

    def __call__(
        self, input_ids: NDArray[np.int64], scores: NDArray[np.float32], /
    ) -> bool | np.bool_ | NDArray[np.bool_]:
        """Returns whether the row ends with its newest token, as a truth value or as an array of one.

        ``input_ids`` is ``[1, len]``, the newest token included. ``scores`` is ``[1, vocab_size]``: what that token was
        chosen from. It is asked for each token of each row.
        """
        ...


class Streamer(Protocol):
    """Is given the ids of a call while it runs: transformers' streamers, and :class:`rsgen.TextStreamer`."""

    def put(self, value: NDArray[np.int64], /) -> object:
        """Takes the ids of the prompt, ``[1, len]``, then those of each new token, ``[1]``."""
        ...

    def end(self) -> object:
        """Is called once after the last token."""
        ...


class GenerationFields(TypedDict, total=False):
    """The fields of a :class:`rsgen.GenerationConfig`, as keyword arguments. ``None`` leaves a field unset."""

    # Made by tools/make_stubs.py: begin
    max_length: int | None
    max_new_tokens: int | None
    min_length: int | None
    min_new_tokens: int | None
    max_time: float | None
    stop_strings: str | Sequence[str] | None
    do_sample: bool | None
    num_beams: int | None
    low_memory: bool | None
    num_return_sequences: int | None
    pad_token_id: int | None
    bos_token_id: int | None
    eos_token_id: int | Sequence[int] | None
    output_scores: bool | None
    output_logits: bool | None
    top_logprobs: int | None
    return_dict_in_generate: bool | None
    compat: Literal["4.49"] | None
    use_cache: bool | None
    prefill_chunk_size: int | None
    seed: int | Sequence[int] | None
    penalty_alpha: float | None
    dola_layers: Literal["low", "high"] | Sequence[int] | None
    prompt_lookup_num_tokens: int | None
    max_matching_ngram_size: int | None
    num_assistant_tokens: int | None
    num_assistant_tokens_schedule: Literal["constant", "heuristic", "heuristic_transient"] | None
    assistant_confidence_threshold: float | None
    assistant_lookbehind: int | None
    target_lookbehind: int | None
    assistant_early_exit: int | None
    assistant_ensemble_weight: float | None
    early_stopping: bool | Literal["never"] | None
    length_penalty: float | None
    num_beam_groups: int | None
    force_words_ids: Sequence[Sequence[int] | Sequence[Sequence[int]]] | None
    sequence_bias: dict[tuple[int, ...], float] | Sequence[Sequence[Sequence[int] | float]] | None
    logit_bias: dict[int, float] | None
    diversity_penalty: float | None
    encoder_repetition_penalty: float | None
    repetition_penalty: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    no_repeat_ngram_size: int | None
    encoder_no_repeat_ngram_size: int | None
    bad_words_ids: Sequence[Sequence[int]] | None
    forced_bos_token_id: int | None
    forced_eos_token_id: int | Sequence[int] | None
    remove_invalid_values: bool | None
    exponential_decay_length_penalty: tuple[int, float] | None
    suppress_tokens: Sequence[int] | None
    begin_suppress_tokens: Sequence[int] | None
    temperature: float | None
    top_h: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical_p: float | None
    epsilon_cutoff: float | None
    eta_cutoff: float | None
    renormalize_logits: bool | None
    # Made by tools/make_stubs.py: end
