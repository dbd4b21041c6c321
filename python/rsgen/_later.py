"""What comes out of the pickle of a generator: it opens its model at the first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._rsgen import Generator


def opened_later(
    cls: type[Generator],
    arguments: tuple[str | None],
    options: dict[str, Any],
    adapters: Sequence[dict[str, str | None]] = (),
) -> Generator:
    """A generator of these arguments. Nothing of the model is read before it is used."""
    return cls._later(*arguments, options, list(adapters))  # type: ignore[attr-defined]
