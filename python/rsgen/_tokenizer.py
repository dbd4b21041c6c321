"""What a tokenizer returns when it is called: batches, padded and cut as transformers does it."""

from __future__ import annotations

import json
import operator
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._rsgen import _replace_file

if TYPE_CHECKING:
    from ._rsgen import Tokenizer


#: The most texts of a call, and the most ids of its padded rows.
MAX_ITEMS = 1 << 24

#: The greatest length that transformers' tokenizers take.
MAX_COUNT = (1 << 64) - 1


class BatchEncoding(dict[str, Any]):
    """``input_ids`` and ``attention_mask``, as keys and as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no {name}, only {', '.join(self)}") from None


def tokenizer(
    self: Tokenizer,
    text: str | Sequence[str] | None = None,
    *,
    text_target: str | Sequence[str] | None = None,
    add_special_tokens: bool = True,
    padding: bool | str = False,
    truncation: bool | None = None,
    max_length: int | None = None,
    pad_to_multiple_of: int | None = None,
    padding_side: str | None = None,
    return_tensors: str | None = None,
    return_attention_mask: bool | None = None,
    return_token_type_ids: bool | None = None,
    return_offsets_mapping: bool = False,
) -> BatchEncoding:
    """Encodes a text or several: see :meth:`rsgen.Tokenizer.__call__`."""
    side = self.padding_side if padding_side is None else padding_side
    for name, value, allowed in (
        ("padding", padding, (True, False, "longest", "max_length", "do_not_pad")),
        ("truncation", truncation, (None, True, False, "longest_first", "do_not_truncate")),
        ("padding_side", side, ("left", "right")),
        ("return_tensors", return_tensors, (None, "np")),
        ("return_token_type_ids", return_token_type_ids, (None, False)),
    ):
        if value not in allowed:
            rule = ", ".join(map(repr, allowed))
            raise ValueError(f"`{name}` of a tokenizer must be one of {rule}, got {value!r}")
    if text is None and text_target is None:
        raise ValueError("a tokenizer needs `text` or `text_target`")
    # As in transformers, a length alone cuts.
    cuts = truncation in (True, "longest_first") or (
        truncation is None and max_length is not None and padding is False
    )
    pads = padding not in (False, "do_not_pad")
    if cuts or padding == "max_length":
        max_length = _count("max_length", max_length)
    if pads:
        pad_to_multiple_of = _count("pad_to_multiple_of", pad_to_multiple_of)
    if cuts and pads and pad_to_multiple_of is not None:
        most = self.model_max_length if max_length is None else max_length
        if most is not None and (pad_to_multiple_of == 0 or most % pad_to_multiple_of):
            raise ValueError(
                f"`max_length` must be a multiple of `pad_to_multiple_of` where rows are cut and padded, got {most} "
                f"and {pad_to_multiple_of}; round it up, or leave one of them out"
            )
    encoding: BatchEncoding | None = None
    for given, encode in ((text, self.encode), (text_target, self.encode_target)):
        if given is None:
            continue
        single = isinstance(given, str)
        rows, kept = _rows(self, encode, given, add_special_tokens, cuts, max_length)
        columns: dict[str, list[list[Any]]] = {"input_ids": rows}
        if return_attention_mask is not False:
            columns["attention_mask"] = [[1] * len(row) for row in rows]
        if return_offsets_mapping and encoding is None:
            columns["offset_mapping"] = _offsets(self, given, add_special_tokens, kept)
        part: dict[str, Any] = columns
        if pads:
            part = _filled_up(self, columns, padding, max_length, pad_to_multiple_of, side)
        if return_tensors == "np":
            part = {name: _array(values) for name, values in part.items()}
        elif single:
            part = {name: values[0] for name, values in part.items()}
        if encoding is None:
            encoding = BatchEncoding(part)
        else:
            encoding["labels"] = part["input_ids"]
    assert encoding is not None
    return encoding


def _count(name: str, value: Any) -> int | None:
    """A number of tokens, as the tokenizers of transformers take it."""
    rule = f"`{name}` of a tokenizer must be an integer from 0 to {MAX_COUNT}, or None"
    if value is None:
        return None
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"{rule}, got {value!r:.60} ({type(value).__name__})") from None
    if not 0 <= count <= MAX_COUNT:
        raise ValueError(f"{rule}, got {count}")
    return count


def _rows(
    self: Tokenizer,
    encode: Any,
    text: str | Sequence[str],
    add_special_tokens: bool,
    cuts: bool,
    max_length: int | None,
) -> tuple[list[list[int]], list[list[int]] | None]:
    """The ids of each text, cut, and their places in what was cut, if it was."""
    texts = [text] if isinstance(text, str) else _listed(text)
    rows = [encode(item, add_special_tokens=add_special_tokens) for item in texts]
    if cuts:
        most = self.model_max_length if max_length is None else max_length
        if most is None:
            rule = "`truncation` needs `max_length`, because the tokenizer's files name no `model_max_length`"
            warnings.warn(f"{rule}; nothing is cut", stacklevel=3)
        else:
            kept = [_cut(encode, item, row, most) for item, row in zip(texts, rows, strict=True)]
            return [[row[i] for i in places] for row, places in zip(rows, kept, strict=True)], kept
    return rows, None


def _offsets(
    self: Tokenizer, text: str | Sequence[str], add_special_tokens: bool, kept: list[list[int]] | None
) -> list[list[Any]]:
    """The characters of each token, from and to; `(0, 0)` of those that were added around a text."""
    texts = [text] if isinstance(text, str) else text
    rows: list[list[Any]] = [self._offsets(item, add_special_tokens) for item in texts]  # type: ignore[attr-defined]
    if kept is None:
        return rows
    return [[row[i] for i in places] for row, places in zip(rows, kept, strict=True)]


def _filled_up(
    self: Tokenizer,
    columns: dict[str, list[list[Any]]],
    padding: bool | str,
    max_length: int | None,
    pad_to_multiple_of: int | None,
    side: str,
) -> dict[str, list[list[Any]]]:
    """Rows of equal length."""
    rows = columns["input_ids"]
    width = max(map(len, rows), default=0)
    if padding == "max_length":
        if max_length is None:
            raise ValueError('`padding="max_length"` needs `max_length`; or use padding=True')
        # Longer rows stay as they are.
        width = max_length
    if pad_to_multiple_of:
        width = -(-width // pad_to_multiple_of) * pad_to_multiple_of
    if width * len(rows) > MAX_ITEMS:
        raise ValueError(
            f"padded rows may hold at most {MAX_ITEMS} ids together, got {len(rows)} rows of {width}; "
            "encode fewer texts, or lower `max_length`"
        )
    fill: dict[str, Any] = {
        "input_ids": _pad(self, rows, width),
        "attention_mask": 0,
        "offset_mapping": (0, 0),
    }
    return {
        name: [_filled(row, [fill[name]] * (width - len(row)), side) for row in column]
        for name, column in columns.items()
    }


def _listed(texts: Sequence[str]) -> list[str]:
    """The texts of a list or an iterator, which may have no end. A loop of Python's answers Ctrl-C, but CPython may miss
    that one has come (two threads write the flag that says so) until a thread takes the interpreter's lock again:
    `sleep` gives it back and takes it."""
    listed: list[str] = []
    for item in texts:
        if not len(listed) % 4096:
            time.sleep(0)
        if not isinstance(item, str):
            rule = "a tokenizer takes a text or a list of texts"
            raise TypeError(f"text {len(listed)}: {rule}, got {item!r:.60} in a list")
        listed.append(item)
        if len(listed) > MAX_ITEMS:
            raise ValueError(f"a tokenizer takes at most {MAX_ITEMS} texts at once; give them in parts")
    return listed


def _cut(encode: Any, text: str, row: list[int], max_length: int) -> list[int]:
    """The places of the first ids of a text, with those of the special tokens around it. As in transformers, a length
    with less room than these take cuts nothing."""
    body = encode(text, add_special_tokens=False)
    around = len(row) - len(body)
    before = next((start for start in range(around + 1) if row[start : start + len(body)] == body), None)
    places = list(range(len(row)))
    if len(row) <= max_length or max_length < around:
        return places
    if before is None:
        return places[:max_length]
    return places[: before + max_length - around] + places[before + len(body) :]


def _pad(self: Tokenizer, rows: list[list[int]], width: int) -> int | None:
    """The id that rows are filled up with, if one is needed."""
    if self.pad_token_id is None and any(len(row) < width for row in rows):
        raise ValueError(
            "there is no `pad_token` to fill rows up with; set one: tokenizer.pad_token = tokenizer.eos_token"
        )
    return self.pad_token_id


def _filled(row: list[Any], padding: list[Any], side: str) -> list[Any]:
    return padding + row if side == "left" else row + padding


def _array(rows: list[list[Any]]) -> Any:
    import numpy as np

    if len({len(row) for row in rows}) > 1:
        raise ValueError(
            'rows of several lengths make no array; use padding=True, or leave out return_tensors="np"'
        )
    return np.array(rows, dtype=np.int64)


def save_pretrained(
    save_directory: Any, files: list[tuple[str, bytes]], settings: dict[str, Any]
) -> tuple[str, ...]:
    """Writes the files of a tokenizer, with settings that were made since."""
    folder, contents, name = Path(save_directory), dict(files), "tokenizer_config.json"
    if settings:
        config = json.loads(contents.get(name, b"{}")) | settings
        contents[name] = json.dumps(config, indent=2, ensure_ascii=False).encode()
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in contents.items():
        path = folder / file
        path.parent.mkdir(exist_ok=True)
        _replace_file(path, content)
    return tuple(str(folder / file) for file in contents)


def chat_encoding(self: Tokenizer, chat: str | list[str], keywords: dict[str, Any]) -> Any:
    """The prompts of conversations as a call of the tokenizer returns them, or their ids alone."""
    return_dict = keywords.pop("return_dict", False)
    # A length alone cuts texts, but no conversations.
    keywords["truncation"] = keywords.get("truncation") or False
    encoding = tokenizer(self, chat, add_special_tokens=False, **keywords)
    return encoding if return_dict else encoding["input_ids"]
