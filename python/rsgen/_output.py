"""Arrays in lists, tuples and dataclasses, as the methods of an output take them apart."""

from __future__ import annotations

from dataclasses import asdict, is_dataclass
from typing import Any


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
