"""transformers' constraints: what the output of a constrained beam search has to hold.

>>> import rsgen
>>> fox = rsgen.constraints.PhrasalConstraint([5, 9])
>>> fox.advance(), fox.update(5), fox.remaining()
(5, (True, False, False), 1)

They go into the list ``constraints`` of a call. Your own are classes derived from :class:`Constraint`; a search works on
copies, which their method ``copy`` makes.
"""

from ._bases import Constraint
from ._classes import classes
from ._rsgen import BuiltInConstraint

_CLASSES = classes("constraints", __name__, (BuiltInConstraint, Constraint))

#: How far each of them is, under the names that transformers has for it.
_CLASSES["PhrasalConstraint"].fulfilled_idx = property(
    lambda self: len(self.__getstate__()[1]) - 1,
    doc="int: The place of the newest token of the phrase that has occurred; -1 before the first.",
)
_CLASSES["DisjunctiveConstraint"].current_seq = property(
    lambda self: self.__getstate__()[1],
    doc="list[int]: The tokens so far, the beginning of one of the phrases.",
)

globals().update(_CLASSES)

__all__ = ["BuiltInConstraint", "Constraint", *_CLASSES]


def __dir__() -> list[str]:
    """The public names, for completion."""
    return __all__
