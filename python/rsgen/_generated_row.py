"""The rows of an output: their ids, as transformers gives them, with what else there is of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .types import FinishReason


class GeneratedRow(np.ndarray[tuple[int], np.dtype[np.int64]]):
    """A row of a `GenerationOutput`: its line of `sequences`, an array of int64 with more attributes.

    So it is what `generate()` of transformers returns a row as, for `tokenizer.decode(row)` and for slices, which are
    plain arrays.

    Example:
        >>> for row in gen.sample(["One day", "Tom had"], seed=7, max_new_tokens=60):
        ...     print(row.prompt_index, row.text, row.finish_reason)
    """

    __module__ = "rsgen"

    _values: dict[str, Any]

    def __new__(cls, *_values: Any, **_named: Any) -> GeneratedRow:
        raise TypeError(f"cannot create {cls.__name__!r} instances: outputs have them")

    def __array_finalize__(self, source: Any) -> None:
        self._values = getattr(source, "_values", {})

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """What is computed of a row is a plain array."""
        return np.asarray(array)[()]

    def __getitem__(self, key: Any) -> Any:
        return np.asarray(self)[key]

    def __reduce__(self) -> tuple[Any, ...]:
        return _row, (np.array(self), self._values)

    def _value(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"only a row of an output has {name}") from None

    @property
    def prompt_index(self) -> int:
        """int: The index of the prompt that it continues."""
        return self._value("prompt_index")

    @property
    def text(self) -> str:
        """str: The continuation, without special tokens."""
        return self._value("text")

    @property
    def token_ids(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """NDArray[np.int64]: The tokens of the continuation, with the one that ended it."""
        return self._value("token_ids")

    @property
    def logprobs(self) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        """NDArray[np.float32]: The log-probability of each of these tokens under the model's own logits, in nats."""
        return self._value("logprobs")

    @property
    def score(self) -> float | None:
        """float | None: Its entry of `sequences_scores`. None without beams."""
        return self._value("score")

    @property
    def finish_reason(self) -> FinishReason:
        """FinishReason: Why it ended: "eos", "stop", "length", "time" or "cancelled"."""
        return self._value("finish_reason")

    @property
    def entry(self) -> Any:
        """Any: Its entry of `entries`: what the catalogue of `allowed_sequences` has for it. None without one."""
        return self._value("entry")

    @property
    def entry_logprob(self) -> float | None:
        """float | None: Its entry of `entry_logprobs`. None without `allowed_sequences`."""
        logprob = self._value("entry_logprob")
        return None if logprob is None else float(logprob)


def _row(ids: Any, values: dict[str, Any]) -> GeneratedRow:
    """A row with these ids and attributes."""
    row = ids.view(GeneratedRow)
    row._values = values
    return row
