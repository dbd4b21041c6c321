"""rsgen in Spark: a function for `DataFrame.mapInPandas`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ._rows import RowGenerator, require

__all__ = ["generate", "make_map_fn", "output_schema"]


class _SparkRows(RowGenerator):
    def num_threads(self) -> int | None:
        """Returns `spark.task.cpus`. None outside of a task."""
        pyspark = sys.modules.get("pyspark")
        task = pyspark.TaskContext.get() if pyspark else None
        return None if task is None else task.cpus()


def make_map_fn(
    model: str | os.PathLike[str] | None = None, **options: Any
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Returns a function for `mapInPandas`, whose schema is `output_schema(frame)`.

    Each Python worker opens the model once, with `spark.task.cpus` threads, and keeps it for later tasks.

    Args:
        model (str | os.PathLike[str] | None): As of `rsgen.Generator`. A folder must be there on every machine.
        **options: As of `RowGenerator`.

    Returns:
        Callable[[Iterator[Any]], Iterator[Any]]: The function of iterators of pandas DataFrames.
    """
    rows = _SparkRows(model, **options)

    def map_frames(frames: Iterator[Any]) -> Iterator[Any]:
        return map(rows, frames)

    return map_frames


def output_schema(frame: Any, output_column: str = "text") -> Any:
    """Returns the schema of a Spark DataFrame with the columns that `make_map_fn` adds.

    Args:
        frame (pyspark.sql.DataFrame): The rows.
        output_column (str): The name of the column for the text.

    Returns:
        pyspark.sql.types.StructType: The schema.
    """
    types = require("pyspark.sql.types", "spark")
    text, number = types.StringType(), types.LongType()
    kinds = {output_column: text, "token_count": number, "finish_reason": text, "error": text, "seed": number}
    added = [types.StructField(name, kind) for name, kind in kinds.items()]
    return types.StructType([*frame.schema.fields, *added])


def generate(frame: Any, model: str | os.PathLike[str] | None = None, **options: Any) -> Any:
    """Generates for each row of a Spark DataFrame.

    Args:
        frame (pyspark.sql.DataFrame): The rows.
        model (str | os.PathLike[str] | None): As of `rsgen.Generator`. A folder must be there on every machine.
        **options: As of `RowGenerator`.

    Returns:
        pyspark.sql.DataFrame: The rows with the columns `text`, `token_count`, `finish_reason`, `error` and `seed`.
    """
    schema = output_schema(frame, options.get("output_column", "text"))
    return frame.mapInPandas(make_map_fn(model, **options), schema)
