"""Text generation on CPUs: every decoding strategy of Hugging Face ``generate()``, exact to the token.

>>> import rsgen
>>> gen = rsgen.Generator()  # the bundled story model; or a folder, or the id of a model in the Hub cache
>>> print(gen.generate("Once upon a time", max_new_tokens=60).text)  # doctest: +SKIP
"""

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
    TokenStream,
    Usage,
    __version__,
)

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
    "TokenStream",
    "Tokenizer",
    "Usage",
    "__version__",
]
