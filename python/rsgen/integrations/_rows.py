"""What every engine runs: rows of a table in, the same rows with what was generated out. It knows no engine."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Literal

import rsgen

#: What a call takes besides the fields of a configuration.
ARGUMENTS = {"generation_config", "logits_processor", "stopping_criteria", "constraints"}
COLUMNS = ("token_count", "finish_reason", "error", "seed")
#: The models that a process keeps open, the latest ones. More would add up in workers that outlive their jobs.
OPEN_MODELS = 2
#: How many rows are computed at a time.
CONCURRENCY = 256
_open: OrderedDict[str, rsgen.Generator] = OrderedDict()
_lock = threading.Lock()

Answer = tuple[str | None, int, str | None, str | None]


def require(module: str, extra: str) -> Any:
    """Imports a module of an engine. The error says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        message = f"rsgen.integrations.{extra} needs {module}; install it with: pip install 'rsgen[{extra}]'"
        raise ImportError(f"{message} ({error})", name=error.name) from error


def row_seed(seed: int, row_id: Any) -> int:
    """Returns the seed of a row: 63 bits of a digest of the job's seed and the row's id, an integer or a text."""
    value = row_id.item() if hasattr(row_id, "item") and getattr(row_id, "ndim", 0) == 0 else row_id
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise rsgen.InputError(
            f"the id of a row must be an integer or a text, got {value!r}; cast the column"
        )
    digest = hashlib.blake2b(
        f"{seed}:{type(value).__name__}:{value}".encode(errors="surrogatepass"), digest_size=8
    )
    return int.from_bytes(digest.digest(), "little") >> 1


def open_generator(model: str | None, options: Mapping[str, Any]) -> rsgen.Generator:
    """Opens a model once in this process; later calls with the same options return it."""
    key = repr((os.getpid(), model, sorted(options.items())))  # a forked process cannot use its parent's
    with _lock:
        if key not in _open:
            _open[key] = rsgen.Generator(model, **options)
        _open.move_to_end(key)
        while len(_open) > OPEN_MODELS:
            _open.popitem(last=False)
        return _open[key]


class RowGenerator:
    """Generates for the rows of a table: a dict of columns, or a pandas DataFrame.

    It pickles as its arguments and opens the model where it is first called, once in each process. A call returns the table
    with five more columns: the text, `token_count`, `finish_reason`, `error` and `seed`.

    Args:
        model (str | os.PathLike[str] | None): As of `rsgen.Generator`. A folder must be there on every machine.
        prompt_column (str): The column with a text or token ids in each row.
        output_column (str): The name of the column for the text.
        id_column (str | None): The column with an integer or a text that tells rows apart, for their seeds. With None equal
            prompts draw with equal seeds.
        seed (int): The seed of the job.
        on_error (Literal["raise", "column"]): What happens with a prompt that cannot be used: "raise" ends the job with an
            error that names the row, with its index as `prompt_index` and the finished rows in `finished`; "column" puts the
            message in the column `error`.
        model_kwargs (Mapping[str, Any] | None): Further arguments of `rsgen.Generator`, such as `{"dtype": "int8"}`.
        **fields: Fields of `GenerationConfig`, and `generation_config`, `logits_processor`, `stopping_criteria`, `constraints`.

    Raises:
        TypeError: A keyword is unknown.
        ConfigError: A value is not possible.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        *,
        prompt_column: str = "prompt",
        output_column: str = "text",
        id_column: str | None = None,
        seed: int = 0,
        on_error: Literal["raise", "column"] = "raise",
        model_kwargs: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        if isinstance(model, rsgen.Generator):
            raise TypeError(
                "`model` must be a path or an id, which every machine opens itself, not a Generator"
            )
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise rsgen.ConfigError(
                f"`seed` must be an integer, but is {seed!r}; each row has its own from it"
            )
        if on_error not in ("raise", "column"):
            raise rsgen.ConfigError(f"`on_error` must be 'raise' or 'column', but is {on_error!r}")
        if fields.get("num_return_sequences") not in (None, 1):
            raise rsgen.ConfigError(
                "`num_return_sequences` must be 1: a row of a table has one text; repeat the row"
            )
        rsgen.GenerationConfig(
            **{name: value for name, value in fields.items() if name not in ARGUMENTS}
        ).validate()
        path = None if model is None else os.fspath(model)
        self.model = os.path.abspath(path) if path and os.path.isdir(path) else path
        self.prompt_column, self.output_column, self.id_column = prompt_column, output_column, id_column
        self.seed, self.on_error, self.model_kwargs = seed, on_error, dict(model_kwargs or {})
        self.fields = {**fields, "num_return_sequences": 1}

    def num_threads(self) -> int | None:
        """Returns the threads that the engine gives this process; None is as many as it may use."""
        return None

    def generator(self) -> rsgen.Generator:
        """Returns the model, open in this process."""
        options = dict(self.model_kwargs)
        if options.get("num_threads") is None:
            options["num_threads"] = self.num_threads()
        return open_generator(self.model, options)

    def __call__(self, table: Any) -> Any:
        """Returns the table, a dict of columns or a DataFrame, with the new columns."""
        is_dict = isinstance(table, Mapping)
        if not is_dict and not hasattr(table, "assign"):
            raise TypeError(
                f"a table must be a dict of columns or a pandas DataFrame, got {type(table).__name__}"
            )
        names = list(table) if is_dict else list(table.columns)
        for name in (self.prompt_column, self.id_column):
            if name is not None and name not in names:
                raise rsgen.InputError(f"the table has no column {name!r}; it has {names}")
        for name in (self.output_column, *COLUMNS):
            if name in names:
                raise rsgen.InputError(
                    f"the table has a column {name!r} already, which rsgen adds; rename it before"
                )
        prompts = list(table[self.prompt_column])
        ids = prompts if self.id_column is None else list(table[self.id_column])
        answers, seeds = self._rows(prompts, ids)
        columns = _columns(self.output_column, answers, seeds, is_dict)
        return {**table, **columns} if is_dict else table.assign(**columns)

    def _rows(self, prompts: list[Any], ids: list[Any]) -> tuple[list[Answer], list[int]]:
        answers: list[Answer] = [(None, 0, None, None)] * len(prompts)
        seeds, rows = [0] * len(prompts), []
        for row, (prompt, row_id) in enumerate(zip(prompts, ids, strict=True)):
            try:
                if not isinstance(prompt, str) and not hasattr(prompt, "__len__"):
                    raise rsgen.InputError(f"the prompt must be a text or token ids, got {prompt!r}")
                if self.id_column is None and not isinstance(prompt, str):
                    row_id = _ids_as_text(prompt)
                seeds[row] = row_seed(self.seed, row_id)
                rows.append(row)
            except rsgen.InputError as error:
                answers[row] = self._failed(error, row, ids)
        for row, answer in zip(rows, self._answers(prompts, ids, seeds, rows), strict=True):
            answers[row] = answer
        return answers, seeds

    def _answers(self, prompts: list[Any], ids: list[Any], seeds: list[int], rows: list[int]) -> list[Answer]:
        """What the rows give together, which is what each gives alone."""
        if not rows:
            return []
        results = self.generator().map(
            [{"row": row, "prompt": prompts[row], "seed": seeds[row]} for row in rows],
            seed="seed",
            details=True,
            on_error="return" if self.on_error == "column" else "raise",
            concurrency=CONCURRENCY,
            **self.fields,
        )
        found: list[dict[str, Any]] = []
        try:
            found.extend(results)
        except (rsgen.RsgenError, TypeError) as error:
            index = getattr(error, "prompt_index", None)
            if index is None:
                raise
            self._failed(error, rows[index], ids, [*found, *getattr(error, "finished", [])])
        return [
            (
                row["text"],
                row["token_count"],
                row["finish_reason"],
                row["error"] and _unnumbered(row["error"]),
            )
            for row in ({"error": None, **row} for row in found)
        ]

    def _failed(
        self,
        error: rsgen.RsgenError | TypeError,
        row: int,
        ids: list[Any],
        finished: list[dict[str, Any]] | None = None,
    ) -> Answer:
        message = _unnumbered(str(error))
        if self.on_error == "column":
            return (None, 0, None, message)
        named: Any = type(error)(f"row {ids[row]!r:.80}: {message}")
        named.prompt_index, named.finished = row, finished or []
        raise named from error


def _ids_as_text(prompt: Any) -> str:
    """Ids as the text that tells them from others."""
    try:
        return ",".join(str(int(token)) for token in prompt)
    except (TypeError, ValueError):
        raise rsgen.InputError(f"the prompt must be a text or token ids, got {prompt!r:.60}") from None


def _unnumbered(message: str) -> str:
    """A message without the number of the row in the call."""
    return re.sub(r"^row \d+: ", "", message)


def _columns(text: str, answers: list[Answer], seeds: list[int], arrays: bool) -> dict[str, Any]:
    np = require("numpy", "numpy")
    texts, counts, reasons, errors = map(list, zip(*answers, strict=True)) if answers else ([], [], [], [])
    if arrays:
        strings = lambda values: np.array(values, dtype=object)  # noqa: E731
    else:
        strings = lambda values: require("pandas", "pandas").array(values, dtype="string")  # noqa: E731
    return {
        text: strings(texts),
        "token_count": np.array(counts, dtype=np.int64),
        "finish_reason": strings(reasons),
        "error": strings(errors),
        "seed": np.array(seeds, dtype=np.int64),
    }
