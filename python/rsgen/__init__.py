"""Text generation on CPUs: every decoding strategy of Hugging Face ``generate()``, exact to the token.

>>> import rsgen
>>> gen = rsgen.Generator()  # the bundled story model; or a folder, or the id of a model in the Hub cache
>>> print(gen.generate("Once upon a time", max_new_tokens=60).text)  # doctest: +SKIP
"""

from . import _interpreter as _interpreter

TYPE_CHECKING = False  # `typing` is not imported for its sake

if TYPE_CHECKING:
    from . import _rsgen as _rsgen
    from . import constraints as constraints
    from . import integrations as integrations
    from . import processors as processors
    from . import stopping_criteria as stopping_criteria
    from . import types as types
    from ._errors import (
        CallbackError,
        CancelledError,
        CapacityError,
        ConfigError,
        ForkError,
        InputError,
        InternalError,
        LoadError,
        NumericalError,
        ParseError,
        RsgenError,
    )
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
    from ._rsgen import (
        BayesianDetectorModel,
        EventStream,
        GenerationConfig,
        GenerationOutput,
        Generator,
        KeptCache,
        Seed,
        SynthIDTextWatermarkDetector,
        Tokenizer,
        TokenStream,
        TokenTrie,
        WatermarkDetector,
        __version__,
        pack,
        serve,
    )
    from ._streamer import TextStreamer
    from ._watermarks import SynthIDTextWatermarkingConfig, WatermarkingConfig

__all__ = [
    "BayesianDetectorModel",
    "CacheStats",
    "CallbackError",
    "CancelledError",
    "CapacityError",
    "ConfigError",
    "DraftStats",
    "EventStream",
    "ForkError",
    "GeneratedRow",
    "GenerationConfig",
    "GenerationOutput",
    "Generator",
    "InputError",
    "InternalError",
    "KeptCache",
    "LoadError",
    "ModelOutput",
    "NumericalError",
    "ParseError",
    "RankedCandidate",
    "RowResults",
    "RsgenError",
    "Seed",
    "StreamedToken",
    "SynthIDTextWatermarkDetector",
    "SynthIDTextWatermarkingConfig",
    "TextStreamer",
    "Timings",
    "TokenScores",
    "TokenStream",
    "TokenTrie",
    "Tokenizer",
    "ToolCall",
    "Usage",
    "WatermarkDetector",
    "WatermarkDetectorOutput",
    "WatermarkingConfig",
    "__version__",
    "pack",
    "serve",
]


#: The modules of those names that the extension does not have.
_ELSEWHERE = {
    "GeneratedRow": "_generated_row",
    "RowResults": "_map",
    "TextStreamer": "_streamer",
    **dict.fromkeys(["CacheStats", "DraftStats", "ModelOutput", "RankedCandidate"], "_results"),
    **dict.fromkeys(["StreamedToken", "Timings", "TokenScores", "ToolCall", "Usage"], "_results"),
    "WatermarkDetectorOutput": "_results",
    **dict.fromkeys((name for name in __all__ if name.endswith("Error")), "_errors"),
    **dict.fromkeys(["SynthIDTextWatermarkingConfig", "WatermarkingConfig"], "_watermarks"),
}

#: What to use instead of names of transformers.
_INSTEAD = {
    "AsyncTextIteratorStreamer": "iterate over gen.astream(...)",
    "AutoModelForCausalLM": "open the model with rsgen.Generator(path)",
    "AutoTokenizer": "open the tokenizer with rsgen.Tokenizer(path)",
    "TextIteratorStreamer": "iterate over gen.stream(...)",
    "pipeline": "call gen.generate(texts, do_sample=True)",
}

_SUBMODULES = ["constraints", "integrations", "processors", "stopping_criteria", "types"]


def __getattr__(name: str) -> object:
    """Imports what is used for the first time: the command has to take over Ctrl-C before it imports the extension."""
    if name not in {*__all__, *_SUBMODULES, "_rsgen"}:
        remedy = _INSTEAD.get(name, "")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{remedy and '; '}{remedy}")
    import importlib

    if name not in __all__:
        return importlib.import_module(f".{name}", __name__)
    found = vars(importlib.import_module(f".{_ELSEWHERE.get(name, '_rsgen')}", __name__))
    globals().update({name: found[name] for name in __all__ if name in found})
    return globals()[name]


def __dir__() -> list[str]:
    """The public names, for completion."""
    return [*__all__, *_SUBMODULES]
