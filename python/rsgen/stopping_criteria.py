"""transformers' stopping criteria: functions of numpy arrays, and entries of ``stopping_criteria`` lists.

>>> import numpy as np, rsgen
>>> criterion = rsgen.stopping_criteria.EosTokenCriteria(eos_token_id=2)
>>> criterion(np.array([[5, 2], [5, 6]]))
array([ True, False])

In the list of a call they run without Python. The fields of a call (``max_length``, ``max_time``, ``stop_strings``,
``eos_token_id``) switch them on as well, and are the shorter way; a criterion in the list takes the place of the one that
a field asks for. :class:`StoppingCriteria` is the base of all, also of those that you write as classes.
"""

from ._bases import StoppingCriteria
from ._classes import classes
from ._rsgen import BuiltInStoppingCriteria

_CLASSES = classes("stopping_criteria", __name__, (BuiltInStoppingCriteria, StoppingCriteria))

globals().update(_CLASSES)

__all__ = ["BuiltInStoppingCriteria", "StoppingCriteria", *_CLASSES]


def __dir__() -> list[str]:
    """The public names, for completion."""
    return __all__
