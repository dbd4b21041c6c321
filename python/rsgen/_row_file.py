"""The file that keeps the finished rows of ``Generator.map``, so that a later call goes on."""

from __future__ import annotations

import json
import os
from hashlib import blake2b
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from ._rsgen import _RowFile

#: The files that this process has open: the latest of a path writes it.
_open: WeakValueDictionary[str, _RowFile] = WeakValueDictionary()


class Answer(NamedTuple):
    """The texts of a row, why they ended, how many tokens they have, and their entries of a catalogue."""

    texts: list[str]
    finish_reasons: list[Any]
    token_counts: list[int]
    #: Each with its log-probability, for a call with `allowed_sequences`.
    entries: list[tuple[Any, float]] | None = None

    def parts(self) -> tuple[list[str], list[Any], list[int], str | None]:
        """What the file keeps of it, the entries as JSON."""
        entries = None if self.entries is None else json.dumps(self.entries)
        return self.texts, self.finish_reasons, self.token_counts, entries

    @classmethod
    def from_parts(cls, parts: tuple[list[str], list[Any], list[int], str | None]) -> Answer:
        """The answer of what the file has kept."""
        texts, finish_reasons, token_counts, entries = parts
        return cls(texts, finish_reasons, token_counts, None if entries is None else json.loads(entries))


def opened(path: str | os.PathLike[str]) -> _RowFile:
    """The file, which an earlier one of this process gives up."""
    place = os.path.realpath(path)
    before = _open.get(place)
    if before:
        before.release()
    _open[place] = file = _RowFile(path)
    return file


def digest(prompt: Any) -> str:
    """A digest of a text, ids or messages."""
    plain = prompt.tolist() if hasattr(prompt, "tolist") else prompt
    text = json.dumps(plain, default=repr, sort_keys=True)
    return blake2b(text.encode(), digest_size=8).hexdigest()
