"""The classes of ``watermarking_config``: values, whose ranges a call and a detector check."""

# ruff: noqa: RUF023  (the slots are in the order of the fields)
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

from . import _interpreter  # noqa: F401  (before the extension)
from ._rsgen import _watermark

if TYPE_CHECKING:
    from typing_extensions import Self


class _Watermark:
    """The base of both. Their ``__slots__`` hold the docstrings of the attributes."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        cls.__module__ = "rsgen"

    def _set(self, **values: Any) -> None:
        for name, value in _watermark(values).items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any]) -> Self:
        """Makes a configuration of a dict, as `to_dict()` returns it.

        Args:
            config_dict (dict[str, Any]): Values by name.

        Returns:
            Self: The configuration.
        """
        return cls(**config_dict)

    def to_dict(self) -> dict[str, Any]:
        """Returns the values by name.

        Returns:
            dict[str, Any]: A new dict.
        """
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def validate(self) -> None:
        """Checks the values, as a call does.

        Raises:
            ConfigError: A value is outside of its range.
        """
        _watermark(self.to_dict(), validate=True)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.from_dict, (self.to_dict(),)


@dataclass(frozen=True, init=False)
class WatermarkingConfig(_Watermark):
    """The watermark of green lists: a pseudorandom part of the vocabulary gains a bias.

    For `watermarking_config` of a call, and for `WatermarkDetector`.

    Args:
        greenlist_ratio (float): The part of the vocabulary that is green, above 0 and below 1.
        bias (float): What is added to the scores of green tokens.
        hashing_key (int): The key that green lists depend on. Keep one of your own.
        seeding_scheme (Literal["lefthash", "selfhash"]): What else they depend on: the last token,
            or the candidate itself and the tokens before it.
        context_width (int): The tokens before the first marked one; with "selfhash" also how many
            tokens the green list depends on.

    Raises:
        ConfigError: A value has a wrong type.

    Example:
        >>> watermark = rsgen.WatermarkingConfig(bias=2.5)
        >>> out = gen.generate("Once upon a time", max_new_tokens=40, watermarking_config=watermark)
        >>> detector = rsgen.WatermarkDetector(gen, "cpu", watermark)
        >>> detector(out.token_ids)
    """

    __slots__ = {
        "greenlist_ratio": "float: The part of the vocabulary that is green.",
        "bias": "float: The bias that is added to the scores of green tokens.",
        "hashing_key": "int: The key that green lists depend on.",
        "seeding_scheme": 'Literal["lefthash", "selfhash"]: The tokens that green lists depend on.',
        "context_width": "int: The number of tokens before the first marked one.",
    }

    greenlist_ratio: float
    bias: float
    hashing_key: int
    seeding_scheme: Literal["lefthash", "selfhash"]
    context_width: int

    def __init__(
        self,
        greenlist_ratio: float = 0.25,
        bias: float = 2.0,
        hashing_key: SupportsIndex = 15485863,
        seeding_scheme: Literal["lefthash", "selfhash"] = "lefthash",
        context_width: SupportsIndex = 1,
    ) -> None:
        self._set(
            greenlist_ratio=greenlist_ratio,
            bias=bias,
            hashing_key=hashing_key,
            seeding_scheme=seeding_scheme,
            context_width=context_width,
        )


@dataclass(frozen=True, init=False)
class SynthIDTextWatermarkingConfig(_Watermark):
    """SynthID's watermark: tokens win tournaments whose outcome depends on keys and the tokens before.

    For `watermarking_config` of a call, and for `SynthIDTextWatermarkDetector`.

    Args:
        ngram_len (int): The length of the n-grams that are hashed: a token and those before it.
        keys (list[int]): A key for each layer of the tournament. Keep your own.
        context_history_size (int): How many of the latest contexts are not used a second time.
        sampling_table_seed (int): The seed of the table that hashes are looked up in.
        sampling_table_size (int): The size of that table, up to 2**24.
        skip_first_ngram_calls (bool): Leaves the first `ngram_len - 1` tokens unmarked.
        debug_mode (bool): Takes all scores as equal, to test detectors.

    Raises:
        ConfigError: A value has a wrong type.

    Example:
        >>> watermark = rsgen.SynthIDTextWatermarkingConfig(ngram_len=5, keys=[654, 400, 836, 123])
        >>> gen.sample("Once upon a time", max_new_tokens=40, watermarking_config=watermark).text
    """

    __slots__ = {
        "ngram_len": "int: The length of the n-grams that are hashed.",
        "keys": "list[int]: The keys, one for each layer of the tournament.",
        "context_history_size": "int: The number of latest contexts that are not used a second time.",
        "sampling_table_seed": "int: The seed of the table that hashes are looked up in.",
        "sampling_table_size": "int: The size of that table.",
        "skip_first_ngram_calls": "bool: Whether the first `ngram_len - 1` tokens are left unmarked.",
        "debug_mode": "bool: Whether all scores are taken as equal.",
    }

    ngram_len: int
    keys: list[int]
    context_history_size: int
    sampling_table_seed: int
    sampling_table_size: int
    skip_first_ngram_calls: bool
    debug_mode: bool

    def __init__(
        self,
        ngram_len: SupportsIndex,
        keys: Sequence[SupportsIndex],
        context_history_size: SupportsIndex = 1024,
        sampling_table_seed: SupportsIndex = 0,
        sampling_table_size: SupportsIndex = 1 << 16,
        skip_first_ngram_calls: bool = False,
        debug_mode: bool = False,
    ) -> None:
        self._set(
            ngram_len=ngram_len,
            keys=keys,
            context_history_size=context_history_size,
            sampling_table_seed=sampling_table_seed,
            sampling_table_size=sampling_table_size,
            skip_first_ngram_calls=skip_first_ngram_calls,
            debug_mode=debug_mode,
        )
