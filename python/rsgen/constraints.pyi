"""transformers' constraints: what the output of a constrained beam search has to hold.

Made by tools/make_stubs.py.
"""

from collections.abc import Sequence
from inspect import Signature
from typing import ClassVar

from typing_extensions import Self

from ._bases import Constraint
from ._rsgen import BuiltInConstraint
from .types import Ids

__all__ = [
    "BuiltInConstraint",
    "Constraint",
    "DisjunctiveConstraint",
    "PhrasalConstraint",
]

class PhrasalConstraint(BuiltInConstraint, Constraint):
    """A phrase that has to occur: these tokens, one after the other.

    Args:
        token_ids (Ids): The tokens of the phrase.

    Example:
        >>> fox = rsgen.constraints.PhrasalConstraint([5, 9])
        >>> gen.beam_search("Once upon a time", constraints=[fox])
    """

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        token_ids: Ids,
    ) -> Self: ...
    @property
    def fulfilled_idx(self) -> int:
        """The place of the newest token of the phrase that has occurred; -1 before the first."""

class DisjunctiveConstraint(BuiltInConstraint, Constraint):
    """Several phrases of which one has to occur. None of them may begin another.

    Args:
        nested_token_ids (Sequence[Ids]): The tokens of each phrase.
    """

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        nested_token_ids: Sequence[Ids],
    ) -> Self: ...
    @property
    def current_seq(self) -> list[int]:
        """The tokens so far, the beginning of one of the phrases."""
