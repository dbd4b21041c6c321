"""The file that keeps the finished rows of ``Generator.map``, so that a later call goes on."""

from __future__ import annotations

import contextlib
import json
import os
from hashlib import blake2b
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from ._errors import InputError

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None

#: The first bytes of every line.
START = b'{"row":'
#: The files that this process has open: the latest of a path writes it.
_open: WeakValueDictionary[str, RowFile] = WeakValueDictionary()


class Answer(NamedTuple):
    """The texts of a row, why they ended, how many tokens they have, and their entries of a catalogue."""

    texts: list[str]
    finish_reasons: list[Any]
    token_counts: list[int]
    #: Each with its log-probability, for a call with `allowed_sequences`.
    entries: list[tuple[Any, float]] | None = None

    def as_line(self) -> dict[str, Any]:
        """What the file keeps of it."""
        return {name: value for name, value in self._asdict().items() if value is not None}


#: What every line has.
_FIELDS = {"row", "prompt", *Answer._fields} - {"entries"}


class RowFile:
    """Its lines are answers, each with the number of its row and a digest of its prompt."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        self._file = os.fdopen(self._descriptor, "rb")
        self._is_locked = False
        before = _open.get(os.path.realpath(path))
        if before:
            before.release()
        self._lock()
        _open[os.path.realpath(path)] = self
        #: Where the line of each row begins: the texts stay in the file.
        self._offsets: dict[int, int] = {}
        end = 0
        for number, line in enumerate(self._file, 1):
            if not line.endswith(b"\n"):
                # Only a part of an answer is removed, or the zeros that a crashed machine may have left.
                if not (line.startswith(START) or START.startswith(line)) and line.strip(b"\0"):
                    raise self._wrong(number)
                break
            answer = _answer(line)
            if answer is None:
                raise self._wrong(number)
            self._offsets[answer["row"]] = end
            end += len(line)
        os.ftruncate(self._descriptor, end)

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()

    def _lock(self) -> None:
        if not self._is_locked and fcntl:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(f"another run writes {self.path}; wait for its end") from None
            except OSError:
                pass  # not every file system has locks
        self._is_locked = True

    def release(self) -> None:
        """Lets another run have the file, until the next row is written."""
        if self._is_locked and fcntl:
            with contextlib.suppress(OSError):
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self._is_locked = False

    def _wrong(self, number: int) -> InputError:
        return InputError(
            f"{self.path}, line {number}: it is no row of `map`; give another file for `resume`"
        )

    def read(self, row: int, prompt: Any) -> Answer | None:
        """The answer of a row, if it is finished."""
        if row not in self._offsets:
            return None
        self._file.seek(self._offsets[row])
        answer = _answer(self._file.readline())
        if answer is None:
            raise InputError(f"{self.path} was changed while it was open; call map() again")
        if answer["prompt"] != digest(prompt):
            raise InputError(
                f"{self.path} must be of the same rows, but row {row} has another prompt; give another file for `resume`"
            )
        fields: dict[str, Any] = {name: answer[name] for name in Answer._fields if name in answer}
        return Answer(**fields)

    def write(self, row: int, prompt: Any, answer: Answer) -> None:
        """Adds a row by one call of the system, so that a killed process leaves at most one unfinished."""
        line = {"row": row, "prompt": digest(prompt), **answer.as_line()}
        self._lock()
        os.write(self._descriptor, json.dumps(line, separators=(",", ":")).encode() + b"\n")


def _answer(line: bytes) -> dict[str, Any] | None:
    """What a line holds; None if it is no row of `map`."""
    try:
        answer = json.loads(line)
    except ValueError:
        return None
    is_row = isinstance(answer, dict) and answer.keys() - {"entries"} == _FIELDS
    return answer if is_row else None


def digest(prompt: Any) -> str:
    """A digest of a text, ids or messages."""
    plain = prompt.tolist() if hasattr(prompt, "tolist") else prompt
    text = json.dumps(plain, default=repr, sort_keys=True)
    return blake2b(text.encode(), digest_size=8).hexdigest()
