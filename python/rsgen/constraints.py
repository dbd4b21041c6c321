"""transformers' constraints: what the output of a constrained beam search has to hold.

>>> import rsgen
>>> fox = rsgen.constraints.PhrasalConstraint([5, 9])
>>> fox.advance(), fox.update(5), fox.remaining()
(5, (True, False, False), 1)

They go into the list ``constraints`` of a call. Your own are classes derived from :class:`Constraint`; a search works on
copies, which their method ``copy`` makes.
"""

from ._rsgen import BuiltInConstraint, Constraint, DisjunctiveConstraint, PhrasalConstraint

__all__ = ["BuiltInConstraint", "Constraint", "DisjunctiveConstraint", "PhrasalConstraint"]
