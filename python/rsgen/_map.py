"""``Generator.map``: rows in, the same rows with what was generated out."""

from __future__ import annotations

import os
import string
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from ._errors import CapacityError, ConfigError, InputError, NumericalError, ParseError, RsgenError
from ._output_type import OutputType
from ._progress import RowBar
from ._row_file import Answer, digest, opened
from ._row_sources import rows_of

if TYPE_CHECKING:
    from typing_extensions import Self

    from . import GenerationOutput, Generator

#: What a row may be wrong with. Others are wrong with the call.
OF_ROWS = (InputError, CapacityError, NumericalError, ParseError)
#: Rows that are finished while one before them is not are kept, up to so many times ``concurrency``.
AHEAD = 4


class RowResults:
    """The results of `Generator.map`: an iterator of dicts, each a row with its text.

    A row is computed when results are asked for, `concurrency` of them at a time. After Ctrl-C or an error the iterator
    goes on with the rows that were not given, if it is asked again.
    """

    __module__ = "rsgen"

    def __init__(
        self,
        generator: Generator,
        rows: Any,
        template: str | Callable[[Any], Any] | None = None,
        *,
        output: str = "text",
        in_order: bool = True,
        on_error: Literal["raise", "return"] = "raise",
        concurrency: int = 32,
        resume: str | os.PathLike[str] | None = None,
        details: bool = False,
        adapter: Any = None,
        progress: bool | Callable[[int, int | None], object] = False,
        **keywords: Any,
    ) -> None:
        if on_error not in ("raise", "return"):
            raise ConfigError(f"`on_error` must be 'raise' or 'return', but is {on_error!r}")
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
            raise ConfigError(f"`concurrency` must be an integer of 1 or more, but is {concurrency!r}")
        if not isinstance(output, str) or (output == "error" and on_error == "return"):
            raise ConfigError(f"`output` must be the name of a column of its own, but is {output!r}")
        for name in ("cache", "past_key_values", "return_cache", "streamer"):
            if keywords.get(name):
                raise ConfigError(
                    f"`{name}` is of a single call; leave it out, or call generate() for each row"
                )
        seed = keywords.pop("seed", None)
        is_seed = seed is None or isinstance(seed, str) or hasattr(seed, "__index__")
        if isinstance(seed, bool) or not is_seed:
            raise ConfigError(
                f"`seed` must be an integer or the name of a column, but is {seed!r}; row i draws with seed + i"
            )
        self._generator, self._keywords = generator, keywords
        self._seed, self._details = seed, details
        self._adapter = adapter
        self._prompt_of = _template(template)
        self._output, self._in_order, self._on_error = output, in_order, on_error
        self._concurrency = concurrency
        source, self._total = rows_of(rows)
        self._source = enumerate(source)
        self._file = None if resume is None else opened(resume)
        given = keywords.get("output_type")
        self._type = None if given is None else OutputType(given)
        self._batch: Any = None
        #: Rows to begin, rows that are computed with their prompts, what has ended with a pass, and finished rows.
        self._waiting: deque[tuple[int, Any]] = deque()
        self._running: dict[int, tuple[Any, Any]] = {}
        self._ended: deque[tuple[int, Any]] = deque()
        self._finished: dict[int, dict[Any, Any] | Exception] = {}
        self._given = self._counted = 0
        self._is_broken = False
        self._bar = RowBar() if progress is True else progress or None

    def __repr__(self) -> str:
        of_all = "" if self._total is None else f" of {self._total}"
        waiting = f", {len(self.finished)} finished" if self.finished else ""
        return f"<rsgen.RowResults: {self._given}{of_all} rows given{waiting}; iterate to compute>"

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> dict[Any, Any]:
        if isinstance(self._bar, RowBar):
            self._bar.begin()
        try:
            return self._next()
        except BaseException as error:
            # Whatever ends it, the file is free: notebooks keep what was raised, and all that it refers to.
            if self._file:
                self._file.release()
            if not isinstance(error, StopIteration):
                with suppress(AttributeError):  # its class may have no room for it
                    error.finished = self.finished  # type: ignore[attr-defined]
            # What is written next, such as a traceback, has a line of its own.
            if isinstance(self._bar, RowBar):
                self._bar.end()
            raise

    def _next(self) -> dict[Any, Any]:
        while True:
            number = self._given if self._in_order else next(iter(self._finished), None)
            if number in self._finished:
                return self._give(self._finished.pop(number))
            if not self._advance():
                raise StopIteration

    @property
    def finished(self) -> list[dict[Any, Any]]:
        """list[dict[Any, Any]]: The rows that are finished and were not given yet, as after Ctrl-C."""
        results = (self._finished[number] for number in sorted(self._finished))
        return [result for result in results if isinstance(result, dict)]

    def _give(self, result: dict[Any, Any] | Exception) -> dict[Any, Any]:
        self._given += 1
        if isinstance(result, Exception):
            raise result
        return result

    def _advance(self) -> bool:
        """Begins rows and computes a pass. Returns whether there was anything to do.

        An interruption may come anywhere: what is begun or finished twice is so once.
        """
        held = len(self._running) + len(self._finished)
        while len(self._running) < self._concurrency and held < AHEAD * self._concurrency:
            if not self._waiting:
                self._read()
            if not self._waiting:
                break
            number, row = self._waiting[0]
            if number not in self._running and number not in self._finished:
                self._begin(number, row)
            self._waiting.popleft()
            held += 1
        if self._running:
            self._compute()
        return held > 0

    def _read(self) -> None:
        if self._is_broken:
            raise InputError(
                "`rows` ended with an error or an interruption while a row was read; call map() again"
            )
        try:
            self._waiting.extend(islice(self._source, 1))
        except BaseException:
            self._is_broken = True
            raise

    def _begin(self, number: int, row: Any) -> None:
        try:
            prompt = _checked(self._called(self._prompt_of, number, row))
            if self._output in (row if isinstance(row, Mapping) else ("prompt",)):
                raise ConfigError(f"the rows have {self._output!r} already; give another name as `output`")
            before = self._file and self._file.read(number, digest(prompt))
            if before:
                self._end(number, row, prompt, Answer.from_parts(before))
                return
            if self._batch is None:
                self._batch = self._generator._batch()  # type: ignore[attr-defined]
            keywords = {**self._keywords, "seed": self._seed_of(number, row)}
            if self._adapter is not None:
                keywords["adapter"] = self._adapter_of(number, row)
            self._batch.add(number, prompt, _is_messages(prompt), keywords)
            self._running[number] = row, prompt
        except OF_ROWS as error:
            self._fail(number, row, error)
        except TypeError as error:
            # Others are about the arguments of all rows.
            if getattr(error, "prompt_index", None) is None:
                raise
            self._fail(number, row, error)

    @staticmethod
    def _called(function: Callable[[Any], Any], number: int, row: Any) -> Any:
        """What a function of the caller's gives for a row. Its own exceptions stay as they are, and name the row."""
        try:
            return function(row)
        except OF_ROWS:
            raise
        except Exception as error:
            # From Python 3.11 on.
            add_note: Callable[[str], None] | None = getattr(error, "add_note", None)
            if add_note:
                add_note(f"row {number}")
            raise

    def _adapter_of(self, number: int, row: Any) -> Any:
        """The adapter of a row; a cell without a value is the model alone."""
        if not callable(self._adapter):
            return self._adapter
        adapter = self._called(self._adapter, number, row)
        return None if _is_missing(adapter) else adapter

    def _seed_of(self, number: int, row: Any) -> Any:
        if isinstance(self._seed, str):
            _has(row, [self._seed], must=True)
            return row[self._seed]
        return None if self._seed is None else self._seed.__index__() + number

    def _compute(self) -> None:
        try:
            if not self._ended:
                self._ended.extend(self._batch.step())
        except BaseException:
            # They begin anew when the iterator is asked again.
            self._waiting.extendleft(
                (number, self._running[number][0]) for number in sorted(self._running)[::-1]
            )
            self._running, self._batch = {}, None
            raise
        while self._ended:
            number, result = self._ended[0]
            if isinstance(result, BaseException) and not isinstance(result, Exception):
                # Ctrl-C within a function of the caller: the row begins anew when the iterator is asked again.
                if number in self._running:
                    self._waiting.appendleft((number, self._running[number][0]))
                    del self._running[number]
                self._ended.popleft()
                raise result
            if number in self._running:
                self._finish(number, result, *self._running[number])
                del self._running[number]
            self._ended.popleft()

    def _finish(self, number: int, result: Any, row: Any, prompt: Any) -> None:
        if isinstance(result, OF_ROWS):
            self._fail(number, row, result)
        elif isinstance(result, Exception):
            with suppress(AttributeError):
                result.prompt_index = number  # type: ignore[attr-defined]
            self._finished[number] = result
        else:
            # Arrays of ids would import numpy.
            total = result.usage.generated_tokens
            counts = [total] if len(result) == 1 else [len(ids) for ids in result.token_ids]
            entries = result.entries
            if entries is not None:
                entries = list(zip(entries, map(float, result.entry_logprobs), strict=True))
            answer = Answer(list(result.texts), list(result.finish_reasons), counts, entries)
            self._end(number, row, prompt, answer, result)

    def _end(
        self, number: int, row: Any, prompt: Any, answer: Answer, output: GenerationOutput[Any] | None = None
    ) -> None:
        texts, reasons = answer.texts, answer.finish_reasons
        values: list[Any] = texts
        if self._type is not None:
            values = output.parsed_all if output else self._type.parse_all(texts, reasons, [0] * len(texts))
            for value in values:
                if isinstance(value, ParseError):
                    self._fail(number, row, value, answer)
                    return
        if self._file and output:
            self._file.write(number, digest(prompt), answer.parts())
        self._keep(number, row, values, None, answer)

    def _fail(
        self, number: int, row: Any, error: RsgenError | TypeError, answer: Answer | None = None
    ) -> None:
        named = type(error)(f"row {number}: {error}")
        named.__dict__.update(error.__dict__)
        named.__cause__, named.prompt_index = error.__cause__, number  # type: ignore[union-attr]
        if self._on_error == "return":
            self._keep(number, row, [None], str(named), answer or Answer([], [None], [0]))
        else:
            self._finished[number] = named
            self._count()

    def _keep(self, number: int, row: Any, values: list[Any], error: str | None, answer: Answer) -> None:
        one = (lambda values: values[0]) if len(values) == 1 else list
        result = {**(row if isinstance(row, Mapping) else {"prompt": row}), self._output: one(values)}
        if self._details:
            result["token_count"], result["finish_reason"] = (
                one(answer.token_counts),
                one(answer.finish_reasons),
            )
            if self._keywords.get("allowed_sequences") is not None:
                # Those of a row that failed, and of a file that was written without a catalogue, are not known.
                entries = answer.entries or [(None, None)] * len(values)
                result["entry"] = one([entry for entry, _ in entries])
                result["entry_logprob"] = one([logprob for _, logprob in entries])
        if self._on_error == "return":
            result["error"] = error
        self._finished[number] = result
        self._count()

    def _count(self) -> None:
        self._counted += 1
        if self._bar is not None:
            self._bar(self._counted, self._total)


def _template(template: str | Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """What makes a prompt of a row."""
    if callable(template):
        return template
    if template is None:
        return lambda row: row["prompt"] if _has(row, ["prompt"]) else row
    if not isinstance(template, str):
        raise TypeError(f"`template` must be a text, a function or None, got {template!r:.60}")
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(template) if field is not None]
    except ValueError as error:
        raise ConfigError(
            f"`template` must be a text with columns in braces, such as {{question}}: {error}"
        ) from None
    names = [name for field in fields for name in [field.partition(".")[0].partition("[")[0]]]
    if not all(names) or any(name.isdigit() for name in names):
        raise ConfigError(f"`template` must name each column, as in {{question}}, got {template!r:.60}")

    def made(row: Any) -> str:
        _has(row, names, must=True)
        for name in names:
            if _is_missing(row[name]):
                raise InputError(f"the column {name!r} has no value; fill it, or leave the row out")
        return template.format_map(row)

    return made


def _is_missing(value: Any) -> bool:
    """Whether it is how tables say that there is nothing: None, NaN, NaT, or the NA of pandas."""
    try:
        return value is None or bool(value != value)
    except TypeError:  # NA is neither equal nor unequal
        return True
    except ValueError:  # an array
        return False


def _has(row: Any, names: list[str], must: bool = False) -> bool:
    if not isinstance(row, Mapping):
        if must:
            raise InputError(f"a row must be a dict for a template, got {row!r:.60}")
        return False
    for name in names:
        if name not in row:
            raise InputError(f"there is no column {name!r} but {', '.join(map(str, row))}")
    return True


def _checked(prompt: Any) -> Any:
    if not isinstance(prompt, str) and not hasattr(prompt, "__len__"):
        raise InputError(f"the prompt must be a text or token ids, got {prompt!r:.60}")
    return prompt


def _is_messages(prompt: Any) -> bool:
    return isinstance(prompt, list | tuple) and bool(prompt) and isinstance(prompt[0], Mapping)
