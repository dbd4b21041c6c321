"""transformers' logits processors: functions of numpy arrays, and entries of ``logits_processor`` lists.

>>> import numpy as np, rsgen
>>> warper = rsgen.processors.TopKLogitsWarper(top_k=2)
>>> warper(np.zeros((1, 0), dtype=np.int64), np.array([[1.0, 3.0, 2.0]], dtype=np.float32))
array([[-inf,   3.,   2.]], dtype=float32)

Names, arguments and defaults are those of transformers. In the list of a call they run without Python. The fields of a
call switch them on as well, and are the shorter way; a processor in the list takes the place of the one that a field asks
for. :class:`LogitsProcessor` is the base of all, also of those that you write as classes.
"""

from ._bases import LogitsProcessor
from ._classes import classes
from ._rsgen import BuiltInLogitsProcessor

_CLASSES = classes("processors", __name__, (BuiltInLogitsProcessor, LogitsProcessor))

globals().update(_CLASSES)

__all__ = ["LogitsProcessor", *_CLASSES]


def __dir__() -> list[str]:
    """The public names, for completion."""
    return __all__
