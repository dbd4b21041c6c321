"""transformers' logits processors: functions of numpy arrays, and entries of ``logits_processor`` lists.

Made by tools/make_stubs.py.
"""

import math
from collections.abc import Sequence
from inspect import Signature
from typing import ClassVar, Literal, SupportsIndex

from numpy.typing import ArrayLike
from typing_extensions import Self

from ._bases import LogitsProcessor
from ._rsgen import BuiltInLogitsProcessor
from .types import PrefixAllowedTokens

__all__ = [
    "EncoderNoRepeatNGramLogitsProcessor",
    "EncoderRepetitionPenaltyLogitsProcessor",
    "EpsilonLogitsWarper",
    "EtaLogitsWarper",
    "ExponentialDecayLengthPenalty",
    "ForcedBOSTokenLogitsProcessor",
    "ForcedEOSTokenLogitsProcessor",
    "FrequencyPenaltyLogitsProcessor",
    "HammingDiversityLogitsProcessor",
    "InfNanRemoveLogitsProcessor",
    "LogitBiasLogitsProcessor",
    "LogitNormalization",
    "LogitsProcessor",
    "MinLengthLogitsProcessor",
    "MinNewTokensLengthLogitsProcessor",
    "MinPLogitsWarper",
    "NoBadWordsLogitsProcessor",
    "NoRepeatNGramLogitsProcessor",
    "PrefixConstrainedLogitsProcessor",
    "PresencePenaltyLogitsProcessor",
    "RepetitionPenaltyLogitsProcessor",
    "SequenceBiasLogitsProcessor",
    "SuppressTokensAtBeginLogitsProcessor",
    "SuppressTokensLogitsProcessor",
    "SynthIDTextWatermarkLogitsProcessor",
    "TemperatureLogitsWarper",
    "ThinkingTokenBudgetLogitsProcessor",
    "TopHLogitsWarper",
    "TopKLogitsWarper",
    "TopPLogitsWarper",
    "TypicalLogitsWarper",
    "UnbatchedClassifierFreeGuidanceLogitsProcessor",
    "WatermarkLogitsProcessor",
]

class UnbatchedClassifierFreeGuidanceLogitsProcessor(BuiltInLogitsProcessor, LogitsProcessor):
    """Guidance: how far log-probabilities move away from those after the negative prompt; 1 is no guidance, 1.5 is usual. Each row takes a second row of the model."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        guidance_scale: float,
        model: object = None,
        unconditional_ids: Sequence[int] | Sequence[Sequence[int]] | None = None,
        unconditional_attention_mask: Sequence[int] | Sequence[Sequence[int]] | None = None,
        use_cache: bool = True,
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def guidance_scale(self) -> float: ...
    @property
    def model(self) -> object: ...
    @property
    def unconditional_ids(self) -> list[int] | list[list[int]] | None: ...
    @property
    def unconditional_attention_mask(self) -> list[int] | list[list[int]] | None: ...
    @property
    def use_cache(self) -> bool: ...

class SequenceBiasLogitsProcessor(BuiltInLogitsProcessor, LogitsProcessor):
    """Adds a bias to the score of a sequence's last token when its other tokens have just occurred."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        sequence_bias: dict[tuple[int, ...], float] | Sequence[Sequence[Sequence[int] | float]],
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def sequence_bias(self) -> dict[tuple[int, ...], float] | list[list[list[int] | float]]: ...

class LogitBiasLogitsProcessor(BuiltInLogitsProcessor, LogitsProcessor):
    """Adds a number from -100 to 100 to the score of a token, as OpenAI's field of that name."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        logit_bias: dict[int, float],
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def logit_bias(self) -> dict[int, float]: ...

class HammingDiversityLogitsProcessor(BuiltInLogitsProcessor, LogitsProcessor):
    """Subtracts a number for each earlier group of beams that has chosen the token in this step."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        diversity_penalty: float,
        num_beams: SupportsIndex,
        num_beam_groups: SupportsIndex,
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def diversity_penalty(self) -> float: ...
    @property
    def num_beams(self) -> int: ...
    @property
    def num_beam_groups(self) -> int: ...

class EncoderRepetitionPenaltyLogitsProcessor(BuiltInLogitsProcessor, LogitsProcessor):
    """Divides the negative and multiplies the other scores of the prompt's tokens, once each."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        penalty: float,
        encoder_input_ids: ArrayLike,
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def penalty(self) -> float: ...
    @property
    def encoder_input_ids(self) -> ArrayLike: ...

class RepetitionPenaltyLogitsProcessor(BuiltInLogitsProcessor, LogitsProcessor):
    """Multiplies the negative and divides the other scores of tokens that have occurred, once each."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        penalty: float,
        prompt_ignore_length: SupportsIndex | Sequence[SupportsIndex] | None = None,
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def penalty(self) -> float: ...
    @property
    def prompt_ignore_length(self) -> int | list[int] | None: ...

class FrequencyPenaltyLogitsProcessor(BuiltInLogitsProcessor, LogitsProcessor):
    """Subtracts a number from -2 to 2 for each time a token was generated, as OpenAI's field of that name."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        frequency_penalty: float,
        prompt_length_to_skip: SupportsIndex = 0,
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def frequency_penalty(self) -> float: ...
    @property
    def prompt_length_to_skip(self) -> int: ...

class PresencePenaltyLogitsProcessor(BuiltInLogitsProcessor, LogitsProcessor):
    """Subtracts a number from -2 to 2 if a token was generated, as OpenAI's field of that name."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        presence_penalty: float,
        prompt_length_to_skip: SupportsIndex = 0,
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def presence_penalty(self) -> float: ...
    @property
    def prompt_length_to_skip(self) -> int: ...

class NoRepeatNGramLogitsProcessor(BuiltInLogitsProcessor, LogitsProcessor):
    """Allows no n-gram of this size to occur twice, prompt included; 0 allows all."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        ngram_size: SupportsIndex,
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def ngram_size(self) -> int: ...

class EncoderNoRepeatNGramLogitsProcessor(BuiltInLogitsProcessor, LogitsProcessor):
    """Allows no n-gram of this size that occurs in the prompt to occur again; 0 allows all."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        encoder_ngram_size: SupportsIndex,
        encoder_input_ids: ArrayLike,
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def encoder_ngram_size(self) -> int: ...
    @property
    def encoder_input_ids(self) -> ArrayLike: ...

class NoBadWordsLogitsProcessor(BuiltInLogitsProcessor, LogitsProcessor):
    """Allows no sequence of this list to occur; end-of-sequence tokens are exempt."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        bad_words_ids: Sequence[Sequence[int]],
        eos_token_id: SupportsIndex | Sequence[SupportsIndex] | None = None,
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def bad_words_ids(self) -> list[list[int]]: ...
    @property
    def eos_token_id(self) -> int | list[int] | None: ...

class MinLengthLogitsProcessor(BuiltInLogitsProcessor, LogitsProcessor):
    """The length, prompt included, before which no end-of-sequence token is generated."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        min_length: SupportsIndex,
        eos_token_id: SupportsIndex | Sequence[SupportsIndex],
        device: Literal["cpu"] = "cpu",
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def min_length(self) -> int: ...
    @property
    def eos_token_id(self) -> int | list[int]: ...

class MinNewTokensLengthLogitsProcessor(BuiltInLogitsProcessor, LogitsProcessor):
    """The number of new tokens before which no end-of-sequence token is generated."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        prompt_length_to_skip: SupportsIndex,
        min_new_tokens: SupportsIndex,
        eos_token_id: SupportsIndex | Sequence[SupportsIndex],
        device: Literal["cpu"] = "cpu",
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def prompt_length_to_skip(self) -> int: ...
    @property
    def min_new_tokens(self) -> int: ...
    @property
    def eos_token_id(self) -> int | list[int]: ...

class PrefixConstrainedLogitsProcessor(BuiltInLogitsProcessor, LogitsProcessor):
    """Allows only the tokens that a function of the ids so far returns."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        prefix_allowed_tokens_fn: PrefixAllowedTokens,
        num_beams: SupportsIndex,
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def prefix_allowed_tokens_fn(self) -> PrefixAllowedTokens: ...
    @property
    def num_beams(self) -> int: ...

class ForcedBOSTokenLogitsProcessor(BuiltInLogitsProcessor, LogitsProcessor):
    """Forces the token that follows a prompt of a single token."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        bos_token_id: SupportsIndex,
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def bos_token_id(self) -> int: ...

class ForcedEOSTokenLogitsProcessor(BuiltInLogitsProcessor, LogitsProcessor):
    """Forces one of these tokens as the last when the most tokens are reached."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        max_length: SupportsIndex,
        eos_token_id: SupportsIndex | Sequence[SupportsIndex],
        device: Literal["cpu"] = "cpu",
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def max_length(self) -> int: ...
    @property
    def eos_token_id(self) -> int | list[int]: ...

class InfNanRemoveLogitsProcessor(BuiltInLogitsProcessor, LogitsProcessor):
    """Replaces NaN by 0 and the infinities by the largest and the least number."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...

class ExponentialDecayLengthPenalty(BuiltInLogitsProcessor, LogitsProcessor):
    """Raises the scores of end-of-sequence tokens by a factor to the power of the new tokens after a start."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        exponential_decay_length_penalty: tuple[SupportsIndex, float],
        eos_token_id: SupportsIndex | Sequence[SupportsIndex],
        input_ids_seq_length: SupportsIndex,
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def exponential_decay_length_penalty(self) -> tuple[int, float]: ...
    @property
    def eos_token_id(self) -> int | list[int]: ...
    @property
    def input_ids_seq_length(self) -> int: ...

class SuppressTokensLogitsProcessor(BuiltInLogitsProcessor, LogitsProcessor):
    """Allows none of these tokens."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        suppress_tokens: Sequence[SupportsIndex],
        device: Literal["cpu"] = "cpu",
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def suppress_tokens(self) -> list[int]: ...

class SuppressTokensAtBeginLogitsProcessor(BuiltInLogitsProcessor, LogitsProcessor):
    """Allows none of these tokens as the first."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        begin_suppress_tokens: Sequence[SupportsIndex],
        begin_index: SupportsIndex,
        device: Literal["cpu"] = "cpu",
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def begin_suppress_tokens(self) -> list[int]: ...
    @property
    def begin_index(self) -> int: ...

class ThinkingTokenBudgetLogitsProcessor(BuiltInLogitsProcessor, LogitsProcessor):
    """The most tokens that the model thinks before it answers, as vLLM's field of that name; then the tokens that end the thinking are forced. 0 lets it think nothing."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        thinking_token_budget: SupportsIndex,
        think_end_token_ids: Sequence[SupportsIndex],
        think_start_token_ids: Sequence[SupportsIndex] = [],
        prompt_length_to_skip: SupportsIndex = 0,
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def thinking_token_budget(self) -> int: ...
    @property
    def think_end_token_ids(self) -> list[int]: ...
    @property
    def think_start_token_ids(self) -> list[int]: ...
    @property
    def prompt_length_to_skip(self) -> int: ...

class TemperatureLogitsWarper(BuiltInLogitsProcessor, LogitsProcessor):
    """Divides the scores by a number: below 1 sharpens, above 1 flattens."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        temperature: float,
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def temperature(self) -> float: ...

class TopHLogitsWarper(BuiltInLogitsProcessor, LogitsProcessor):
    """Keeps only the most probable tokens, up to 100, within this fraction of the entropy."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        top_h: float,
        filter_value: float = -math.inf,
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def top_h(self) -> float: ...
    @property
    def filter_value(self) -> float: ...

class TopKLogitsWarper(BuiltInLogitsProcessor, LogitsProcessor):
    """Keeps only this many of the most probable tokens, and ties with the last of them; 0 keeps all."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        top_k: SupportsIndex,
        filter_value: float = -math.inf,
        min_tokens_to_keep: SupportsIndex = 1,
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def top_k(self) -> int: ...
    @property
    def filter_value(self) -> float: ...
    @property
    def min_tokens_to_keep(self) -> int: ...

class TopPLogitsWarper(BuiltInLogitsProcessor, LogitsProcessor):
    """Keeps only the most probable tokens that together reach this probability."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        top_p: float,
        filter_value: float = -math.inf,
        min_tokens_to_keep: SupportsIndex = 1,
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def top_p(self) -> float: ...
    @property
    def filter_value(self) -> float: ...
    @property
    def min_tokens_to_keep(self) -> int: ...

class MinPLogitsWarper(BuiltInLogitsProcessor, LogitsProcessor):
    """Keeps only tokens that reach this fraction of the most probable one's probability."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        min_p: float,
        filter_value: float = -math.inf,
        min_tokens_to_keep: SupportsIndex = 1,
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def min_p(self) -> float: ...
    @property
    def filter_value(self) -> float: ...
    @property
    def min_tokens_to_keep(self) -> int: ...

class TypicalLogitsWarper(BuiltInLogitsProcessor, LogitsProcessor):
    """Keeps only the tokens nearest to the expected surprise that together reach this probability."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        mass: float = 0.9,
        filter_value: float = -math.inf,
        min_tokens_to_keep: SupportsIndex = 1,
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def mass(self) -> float: ...
    @property
    def filter_value(self) -> float: ...
    @property
    def min_tokens_to_keep(self) -> int: ...

class EpsilonLogitsWarper(BuiltInLogitsProcessor, LogitsProcessor):
    """Keeps only tokens of at least this probability."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        epsilon: float,
        filter_value: float = -math.inf,
        min_tokens_to_keep: SupportsIndex = 1,
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def epsilon(self) -> float: ...
    @property
    def filter_value(self) -> float: ...
    @property
    def min_tokens_to_keep(self) -> int: ...

class EtaLogitsWarper(BuiltInLogitsProcessor, LogitsProcessor):
    """Keeps only tokens of at least this probability, or less where the entropy is high."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        epsilon: float,
        filter_value: float = -math.inf,
        min_tokens_to_keep: SupportsIndex = 1,
        device: Literal["cpu"] = "cpu",
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def epsilon(self) -> float: ...
    @property
    def filter_value(self) -> float: ...
    @property
    def min_tokens_to_keep(self) -> int: ...

class WatermarkLogitsProcessor(BuiltInLogitsProcessor, LogitsProcessor):
    """Adds a bias to the scores of the tokens of pseudorandom green lists, which a detector finds again."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        vocab_size: SupportsIndex,
        device: Literal["cpu"] = "cpu",
        greenlist_ratio: float = 0.25,
        bias: float = 2.0,
        hashing_key: SupportsIndex = 15485863,
        seeding_scheme: Literal["lefthash", "selfhash"] = "lefthash",
        context_width: SupportsIndex = 1,
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def device(self) -> Literal["cpu"]: ...
    @property
    def greenlist_ratio(self) -> float: ...
    @property
    def bias(self) -> float: ...
    @property
    def hashing_key(self) -> int: ...
    @property
    def seeding_scheme(self) -> Literal["lefthash", "selfhash"]: ...
    @property
    def context_width(self) -> int: ...

class SynthIDTextWatermarkLogitsProcessor(BuiltInLogitsProcessor, LogitsProcessor):
    """Lets tokens win SynthID's tournaments, whose outcome depends on keys and the tokens before."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        ngram_len: SupportsIndex,
        keys: Sequence[SupportsIndex],
        sampling_table_size: SupportsIndex,
        sampling_table_seed: SupportsIndex,
        context_history_size: SupportsIndex,
        device: Literal["cpu"] = "cpu",
        skip_first_ngram_calls: bool = False,
        debug_mode: bool = False,
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
    @property
    def ngram_len(self) -> int: ...
    @property
    def keys(self) -> list[int]: ...
    @property
    def sampling_table_size(self) -> int: ...
    @property
    def sampling_table_seed(self) -> int: ...
    @property
    def context_history_size(self) -> int: ...
    @property
    def device(self) -> Literal["cpu"]: ...
    @property
    def skip_first_ngram_calls(self) -> bool: ...
    @property
    def debug_mode(self) -> bool: ...

class LogitNormalization(BuiltInLogitsProcessor, LogitsProcessor):
    """Replaces the scores by the logarithms of their softmax, after all other processors."""

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        *,
        compat: Literal["4.49", "5.23"] | None = None,
    ) -> Self: ...
