"""The bases of processors, stopping criteria and constraints, also of those that callers write as classes."""

TYPE_CHECKING = False  # `typing` is not imported for its sake

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

    import numpy as np
    from numpy.typing import ArrayLike, NDArray
    from typing_extensions import Self


class _Base:
    def __new__(cls, *_arguments: "Any", **_keywords: "Any") -> "Self":
        """Takes whatever a derived class takes."""
        return super().__new__(cls)

    def _undefined(self, method: str) -> "NoReturn":
        raise NotImplementedError(f"{type(self).__name__} must define {method}")


class LogitsProcessor(_Base):
    """The base of all logits processors, also of those that you write as classes.

    Any other callable will do as well. A class of yours defines `__call__(self, input_ids, scores)`
    and returns the new scores: see `rsgen.types.LogitsProcessor`.

    Args:
        *_arguments (Any): Whatever your class takes.
        **_keywords (Any): Whatever your class takes.
    """

    __module__ = "rsgen.processors"

    def __call__(self, input_ids: "NDArray[np.int64]", scores: "NDArray[np.float32]") -> "ArrayLike":
        self._undefined("__call__(self, input_ids, scores)")


class StoppingCriteria(_Base):
    """The base of all stopping criteria, also of those that you write as classes.

    Any other callable will do as well. A class of yours defines `__call__(self, input_ids, scores)`
    and returns which rows end: see `rsgen.types.StoppingCriterion`.

    Args:
        *_arguments (Any): Whatever your class takes.
        **_keywords (Any): Whatever your class takes.
    """

    __module__ = "rsgen.stopping_criteria"

    def __call__(
        self, input_ids: "NDArray[np.int64]", scores: "NDArray[np.float32]"
    ) -> "bool | np.bool_ | NDArray[np.bool_] | Sequence[bool]":
        self._undefined("__call__(self, input_ids, scores)")


class Constraint(_Base):
    """The base of all constraints, also of those that you write as classes.

    A constraint says, step by step, what an output has to hold. A class of yours defines the methods
    below, and the attribute `seqlen`, the most steps it takes. A search never changes your object:
    it works on what `copy()` returns, and asks it from the first token of the prompt on. What a
    method raises comes out of the call.

    Args:
        *_arguments (Any): Whatever your class takes.
        **_keywords (Any): Whatever your class takes.
    """

    __module__ = "rsgen.constraints"

    def advance(self) -> "int | list[int] | None":
        """Returns the tokens that would bring it a step further.

        Returns:
            int | list[int] | None: One token, several, or None once it is fulfilled.
        """
        self._undefined("advance(self)")

    def does_advance(self, token_id: int) -> bool:
        """Returns whether the token would bring it a step further.

        Args:
            token_id (int): The token.

        Returns:
            bool: True for a step.
        """
        self._undefined("does_advance(self, token_id)")

    def update(self, token_id: int) -> tuple[bool, bool, bool]:
        """Takes a token.

        Args:
            token_id (int): The token.

        Returns:
            tuple[bool, bool, bool]: Whether it was a step, whether the constraint is fulfilled now, and
                whether it begins again because the token broke it.
        """
        self._undefined("update(self, token_id)")

    def reset(self) -> None:
        """Begins again."""
        self._undefined("reset(self)")

    def remaining(self) -> int:
        """Returns the most steps that are left.

        Returns:
            int: 0 once it is fulfilled.
        """
        self._undefined("remaining(self)")

    def copy(self, stateful: bool = False) -> "Constraint":
        """Returns a copy.

        Args:
            stateful (bool): Copies the state as it is now. Otherwise the copy begins anew.

        Returns:
            Constraint: The copy.
        """
        self._undefined("copy(self, stateful=False)")

    def test(self) -> None:
        """Walks through a copy once. A call does so, too.

        Raises:
            CallbackError: The constraint can never be fulfilled.
        """
        from ._rsgen import _check_constraint

        _check_constraint(self)
