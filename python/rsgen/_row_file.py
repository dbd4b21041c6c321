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
    """The texts of a row, why they ended, and how many tokens they have."""

    texts: list[str]
    finish_reasons: list[Any]
    token_counts: list[int]


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
