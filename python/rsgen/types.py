"""Types for annotations: what a prompt, a logits processor and a stopping criterion are, and the fields of a call.

Nothing of the package needs this module at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, SupportsIndex, TypeAlias, TypedDict, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from ._watermarks import SynthIDTextWatermarkingConfig, WatermarkingConfig

__all__ = [
    "Adapter",
    "Alternative",
    "AnyGenerationConfig",
    "BeamEvent",
    "BeamNode",
    "Conversation",
    "DType",
    "DraftEvent",
    "DraftedToken",
    "Encoding",
    "Event",
    "EventTimings",
    "EventUsage",
    "FinishEvent",
    "FinishReason",
    "FinishedRow",
    "GenerationEvent",
    "GenerationFields",
    "Ids",
    "LogitsProcessor",
    "Message",
    "PrefixAllowedTokens",
    "Prompt",
    "PromptEvent",
    "ReasoningParser",
    "StartEvent",
    "StoppingCriterion",
    "Streamer",
    "TokenEvent",
    "TokenText",
    "Tool",
    "ToolParser",
    "TrieEntry",
    "TypeAdapter",
]

_T_co = TypeVar("_T_co", covariant=True)

Ids: TypeAlias = Sequence[int | np.integer[Any]] | NDArray[np.integer[Any]]
"""The token ids of one prompt, in one dimension, of any integer type."""

Prompt: TypeAlias = str | Ids | Sequence[str | Ids]
"""A text; token ids; a two-dimensional array of ids (one request, padding masked); or a list of texts and ids
(independent prompts)."""

Adapter: TypeAlias = str | tuple[str, float] | Sequence[str | tuple[str, float]]
"""The name of a loaded adapter, a name with its weight, or a list of both, whose weighted products add up. A name alone
has weight 1. In a list for several prompts, a list without weights has a name for each prompt."""

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


ToolParser: TypeAlias = Literal[
    "command_r",
    "deepseek_v3",
    "deepseek_v31",
    "granite",
    "hermes",
    "json",
    "llama3_json",
    "mistral",
    "mistral_v11",
    "openai",
    "phi4_mini_json",
    "pythonic",
    "qwen3_coder",
]
"""The form in which a model writes tool calls."""

ReasoningParser: TypeAlias = Literal[
    "command_a", "deepseek_r1", "granite", "mistral", "none", "openai_gptoss", "qwen3", "seed_oss"
]
"""The form in which a model writes what it thinks; ``none`` leaves it in the text."""


class TypeAdapter(Protocol[_T_co]):
    """pydantic's ``TypeAdapter``."""

    def json_schema(self) -> dict[str, Any]:
        """The schema of the type."""
        ...

    def validate_json(self, data: str, /) -> _T_co:
        """The value of a text."""
        ...


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
    ) -> bool | np.bool_ | NDArray[np.bool_] | Sequence[bool]:
        """Returns whether the rows end with their newest tokens: a truth value for all of them, or one for each.

        ``input_ids`` is ``[rows, len]``: the rows of the request that have not ended, their newest tokens included; with
        beams the candidates. ``scores`` is ``[rows, vocab_size]``: what those tokens were chosen from. It is called once a
        step.
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


class TokenText(TypedDict):
    """A token with its text by itself, at most 64 characters of it."""

    id: int
    text: str


class Alternative(TokenText):
    """A token that could have been chosen: its probability under the model's own logits and after all processors, and
    the field, such as ``top_k``, that switches on the processor that removed it."""

    p_raw: float
    p_final: float
    cut_by: str | None


class BeamNode(TokenText):
    """A token in the tree of beams. ``sum`` is that of its ``parent`` and its own ``logprob``, which is the processed
    one; ``score`` is the sum divided by the length to the power of ``length_penalty``; ``beam`` is the row of ``scores``
    that it was chosen from."""

    n: int
    parent: int | None
    beam: int
    logprob: float
    sum: float
    score: float
    group: int
    state: Literal["alive", "pruned", "finished"]


class DraftedToken(TokenText):
    """A drafted token: its probability in the draft, and under the model after all processors, where they are known."""

    p_draft: float | None
    p_target: float | None


class TrieEntry(TypedDict, total=False):
    """An entry of a catalogue: its index, and its payload in a catalogue with payloads."""

    index: int
    payload: Any


class _Row(TypedDict):
    row: int
    prompt: int
    finish_reason: FinishReason
    score: float | None
    path: list[int]


class FinishedRow(_Row, total=False):
    """A row of the output, with beams its score and the numbers of its nodes, and with ``allowed_sequences`` the entry
    that it is."""

    entry: TrieEntry


class EventUsage(TypedDict):
    """The number of tokens in and out."""

    prompt_tokens: int
    generated_tokens: int


class EventTimings(TypedDict):
    """Seconds from the start to the first token, to the end, and of these in passes of the encoder."""

    first_token: float
    total: float
    encoder: float


class Event(TypedDict):
    """What all events have: their number, from 0 without a gap, and microseconds since the start of their request."""

    seq: int
    t_us: int


class StartEvent(Event):
    """A request begins: the model, the name of the search, and the fields of the call merged over those of the model."""

    type: Literal["start"]
    model: str
    strategy: str
    parameters: dict[str, Any]
    seed: int | None
    first_row: int
    num_rows: int


class PromptEvent(Event):
    """A prompt as the model sees it: its tokens, and the text that each adds."""

    type: Literal["prompt"]
    prompt: int
    ids: list[int]
    texts: list[str]


class TokenEvent(Event):
    """A row got a token.

    ``text`` is what it adds: the texts of a row, joined, are its text. ``logprob`` is the log-probability under the
    model's own logits, ``logprob_final`` that after all processors; ``rank`` and ``entropy`` are those of the model's own
    distribution. ``top`` holds the most probable tokens and the chosen one. Beam searches have the nodes of ``beam``
    events instead.
    """

    type: Literal["token"]
    row: int
    pos: int
    id: int
    text: str
    logprob: float | None
    logprob_final: float | None
    rank: int | None
    entropy: float | None
    top: list[Alternative]
    finish_reason: FinishReason | None


class BeamEvent(Event):
    """The beams of a prompt made a step. ``frontier`` holds the numbers of the nodes that are beams now, the best first
    within each group. A node of step ``s`` is token ``s`` of its hypothesis."""

    type: Literal["beam"]
    prompt: int
    step: int
    nodes: list[BeamNode]
    frontier: list[int]


class DraftEvent(Event):
    """A draft was checked: the row takes ``accepted`` of the proposed tokens, then ``next``, the model's own. That is
    None when the row ends with an accepted token."""

    type: Literal["draft"]
    row: int
    round: int
    source: Literal["assistant_model", "early_exit", "prompt_lookup"]
    proposed: list[DraftedToken]
    accepted: int
    next: TokenText | None


class FinishEvent(Event):
    """A request ended, also when it was cancelled."""

    type: Literal["finish"]
    rows: list[FinishedRow]
    usage: EventUsage
    timings: EventTimings


GenerationEvent: TypeAlias = StartEvent | PromptEvent | TokenEvent | BeamEvent | DraftEvent | FinishEvent
"""Something that happened in a call with ``output_events=True``. ``type`` tells which."""


class GenerationFields(TypedDict, total=False):
    """The fields of a :class:`rsgen.GenerationConfig`, as keyword arguments. ``None`` leaves a field unset."""

    # Made by tools/make_stubs.py: begin
    max_length: SupportsIndex | None
    max_new_tokens: SupportsIndex | None
    min_length: SupportsIndex | None
    min_new_tokens: SupportsIndex | None
    max_time: float | None
    stop_strings: str | Sequence[str] | None
    include_stop_str_in_output: bool | None
    do_sample: bool | None
    num_beams: SupportsIndex | None
    low_memory: bool | None
    num_return_sequences: SupportsIndex | None
    pad_token_id: SupportsIndex | None
    bos_token_id: SupportsIndex | None
    eos_token_id: SupportsIndex | Sequence[SupportsIndex] | None
    decoder_start_token_id: SupportsIndex | Sequence[SupportsIndex] | None
    target_prefix: str | Sequence[str] | None
    output_scores: bool | None
    output_logits: bool | None
    output_hidden_states: bool | None
    output_attentions: bool | None
    top_logprobs: SupportsIndex | None
    output_events: bool | None
    return_dict_in_generate: bool | None
    compat: Literal["4.49", "5.23"] | None
    use_cache: bool | None
    prefill_chunk_size: SupportsIndex | None
    attention_sinks: SupportsIndex | None
    window: SupportsIndex | None
    seed: SupportsIndex | Sequence[SupportsIndex] | None
    token_healing: bool | None
    penalty_alpha: float | None
    dola_layers: Literal["low", "high"] | Sequence[SupportsIndex] | None
    prompt_lookup_num_tokens: SupportsIndex | None
    max_matching_ngram_size: SupportsIndex | None
    num_assistant_tokens: SupportsIndex | None
    num_assistant_tokens_schedule: Literal["constant", "heuristic", "heuristic_transient", "adaptive"] | None
    assistant_confidence_threshold: float | None
    assistant_lookbehind: SupportsIndex | None
    target_lookbehind: SupportsIndex | None
    assistant_early_exit: SupportsIndex | None
    assistant_ensemble_weight: float | None
    early_stopping: bool | Literal["never"] | None
    length_penalty: float | None
    num_beam_groups: SupportsIndex | None
    force_words_ids: Sequence[Sequence[int] | Sequence[Sequence[int]]] | None
    force_words: str | Sequence[str] | None
    glossary: dict[str, str | Sequence[str]] | None
    guidance_scale: float | None
    negative_prompt: str | Sequence[str] | None
    negative_prompt_ids: Sequence[int] | Sequence[Sequence[int]] | None
    negative_prompt_attention_mask: Sequence[int] | Sequence[Sequence[int]] | None
    sequence_bias: dict[tuple[int, ...], float] | Sequence[Sequence[Sequence[int] | float]] | None
    logit_bias: dict[int, float] | None
    diversity_penalty: float | None
    encoder_repetition_penalty: float | None
    repetition_penalty: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    no_repeat_ngram_size: SupportsIndex | None
    encoder_no_repeat_ngram_size: SupportsIndex | None
    bad_words_ids: Sequence[Sequence[int]] | None
    bad_words: str | Sequence[str] | None
    forced_bos_token_id: SupportsIndex | None
    forced_eos_token_id: SupportsIndex | Sequence[SupportsIndex] | None
    remove_invalid_values: bool | None
    exponential_decay_length_penalty: tuple[SupportsIndex, float] | None
    suppress_tokens: Sequence[SupportsIndex] | None
    begin_suppress_tokens: Sequence[SupportsIndex] | None
    json_schema: dict[str, Any] | bool | str | type[Any] | None
    regex: str | None
    grammar: str | None
    thinking_token_budget: SupportsIndex | None
    think_start_token_ids: Sequence[SupportsIndex] | None
    think_end_token_ids: Sequence[SupportsIndex] | None
    answer_start_token_ids: Sequence[SupportsIndex] | None
    temperature: float | None
    top_h: float | None
    top_k: SupportsIndex | None
    top_p: float | None
    min_p: float | None
    typical_p: float | None
    epsilon_cutoff: float | None
    eta_cutoff: float | None
    watermarking_config: WatermarkingConfig | SynthIDTextWatermarkingConfig | dict[str, Any] | None
    renormalize_logits: bool | None
    # Made by tools/make_stubs.py: end
