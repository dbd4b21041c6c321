"""Where the rows of ``Generator.map`` come from. Tables are known by their methods: no library is imported for them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any

from ._errors import ConfigError, InputError

#: The names of files of JSON lines.
LINES = (".jsonl", ".ndjson", ".json")
#: How many rows of a table of Arrow become Python's at a time.
ARROW_ROWS = 256


def rows_of(rows: Any) -> tuple[Iterator[Any], int | None]:
    """The rows one after the other, and their number if it is known."""
    if isinstance(rows, str | os.PathLike):
        return _lines(os.fspath(rows)), None
    if isinstance(rows, Mapping):
        return _columns(rows)
    if hasattr(rows, "itertuples") and hasattr(rows, "columns"):  # pandas
        names = list(rows.columns)
        return (dict(zip(names, row, strict=True)) for row in rows.itertuples(False, None)), len(rows)
    if hasattr(rows, "iter_rows") and hasattr(rows, "columns"):  # polars
        return rows.iter_rows(named=True), len(rows)
    if hasattr(rows, "collect_schema"):
        raise InputError(
            f"`rows` must have its rows at hand, got a {type(rows).__name__}; call collect() first"
        )
    if _is_arrow(rows):
        return _arrow([rows]), rows.num_rows
    if not isinstance(rows, Iterable):
        raise TypeError(
            f"`rows` must be an iterable of rows, a table or the path of a file of JSON lines, got {rows!r:.60}"
        )
    total = len(rows) if isinstance(rows, Sized) else None
    return _arrow(rows) if hasattr(rows, "read_next_batch") else iter(rows), total


def _is_arrow(value: Any) -> bool:
    return hasattr(value, "to_pylist") and hasattr(value, "num_rows") and hasattr(value, "slice")


def _arrow(tables: Iterable[Any]) -> Iterator[Any]:
    for table in tables:
        for start in range(0, table.num_rows, ARROW_ROWS):
            yield from table.slice(start, ARROW_ROWS).to_pylist()


def _columns(columns: Mapping[Any, Any]) -> tuple[Iterator[Any], int]:
    for name, column in columns.items():
        if hasattr(column, "column_names"):
            raise InputError(f"`rows` must be one data set, got several; choose one, such as rows[{name!r}]")
        if isinstance(column, str | bytes) or not hasattr(column, "__len__"):
            raise InputError(
                f"`rows` as a dict must have a list for each column, but {name!r} is {column!r:.60}; put a single row "
                "into a list"
            )
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"the columns of `rows` must have one length, got {lengths}")
    names = list(columns)
    values = zip(*columns.values(), strict=True)
    return (dict(zip(names, row, strict=True)) for row in values), max(lengths.values(), default=0)


def _lines(path: str) -> Iterator[Any]:
    if not path.endswith(LINES):
        raise ConfigError(
            f"`rows` as a text must be the path of a file that ends with {', '.join(LINES)}, got {path!r:.80}; put a "
            "single prompt into a list"
        )
    return _read(path)


def _read(path: str) -> Iterator[Any]:
    # As bytes: JSON finds the encoding itself, with the mark that editors put before it or without.
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    row = json.loads(line)
                except ValueError as error:
                    rule = "it must be JSON, a row on each line"
                    raise InputError(f"{path}, line {number}: {rule}: {error}") from None
                if isinstance(row, list) and any(
                    isinstance(part, dict) and "role" not in part for part in row
                ):
                    raise InputError(
                        f"{path}, line {number}: it must be one row, found a list of {len(row)}; write a row on each "
                        "line, or give the list itself: json.load(open(path))"
                    )
                yield row
