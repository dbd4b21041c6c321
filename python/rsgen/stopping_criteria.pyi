"""transformers' stopping criteria: functions of numpy arrays, and entries of ``stopping_criteria`` lists.

Made by tools/make_stubs.py.
"""

from collections.abc import Sequence
from inspect import Signature
from typing import ClassVar, SupportsIndex

from typing_extensions import Self

from ._bases import StoppingCriteria
from ._rsgen import BuiltInStoppingCriteria, Tokenizer
from .types import Ids

__all__ = [
    "BuiltInStoppingCriteria",
    "ConfidenceCriteria",
    "EosTokenCriteria",
    "MaxLengthCriteria",
    "MaxTimeCriteria",
    "StopStringCriteria",
    "StoppingCriteria",
]

class MaxLengthCriteria(BuiltInStoppingCriteria, StoppingCriteria):
    """Stops at a number of tokens, prompt and padding included.

    Args:
        max_length (int): The number of tokens.
        max_position_embeddings (int | None): Accepted for transformers' sake, without effect.
    """

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        max_length: SupportsIndex,
        max_position_embeddings: SupportsIndex | None = None,
    ) -> Self: ...
    @property
    def max_length(self) -> int: ...
    @property
    def max_position_embeddings(self) -> int | None: ...

class MaxTimeCriteria(BuiltInStoppingCriteria, StoppingCriteria):
    """Stops after a time.

    Args:
        max_time (float): Seconds.
        initial_timestamp (float | None): When they begin, as `time.time()` gives it. None is the
            moment when the criterion is made.
    """

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        max_time: float,
        initial_timestamp: float | None = None,
    ) -> Self: ...
    @property
    def max_time(self) -> float: ...
    @property
    def initial_timestamp(self) -> float | None: ...

class StopStringCriteria(BuiltInStoppingCriteria, StoppingCriteria):
    """Stops when one of several texts ends in the newest token. Texts are compared as bytes.

    Args:
        tokenizer (Tokenizer): The generator's tokenizer.
        stop_strings (str | Sequence[str]): The text, or texts.
    """

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        tokenizer: Tokenizer,
        stop_strings: str | Sequence[str],
    ) -> Self: ...
    @property
    def stop_strings(self) -> str | Sequence[str]: ...

class EosTokenCriteria(BuiltInStoppingCriteria, StoppingCriteria):
    """Stops after an end-of-sequence token.

    Args:
        eos_token_id (int | Ids): The token, or tokens.
    """

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        eos_token_id: SupportsIndex | Ids,
    ) -> Self: ...
    @property
    def eos_token_id(self) -> int | Ids: ...

class ConfidenceCriteria(BuiltInStoppingCriteria, StoppingCriteria):
    """Stops after a token that was less probable than a threshold.

    Args:
        assistant_confidence_threshold (float): The least probability, by the softmax of the
            processed scores.
    """

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        assistant_confidence_threshold: float,
    ) -> Self: ...
    @property
    def assistant_confidence_threshold(self) -> float: ...
