"""Text generation on CPUs: every decoding strategy of Hugging Face ``generate()``, exact to the token.

>>> import rsgen
>>> gen = rsgen.Generator()  # the bundled story model; or a folder, or the id of a model in the Hub cache
>>> print(gen.generate("Once upon a time", max_new_tokens=60).text)  # doctest: +SKIP
"""

from typing import TYPE_CHECKING

from ._rsgen import (
    CacheStats,
    CallbackError,
    CancelledError,
    CapacityError,
    ConfigError,
    ForkError,
    GenerationConfig,
    GenerationOutput,
    Generator,
    InputError,
    InternalError,
    LoadError,
    NumericalError,
    RsgenError,
    StreamedToken,
    Timings,
    Tokenizer,
    TokenScores,
    TokenStream,
    Usage,
    __version__,
)

if TYPE_CHECKING:
    from . import constraints as constraints
    from . import processors as processors
    from . import stopping_criteria as stopping_criteria
    from . import types as types

__all__ = [
    "CacheStats",
    "CallbackError",
    "CancelledError",
    "CapacityError",
    "ConfigError",
    "ForkError",
    "GenerationConfig",
    "GenerationOutput",
    "Generator",
    "InputError",
    "InternalError",
    "LoadError",
    "NumericalError",
    "RsgenError",
    "StreamedToken",
    "Timings",
    "TokenScores",
    "TokenStream",
    "Tokenizer",
    "Usage",
    "__version__",
]


_SUBMODULES = ["constraints", "processors", "stopping_criteria", "types"]


def __getattr__(name: str) -> object:
    """Imports a submodule when it is first used: ``processors`` takes longer than all the rest."""
    if name in _SUBMODULES:
        import importlib

        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, for completion."""
    return [*__all__, *_SUBMODULES]
