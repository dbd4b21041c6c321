"""The exception classes, one for each kind of error."""

TYPE_CHECKING = False  # `typing` is not imported for its sake

if TYPE_CHECKING:
    from typing import Any

    from .types import FinishReason


class RsgenError(Exception):
    """The base of all errors that rsgen raises.

    A message names the field or file, the rule, the value that broke it, and the remedy. Unknown keyword
    arguments and arguments of a wrong type raise Python's own `TypeError`.
    """

    @property
    def prompt_index(self) -> int | None:
        """int | None: The index of the prompt that the error is about, in a call with a list of them.

        Of `rank()` and `classify()` it is that of the candidate. None if it is about none of them alone. A
        `TypeError` about a prompt of a list has it, too.
        """
        return self.__dict__.get("prompt_index")

    @prompt_index.setter
    def prompt_index(self, index: int | None) -> None:
        self.__dict__["prompt_index"] = index

    @property
    def finished(self) -> "Any":
        """GenerationOutput | list[dict]: What of a list was finished before the error; empty where nothing was.

        Of a call with a list of prompts it is the output of those that had ended, each of whose rows has its
        `prompt_index`. Of `map()` it is the list of results that were not given yet, of a table that of its rows with
        what was generated. Other exceptions that end a list have it, too, such as a `KeyboardInterrupt`.
        """
        return self.__dict__.get("finished", [])

    @finished.setter
    def finished(self, finished: "Any") -> None:
        self.__dict__["finished"] = finished


class ConfigError(RsgenError, ValueError):
    """A field of a GenerationConfig or an argument of a call breaks a rule."""


class LoadError(RsgenError, OSError):
    """A model cannot be loaded: a file is missing, damaged, or of a kind that is not supported."""


class InputError(RsgenError, ValueError):
    """A prompt cannot be used."""


class MissingError(InputError, AttributeError):
    """An attribute that this object cannot have. `hasattr` is False, and `getattr` takes its default."""


class ParseError(RsgenError, ValueError):
    """A text is no value of the `output_type` of its call: see `GenerationOutput.parsed`.

    It was cut off, or a class refused the values.
    """

    @property
    def text(self) -> str:
        """str: The text."""
        return self.__dict__.get("text", "")

    @property
    def finish_reason(self) -> "FinishReason | None":
        """FinishReason | None: Why the text ended."""
        return self.__dict__.get("finish_reason")

    @property
    def missing(self) -> "list[str]":
        """list[str]: The places that are not whole, such as `people[2].name`, of a text that was cut off."""
        return self.__dict__.get("missing", [])

    @property
    def partial(self) -> "Any":
        """Any: What there is of the value, as JSON has it, of a text that was cut off. None without any of it."""
        return self.__dict__.get("partial")

    def __setstate__(self, state: "dict[str, Any] | None") -> None:
        self.__dict__.update(state or {})


class CapacityError(RsgenError, MemoryError):
    """Memory or the KV cache does not suffice; raised before memory runs out."""


class NumericalError(RsgenError, ArithmeticError):
    """The model computed NaN or infinity where a number is needed."""


class CallbackError(RsgenError, ValueError):
    """A logits processor or stopping criterion of the caller's returned something that cannot be used.

    An exception that it raises is not wrapped: it comes out of the call unchanged.
    """


class CancelledError(RsgenError):
    """The stream was closed by another thread or task."""


class ForkError(RsgenError, RuntimeError):
    """A Generator or stream was used in a process that was forked after it had been made.

    A fork copies neither threads nor what they were doing. Start processes by `spawn` or `forkserver`, or
    open a new Generator in the forked one: `rsgen.Generator(gen.name_or_path)`.
    """


class InternalError(RsgenError, RuntimeError):
    """A defect of rsgen. Please report it."""


for _class in [RsgenError, *RsgenError.__subclasses__()]:
    _class.__module__ = "rsgen"
