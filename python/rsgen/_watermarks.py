"""The classes of ``watermarking_config``."""

from ._classes import classes
from ._rsgen import BuiltInWatermark

globals().update(classes("watermarks", "rsgen", (BuiltInWatermark,), __slots__=()))
