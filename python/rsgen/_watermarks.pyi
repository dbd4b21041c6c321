"""The classes of ``watermarking_config``.

Made by tools/make_stubs.py.
"""

from collections.abc import Sequence
from inspect import Signature
from typing import ClassVar, Literal, SupportsIndex

from typing_extensions import Self

from ._rsgen import BuiltInWatermark

class WatermarkingConfig(BuiltInWatermark):
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

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        greenlist_ratio: float = 0.25,
        bias: float = 2.0,
        hashing_key: SupportsIndex = 15485863,
        seeding_scheme: Literal["lefthash", "selfhash"] = "lefthash",
        context_width: SupportsIndex = 1,
    ) -> Self: ...
    @property
    def greenlist_ratio(self) -> float: ...
    @property
    def bias(self) -> float: ...
    @property
    def hashing_key(self) -> int: ...
    @property
    def seeding_scheme(self) -> Literal["lefthash", "selfhash"]: ...
    @property
    def context_width(self) -> int: ...

class SynthIDTextWatermarkingConfig(BuiltInWatermark):
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

    __signature__: ClassVar[Signature]

    def __new__(
        cls,
        ngram_len: SupportsIndex,
        keys: Sequence[SupportsIndex],
        context_history_size: SupportsIndex = 1024,
        sampling_table_seed: SupportsIndex = 0,
        sampling_table_size: SupportsIndex = 65536,
        skip_first_ngram_calls: bool = False,
        debug_mode: bool = False,
    ) -> Self: ...
    @property
    def ngram_len(self) -> int: ...
    @property
    def keys(self) -> list[int]: ...
    @property
    def context_history_size(self) -> int: ...
    @property
    def sampling_table_seed(self) -> int: ...
    @property
    def sampling_table_size(self) -> int: ...
    @property
    def skip_first_ngram_calls(self) -> bool: ...
    @property
    def debug_mode(self) -> bool: ...
