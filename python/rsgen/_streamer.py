"""A streamer that prints."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Chinese characters, which stand for words of their own: the blocks that transformers counts.
_CHINESE = (
    range(0x3400, 0x4DC0),
    range(0x4E00, 0xA000),
    range(0xF900, 0xFB00),
    range(0x20000, 0x2A6E0),
    range(0x2A700, 0x2CEB0),
    range(0x2F800, 0x2FA20),
)


def _is_certain(character: str) -> bool:
    """Whether no later token changes it: other characters may be symbols of a format, or half of one."""
    return character.isspace() or unicodedata.category(character)[0] in "LMN"


class TextStreamer:
    """Prints a text while it is generated, as transformers' class of that name does.

    Letters with their marks, digits, white space and Chinese characters are printed at once, and symbols
    with the next space. The end of the text ends the line.

    Args:
        tokenizer (Any): Decodes the ids: a `Generator`, or a tokenizer of rsgen or transformers.
        skip_prompt (bool): Leaves out the prompt.
        **decode_kwargs (Any): Arguments of the tokenizer's `decode`, such as `skip_special_tokens=True`.

    Example:
        >>> streamer = rsgen.TextStreamer(gen, skip_prompt=True)
        >>> out = gen.generate("Once upon a time", streamer=streamer, max_new_tokens=60)
    """

    __module__ = "rsgen"

    def __init__(self, tokenizer: Any, skip_prompt: bool = False, **decode_kwargs: Any) -> None:
        self.tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
        self.skip_prompt = skip_prompt
        self.decode_kwargs = decode_kwargs
        self._awaits_prompt = True
        #: The ids of the line so far, and how much of their text is printed.
        self._ids: list[int] = []
        self._printed = 0

    def put(self, value: NDArray[np.int64], /) -> None:
        """Takes further ids and prints the text that is certain.

        Args:
            value (NDArray[np.int64]): The ids, `[len]` or `[1, len]`; first those of the prompt.

        Raises:
            ValueError: There is more than one row.
        """
        rows: list[Any] = value.tolist()
        if rows and isinstance(rows[0], list):
            if len(rows) > 1:
                raise ValueError(
                    f"a TextStreamer prints one row, got {len(rows)}; stream one prompt at a time"
                )
            rows = rows[0]
        is_prompt, self._awaits_prompt = self._awaits_prompt, False
        if is_prompt and self.skip_prompt:
            return
        self._ids += rows
        text = self._text()
        complete = text[self._printed :]
        if text.endswith("\n"):
            # The last token stays, so that the next line keeps the space it begins with.
            self._ids = self._ids[-1:]
            self._printed = len(self._text())
        else:
            chinese = text and any(ord(text[-1]) in block for block in _CHINESE)
            if not chinese and not all(map(_is_certain, complete)):
                complete = text[self._printed : text.rfind(" ") + 1]
            self._printed += len(complete)
        self.on_finalized_text(complete)

    def end(self) -> None:
        """Prints the rest and ends the line. The streamer can then be used again."""
        rest = self._text()[self._printed :]
        self._ids, self._printed, self._awaits_prompt = [], 0, True
        self.on_finalized_text(rest, stream_end=True)

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        """Prints a piece of text; a subclass may send it elsewhere.

        Args:
            text (str): It may be empty.
            stream_end (bool): Whether it is the last piece.
        """
        print(text, flush=True, end="\n" if stream_end else "")

    def _text(self) -> str:
        return str(self.tokenizer.decode(self._ids, **self.decode_kwargs)) if self._ids else ""
