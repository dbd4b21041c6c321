"""The extension module. Its names are public as those of the package ``rsgen``."""

import os
from asyncio import Future
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Generator as PythonGenerator
from types import TracebackType
from typing import Any, Literal, NoReturn, final, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Self, Unpack, disjoint_base

from .types import (
    Conversation,
    FinishReason,
    GenerationFields,
    Ids,
    PrefixAllowedTokens,
    Prompt,
    StoppingCriterion,
    Tool,
)
from .types import LogitsProcessor as AnyLogitsProcessor

__all__ = [
    "BuiltInConstraint",
    "BuiltInLogitsProcessor",
    "BuiltInStoppingCriteria",
    "CacheStats",
    "CallbackError",
    "CancelledError",
    "CapacityError",
    "ConfidenceCriteria",
    "ConfigError",
    "Constraint",
    "DisjunctiveConstraint",
    "EosTokenCriteria",
    "ForkError",
    "GenerationConfig",
    "GenerationOutput",
    "Generator",
    "InputError",
    "InternalError",
    "LoadError",
    "LogitsProcessor",
    "MaxLengthCriteria",
    "MaxTimeCriteria",
    "NumericalError",
    "PhrasalConstraint",
    "RsgenError",
    "StopStringCriteria",
    "StoppingCriteria",
    "StreamedToken",
    "Timings",
    "TokenScores",
    "TokenStream",
    "Tokenizer",
    "Usage",
    "__version__",
    "_tables",
    "cli",
]

__version__: str

class RsgenError(Exception):
    """The base of all errors that rsgen raises.

    A message names the field or file, the rule, the value that broke it, and the remedy. Unknown keyword arguments and
    arguments of a wrong type raise Python's own ``TypeError``.
    """

class ConfigError(RsgenError, ValueError):
    """A field of a GenerationConfig or an argument of a call breaks a rule."""

class LoadError(RsgenError, OSError):
    """A model cannot be loaded: a file is missing, damaged, or of a kind that is not supported."""

class InputError(RsgenError, ValueError):
    """A prompt cannot be used."""

class CapacityError(RsgenError, MemoryError):
    """Memory or the KV cache does not suffice; raised before memory runs out."""

class NumericalError(RsgenError, ArithmeticError):
    """The model computed NaN or infinity where a number is needed."""

class CallbackError(RsgenError, ValueError):
    """A logits processor or stopping criterion of the caller's returned something that cannot be used.

    An exception that it raises is not wrapped: it comes out of the call unchanged.
    """

class CancelledError(RsgenError):
    """The stream was closed by another thread or task."""

class ForkError(RsgenError, RuntimeError):
    """A Generator or stream was used in a process that was forked after it had been made.

    A fork copies neither threads nor what they were doing. Start processes by ``spawn`` or ``forkserver``, or open a new
    Generator in the forked one: ``rsgen.Generator(gen.name_or_path)``.
    """

class InternalError(RsgenError, RuntimeError):
    """A defect of rsgen. Please report it."""

@final
class GenerationConfig:
    """How to generate: transformers' ``GenerationConfig``, with every field unset until somebody sets it.

    A value that does not change: :meth:`update` makes a changed copy. A field that is unset (``None``) comes from the
    model's ``generation_config.json``, and from transformers' default where that says nothing either.

    >>> config = rsgen.GenerationConfig(do_sample=True, top_p=0.9)
    >>> config.top_p
    0.9
    >>> config.update(top_p=None, seed=7)
    GenerationConfig(do_sample=True, seed=7)

    Raises ``TypeError`` for a name that is no field, and ``ConfigError`` for a value of a wrong type. Whether a value is
    possible is checked by the call that uses it, because that depends on the model and the prompt.
    """

    def __new__(cls, **fields: Unpack[GenerationFields]) -> Self: ...
    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """The configuration of a dict, as ``to_dict`` gives it. Keys that are no fields are kept, without effect."""

    @classmethod
    def from_model_config(cls, model_config: object) -> Self:
        """The generation fields of a model's configuration: a dict such as ``Generator.config``, or transformers' object."""

    def get_generation_mode(self, assistant_model: None = None) -> str:
        """The search that the fields select, under the name of its method: ``"greedy_search"``, ``"beam_sample"``, …."""

    @classmethod
    def from_pretrained(cls, path: str | os.PathLike[str], **fields: Unpack[GenerationFields]) -> Self:
        """Reads the ``generation_config.json`` of a folder, or the file itself; ``fields`` go before what it says.

        Keys that are no fields are kept, without effect. Raises ``LoadError`` when it is missing or damaged.
        """

    def save_pretrained(self, path: str | os.PathLike[str]) -> None:
        """Writes ``generation_config.json`` into a folder, which is made if need be.

        What :meth:`validate` warns of is saved with the warning. Raises ``ConfigError`` for a value that is not possible,
        and ``LoadError`` when the file cannot be written.
        """

    def validate(self, strict: bool = False) -> None:
        """Checks what can be told without a model and a prompt. A call checks all of it again.

        Raises ``ConfigError`` for the first value that is not possible, and warns of what is possible but has no effect;
        with ``strict`` that is a ``ConfigError`` too.
        """

    def to_dict(self) -> dict[str, Any]:
        """The fields that are set, and the keys that were kept."""

    def update(self, **fields: Unpack[GenerationFields]) -> Self:
        """A copy with these fields changed; ``None`` unsets a field. This object itself stays as it is.

        transformers' method of that name changes the object and returns what it did not use.
        """

    # Made by tools/make_stubs.py: begin
    @property
    def max_length(self) -> int | None:
        """The most tokens of a sequence, prompt included; ``max_new_tokens`` has precedence over it."""
    @property
    def max_new_tokens(self) -> int | None:
        """The most tokens to generate."""
    @property
    def min_length(self) -> int | None:
        """The length, prompt included, before which no end-of-sequence token is generated."""
    @property
    def min_new_tokens(self) -> int | None:
        """The number of new tokens before which no end-of-sequence token is generated."""
    @property
    def max_time(self) -> float | None:
        """Seconds after which generation stops, at the end of the step that is running."""
    @property
    def stop_strings(self) -> str | list[str] | None:
        """Texts that end a row when they are completed; they stay in the output."""
    @property
    def do_sample(self) -> bool | None:
        """Whether to draw each token at random instead of taking the most probable one."""
    @property
    def num_beams(self) -> int | None:
        """The number of beams; 1 is no beam search."""
    @property
    def low_memory(self) -> bool | None:
        """Accepted for transformers' sake, without effect: candidates share the memory of what they have in
        common."""
    @property
    def num_return_sequences(self) -> int | None:
        """The number of rows generated for each prompt."""
    @property
    def pad_token_id(self) -> int | None:
        """The token that fills rows up to equal length."""
    @property
    def bos_token_id(self) -> int | None:
        """The token that begins a text, used when there is no prompt."""
    @property
    def eos_token_id(self) -> int | list[int] | None:
        """The token, or tokens, that end a row; an empty list: none."""
    @property
    def output_scores(self) -> bool | None:
        """Whether to keep the processed scores of every step."""
    @property
    def output_logits(self) -> bool | None:
        """Whether to keep the model's own logits of every step."""
    @property
    def top_logprobs(self) -> int | None:
        """The number of most probable tokens to keep for each generated token, with their log-probabilities under the
        model's own logits."""
    @property
    def return_dict_in_generate(self) -> bool | None:
        """Accepted for transformers' sake, without effect: results are always objects."""
    @property
    def compat(self) -> Literal["4.49"] | None:
        """An older transformers whose results are wanted where they differ: "4.49"."""
    @property
    def use_cache(self) -> bool | None:
        """Accepted for transformers' sake: the KV cache is always used."""
    @property
    def prefill_chunk_size(self) -> int | None:
        """The most prompt tokens computed in one pass; changes no result."""
    @property
    def seed(self) -> int | list[int] | None:
        """The seed of sampling: the tokens that ``torch.manual_seed(seed)`` gives transformers. For a list of
        prompts, one seed each, or one from which prompt ``i`` takes ``seed + i``."""
    @property
    def penalty_alpha(self) -> float | None:
        """Contrastive search: how much likeness to earlier states counts against a token, from 0 to 1."""
    @property
    def dola_layers(self) -> Literal["low", "high"] | list[int] | None:
        """``DoLa``: the inner layers to contrast with: ``"low"``, ``"high"`` or a list of layers, 0 being the
        embedding."""
    @property
    def early_stopping(self) -> bool | Literal["never"] | None:
        """When beam search ends: ``false`` once it is unlikely that a better hypothesis follows, ``true`` with as
        many hypotheses as beams, ``"never"`` only when no better one can follow."""
    @property
    def length_penalty(self) -> float | None:
        """The power of its length that the score of a hypothesis is divided by: above 0 favours long ones."""
    @property
    def num_beam_groups(self) -> int | None:
        """The number of groups that the beams are split into, which are kept apart by ``diversity_penalty``."""
    @property
    def force_words_ids(self) -> list[list[int] | list[list[int]]] | None:
        """What the output of a constrained beam search has to hold: phrases of token ids, or lists of phrases of
        which one is enough."""
    @property
    def sequence_bias(self) -> dict[tuple[int, ...], float] | list[list[list[int] | float]] | None:
        """Adds a bias to the score of a sequence's last token when its other tokens have just occurred."""
    @property
    def logit_bias(self) -> dict[int, float] | None:
        """Adds a number from -100 to 100 to the score of a token, as OpenAI's field of that name."""
    @property
    def diversity_penalty(self) -> float | None:
        """Subtracts a number for each earlier group of beams that has chosen the token in this step."""
    @property
    def encoder_repetition_penalty(self) -> float | None:
        """Divides the negative and multiplies the other scores of the prompt's tokens, once each."""
    @property
    def repetition_penalty(self) -> float | None:
        """Multiplies the negative and divides the other scores of tokens that have occurred, once each."""
    @property
    def frequency_penalty(self) -> float | None:
        """Subtracts a number from -2 to 2 for each time a token was generated, as OpenAI's field of that name."""
    @property
    def presence_penalty(self) -> float | None:
        """Subtracts a number from -2 to 2 if a token was generated, as OpenAI's field of that name."""
    @property
    def no_repeat_ngram_size(self) -> int | None:
        """Allows no n-gram of this size to occur twice, prompt included; 0 allows all."""
    @property
    def encoder_no_repeat_ngram_size(self) -> int | None:
        """Allows no n-gram of this size that occurs in the prompt to occur again; 0 allows all."""
    @property
    def bad_words_ids(self) -> list[list[int]] | None:
        """Allows no sequence of this list to occur; end-of-sequence tokens are exempt."""
    @property
    def forced_bos_token_id(self) -> int | None:
        """Forces the token that follows a prompt of a single token."""
    @property
    def forced_eos_token_id(self) -> int | list[int] | None:
        """Forces one of these tokens as the last when the most tokens are reached."""
    @property
    def remove_invalid_values(self) -> bool | None:
        """Replaces NaN by 0 and the infinities by the largest and the least number."""
    @property
    def exponential_decay_length_penalty(self) -> tuple[int, float] | None:
        """Raises the scores of end-of-sequence tokens by a factor to the power of the new tokens after a start."""
    @property
    def suppress_tokens(self) -> list[int] | None:
        """Allows none of these tokens."""
    @property
    def begin_suppress_tokens(self) -> list[int] | None:
        """Allows none of these tokens as the first."""
    @property
    def temperature(self) -> float | None:
        """Divides the scores by a number: below 1 sharpens, above 1 flattens."""
    @property
    def top_h(self) -> float | None:
        """Keeps only the most probable tokens, up to 100, within this fraction of the entropy."""
    @property
    def top_k(self) -> int | None:
        """Keeps only this many of the most probable tokens, and ties with the last of them; 0 keeps all."""
    @property
    def top_p(self) -> float | None:
        """Keeps only the most probable tokens that together reach this probability."""
    @property
    def min_p(self) -> float | None:
        """Keeps only tokens that reach this fraction of the most probable one's probability."""
    @property
    def typical_p(self) -> float | None:
        """Keeps only the tokens nearest to the expected surprise that together reach this probability."""
    @property
    def epsilon_cutoff(self) -> float | None:
        """Keeps only tokens of at least this probability."""
    @property
    def eta_cutoff(self) -> float | None:
        """Keeps only tokens of at least this probability, or less where the entropy is high."""
    @property
    def renormalize_logits(self) -> bool | None:
        """Replaces the scores by the logarithms of their softmax, after all other processors."""
    # Made by tools/make_stubs.py: end
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Any, tuple[dict[str, Any]]]: ...
    def __setattr__(self, name: str, value: Any, /) -> None: ...
    __hash__: None  # type: ignore[assignment]

class LogitsProcessor:
    """The base of all logits processors, also of those that you write as classes; any other callable will do as well."""

    def __new__(cls, *_arguments: Any, **_keywords: Any) -> Self: ...
    def __call__(self, input_ids: NDArray[np.int64], scores: NDArray[np.float32]) -> ArrayLike:
        """Returns the new scores: see :class:`rsgen.types.LogitsProcessor`. Classes define this."""

@disjoint_base
class BuiltInLogitsProcessor(LogitsProcessor):
    """The base of the processors of :mod:`rsgen.processors`."""

    def __call__(
        self,
        input_ids: ArrayLike,
        scores: ArrayLike,
        current_tokens: ArrayLike | None = None,
        beam_group_idx: int = 0,
    ) -> NDArray[np.float32]:
        """Returns the new scores, ``[rows, vocab_size]``; what was given stays as it is.

        ``input_ids`` is ``[rows, len]``, ``scores`` is ``[rows, vocab_size]`` and is computed with in float32.
        ``current_tokens`` and ``beam_group_idx`` are for ``HammingDiversityLogitsProcessor`` alone, as in transformers.
        """

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]: ...

class Constraint:
    """The base of all constraints, also of those that you write as classes: what an output has to hold, step by step.

    Your class defines the methods below, and ``seqlen``, the number of its steps at most. A search never changes an object
    of it: it works on what ``copy`` returns, and asks it from the first token of the prompt on. What a method raises comes
    out of the call.
    """

    def __new__(cls, *_arguments: Any, **_keywords: Any) -> Self: ...
    def advance(self) -> int | list[int] | None:
        """The token, or tokens, that would bring it a step further; ``None`` once it is fulfilled."""

    def does_advance(self, token_id: int) -> bool:
        """Whether the token would bring it a step further."""

    def update(self, token_id: int) -> tuple[bool, bool, bool]:
        """Takes a token. Returns whether it was a step, whether the constraint is fulfilled now, and whether it begins
        again because the token broke it."""

    def reset(self) -> None:
        """Begins again."""

    def remaining(self) -> int:
        """The number of steps that are left at most; 0 once it is fulfilled."""

    def copy(self, stateful: bool = False) -> Constraint:
        """A copy as it was before the first token; with ``stateful`` as it is now."""

    def test(self) -> None:
        """Walks through a copy once. Raises ``CallbackError`` when it can never be fulfilled; calls do so, too."""

@disjoint_base
class BuiltInConstraint(Constraint):
    """The base of the constraints of :mod:`rsgen.constraints`, which run natively."""

    def __new__(cls, *_arguments: Any, **_keywords: Any) -> Self: ...
    @property
    def token_ids(self) -> list[Any]:
        """What it was made from."""
    @property
    def seqlen(self) -> int:
        """The number of steps it takes at most."""
    @property
    def completed(self) -> bool:
        """Whether it is fulfilled."""

class PhrasalConstraint(BuiltInConstraint):
    """A phrase that has to occur: these tokens, one after the other."""

    def __new__(cls, token_ids: Ids) -> Self: ...

class DisjunctiveConstraint(BuiltInConstraint):
    """Several phrases of which one has to occur. None of them may begin another."""

    def __new__(cls, nested_token_ids: Sequence[Ids]) -> Self: ...

class StoppingCriteria:
    """The base of all stopping criteria, also of those that you write as classes; any other callable will do as well."""

    def __new__(cls, *_arguments: Any, **_keywords: Any) -> Self: ...
    def __call__(
        self, input_ids: NDArray[np.int64], scores: NDArray[np.float32]
    ) -> bool | np.bool_ | NDArray[np.bool_]:
        """Returns whether the row ends: see :class:`rsgen.types.StoppingCriterion`. Classes define this."""

@disjoint_base
class BuiltInStoppingCriteria(StoppingCriteria):
    """The base of the criteria of :mod:`rsgen.stopping_criteria`."""

    def __new__(cls, *_arguments: Any, **_keywords: Any) -> Self: ...
    def __call__(
        self, input_ids: ArrayLike, scores: ArrayLike | Sequence[ArrayLike] | None = None
    ) -> NDArray[np.bool_]:
        """Returns for each row whether it ends with its newest token, bool ``[rows]``.

        ``input_ids`` is ``[rows, len]``; ``scores`` is ``[rows, vocab_size]``, or a tuple of such arrays, of which the last
        counts. ``ConfidenceCriteria`` alone needs them.
        """

class MaxLengthCriteria(BuiltInStoppingCriteria):
    """Stops at ``max_length`` ids, prompt and padding included. ``max_position_embeddings`` has no effect."""

    def __new__(cls, max_length: int, max_position_embeddings: int | None = None) -> Self: ...

class MaxTimeCriteria(BuiltInStoppingCriteria):
    """Stops ``max_time`` seconds after it was made, or after ``initial_timestamp``, a time of ``time.time()``."""

    def __new__(cls, max_time: float, initial_timestamp: float | None = None) -> Self: ...

class StopStringCriteria(BuiltInStoppingCriteria):
    """Stops when one of these texts ends in the newest token. Texts are compared as bytes."""

    def __new__(cls, tokenizer: Tokenizer, stop_strings: str | Sequence[str]) -> Self: ...

class EosTokenCriteria(BuiltInStoppingCriteria):
    """Stops after any of these tokens."""

    def __new__(cls, eos_token_id: int | Ids) -> Self: ...

class ConfidenceCriteria(BuiltInStoppingCriteria):
    """Stops after a token that was less probable than the threshold, by the softmax of the processed scores."""

    def __new__(cls, assistant_confidence_threshold: float) -> Self: ...

def _tables() -> dict[str, list[dict[str, Any]]]:
    """The fields of a configuration, the strategies and the logits processors, for what is made of them."""

@final
class Generator:
    """A model that is ready to generate.

    Usable from any number of threads at once; calls alternate pass by pass, and Python goes on meanwhile. Ctrl-C ends a
    call within a quarter of a second. It pickles as the recipe that it was opened by, and is opened again when it is
    unpickled; a copy is the same object. In a forked process whatever computes raises ``ForkError``.

    >>> import rsgen
    >>> gen = rsgen.Generator()                      # the bundled story model
    >>> out = gen.generate("Once upon a time", max_new_tokens=60)
    >>> print(out.text)
    >>> out = gen.sample(["One day", "Tom had"], top_p=0.9, seed=7, max_new_tokens=60)
    >>> out.sequences.shape                          # numpy int64 [rows, prompt + continuation]
    >>> for token in gen.stream("Once upon a time"):
    ...     print(token, end="", flush=True)
    """

    def __new__(
        cls,
        model: str | os.PathLike[str] | None = None,
        *,
        dtype: str = "auto",
        compute_dtype: str = "float32",
        kv_dtype: str = "auto",
        num_threads: int | None = None,
        kv_cache_bytes: int | None = None,
        local_files_only: bool = True,
        revision: str | None = None,
        generation_config: Literal["auto", "ignore"] = "auto",
        progress: Callable[[str, int, int], object] | None = None,
    ) -> Self:
        """Loads a model.

        ``model`` is a folder in the Hugging Face layout, the id of a model in the local Hub cache, or ``None`` for the
        story model that comes with the package. Nothing is ever downloaded, hence ``local_files_only``.

        ``dtype``: the type that weights are rounded to while loading, ``"float32"``, ``"bfloat16"`` or ``"float16"``;
        ``"auto"`` keeps them as stored. ``compute_dtype``: the arithmetic, ``"float32"``,
        which gives what transformers gives, or ``"bfloat16"``, which rounds weights and activations and is faster.
        ``kv_dtype``: the type of the KV cache, ``"float32"``, ``"bfloat16"`` or ``"int8"``, which has a scale for each
        token and head; ``"auto"`` takes that of the arithmetic. ``num_threads``: by default
        ``RSGEN_NUM_THREADS``, ``OMP_NUM_THREADS`` or as many as this process may use. ``kv_cache_bytes``: the most memory
        of the KV cache in bytes, by default half of what is available. ``revision``: a branch, tag or commit in the Hub
        cache, ``main`` by default. ``progress``: called in this thread with the stage (``"pack"``, the only one of this
        version), and the bytes of weights that are done and in all; what it raises ends the loading.

        Raises ``LoadError`` for a model that is missing, damaged or not supported, ``CapacityError`` when it does not fit
        into memory, and ``ConfigError`` for an argument that is not possible. Ctrl-C ends it within a quarter of a
        second.
        """

    @classmethod
    def from_pretrained(
        cls,
        model: str | os.PathLike[str] | None = None,
        *,
        dtype: str = "auto",
        compute_dtype: str = "float32",
        kv_dtype: str = "auto",
        num_threads: int | None = None,
        kv_cache_bytes: int | None = None,
        local_files_only: bool = True,
        revision: str | None = None,
        generation_config: Literal["auto", "ignore"] = "auto",
        progress: Callable[[str, int, int], object] | None = None,
    ) -> Self:
        """The same as ``Generator(model, …)``."""

    def generate(
        self,
        prompt: Prompt,
        generation_config: GenerationConfig | None = None,
        *,
        attention_mask: ArrayLike | None = None,
        logits_processor: AnyLogitsProcessor | Sequence[AnyLogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> GenerationOutput:
        """Generates as the configuration says: greedily, at random with ``do_sample=True``, with beams, and so on.

        ``prompt`` is one of

        - a text, or its token ids as a sequence or array of any integer type, ``[len]``;
        - a two-dimensional array of ids, ``[rows, len]``: one request, as transformers takes it. Its rows share one
          random generator; padding is masked by ``attention_mask``, an array of 0 and 1 of the same shape, or told from
          the ``pad_token_id``;
        - a list of texts and ids: independent prompts, computed together. Each gives what it gives alone; with
          ``seed=s`` prompt ``i`` draws with seed ``s + i``, with ``seed=[…]`` each with its own.

        Fields of the call go before those of ``generation_config``, those before the model's own. Without any limit of
        length it stops after 20 new tokens, with a warning.

        ``logits_processor`` and ``stopping_criteria`` are Python functions, or lists of them: see
        :class:`rsgen.types.LogitsProcessor` and :class:`rsgen.types.StoppingCriterion`. They cost time at each token, but
        for those of :mod:`rsgen.processors` and :mod:`rsgen.stopping_criteria`, which run without Python.
        ``prefix_allowed_tokens_fn`` says which tokens may follow: see :class:`rsgen.types.PrefixAllowedTokens`.
        ``constraints`` say what the output of a constrained beam search has to hold: see :mod:`rsgen.constraints`.

        Raises ``TypeError`` for an unknown keyword, with the one that was probably meant; ``ConfigError``, ``InputError``
        or ``CapacityError`` before anything is computed; ``NumericalError``; and whatever a function of the caller's
        raises.
        """

    # Made by tools/make_stubs.py: begin of methods
    def greedy_search(
        self,
        prompt: Prompt,
        generation_config: GenerationConfig | None = None,
        *,
        attention_mask: ArrayLike | None = None,
        logits_processor: AnyLogitsProcessor | Sequence[AnyLogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> GenerationOutput:
        """Takes the most probable token at each step. Otherwise as :meth:`generate`."""

    def sample(
        self,
        prompt: Prompt,
        generation_config: GenerationConfig | None = None,
        *,
        attention_mask: ArrayLike | None = None,
        logits_processor: AnyLogitsProcessor | Sequence[AnyLogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> GenerationOutput:
        """Draws each token at random from the model's distribution. Otherwise as :meth:`generate`."""

    def contrastive_search(
        self,
        prompt: Prompt,
        generation_config: GenerationConfig | None = None,
        *,
        attention_mask: ArrayLike | None = None,
        logits_processor: AnyLogitsProcessor | Sequence[AnyLogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> GenerationOutput:
        """Takes, of the ``top_k`` most probable tokens (4 unless set), the one that is probable and leads to a state
        unlike those before it; ``penalty_alpha`` (0.6 unless set) weighs the two. Otherwise as :meth:`generate`.
        """

    def dola(
        self,
        prompt: Prompt,
        generation_config: GenerationConfig | None = None,
        *,
        attention_mask: ArrayLike | None = None,
        logits_processor: AnyLogitsProcessor | Sequence[AnyLogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> GenerationOutput:
        """Contrasts the last layer's logits with those of an inner one; ``dola_layers`` says which, ``"high"`` unless
        set. Otherwise as :meth:`generate`.
        """

    def beam_search(
        self,
        prompt: Prompt,
        generation_config: GenerationConfig | None = None,
        *,
        attention_mask: ArrayLike | None = None,
        logits_processor: AnyLogitsProcessor | Sequence[AnyLogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> GenerationOutput:
        """Keeps the ``num_beams`` best continuations at each step, 4 unless set, and returns the best of what ends.
        Otherwise as :meth:`generate`.
        """

    def beam_sample(
        self,
        prompt: Prompt,
        generation_config: GenerationConfig | None = None,
        *,
        attention_mask: ArrayLike | None = None,
        logits_processor: AnyLogitsProcessor | Sequence[AnyLogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> GenerationOutput:
        """Beam search whose continuations are drawn at random. Otherwise as :meth:`generate`."""

    def group_beam_search(
        self,
        prompt: Prompt,
        generation_config: GenerationConfig | None = None,
        *,
        attention_mask: ArrayLike | None = None,
        logits_processor: AnyLogitsProcessor | Sequence[AnyLogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> GenerationOutput:
        """Beam search in groups that are kept apart, so that results differ: 4 beams in 2 groups with a
        ``diversity_penalty`` of 1.0, unless set. Otherwise as :meth:`generate`.
        """

    def constrained_beam_search(
        self,
        prompt: Prompt,
        generation_config: GenerationConfig | None = None,
        *,
        attention_mask: ArrayLike | None = None,
        logits_processor: AnyLogitsProcessor | Sequence[AnyLogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> GenerationOutput:
        """Finds the best output that holds the tokens of ``force_words_ids`` and ``constraints``. Otherwise as
        :meth:`generate`.
        """
    # Made by tools/make_stubs.py: end of methods
    def stream(
        self,
        prompt: Prompt,
        generation_config: GenerationConfig | None = None,
        *,
        attention_mask: ArrayLike | None = None,
        logits_processor: AnyLogitsProcessor | Sequence[AnyLogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> TokenStream:
        """Generates token by token, while the stream is iterated.

        As :meth:`generate`, with one prompt (text, ids, or a two-dimensional array). Without any limit of length it goes
        on to an end-of-sequence token or the end of the model's context.
        """

    def astream(
        self,
        prompt: Prompt,
        generation_config: GenerationConfig | None = None,
        *,
        attention_mask: ArrayLike | None = None,
        logits_processor: AnyLogitsProcessor | Sequence[AnyLogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> TokenStream:
        """Generates token by token, for ``async for``.

        As :meth:`stream`, and the same kind of object, which a loop of asyncio iterates while it goes on with everything
        else. Cancelling the task that waits for a token ends the stream.

        >>> async with gen.astream("Once upon a time") as stream:
        ...     async for token in stream:
        ...         print(token, end="", flush=True)
        """

    def chat(
        self,
        messages: Conversation | Sequence[Conversation],
        generation_config: GenerationConfig | None = None,
        *,
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        continue_final_message: bool | str = False,
        logits_processor: AnyLogitsProcessor | Sequence[AnyLogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> GenerationOutput:
        """Replies to a conversation.

        >>> gen.chat([{"role": "user", "content": "Tell me a story about a fox."}]).text

        The conversation becomes a prompt by the model's chat template, as in :meth:`apply_chat_template`, with the words
        that begin a reply; with ``continue_final_message`` it goes on with its final message instead. A list of
        conversations is a list of independent prompts: see :meth:`generate`.

        Without any limit of length it goes on to an end-of-sequence token or the end of the model's context.

        ``tools``, ``documents``, ``chat_template`` and ``continue_final_message`` are those of
        :meth:`apply_chat_template`; ``chat_template_kwargs`` holds further variables for the template, such as
        ``{"enable_thinking": False}``.
        """

    def stream_chat(
        self,
        messages: Conversation,
        generation_config: GenerationConfig | None = None,
        *,
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        continue_final_message: bool | str = False,
        logits_processor: AnyLogitsProcessor | Sequence[AnyLogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> TokenStream:
        """Replies to a conversation token by token: :meth:`chat` as :meth:`stream`."""

    @overload
    def apply_chat_template(
        self,
        conversation: Conversation,
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        tokenize: Literal[True] = True,
        **kwargs: Any,
    ) -> list[int]:
        """The prompt of a conversation by a chat template, as transformers makes it: its token ids, or with
        ``tokenize=False`` its text. A list of conversations gives a list.

        ``tools``: what the model may call, as JSON schemas or as functions with type hints and a docstring.
        ``documents``: dicts, usually with ``title`` and ``text``. ``chat_template``: a Jinja template, or the name of one of
        the model's; by default the model's own. ``add_generation_prompt``: end with the words that begin a reply.
        ``continue_final_message``: leave the final message open, to be continued; a text names the field of it that is
        continued. ``kwargs``: further variables for the template.

        The template writes the special tokens; the tokenizer adds none. Templates are not trusted: they run in a sandbox,
        within bounds of time and memory.

        Raises ``InputError`` when the model has no chat template and none is given, and when the template raises an
        exception or cannot be rendered.
        """
    @overload
    def apply_chat_template(
        self,
        conversation: Conversation,
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        *,
        tokenize: Literal[False],
        **kwargs: Any,
    ) -> str: ...
    @overload
    def apply_chat_template(
        self,
        conversation: Sequence[Conversation],
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        tokenize: Literal[True] = True,
        **kwargs: Any,
    ) -> list[list[int]]: ...
    @overload
    def apply_chat_template(
        self,
        conversation: Sequence[Conversation],
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        *,
        tokenize: Literal[False],
        **kwargs: Any,
    ) -> list[str]: ...
    def forward(self, ids: Ids | Sequence[Ids]) -> NDArray[np.float32]:
        """The model's logits after each token, float32 ``[batch, seq, vocab_size]``.

        ``ids`` is a sequence of ids (a batch of one), or several of one length, or a two-dimensional array. Raises
        ``InputError`` when lengths differ, or an id is not in the vocabulary.
        """

    @overload
    def score(
        self,
        text: str | Ids,
        *,
        top_logprobs: None = None,
        progress: bool | Callable[[int, int], object] | None = None,
    ) -> NDArray[np.float32]: ...
    @overload
    def score(
        self,
        text: Sequence[str] | Sequence[Ids],
        *,
        top_logprobs: None = None,
        progress: bool | Callable[[int, int], object] | None = None,
    ) -> list[NDArray[np.float32]]: ...
    @overload
    def score(
        self,
        text: str | Ids,
        *,
        top_logprobs: int,
        progress: bool | Callable[[int, int], object] | None = None,
    ) -> TokenScores: ...
    @overload
    def score(
        self,
        text: Sequence[str] | Sequence[Ids],
        *,
        top_logprobs: int,
        progress: bool | Callable[[int, int], object] | None = None,
    ) -> list[TokenScores]:
        """The log-probability of each token of a text given those before it, in nats, float32 ``[tokens]``; for a list of
        texts, which are computed together, a list of arrays.

        The first entry is 0, because nothing predicts the first token. With ``top_logprobs``, 0 included, the result is a
        ``TokenScores`` in place of an array: also the ranks, and so many of the most probable tokens in each place.
        ``progress`` is ``True`` for a bar, or a function of the number of texts done and of all. Raises ``InputError``
        when a text is longer than the model's context.
        """

    def stats(self) -> CacheStats:
        """How full the KV cache is at this moment."""

    def __reduce__(self) -> tuple[Any, tuple[type[Self], tuple[str | None], dict[str, Any]]]: ...
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, memo: Any, /) -> Self: ...
    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer. Raises ``InputError`` when it came without one."""
    @property
    def config(self) -> dict[str, Any]:
        """The model's ``config.json``; a copy."""
    @property
    def generation_config(self) -> GenerationConfig:
        """The model's ``generation_config.json``: the defaults of every call."""
    @property
    def name_or_path(self) -> str:
        """The folder or id that the model was loaded from."""
    @property
    def num_threads(self) -> int:
        """The number of threads that compute, the calling one included."""
    @property
    def isa(self) -> str:
        """The instruction set in use: ``avx512_bf16``, ``avx512``, ``avx2`` or ``scalar``.

        ``RSGEN_ISA`` forces one; results are equal."""

@final
class GenerationOutput:
    """What a call has generated. ``str()`` is the text of the first row, ``len()`` the number of rows.

    For each prompt there are ``num_return_sequences`` rows, the prompts in order.
    """

    @property
    def text(self) -> str:
        """The continuation of the first row, without special tokens; a stop string is kept."""
    @property
    def texts(self) -> list[str]:
        """The continuations of all rows."""
    @property
    def sequences(self) -> NDArray[np.int64]:
        """Prompts and continuations, int64 ``[rows, width]``, as transformers gives them.

        Prompts are as they were given, padded on the left to equal width; continuations are padded on the right. Padding
        is the ``pad_token_id``, or 0 when there is none.
        """
    @property
    def token_ids(self) -> list[NDArray[np.int64]]:
        """The tokens of each continuation, int64 ``[tokens]``, an end-of-sequence token included."""
    @property
    def logprobs(self) -> list[NDArray[np.float32]]:
        """For each token its log-probability under the model's own logits, in nats, float32 ``[tokens]`` for each row."""
    @property
    def top_logprobs(self) -> list[list[dict[int, float]]] | None:
        """For each token of each row the most probable tokens in its place, with ``top_logprobs=N``: a dict of N ids with
        their log-probabilities under the model's own logits, the most probable first."""
    def compute_transition_scores(self, normalize_logits: bool = False) -> NDArray[np.float32]:
        """For each token of each row the processed score that it was chosen by, float32 ``[rows, longest]``, 0 after the
        end of a row; with ``normalize_logits`` the logarithm of its softmax.

        With beams the scores of a row sum up to its entry of ``sequences_scores``, but for the power of its length.
        Needs ``output_scores=True``: raises ``InputError`` otherwise.
        """
    @property
    def sequences_scores(self) -> NDArray[np.float32] | None:
        """With beams the score of each row, float32 ``[rows]``: the sum of its processed log-probabilities, divided by its
        length to the power of ``length_penalty``. ``None`` without beams."""
    @property
    def beam_indices(self) -> NDArray[np.int32] | None:
        """With beams, for each token the row of ``scores`` that it was chosen from, int32 ``[rows, longest]``, -1 after the
        end of a row. ``None`` without beams."""
    @property
    def finish_reasons(self) -> list[FinishReason]:
        """Why each row ended: ``eos``, ``stop``, ``length``, ``time`` or ``cancelled``."""
    @property
    def prompt_indices(self) -> list[int]:
        """For each row the prompt that it continues."""
    @property
    def scores(self) -> list[NDArray[np.float32]] | None:
        """For each step the processed scores, float32 ``[rows, vocab_size]``, with ``output_scores=True``. With beams the
        rows are the beams of each prompt, and the scores are log-probabilities.

        NaN where a row had ended before: transformers computes such rows on, after padding, and nothing uses them.
        """
    @property
    def logits(self) -> list[NDArray[np.float32]] | None:
        """For each step the model's own logits, like ``scores``, with ``output_logits=True``."""
    @property
    def seed(self) -> int | None:
        """The seed that the first prompt was sampled with; ``None`` when nothing was drawn."""
    @property
    def seeds(self) -> list[int]:
        """The seeds of all prompts; empty when nothing was drawn."""
    @property
    def usage(self) -> Usage:
        """Tokens in and out."""
    @property
    def timings(self) -> Timings:
        """Where the time went."""
    def __len__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, tuple[Any]]: ...

@final
class Usage:
    """Tokens in and out."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompts, padding left out."""
    @property
    def generated_tokens(self) -> int:
        """Generated tokens of all rows."""
    def __reduce__(self) -> tuple[Any, tuple[Any]]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class Timings:
    """Where the time of a call went, in seconds."""

    @property
    def first_token(self) -> float:
        """From the start to the first token; with beams, to the first of each beam."""
    @property
    def total(self) -> float:
        """From the start to the end."""
    def __reduce__(self) -> tuple[Any, tuple[Any]]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class StreamedToken:
    """A generated token. ``str()`` is its text."""

    @property
    def id(self) -> int:
        """The token."""
    @property
    def text(self) -> str:
        """The text that it adds: empty while a character is incomplete, and for special tokens.

        The texts of a row, joined, are the text of its output.
        """
    @property
    def index(self) -> int:
        """The row that it belongs to: with several return sequences, their rows take turns."""
    @property
    def logprob(self) -> float:
        """Its log-probability under the model's own logits, in nats."""
    @property
    def score(self) -> float:
        """Its score after all processors, as in ``GenerationOutput.scores``: not normalized."""
    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the row ends with this token, if it does."""
    def __reduce__(self) -> tuple[Any, tuple[Any]]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class TokenScores:
    """How likely the tokens of a text are, each given those before it. ``len()`` is their number."""

    @property
    def token_ids(self) -> NDArray[np.int64]:
        """The tokens of the text, int64 ``[tokens]``."""
    @property
    def logprobs(self) -> NDArray[np.float32]:
        """Their log-probabilities in nats, float32 ``[tokens]``; 0 for the first, which nothing predicts."""
    @property
    def ranks(self) -> NDArray[np.int64]:
        """Their places among all tokens by probability, int64 ``[tokens]``: 1 is the most probable; 0 for the first token."""
    @property
    def top_logprobs(self) -> list[dict[int, float]]:
        """For each token a dict from the ids of the most probable tokens in its place to their log-probabilities, the most
        probable first; empty for the first token."""
    def __len__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, tuple[Any]]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class TokenStream(PythonGenerator[StreamedToken, None, GenerationOutput]):
    """The tokens of a request, as they are generated: an iterator, a context manager, and a generator in Python's sense;
    with asyncio also an asynchronous iterator and context manager.

    The model works while a token is waited for. Leaving the stream ends the work and gives its cache blocks back at once:
    by ``break`` when nothing else refers to it, by the end of a ``with`` block, or by :meth:`close`.

    >>> with gen.stream("Once upon a time", max_new_tokens=60) as stream:
    ...     for token in stream:
    ...         print(token, end="", flush=True)
    >>> stream.output.usage
    Usage(prompt_tokens=5, generated_tokens=60)

    In a generator function, ``output = yield from stream`` gives the finished output. A function of the caller's, or
    Ctrl-C, ends the stream with its exception; so does cancelling the task that waits for a token. One reader at a time:
    a second one gets a ``ValueError``.
    """

    def __iter__(self) -> PythonGenerator[StreamedToken, None, GenerationOutput]: ...
    def __next__(self) -> StreamedToken:
        """Computes the next token. The ``StopIteration`` at the end carries the output."""

    def send(self, value: None, /) -> StreamedToken:
        """The next token, as generators have it."""

    def throw(self, typ: Any, val: Any = None, tb: Any = None, /) -> StreamedToken:
        """Closes the stream and raises the exception, as generators have it."""

    def close(self) -> None:
        """Ends the work. Rows that have not ended are marked as ``cancelled`` in the output.

        From another thread, while a token is computed, it ends that with ``CancelledError``.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> None: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Future[StreamedToken]:
        """A future of the next token, which other threads compute. ``StopAsyncIteration`` at the end carries the output."""

    def aclose(self) -> Future[None]:
        """Ends the work, and waits until it has ended."""

    def __aenter__(self) -> Future[Self]: ...
    def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> Future[None]: ...
    def __reduce__(self) -> NoReturn: ...
    @property
    def output(self) -> GenerationOutput | None:
        """The output, once the stream has ended, was closed or was interrupted; ``None`` before, and after an error."""

@final
class Tokenizer:
    """The tokenizer of a model. ``len()`` is the size of its vocabulary."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The token ids of a text, with the special tokens that the model expects around it."""

    def decode(self, token_ids: Ids, *, skip_special_tokens: bool = False) -> str:
        """The text of token ids. Bytes that are no whole character become U+FFFD."""

    @property
    def vocab_size(self) -> int:
        """The number of ids, one more than the largest; the model may have more."""
    @property
    def bos_token_id(self) -> int | None:
        """The token that begins a text."""
    @property
    def eos_token_id(self) -> int | None:
        """The token that ends a text; ``Generator.generation_config`` tells all that end generation."""
    @property
    def pad_token_id(self) -> int | None:
        """The token for padding."""
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, memo: Any, /) -> Self: ...
    def __reduce__(self) -> NoReturn: ...
    def __len__(self) -> int: ...

@final
class CacheStats:
    """How the KV cache of a generator stands at one moment. A block holds 32 tokens of one sequence."""

    @property
    def blocks_used(self) -> int:
        """Blocks that hold keys and values; a block that sequences share counts once."""
    @property
    def blocks_reserved(self) -> int:
        """Blocks set aside for running requests and not yet used."""
    @property
    def blocks_free(self) -> int:
        """Blocks for further requests."""
    @property
    def blocks_total(self) -> int:
        """All blocks there can be within ``kv_cache_bytes``."""
    @property
    def bytes_used(self) -> int:
        """The bytes of the used blocks."""
    @property
    def bytes_allocated(self) -> int:
        """The bytes that the cache has grown to so far."""
    @property
    def bytes_total(self) -> int:
        """The bytes of all blocks."""
    def __reduce__(self) -> tuple[Any, tuple[Any]]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

def cli(arguments: list[str]) -> int:
    """Runs the command ``rsgen`` with these arguments, the program's name left out, and returns its exit code."""
