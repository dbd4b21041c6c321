"""rsgen in Dask: `map_partitions` of a Dask DataFrame."""

from __future__ import annotations

import os
import sys
from typing import Any

from ._rows import RowGenerator, require

__all__ = ["generate"]


class _DaskRows(RowGenerator):
    def num_threads(self) -> int | None:
        """Returns the threads of the worker, whose tasks share one model. None outside of a worker."""
        distributed = sys.modules.get("distributed")
        try:
            return None if distributed is None else distributed.get_worker().state.nthreads
        except ValueError:
            return None


def generate(frame: Any, model: str | os.PathLike[str] | None = None, **options: Any) -> Any:
    """Generates for each row of a Dask DataFrame.

    Each worker opens the model once, with as many threads as the worker has.

    Args:
        frame (dask.dataframe.DataFrame): The rows.
        model (str | os.PathLike[str] | None): As of `rsgen.Generator`. A folder must be there on every machine.
        **options: As of `RowGenerator`.

    Returns:
        dask.dataframe.DataFrame: The rows with the columns `text`, `token_count`, `finish_reason`, `error` and `seed`.
    """
    require("dask.dataframe", "dask")
    rows = _DaskRows(model, **options)
    return frame.map_partitions(rows, meta=rows(frame._meta))
