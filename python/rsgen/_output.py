"""Arrays in lists, tuples and dataclasses, as the methods of an output take them apart."""

from __future__ import annotations

from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._rsgen import GenerationOutput


def plain(value: Any) -> Any:
    """Arrays as lists, and dataclasses as dicts."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    to_list = getattr(value, "tolist", None)
    return to_list() if to_list else value


def same_arrays(ours: Any, theirs: Any) -> bool:
    """Whether two trees of lists and tuples hold equal arrays, NaN to NaN."""
    if ours is None or theirs is None:
        return ours is theirs
    if isinstance(ours, list | tuple):
        return len(ours) == len(theirs) and all(map(same_arrays, ours, theirs))
    import numpy as np

    return np.array_equal(ours, theirs, equal_nan=True)


#: The columns of a DataFrame, and what they are of an output.
_COLUMNS = {
    "prompt_index": "prompt_indices",
    "text": "texts",
    "token_ids": "token_ids",
    "score": "sequences_scores",
    "finish_reason": "finish_reasons",
    "entry": "entries",
    "entry_logprob": "entry_logprobs",
}


def to_pandas(output: GenerationOutput) -> Any:
    """The rows as a DataFrame."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("`to_pandas` needs pandas: pip install pandas") from error
    columns = {name: getattr(output, of_all) for name, of_all in _COLUMNS.items()}
    return pd.DataFrame({name: column for name, column in columns.items() if column is not None})
