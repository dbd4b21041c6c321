"""What the stubs begin with: their imports, and the variables of generic classes."""

HEAD = '''"""The extension module. Its names are public as those of the package ``rsgen``.

Made by tools/make_stubs.py.
"""

import concurrent.futures
import os
from asyncio import Future
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from collections.abc import Generator as PythonGenerator
from inspect import Signature
from types import GenericAlias, TracebackType
from typing import Any, ClassVar, Generic, Literal, NoReturn, SupportsIndex, final, overload

import numpy as np
from _typeshed import StrPath
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Self, TypeForm, TypeVar, Unpack, disjoint_base

from . import types
from ._bases import Constraint
from ._errors import ParseError
from ._generated_row import GeneratedRow
from ._map import RowResults
from ._results import (
    CacheStats,
    DraftStats,
    ModelOutput,
    RankedCandidate,
    StreamedToken,
    Timings,
    TokenScores,
    ToolCall,
    Usage,
    WatermarkDetectorOutput,
)
from ._tokenizer import BatchEncoding
from ._watermarks import SynthIDTextWatermarkingConfig, WatermarkingConfig
from .types import (
    Adapter,
    AnyGenerationConfig,
    Conversation,
    DType,
    Encoding,
    FinishReason,
    GenerationEvent,
    GenerationFields,
    Ids,
    PrefixAllowedTokens,
    Prompt,
    ReasoningParser,
    StoppingCriterion,
    Streamer,
    Tool,
    ToolParser,
    TypeAdapter,
)

# What the texts of a call are parsed as.
_T = TypeVar("_T", default=None)
_T_co = TypeVar("_T_co", covariant=True, default=Any)
'''

#: What the stubs of the modules of classes import besides what all of them do.
IMPORTS = {
    "processors": """
import math
from collections.abc import Sequence
from inspect import Signature
from typing import ClassVar, Literal, SupportsIndex

from numpy.typing import ArrayLike
from typing_extensions import Self

from ._bases import LogitsProcessor
from ._rsgen import BuiltInLogitsProcessor
from .types import PrefixAllowedTokens
""",
    "stopping_criteria": """
from collections.abc import Sequence
from inspect import Signature
from typing import ClassVar, SupportsIndex

from typing_extensions import Self

from ._bases import StoppingCriteria
from ._rsgen import BuiltInStoppingCriteria, Tokenizer
from .types import Ids
""",
    "constraints": """
from collections.abc import Sequence
from inspect import Signature
from typing import ClassVar

from typing_extensions import Self

from ._bases import Constraint
from ._rsgen import BuiltInConstraint
from .types import Ids
""",
}
