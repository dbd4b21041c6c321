"""The extension module. Its names are public as those of the package ``rsgen``.

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

__all__ = [
    "BayesianDetectorModel",
    "BuiltInConstraint",
    "BuiltInLogitsProcessor",
    "BuiltInStoppingCriteria",
    "EventStream",
    "GenerationConfig",
    "GenerationOutput",
    "Generator",
    "KeptCache",
    "Seed",
    "SynthIDTextWatermarkDetector",
    "TokenStream",
    "TokenTrie",
    "Tokenizer",
    "WatermarkDetector",
    "_RowFile",
    "__version__",
    "_check_constraint",
    "_read_file",
    "_replace_file",
    "_tables",
    "_watermark",
    "cli",
    "pack",
    "serve",
]

__version__: str

def cli(arguments: list[str]) -> int:
    """Runs the command `rsgen` and returns its exit code.

    It is for a process of its own: Ctrl-C ends its work, and Python never hears of it.

    Args:
        arguments (list[str]): The command's arguments, without the program's name.

    Returns:
        int: The exit code.
    """

@final
class GenerationConfig:
    """How to generate: transformers' `GenerationConfig`, with every field unset until it is given.

    A configuration never changes: `update()` makes a changed copy. A field that is unset comes
    from the model's `generation_config.json`, then from transformers' default. The call that
    uses a configuration checks it, because what is possible depends on the model and the prompt.

    Args:
        **fields: Each field is an attribute of the class and documented there.

    Raises:
        TypeError: A keyword is no field; the message suggests the one that was meant.
        ConfigError: A value has a wrong type.

    Example:
        >>> config = rsgen.GenerationConfig(do_sample=True, top_p=0.9)
        >>> config.top_p
        0.9
        >>> config.update(top_p=None, seed=7)
        GenerationConfig(do_sample=True, seed=7)
    """

    __signature__: ClassVar[Signature]
    def __new__(cls, **fields: Unpack[GenerationFields]) -> Self: ...
    def __reduce__(self) -> tuple[Any, tuple[dict[str, Any]]]: ...
    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """Makes a configuration of a dict, as `to_dict()` returns it.

        Args:
            fields (dict[str, Any]): Values by name. Keys that are no fields are kept, without effect.

        Returns:
            Self: The configuration.
        """
    @classmethod
    def from_model_config(cls, model_config: Any) -> Self:
        """Makes a configuration of the generation fields of a model's configuration.

        Args:
            model_config (Any): A dict such as `Generator.config`, or transformers' object.

        Returns:
            Self: The configuration.
        """
    @classmethod
    def from_pretrained(cls, path: str | os.PathLike[str], **fields: Unpack[GenerationFields]) -> Self:
        """Reads a `generation_config.json`.

        Keys that are no fields are kept, without effect.

        Args:
            path (str | os.PathLike[str]): The file, or its folder.
            **fields: Fields that take precedence over the file.

        Returns:
            Self: The configuration.

        Raises:
            LoadError: The file is missing or damaged.
        """
    def get_generation_mode(self, assistant_model: Generator | None = None) -> str:
        """Names the search that the fields select, as its method is called: `"greedy_search"`, `"beam_sample"`,
        ….

        Args:
            assistant_model (Generator | None): The model that drafts, if there is one.

        Returns:
            str: The name of the method.
        """
    def save_pretrained(self, path: str | os.PathLike[str]) -> None:
        """Writes `generation_config.json` into a folder.

        Args:
            path (str | os.PathLike[str]): The folder, which is made if need be.

        Raises:
            ConfigError: A value is not possible. What `validate()` only warns of is saved.
            LoadError: The file cannot be written.
        """
    def to_dict(self) -> dict[str, Any]:
        """Returns the fields that are set, and the keys that were kept.

        Returns:
            dict[str, Any]: Values by name.
        """
    def update(self, **fields: Unpack[GenerationFields]) -> Self:
        """Returns a copy with these fields changed. This object stays as it is.

        transformers' method of that name changes the object and returns what it did not use.

        Args:
            **fields: The fields to change. None unsets a field.

        Returns:
            Self: The copy.
        """
    def validate(self, strict: bool = False) -> None:
        """Checks what can be told without a model and a prompt. A call checks all of it again.

        Values that are possible but have no effect give a warning.

        Args:
            strict (bool): Raises `ConfigError` instead of warning.

        Raises:
            ConfigError: A value is not possible.
        """
    @property
    def answer_start_token_ids(self) -> list[int] | None:
        """The tokens between thinking and an answer that a grammar holds. Chats take them from the template.

        Must be a list of token ids. Default: unset.
        """
    @property
    def assistant_confidence_threshold(self) -> float | None:
        """Assisted decoding: a draft ends with the first token that is less probable to the assistant. It adapts during a call to what is accepted; 0 switches it off.

        Must be a number. Default: 0.4.
        """
    @property
    def assistant_early_exit(self) -> int | None:
        """Assisted decoding without an assistant: how many layers of the model itself draft.

        Must be an integer of 0 or more. Default: unset.
        """
    @property
    def assistant_ensemble_weight(self) -> float | None:
        """Assisted decoding: the weight of the model, between 0 and 1, in a mixture with the assistant that drafts are checked against. It accepts more drafts and changes the tokens.

        Must be a number. Default: unset.
        """
    @property
    def assistant_lookbehind(self) -> int | None:
        """Assisted decoding, with another tokenizer: how many tokens of the assistant are encoded again with each draft.

        Must be an integer of 0 or more. Default: 10.
        """
    @property
    def attention_sinks(self) -> int | None:
        """Lets a text go on past the context: how many of its first tokens stay in the cache, beside the newest; 4 if only `window` is set.

        Must be an integer of 0 or more. Default: unset.
        """
    @property
    def bad_words(self) -> str | list[str] | None:
        """Texts that must not occur, as vLLM's field of that name: each with and without a space before it.

        Must be a text or a list of texts. Default: unset.
        """
    @property
    def bad_words_ids(self) -> list[list[int]] | None:
        """Allows no sequence of this list to occur; end-of-sequence tokens are exempt.

        Must be a list of lists of token ids. Default: unset.
        """
    @property
    def begin_suppress_tokens(self) -> list[int] | None:
        """Allows none of these tokens as the first.

        Must be a list of token ids. Default: unset.
        """
    @property
    def bos_token_id(self) -> int | None:
        """The token that begins a text, used when there is no prompt.

        Must be a token id (an integer of 0 or more). Default: unset.
        """
    @property
    def compat(self) -> Literal["4.49", "5.23"] | None:
        """An older transformers whose results are wanted where they differ from those of 5.24: "4.49" or "5.23".

        Must be "4.49" or "5.23", an older transformers that results can follow. Default: unset.
        """
    @property
    def decoder_start_token_id(self) -> int | list[int] | None:
        """The token that the decoder of a model with an encoder begins with, or a list of one for each prompt.

        Must be a token id (an integer of 0 or more) or a list of them. Default: bos_token_id.
        """
    @property
    def diversity_penalty(self) -> float | None:
        """Subtracts a number for each earlier group of beams that has chosen the token in this step.

        Must be a number. Default: 0.0.
        """
    @property
    def do_sample(self) -> bool | None:
        """Whether to draw each token at random instead of taking the most probable one.

        Must be true or false. Default: false.
        """
    @property
    def dola_layers(self) -> Literal["low", "high"] | list[int] | None:
        """`DoLa`: the inner layers to contrast with: `"low"`, `"high"` or a list of layers, 0 being the embedding.

        Must be "low", "high" or a list of layer numbers. Default: unset.
        """
    @property
    def early_stopping(self) -> bool | Literal["never"] | None:
        """When beam search ends: `false` once it is unlikely that a better hypothesis follows, `true` with as many hypotheses as beams, `"never"` only when no better one can follow.

        Must be true, false or "never". Default: false.
        """
    @property
    def encoder_no_repeat_ngram_size(self) -> int | None:
        """Allows no n-gram of this size that occurs in the prompt to occur again; 0 allows all.

        Must be an integer of 0 or more. Default: 0.
        """
    @property
    def encoder_repetition_penalty(self) -> float | None:
        """Divides the negative and multiplies the other scores of the prompt's tokens, once each.

        Must be a number. Default: 1.0.
        """
    @property
    def eos_token_id(self) -> int | list[int] | None:
        """The token, or tokens, that end a row; an empty list: none.

        Must be a token id (an integer of 0 or more) or a list of them. Default: unset.
        """
    @property
    def epsilon_cutoff(self) -> float | None:
        """Keeps only tokens of at least this probability.

        Must be a number. Default: 0.0.
        """
    @property
    def eta_cutoff(self) -> float | None:
        """Keeps only tokens of at least this probability, or less where the entropy is high.

        Must be a number. Default: 0.0.
        """
    @property
    def exponential_decay_length_penalty(self) -> tuple[int, float] | None:
        """Raises the scores of end-of-sequence tokens by a factor to the power of the new tokens after a start.

        Must be a pair of an integer of 0 or more and a number. Default: unset.
        """
    @property
    def force_words(self) -> str | list[str] | None:
        """What the output of a constrained beam search has to hold, as texts.

        Must be a text or a list of texts. Default: unset.
        """
    @property
    def force_words_ids(self) -> list[list[int] | list[list[int]]] | None:
        """What the output of a constrained beam search has to hold: phrases of token ids, or lists of phrases of which one is enough.

        Must be a list of words, each a list of token ids or a list of such lists. Default: unset.
        """
    @property
    def forced_bos_token_id(self) -> int | None:
        """Forces the token that follows a prompt of a single token.

        Must be a token id (an integer of 0 or more). Default: unset.
        """
    @property
    def forced_eos_token_id(self) -> int | list[int] | None:
        """Forces one of these tokens as the last when the most tokens are reached.

        Must be a token id (an integer of 0 or more) or a list of them. Default: unset.
        """
    @property
    def frequency_penalty(self) -> float | None:
        """Subtracts a number from -2 to 2 for each time a token was generated, as OpenAI's field of that name.

        Must be a number. Default: 0.0.
        """
    @property
    def glossary(self) -> dict[str, str | list[str]] | None:
        """Terms and their translations, or lists of forms of which one is enough: the output for a prompt that holds a term as whole words has to hold its translation. Such prompts get a constrained beam search, others the search of the other fields.

        Must be a map from terms to their translations, texts or lists of texts. Default: unset.
        """
    @property
    def grammar(self) -> str | None:
        """A grammar that the new text follows, in the notation of Lark as llguidance takes it.

        Must be a text. Default: unset.
        """
    @property
    def guidance_scale(self) -> float | None:
        """Guidance: how far log-probabilities move away from those after the negative prompt; 1 is no guidance, 1.5 is usual. Each row takes a second row of the model.

        Must be a number. Default: 1.0.
        """
    @property
    def include_stop_str_in_output(self) -> bool | None:
        """Whether the text of a row includes the stop string that ended it; its tokens do in any case.

        Must be true or false. Default: true.
        """
    @property
    def json_schema(self) -> dict[str, Any] | bool | str | type[Any] | None:
        """A JSON schema that the new text follows: an object, or its text; in Python also a pydantic model.

        Must be a JSON schema: an object, true or false, or the JSON text of one. Default: unset.
        """
    @property
    def length_penalty(self) -> float | None:
        """The power of its length that the score of a hypothesis is divided by: above 0 favours long ones.

        Must be a number. Default: 1.0.
        """
    @property
    def logit_bias(self) -> dict[int, float] | None:
        """Adds a number from -100 to 100 to the score of a token, as OpenAI's field of that name.

        Must be a map from token ids to numbers. Default: unset.
        """
    @property
    def low_memory(self) -> bool | None:
        """Accepted for transformers' sake, without effect: candidates share the memory of what they have in common.

        Must be true or false. Default: false.
        """
    @property
    def max_length(self) -> int | None:
        """The most tokens of a sequence, prompt included; `max_new_tokens` has precedence over it.

        Must be an integer of 1 or more. Default: prompt + 20.
        """
    @property
    def max_matching_ngram_size(self) -> int | None:
        """Prompt lookup: how many of the newest tokens have to have occurred before, at most.

        Must be an integer of 1 or more. Default: 2.
        """
    @property
    def max_new_tokens(self) -> int | None:
        """The most tokens to generate.

        Must be an integer of 1 or more. Default: unset.
        """
    @property
    def max_time(self) -> float | None:
        """Seconds after which generation stops, at the end of the step that is running.

        Must be a number. Default: unset.
        """
    @property
    def min_length(self) -> int | None:
        """The length, prompt included, before which no end-of-sequence token is generated.

        Must be an integer of 0 or more. Default: 0.
        """
    @property
    def min_new_tokens(self) -> int | None:
        """The number of new tokens before which no end-of-sequence token is generated.

        Must be an integer of 0 or more. Default: unset.
        """
    @property
    def min_p(self) -> float | None:
        """Keeps only tokens that reach this fraction of the most probable one's probability.

        Must be a number. Default: unset.
        """
    @property
    def negative_prompt(self) -> str | list[str] | None:
        """Guidance: the text to move away from, or one for each prompt. Without it, the last token of the prompt.

        Must be a text or a list of texts. Default: unset.
        """
    @property
    def negative_prompt_attention_mask(self) -> list[int] | list[list[int]] | None:
        """Guidance: which ids of `negative_prompt_ids` are real (1) and which are padding (0); all are real without it.

        Must be a list of 0 and 1, or a list of such lists, one for each negative prompt. Default: unset.
        """
    @property
    def negative_prompt_ids(self) -> list[int] | list[list[int]] | None:
        """Guidance: the negative prompt as token ids, or one for each prompt.

        Must be a list of token ids, or a list of such lists, one for each prompt. Default: unset.
        """
    @property
    def no_repeat_ngram_size(self) -> int | None:
        """Allows no n-gram of this size to occur twice, prompt included; 0 allows all.

        Must be an integer of 0 or more. Default: 0.
        """
    @property
    def num_assistant_tokens(self) -> int | None:
        """Assisted decoding: how many tokens the assistant drafts at most before the model checks them.

        Must be an integer of 1 or more. Default: 20.
        """
    @property
    def num_assistant_tokens_schedule(
        self,
    ) -> Literal["constant", "heuristic", "heuristic_transient", "adaptive"] | None:
        """Assisted decoding: whether the number of drafted tokens grows when all of them are accepted and shrinks when not; `"heuristic"` keeps it for later calls with the assistant, `"heuristic_transient"` does not. `"adaptive"`, also for prompt lookup, drafts as many as measured times make fastest, or none, and changes no token.

        Must be "constant", "heuristic", "heuristic_transient" or "adaptive". Default: "constant".
        """
    @property
    def num_beam_groups(self) -> int | None:
        """The number of groups that the beams are split into, which are kept apart by `diversity_penalty`.

        Must be an integer of 1 or more. Default: 1.
        """
    @property
    def num_beams(self) -> int | None:
        """The number of beams; 1 is no beam search.

        Must be an integer of 1 or more. Default: 1.
        """
    @property
    def num_return_sequences(self) -> int | None:
        """The number of rows generated for each prompt.

        Must be an integer of 1 or more. Default: 1.
        """
    @property
    def output_attentions(self) -> bool | None:
        """Whether to keep the attention weights of all layers at every step.

        Must be true or false. Default: false.
        """
    @property
    def output_events(self) -> bool | None:
        """Whether to tell how each token was found: alternatives and what removed them, nodes of beams, drafts.

        Must be true or false. Default: false.
        """
    @property
    def output_hidden_states(self) -> bool | None:
        """Whether to keep the hidden states of all layers at every step.

        Must be true or false. Default: false.
        """
    @property
    def output_logits(self) -> bool | None:
        """Whether to keep the model's own logits of every step.

        Must be true or false. Default: false.
        """
    @property
    def output_scores(self) -> bool | None:
        """Whether to keep the processed scores of every step.

        Must be true or false. Default: false.
        """
    @property
    def pad_token_id(self) -> int | None:
        """The token that fills rows up to equal length.

        Must be a token id (an integer of 0 or more). Default: the first eos_token_id.
        """
    @property
    def penalty_alpha(self) -> float | None:
        """Contrastive search: how much likeness to earlier states counts against a token, from 0 to 1.

        Must be a number. Default: unset.
        """
    @property
    def prefill_chunk_size(self) -> int | None:
        """The most prompt tokens computed in one pass; changes no result.

        Must be an integer of 1 or more. Default: chosen by the engine.
        """
    @property
    def presence_penalty(self) -> float | None:
        """Subtracts a number from -2 to 2 if a token was generated, as OpenAI's field of that name.

        Must be a number. Default: 0.0.
        """
    @property
    def prompt_lookup_num_tokens(self) -> int | None:
        """Prompt lookup: how many tokens are looked up and checked in one pass. The result of greedy search is the same.

        Must be an integer of 1 or more. Default: unset.
        """
    @property
    def regex(self) -> str | None:
        """A regular expression that the whole new text matches, in the syntax of Rust's crate `regex`.

        Must be a text. Default: unset.
        """
    @property
    def remove_invalid_values(self) -> bool | None:
        """Replaces NaN by 0 and the infinities by the largest and the least number.

        Must be true or false. Default: false.
        """
    @property
    def renormalize_logits(self) -> bool | None:
        """Replaces the scores by the logarithms of their softmax, after all other processors.

        Must be true or false. Default: false.
        """
    @property
    def repetition_penalty(self) -> float | None:
        """Multiplies the negative and divides the other scores of tokens that have occurred, once each.

        Must be a number. Default: 1.0.
        """
    @property
    def return_dict_in_generate(self) -> bool | None:
        """Accepted for transformers' sake, without effect: results are always objects.

        Must be true or false. Default: true.
        """
    @property
    def seed(self) -> int | list[int] | None:
        """The seed of sampling: the tokens that `torch.manual_seed(seed)` gives transformers. For a list of prompts, one seed each, or one from which prompt `i` takes `seed + i`.

        Must be an integer from -2^63 to 2^64 - 1 or a list of them. Default: drawn, and reported in the output.
        """
    @property
    def sequence_bias(self) -> dict[tuple[int, ...], float] | list[list[list[int] | float]] | None:
        """Adds a bias to the score of a sequence's last token when its other tokens have just occurred.

        Must be a map from tuples of token ids to numbers, or a list of pairs [token ids, number]. Default: unset.
        """
    @property
    def stop_strings(self) -> str | list[str] | None:
        """Texts that end a row when they are completed; they stay in the output, see `include_stop_str_in_output`.

        Must be a text or a list of texts. Default: unset.
        """
    @property
    def suppress_tokens(self) -> list[int] | None:
        """Allows none of these tokens.

        Must be a list of token ids. Default: unset.
        """
    @property
    def target_lookbehind(self) -> int | None:
        """Assisted decoding, with another tokenizer: how many tokens of the model are encoded again with each draft.

        Must be an integer of 0 or more. Default: 10.
        """
    @property
    def target_prefix(self) -> str | list[str] | None:
        """The text that the output of a model with an encoder begins with, or one for each prompt; it goes on from there.

        Must be a text or a list of texts. Default: unset.
        """
    @property
    def temperature(self) -> float | None:
        """Divides the scores by a number: below 1 sharpens, above 1 flattens.

        Must be a number. Default: 1.0.
        """
    @property
    def think_end_token_ids(self) -> list[int] | None:
        """The tokens that thinking ends with. A grammar begins behind them. Chats take them from the template.

        Must be a list of token ids. Default: unset.
        """
    @property
    def think_start_token_ids(self) -> list[int] | None:
        """The tokens that thinking begins with; none where the prompt has begun it. Chats take them from the template.

        Must be a list of token ids. Default: unset.
        """
    @property
    def thinking_token_budget(self) -> int | None:
        """The most tokens that the model thinks before it answers, as vLLM's field of that name; then the tokens that end the thinking are forced. 0 lets it think nothing.

        Must be an integer of 0 or more. Default: unset.
        """
    @property
    def token_healing(self) -> bool | None:
        """Whether the last token of the prompt is chosen again, among those that extend its text, before generation begins.

        Must be true or false. Default: false.
        """
    @property
    def top_h(self) -> float | None:
        """Keeps only the most probable tokens, up to 100, within this fraction of the entropy.

        Must be a number. Default: unset.
        """
    @property
    def top_k(self) -> int | None:
        """Keeps only this many of the most probable tokens, and ties with the last of them; 0 keeps all.

        Must be an integer of 0 or more. Default: 50.
        """
    @property
    def top_logprobs(self) -> int | None:
        """How many of the likeliest tokens to keep; each generated token gets them, with their log-probabilities under the model's own logits.

        Must be an integer of 0 or more. Default: 0.
        """
    @property
    def top_p(self) -> float | None:
        """Keeps only the most probable tokens that together reach this probability.

        Must be a number. Default: 1.0.
        """
    @property
    def typical_p(self) -> float | None:
        """Keeps only the tokens nearest to the expected surprise that together reach this probability.

        Must be a number. Default: 1.0.
        """
    @property
    def use_cache(self) -> bool | None:
        """Accepted for transformers' sake: the KV cache is always used.

        Must be true or false. Default: true.
        """
    @property
    def watermarking_config(
        self,
    ) -> WatermarkingConfig | SynthIDTextWatermarkingConfig | dict[str, Any] | None:
        """The watermark of the text; a detector with the same settings finds it. Favours tokens of pseudorandom green lists, or lets tokens win SynthID's tournaments.

        Must be a WatermarkingConfig or a SynthIDTextWatermarkingConfig, or a map of the fields of one. Default: unset.
        """
    @property
    def window(self) -> int | None:
        """The most tokens in the cache of a text with `attention_sinks`, these included; the model's context if only those are set. The oldest others leave it, and positions are those within it.

        Must be an integer of 0 or more. Default: unset.
        """
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __setattr__(self, name: str, value: Any, /) -> None: ...
    __hash__: None  # type: ignore[assignment]

@disjoint_base
class BuiltInConstraint:
    """The base of the constraints of `rsgen.constraints`, which run without Python.

    Args:
        *arguments (Any): Those of the class.
        **keywords (Any): Those of the class.
    """

    def __new__(cls, *arguments: Any, **keywords: Any) -> Self: ...
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]: ...
    def __getstate__(self) -> tuple[dict[str, Any] | None, list[int]]: ...
    def __setstate__(self, state: tuple[dict[str, Any] | None, list[int]], /) -> None: ...
    def advance(self) -> int | list[int] | None:
        """Returns the tokens that would bring it a step further.

        Returns:
            int | list[int] | None: One token, several, or None once it is fulfilled.
        """
    def copy(self, stateful: bool = False) -> Constraint:
        """Returns a copy.

        Args:
            stateful (bool): Copies the state as it is now. Otherwise the copy begins anew.

        Returns:
            Constraint: The copy.
        """
    def does_advance(self, token_id: int) -> bool:
        """Returns whether the token would bring it a step further.

        Args:
            token_id (int): The token.

        Returns:
            bool: True for a step.
        """
    def remaining(self) -> int:
        """Returns the most steps that are left.

        Returns:
            int: 0 once it is fulfilled.
        """
    def reset(self) -> None:
        """Begins again."""
    def update(self, token_id: int) -> tuple[bool, bool, bool]:
        """Takes a token.

        Args:
            token_id (int): The token.

        Returns:
            tuple[bool, bool, bool]: Whether it was a step, whether the constraint is fulfilled now, and
                whether it begins again because the token broke it.
        """
    @property
    def completed(self) -> bool:
        """Whether it is fulfilled."""
    @property
    def seqlen(self) -> int:
        """The most steps it takes."""
    @property
    def token_ids(self) -> list[Any]:
        """The tokens it was made from."""

def _check_constraint(constraint: Constraint) -> None:
    """Walks through a copy of a constraint once.

    Args:
        constraint (Constraint): The constraint.

    Raises:
        CallbackError: It can never be fulfilled.
    """

@final
class EventStream:
    """The events of a stream, from the first one on. The model works while an event is waited for.

    Several can be open beside each other and beside the tokens: each gives all events. Closing
    the stream ends them.

    Example:
        >>> stream = gen.stream("One day", max_new_tokens=5, output_events=True)
        >>> [event["type"] for event in stream.events()]
        ['start', 'prompt', 'token', 'token', 'token', 'token', 'token', 'finish']
    """

    def __iter__(self) -> Self: ...
    def __next__(self) -> GenerationEvent: ...

@final
class Generator:
    """A model that is ready to generate.

    Any number of threads may use it at once: one pass computes the next tokens of all of them,
    and other Python threads run meanwhile. Ctrl-C ends a call within a quarter of a second. A
    Generator pickles as its path and options; what comes out opens the model at its first use. A copy
    is the same object. In a forked process every computation raises `ForkError`. `close()`, or the end of
    a `with` block, returns the memory.

    Args:
        model (str | os.PathLike[str] | None): A folder in the Hugging Face layout, a GGUF file, or the id
            of a model in the local Hub cache. None is the bundled story model.
        dtype (DType): Rounds the weights to "float32", "bfloat16" or "float16" while loading, or
            to integers, "int8" or "int4", in groups with a scale each: a half or a quarter of the
            memory of "bfloat16", and about as much faster. "auto" keeps them as they are stored.
        compute_dtype (DType): "float32" gives what transformers gives. "bfloat16" rounds weights and
            activations, and is faster where the processor multiplies bfloat16 (AVX-512 BF16). With weights
            of integers it is the arithmetic of attention.
            "int8" rounds activations to 8 bits where a file's own weights are integers (GGUF, GPTQ,
            AWQ, …), as llama.cpp does, and is faster; all else is "float32".
        kv_dtype (DType): The type of the KV cache: "float32", "bfloat16", or "int8" with a scale for
            each token and head. "auto" takes that of the computation.
        num_threads (int | None): The number of threads. None takes RSGEN_NUM_THREADS, then
            OMP_NUM_THREADS, then as many as this process may use.
        assistant (str | os.PathLike[str] | Generator | None): A smaller model with the same tokens
            that drafts for this one; "draft" is the bundled one, for the story model. It is opened
            with the same options and shares the KV cache.
        adapter (str | os.PathLike[str] | None): A LoRA adapter of PEFT, which is merged into the
            weights while they are read: its folder, or its id in the local Hub cache.
        tokenizer (str | os.PathLike[str] | None): A model whose tokenizer and chat templates are taken, for
            one that comes without, such as some GGUF files: a folder, or an id in the local Hub cache.
        kv_cache_bytes (int | None): The memory limit of the KV cache in bytes. None is half of the
            memory that is available.
        prefix_caching (bool): Whether prompts with the same beginning share what was computed for
            it. The results are the same.
        local_files_only (bool): Must be True: rsgen never downloads.
        revision (str | None): A branch, tag or commit in the Hub cache. None is "main".
        cache_dir (str | os.PathLike[str] | None): The Hub cache. None is that of the environment.
        torch_dtype (DType | None): Another name of `dtype`, as in older transformers.
        generation_config (str): "ignore" leaves the model's `generation_config.json` aside; "auto"
            takes its fields as defaults.
        progress (Callable[[str, int, int], object] | None): Called in this thread with the stage
            ("pack"), the bytes of weights done, and all bytes. What it raises ends the loading.

    Raises:
        LoadError: The model is missing, damaged or not supported.
        CapacityError: The model does not fit into memory.
        ConfigError: An argument has a value that is not possible.

    Example:
        >>> gen = rsgen.Generator()  # the bundled story model
        >>> out = gen.generate("Once upon a time", max_new_tokens=60)
        >>> print(out.text)
        >>> out = gen.sample(["One day", "Tom had"], top_p=0.9, seed=7, max_new_tokens=60)
        >>> for token in gen.stream("Once upon a time"):
        ...     print(token, end="", flush=True)
    """

    def __new__(
        cls,
        model: str | os.PathLike[str] | None = None,
        *,
        dtype: DType = "auto",
        compute_dtype: DType = "float32",
        kv_dtype: DType = "auto",
        num_threads: int | None = None,
        assistant: str | os.PathLike[str] | Generator | None = None,
        adapter: str | os.PathLike[str] | None = None,
        tokenizer: str | os.PathLike[str] | None = None,
        kv_cache_bytes: int | None = None,
        prefix_caching: bool = True,
        local_files_only: bool = True,
        revision: str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        torch_dtype: DType | None = None,
        generation_config: str = "auto",
        progress: Callable[[str, int, int], object] | None = None,
    ) -> Self: ...
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, memo: Any, /) -> Self: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: Any) -> None: ...
    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]: ...
    def achat(
        self,
        messages: Conversation | Sequence[Conversation],
        generation_config: AnyGenerationConfig | None = None,
        *,
        tools: Sequence[Tool] | None = None,
        tool_choice: str | Mapping[str, Any] = "auto",
        parallel_tool_calls: bool = True,
        tool_parser: ToolParser | None = None,
        reasoning_parser: ReasoningParser | None = None,
        run_tools: bool = False,
        max_tool_rounds: int = 8,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        continue_final_message: bool | str = False,
        logits_processor: types.LogitsProcessor | Sequence[types.LogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        allowed_sequences: TokenTrie | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        adapter: Adapter | None = None,
        streamer: Streamer | None = None,
        assistant_model: Generator | None = None,
        cache: KeptCache | Sequence[KeptCache] | None = None,
        past_key_values: KeptCache | Sequence[KeptCache] | None = None,
        return_cache: bool = False,
        output_type: TypeForm[_T] | TypeAdapter[_T] | None = None,
        describe_output: bool = False,
        progress: bool | Callable[[int, int], object] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> Coroutine[Any, Any, GenerationOutput[_T]]:
        """Replies to a conversation while the event loop goes on: `chat()` for `await`.

        Cancelling the task that waits for it ends the work.

        Args:
            messages (Conversation | Sequence[Conversation]): A list of messages, or of conversations.

        Returns:
            Coroutine[Any, Any, GenerationOutput[_T]]: The replies.
        """
    def agenerate(
        self,
        prompt: Prompt | Encoding | None = None,
        generation_config: AnyGenerationConfig | None = None,
        *,
        input_ids: Prompt | None = None,
        inputs: Prompt | None = None,
        attention_mask: ArrayLike | None = None,
        inputs_embeds: ArrayLike | Sequence[ArrayLike] | None = None,
        decoder_input_ids: Ids | Sequence[Ids] | None = None,
        decoder_attention_mask: ArrayLike | None = None,
        logits_processor: types.LogitsProcessor | Sequence[types.LogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        allowed_sequences: TokenTrie | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        adapter: Adapter | None = None,
        streamer: Streamer | None = None,
        assistant_model: Generator | None = None,
        cache: KeptCache | Sequence[KeptCache] | None = None,
        past_key_values: KeptCache | Sequence[KeptCache] | None = None,
        return_cache: bool = False,
        output_type: TypeForm[_T] | TypeAdapter[_T] | None = None,
        describe_output: bool = False,
        progress: bool | Callable[[int, int], object] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> Coroutine[Any, Any, GenerationOutput[_T]]:
        """Generates while the event loop goes on: `generate()` for `await`.

        Cancelling the task that waits for it ends the work.

        Returns:
            Coroutine[Any, Any, GenerationOutput[_T]]: The output.

        Example:
            >>> async def tell(prompt):
            ...     return (await gen.agenerate(prompt, max_new_tokens=60)).text
        """
    @overload
    def apply_chat_template(
        self,
        conversation: Conversation,
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        tokenize: Literal[True] = True,
        padding: bool | Literal["longest", "max_length", "do_not_pad"] = False,
        truncation: bool | None = None,
        max_length: int | None = None,
        return_tensors: None = None,
        return_dict: Literal[False] = False,
        **kwargs: Any,
    ) -> list[int]:
        """Returns the prompt of a conversation by a chat template, as transformers does.

        The template writes the special tokens; the tokenizer adds none. Templates are not trusted:
        they run in a sandbox with limits of time and memory.

        Args:
            conversation (Conversation | Sequence[Conversation]): A list of messages, or a list of
                conversations, which gives a list of prompts.
            add_generation_prompt (bool): Ends with the words that begin a reply.
            continue_final_message (bool | str): Leaves the final message open, to be continued. A
                text names the field of the message to continue.
            tokenize (bool): Returns token ids; False returns the text.
            padding (bool | Literal["longest", "max_length", "do_not_pad"]): As for a call of the tokenizer, and so
                are the next three.
            truncation (bool | None): Cuts the prompts.
            max_length (int | None): The length for `padding` and `truncation`.
            return_tensors (Literal["np"] | None): "np" returns arrays.
            return_dict (bool): Returns what a call of the tokenizer returns, for `gen.generate(**inputs)`.
            **kwargs (Any): Further variables for the template.

        Returns:
            Any: The token ids or the text, one for each conversation of a list; or an encoding.

        Raises:
            InputError: The model has no chat template and none is given, or the template fails.
        """
    @overload
    def apply_chat_template(
        self,
        conversation: Conversation,
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        *,
        tokenize: Literal[False],
        padding: bool | Literal["longest", "max_length", "do_not_pad"] = False,
        truncation: bool | None = None,
        max_length: int | None = None,
        return_tensors: None = None,
        return_dict: Literal[False] = False,
        **kwargs: Any,
    ) -> str:
        """Returns the prompt of a conversation by a chat template, as transformers does.

        The template writes the special tokens; the tokenizer adds none. Templates are not trusted:
        they run in a sandbox with limits of time and memory.

        Args:
            conversation (Conversation | Sequence[Conversation]): A list of messages, or a list of
                conversations, which gives a list of prompts.
            add_generation_prompt (bool): Ends with the words that begin a reply.
            continue_final_message (bool | str): Leaves the final message open, to be continued. A
                text names the field of the message to continue.
            tokenize (bool): Returns token ids; False returns the text.
            padding (bool | Literal["longest", "max_length", "do_not_pad"]): As for a call of the tokenizer, and so
                are the next three.
            truncation (bool | None): Cuts the prompts.
            max_length (int | None): The length for `padding` and `truncation`.
            return_tensors (Literal["np"] | None): "np" returns arrays.
            return_dict (bool): Returns what a call of the tokenizer returns, for `gen.generate(**inputs)`.
            **kwargs (Any): Further variables for the template.

        Returns:
            Any: The token ids or the text, one for each conversation of a list; or an encoding.

        Raises:
            InputError: The model has no chat template and none is given, or the template fails.
        """
    @overload
    def apply_chat_template(
        self,
        conversation: Sequence[Conversation],
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        tokenize: Literal[True] = True,
        padding: bool | Literal["longest", "max_length", "do_not_pad"] = False,
        truncation: bool | None = None,
        max_length: int | None = None,
        return_tensors: None = None,
        return_dict: Literal[False] = False,
        **kwargs: Any,
    ) -> list[list[int]]:
        """Returns the prompt of a conversation by a chat template, as transformers does.

        The template writes the special tokens; the tokenizer adds none. Templates are not trusted:
        they run in a sandbox with limits of time and memory.

        Args:
            conversation (Conversation | Sequence[Conversation]): A list of messages, or a list of
                conversations, which gives a list of prompts.
            add_generation_prompt (bool): Ends with the words that begin a reply.
            continue_final_message (bool | str): Leaves the final message open, to be continued. A
                text names the field of the message to continue.
            tokenize (bool): Returns token ids; False returns the text.
            padding (bool | Literal["longest", "max_length", "do_not_pad"]): As for a call of the tokenizer, and so
                are the next three.
            truncation (bool | None): Cuts the prompts.
            max_length (int | None): The length for `padding` and `truncation`.
            return_tensors (Literal["np"] | None): "np" returns arrays.
            return_dict (bool): Returns what a call of the tokenizer returns, for `gen.generate(**inputs)`.
            **kwargs (Any): Further variables for the template.

        Returns:
            Any: The token ids or the text, one for each conversation of a list; or an encoding.

        Raises:
            InputError: The model has no chat template and none is given, or the template fails.
        """
    @overload
    def apply_chat_template(
        self,
        conversation: Sequence[Conversation],
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        *,
        tokenize: Literal[False],
        padding: bool | Literal["longest", "max_length", "do_not_pad"] = False,
        truncation: bool | None = None,
        max_length: int | None = None,
        return_tensors: None = None,
        return_dict: Literal[False] = False,
        **kwargs: Any,
    ) -> list[str]:
        """Returns the prompt of a conversation by a chat template, as transformers does.

        The template writes the special tokens; the tokenizer adds none. Templates are not trusted:
        they run in a sandbox with limits of time and memory.

        Args:
            conversation (Conversation | Sequence[Conversation]): A list of messages, or a list of
                conversations, which gives a list of prompts.
            add_generation_prompt (bool): Ends with the words that begin a reply.
            continue_final_message (bool | str): Leaves the final message open, to be continued. A
                text names the field of the message to continue.
            tokenize (bool): Returns token ids; False returns the text.
            padding (bool | Literal["longest", "max_length", "do_not_pad"]): As for a call of the tokenizer, and so
                are the next three.
            truncation (bool | None): Cuts the prompts.
            max_length (int | None): The length for `padding` and `truncation`.
            return_tensors (Literal["np"] | None): "np" returns arrays.
            return_dict (bool): Returns what a call of the tokenizer returns, for `gen.generate(**inputs)`.
            **kwargs (Any): Further variables for the template.

        Returns:
            Any: The token ids or the text, one for each conversation of a list; or an encoding.

        Raises:
            InputError: The model has no chat template and none is given, or the template fails.
        """
    @overload
    def apply_chat_template(
        self,
        conversation: Conversation | Sequence[Conversation],
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        tokenize: bool = True,
        padding: bool | Literal["longest", "max_length", "do_not_pad"] = False,
        truncation: bool | None = None,
        max_length: int | None = None,
        *,
        return_tensors: Literal["np"],
        return_dict: Literal[False] = False,
        **kwargs: Any,
    ) -> NDArray[np.int64]:
        """Returns the prompt of a conversation by a chat template, as transformers does.

        The template writes the special tokens; the tokenizer adds none. Templates are not trusted:
        they run in a sandbox with limits of time and memory.

        Args:
            conversation (Conversation | Sequence[Conversation]): A list of messages, or a list of
                conversations, which gives a list of prompts.
            add_generation_prompt (bool): Ends with the words that begin a reply.
            continue_final_message (bool | str): Leaves the final message open, to be continued. A
                text names the field of the message to continue.
            tokenize (bool): Returns token ids; False returns the text.
            padding (bool | Literal["longest", "max_length", "do_not_pad"]): As for a call of the tokenizer, and so
                are the next three.
            truncation (bool | None): Cuts the prompts.
            max_length (int | None): The length for `padding` and `truncation`.
            return_tensors (Literal["np"] | None): "np" returns arrays.
            return_dict (bool): Returns what a call of the tokenizer returns, for `gen.generate(**inputs)`.
            **kwargs (Any): Further variables for the template.

        Returns:
            Any: The token ids or the text, one for each conversation of a list; or an encoding.

        Raises:
            InputError: The model has no chat template and none is given, or the template fails.
        """
    @overload
    def apply_chat_template(
        self,
        conversation: Conversation | Sequence[Conversation],
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        tokenize: bool = True,
        padding: bool | Literal["longest", "max_length", "do_not_pad"] = False,
        truncation: bool | None = None,
        max_length: int | None = None,
        return_tensors: Literal["np"] | None = None,
        *,
        return_dict: Literal[True],
        **kwargs: Any,
    ) -> BatchEncoding:
        """Returns the prompt of a conversation by a chat template, as transformers does.

        The template writes the special tokens; the tokenizer adds none. Templates are not trusted:
        they run in a sandbox with limits of time and memory.

        Args:
            conversation (Conversation | Sequence[Conversation]): A list of messages, or a list of
                conversations, which gives a list of prompts.
            add_generation_prompt (bool): Ends with the words that begin a reply.
            continue_final_message (bool | str): Leaves the final message open, to be continued. A
                text names the field of the message to continue.
            tokenize (bool): Returns token ids; False returns the text.
            padding (bool | Literal["longest", "max_length", "do_not_pad"]): As for a call of the tokenizer, and so
                are the next three.
            truncation (bool | None): Cuts the prompts.
            max_length (int | None): The length for `padding` and `truncation`.
            return_tensors (Literal["np"] | None): "np" returns arrays.
            return_dict (bool): Returns what a call of the tokenizer returns, for `gen.generate(**inputs)`.
            **kwargs (Any): Further variables for the template.

        Returns:
            Any: The token ids or the text, one for each conversation of a list; or an encoding.

        Raises:
            InputError: The model has no chat template and none is given, or the template fails.
        """
    def ascore(
        self,
        text: Prompt,
        target: Prompt | None = None,
        *,
        cache: KeptCache | Sequence[KeptCache] | None = None,
        adapter: Adapter | None = None,
        top_logprobs: int | None = None,
        progress: bool | Callable[[int, int], object] | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Scores texts while the event loop goes on: `score()` for `await`.

        Cancelling the task that waits for it ends the work.

        Args:
            text (Prompt): A text, its ids, or a list of those.
            target (Prompt | None): What follows from the text, of a model with an encoder.
            cache (KeptCache | Sequence[KeptCache] | None): What the texts continue.
            adapter (Adapter | None): The name of an adapter that `load_adapter` has loaded, or a list of
                names with weights.
            top_logprobs (int | None): How many of the most probable tokens are returned in each place.
            progress (bool | Callable[[int, int], object] | None): True shows a bar of a list's texts.

        Returns:
            Coroutine[Any, Any, Any]: What `score()` returns.
        """
    def assisted_decoding(
        self,
        prompt: Prompt | Encoding | None = None,
        generation_config: AnyGenerationConfig | None = None,
        *,
        input_ids: Prompt | None = None,
        inputs: Prompt | None = None,
        attention_mask: ArrayLike | None = None,
        inputs_embeds: ArrayLike | Sequence[ArrayLike] | None = None,
        decoder_input_ids: Ids | Sequence[Ids] | None = None,
        decoder_attention_mask: ArrayLike | None = None,
        logits_processor: types.LogitsProcessor | Sequence[types.LogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        allowed_sequences: TokenTrie | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        adapter: Adapter | Sequence[Adapter | None] | None = None,
        streamer: Streamer | None = None,
        assistant_model: Generator | None = None,
        cache: KeptCache | Sequence[KeptCache] | None = None,
        past_key_values: KeptCache | Sequence[KeptCache] | None = None,
        return_cache: bool = False,
        output_type: TypeForm[_T] | TypeAdapter[_T] | None = None,
        describe_output: bool = False,
        progress: bool | Callable[[int, int], object] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> GenerationOutput[_T]:
        """Greedy search or sampling that checks several tokens in a pass: those that a smaller model, the assistant, has drafted. `num_assistant_tokens` (20 unless set) is how many at most.

        Otherwise as `generate()`.

        Args:
            prompt (Prompt | Encoding | None): A text, or its token ids as a sequence or array of integers. A
                two-dimensional array of ids is one request, as transformers takes it: its rows
                share one random generator. A list of texts and ids holds independent prompts,
                which are computed together; each gives what it gives alone. What a tokenizer
                returns is taken, too. None begins the text with the `bos_token_id`.
            input_ids (Prompt | None): Another name of the prompt, as in transformers.
            inputs (Prompt | None): Another name of the prompt, as in transformers.
            generation_config (AnyGenerationConfig | None): rsgen's or transformers'. Fields of the call take
                precedence over it, and it takes precedence over the model's own.
            attention_mask (ArrayLike | None): 0 for padding and 1 for tokens, in the shape of a
                two-dimensional prompt. None tells padding from the `pad_token_id`, as transformers
                does.
            inputs_embeds (ArrayLike | Sequence[ArrayLike] | None): Embeddings in place of tokens:
                an array of floats, `[seq, hidden]` or `[batch, seq, hidden]`, or a list of the former
                for independent prompts. `embed()` gives those of tokens. `sequences` then holds new
                tokens alone, unless `input_ids` are given as well: what processors see as the prompt.
            decoder_input_ids (Ids | Sequence[Ids] | None): What the decoder of a model with an encoder
                begins with, in one row for all prompts or one for each. The prompts are the sources of
                such models. The `decoder_start_token_id` is prepended unless a row begins with it, and
                the output begins with these ids.
            decoder_attention_mask (ArrayLike | None): 0 for padding before `decoder_input_ids`, which
                models whose tokens have positions do not take.
            logits_processor (rsgen.types.LogitsProcessor | Sequence[rsgen.types.LogitsProcessor] | None):
                Functions that change the scores of each step. Those of `rsgen.processors` run
                without Python, others cost time at each token.
            prefix_allowed_tokens_fn (PrefixAllowedTokens | None): A function that returns the tokens
                that may follow.
            allowed_sequences (TokenTrie | None): The catalogue of which every output is an entry: see
                `GenerationOutput.entries`.
            stopping_criteria (StoppingCriterion | Sequence[StoppingCriterion] | None): Functions that
                say whether a row ends. Those of `rsgen.stopping_criteria` run without Python.
            constraints (Constraint | Sequence[Constraint] | None): What the output of a constrained
                beam search has to hold: see `rsgen.constraints`.
            adapter (Adapter | Sequence[Adapter | None] | None): The name of an adapter that `load_adapter` has
                loaded, or a list of names with weights, whose products add up; for several prompts, or a list
                with one of those or None for each. None is the model alone.
            streamer (Streamer | None): An object with the methods `put(ids)` and `end()`, as in
                transformers: `rsgen.TextStreamer` prints. It is given the prompt, `[1, len]`, then
                each new token, `[1]`, as int64 arrays, between the steps. One prompt and one row.
            assistant_model (Generator | None): A smaller model with the same tokens that drafts
                tokens, which greedy search and sampling check several at a time. The tokens of greedy
                search stay the same. It is that of the Generator unless given; None is none. Another
                name is `assistant`.
            cache (KeptCache | Sequence[KeptCache] | None): A kept text, which the prompt continues: the
                prompt is only what follows. A text gets no special tokens then, and None goes on with
                the kept text itself. A list holds one for each prompt.
            past_key_values (KeptCache | Sequence[KeptCache] | None): The same with the whole text as the
                prompt, which begins with the kept tokens, as in transformers.
            return_cache (bool): Keeps the blocks of each row from the end of the call on, for the `cache`
                of a later call: see `GenerationOutput.cache`.
            output_type (TypeForm[_T] | TypeAdapter[_T] | None): The type that the text is a value of, as JSON: a
                dataclass, TypedDict, NamedTuple, Enum, Literal, list, dict, union, plain type, or a model or
                TypeAdapter of pydantic's. The grammar comes from it; see `GenerationOutput.parsed`.
            describe_output (bool): Writes the schema of the `output_type` before the prompt.
            progress (bool | Callable[[int, int], object] | None): True shows a bar of a list's
                prompts. A function is called with the number of prompts done, and of all.
            **fields: The fields of `GenerationConfig`, each documented there. None switches a field
                off. With `seed=s`, prompt `i` of a list draws with seed `s + i`; with
                `seed=[...]` each has its own.

        Returns:
            GenerationOutput[_T]: Texts, token ids, scores and statistics.

        Raises:
            TypeError: A keyword is unknown; the message suggests the one that was meant.
            ConfigError: A field or argument has a value that is not possible.
            InputError: The prompt cannot be used.
            CapacityError: The KV cache cannot hold the request.
            NumericalError: The model computed NaN or infinity.

        Example:
            >>> gen.assisted_decoding("Once upon a time", max_new_tokens=20, assistant_model=gen).text
        """
    def astream(
        self,
        prompt: Prompt | Encoding | None = None,
        generation_config: AnyGenerationConfig | None = None,
        *,
        input_ids: Prompt | None = None,
        inputs: Prompt | None = None,
        attention_mask: ArrayLike | None = None,
        inputs_embeds: ArrayLike | Sequence[ArrayLike] | None = None,
        decoder_input_ids: Ids | Sequence[Ids] | None = None,
        decoder_attention_mask: ArrayLike | None = None,
        logits_processor: types.LogitsProcessor | Sequence[types.LogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        allowed_sequences: TokenTrie | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        adapter: Adapter | None = None,
        assistant_model: Generator | None = None,
        cache: KeptCache | Sequence[KeptCache] | None = None,
        past_key_values: KeptCache | Sequence[KeptCache] | None = None,
        return_cache: bool = False,
        output_type: TypeForm[_T] | TypeAdapter[_T] | None = None,
        describe_output: bool = False,
        **fields: Unpack[GenerationFields],
    ) -> TokenStream[_T]:
        """Generates token by token, for `async for`.

        Takes the arguments of `stream()`. The event loop goes on while the model computes.
        Cancelling the task that waits for a token ends the stream.

        Returns:
            TokenStream[_T]: An asynchronous iterator of `StreamedToken`.

        Example:
            >>> async with gen.astream("Once upon a time") as stream:
            ...     async for token in stream:
            ...         print(token, end="", flush=True)
        """
    def beam_sample(
        self,
        prompt: Prompt | Encoding | None = None,
        generation_config: AnyGenerationConfig | None = None,
        *,
        input_ids: Prompt | None = None,
        inputs: Prompt | None = None,
        attention_mask: ArrayLike | None = None,
        inputs_embeds: ArrayLike | Sequence[ArrayLike] | None = None,
        decoder_input_ids: Ids | Sequence[Ids] | None = None,
        decoder_attention_mask: ArrayLike | None = None,
        logits_processor: types.LogitsProcessor | Sequence[types.LogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        allowed_sequences: TokenTrie | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        adapter: Adapter | Sequence[Adapter | None] | None = None,
        streamer: Streamer | None = None,
        assistant_model: Generator | None = None,
        cache: KeptCache | Sequence[KeptCache] | None = None,
        past_key_values: KeptCache | Sequence[KeptCache] | None = None,
        return_cache: bool = False,
        output_type: TypeForm[_T] | TypeAdapter[_T] | None = None,
        describe_output: bool = False,
        progress: bool | Callable[[int, int], object] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> GenerationOutput[_T]:
        """Beam search whose continuations are drawn at random; `num_beams` is 4 unless set.

        Otherwise as `generate()`.

        Args:
            prompt (Prompt | Encoding | None): A text, or its token ids as a sequence or array of integers. A
                two-dimensional array of ids is one request, as transformers takes it: its rows
                share one random generator. A list of texts and ids holds independent prompts,
                which are computed together; each gives what it gives alone. What a tokenizer
                returns is taken, too. None begins the text with the `bos_token_id`.
            input_ids (Prompt | None): Another name of the prompt, as in transformers.
            inputs (Prompt | None): Another name of the prompt, as in transformers.
            generation_config (AnyGenerationConfig | None): rsgen's or transformers'. Fields of the call take
                precedence over it, and it takes precedence over the model's own.
            attention_mask (ArrayLike | None): 0 for padding and 1 for tokens, in the shape of a
                two-dimensional prompt. None tells padding from the `pad_token_id`, as transformers
                does.
            inputs_embeds (ArrayLike | Sequence[ArrayLike] | None): Embeddings in place of tokens:
                an array of floats, `[seq, hidden]` or `[batch, seq, hidden]`, or a list of the former
                for independent prompts. `embed()` gives those of tokens. `sequences` then holds new
                tokens alone, unless `input_ids` are given as well: what processors see as the prompt.
            decoder_input_ids (Ids | Sequence[Ids] | None): What the decoder of a model with an encoder
                begins with, in one row for all prompts or one for each. The prompts are the sources of
                such models. The `decoder_start_token_id` is prepended unless a row begins with it, and
                the output begins with these ids.
            decoder_attention_mask (ArrayLike | None): 0 for padding before `decoder_input_ids`, which
                models whose tokens have positions do not take.
            logits_processor (rsgen.types.LogitsProcessor | Sequence[rsgen.types.LogitsProcessor] | None):
                Functions that change the scores of each step. Those of `rsgen.processors` run
                without Python, others cost time at each token.
            prefix_allowed_tokens_fn (PrefixAllowedTokens | None): A function that returns the tokens
                that may follow.
            allowed_sequences (TokenTrie | None): The catalogue of which every output is an entry: see
                `GenerationOutput.entries`.
            stopping_criteria (StoppingCriterion | Sequence[StoppingCriterion] | None): Functions that
                say whether a row ends. Those of `rsgen.stopping_criteria` run without Python.
            constraints (Constraint | Sequence[Constraint] | None): What the output of a constrained
                beam search has to hold: see `rsgen.constraints`.
            adapter (Adapter | Sequence[Adapter | None] | None): The name of an adapter that `load_adapter` has
                loaded, or a list of names with weights, whose products add up; for several prompts, or a list
                with one of those or None for each. None is the model alone.
            streamer (Streamer | None): An object with the methods `put(ids)` and `end()`, as in
                transformers: `rsgen.TextStreamer` prints. It is given the prompt, `[1, len]`, then
                each new token, `[1]`, as int64 arrays, between the steps. One prompt and one row.
            assistant_model (Generator | None): A smaller model with the same tokens that drafts
                tokens, which greedy search and sampling check several at a time. The tokens of greedy
                search stay the same. It is that of the Generator unless given; None is none. Another
                name is `assistant`.
            cache (KeptCache | Sequence[KeptCache] | None): A kept text, which the prompt continues: the
                prompt is only what follows. A text gets no special tokens then, and None goes on with
                the kept text itself. A list holds one for each prompt.
            past_key_values (KeptCache | Sequence[KeptCache] | None): The same with the whole text as the
                prompt, which begins with the kept tokens, as in transformers.
            return_cache (bool): Keeps the blocks of each row from the end of the call on, for the `cache`
                of a later call: see `GenerationOutput.cache`.
            output_type (TypeForm[_T] | TypeAdapter[_T] | None): The type that the text is a value of, as JSON: a
                dataclass, TypedDict, NamedTuple, Enum, Literal, list, dict, union, plain type, or a model or
                TypeAdapter of pydantic's. The grammar comes from it; see `GenerationOutput.parsed`.
            describe_output (bool): Writes the schema of the `output_type` before the prompt.
            progress (bool | Callable[[int, int], object] | None): True shows a bar of a list's
                prompts. A function is called with the number of prompts done, and of all.
            **fields: The fields of `GenerationConfig`, each documented there. None switches a field
                off. With `seed=s`, prompt `i` of a list draws with seed `s + i`; with
                `seed=[...]` each has its own.

        Returns:
            GenerationOutput[_T]: Texts, token ids, scores and statistics.

        Raises:
            TypeError: A keyword is unknown; the message suggests the one that was meant.
            ConfigError: A field or argument has a value that is not possible.
            InputError: The prompt cannot be used.
            CapacityError: The KV cache cannot hold the request.
            NumericalError: The model computed NaN or infinity.

        Example:
            >>> gen.beam_sample("Once upon a time", max_new_tokens=20).text
        """
    def beam_search(
        self,
        prompt: Prompt | Encoding | None = None,
        generation_config: AnyGenerationConfig | None = None,
        *,
        input_ids: Prompt | None = None,
        inputs: Prompt | None = None,
        attention_mask: ArrayLike | None = None,
        inputs_embeds: ArrayLike | Sequence[ArrayLike] | None = None,
        decoder_input_ids: Ids | Sequence[Ids] | None = None,
        decoder_attention_mask: ArrayLike | None = None,
        logits_processor: types.LogitsProcessor | Sequence[types.LogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        allowed_sequences: TokenTrie | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        adapter: Adapter | Sequence[Adapter | None] | None = None,
        streamer: Streamer | None = None,
        assistant_model: Generator | None = None,
        cache: KeptCache | Sequence[KeptCache] | None = None,
        past_key_values: KeptCache | Sequence[KeptCache] | None = None,
        return_cache: bool = False,
        output_type: TypeForm[_T] | TypeAdapter[_T] | None = None,
        describe_output: bool = False,
        progress: bool | Callable[[int, int], object] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> GenerationOutput[_T]:
        """Keeps the `num_beams` most probable continuations at each step, 4 unless set, and returns the best that ends; `num_return_sequences` returns more of them.

        Otherwise as `generate()`.

        Args:
            prompt (Prompt | Encoding | None): A text, or its token ids as a sequence or array of integers. A
                two-dimensional array of ids is one request, as transformers takes it: its rows
                share one random generator. A list of texts and ids holds independent prompts,
                which are computed together; each gives what it gives alone. What a tokenizer
                returns is taken, too. None begins the text with the `bos_token_id`.
            input_ids (Prompt | None): Another name of the prompt, as in transformers.
            inputs (Prompt | None): Another name of the prompt, as in transformers.
            generation_config (AnyGenerationConfig | None): rsgen's or transformers'. Fields of the call take
                precedence over it, and it takes precedence over the model's own.
            attention_mask (ArrayLike | None): 0 for padding and 1 for tokens, in the shape of a
                two-dimensional prompt. None tells padding from the `pad_token_id`, as transformers
                does.
            inputs_embeds (ArrayLike | Sequence[ArrayLike] | None): Embeddings in place of tokens:
                an array of floats, `[seq, hidden]` or `[batch, seq, hidden]`, or a list of the former
                for independent prompts. `embed()` gives those of tokens. `sequences` then holds new
                tokens alone, unless `input_ids` are given as well: what processors see as the prompt.
            decoder_input_ids (Ids | Sequence[Ids] | None): What the decoder of a model with an encoder
                begins with, in one row for all prompts or one for each. The prompts are the sources of
                such models. The `decoder_start_token_id` is prepended unless a row begins with it, and
                the output begins with these ids.
            decoder_attention_mask (ArrayLike | None): 0 for padding before `decoder_input_ids`, which
                models whose tokens have positions do not take.
            logits_processor (rsgen.types.LogitsProcessor | Sequence[rsgen.types.LogitsProcessor] | None):
                Functions that change the scores of each step. Those of `rsgen.processors` run
                without Python, others cost time at each token.
            prefix_allowed_tokens_fn (PrefixAllowedTokens | None): A function that returns the tokens
                that may follow.
            allowed_sequences (TokenTrie | None): The catalogue of which every output is an entry: see
                `GenerationOutput.entries`.
            stopping_criteria (StoppingCriterion | Sequence[StoppingCriterion] | None): Functions that
                say whether a row ends. Those of `rsgen.stopping_criteria` run without Python.
            constraints (Constraint | Sequence[Constraint] | None): What the output of a constrained
                beam search has to hold: see `rsgen.constraints`.
            adapter (Adapter | Sequence[Adapter | None] | None): The name of an adapter that `load_adapter` has
                loaded, or a list of names with weights, whose products add up; for several prompts, or a list
                with one of those or None for each. None is the model alone.
            streamer (Streamer | None): An object with the methods `put(ids)` and `end()`, as in
                transformers: `rsgen.TextStreamer` prints. It is given the prompt, `[1, len]`, then
                each new token, `[1]`, as int64 arrays, between the steps. One prompt and one row.
            assistant_model (Generator | None): A smaller model with the same tokens that drafts
                tokens, which greedy search and sampling check several at a time. The tokens of greedy
                search stay the same. It is that of the Generator unless given; None is none. Another
                name is `assistant`.
            cache (KeptCache | Sequence[KeptCache] | None): A kept text, which the prompt continues: the
                prompt is only what follows. A text gets no special tokens then, and None goes on with
                the kept text itself. A list holds one for each prompt.
            past_key_values (KeptCache | Sequence[KeptCache] | None): The same with the whole text as the
                prompt, which begins with the kept tokens, as in transformers.
            return_cache (bool): Keeps the blocks of each row from the end of the call on, for the `cache`
                of a later call: see `GenerationOutput.cache`.
            output_type (TypeForm[_T] | TypeAdapter[_T] | None): The type that the text is a value of, as JSON: a
                dataclass, TypedDict, NamedTuple, Enum, Literal, list, dict, union, plain type, or a model or
                TypeAdapter of pydantic's. The grammar comes from it; see `GenerationOutput.parsed`.
            describe_output (bool): Writes the schema of the `output_type` before the prompt.
            progress (bool | Callable[[int, int], object] | None): True shows a bar of a list's
                prompts. A function is called with the number of prompts done, and of all.
            **fields: The fields of `GenerationConfig`, each documented there. None switches a field
                off. With `seed=s`, prompt `i` of a list draws with seed `s + i`; with
                `seed=[...]` each has its own.

        Returns:
            GenerationOutput[_T]: Texts, token ids, scores and statistics.

        Raises:
            TypeError: A keyword is unknown; the message suggests the one that was meant.
            ConfigError: A field or argument has a value that is not possible.
            InputError: The prompt cannot be used.
            CapacityError: The KV cache cannot hold the request.
            NumericalError: The model computed NaN or infinity.

        Example:
            >>> gen.beam_search("Once upon a time", max_new_tokens=20).text
        """
    def chat(
        self,
        messages: Conversation | Sequence[Conversation],
        generation_config: AnyGenerationConfig | None = None,
        *,
        tools: Sequence[Tool] | None = None,
        tool_choice: str | Mapping[str, Any] = "auto",
        parallel_tool_calls: bool = True,
        tool_parser: ToolParser | None = None,
        reasoning_parser: ReasoningParser | None = None,
        run_tools: bool = False,
        max_tool_rounds: int = 8,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        continue_final_message: bool | str = False,
        logits_processor: types.LogitsProcessor | Sequence[types.LogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        allowed_sequences: TokenTrie | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        adapter: Adapter | None = None,
        streamer: Streamer | None = None,
        assistant_model: Generator | None = None,
        cache: KeptCache | Sequence[KeptCache] | None = None,
        past_key_values: KeptCache | Sequence[KeptCache] | None = None,
        return_cache: bool = False,
        output_type: TypeForm[_T] | TypeAdapter[_T] | None = None,
        describe_output: bool = False,
        progress: bool | Callable[[int, int], object] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> GenerationOutput[_T]:
        """Replies to a conversation.

        The model's chat template turns the conversation into a prompt, as `apply_chat_template()`
        does. Without any limit of length the reply goes on to an end-of-sequence token or the end
        of the model's context. All other arguments are those of `generate()`.

        Args:
            messages (Conversation | Sequence[Conversation]): A list of messages, each a dict with
                "role" and "content". A list of conversations is a list of independent prompts.
            tools (Sequence[Tool] | None): What the model may call: JSON schemas, or functions with
                type hints and a docstring.
            tool_choice (str | Mapping[str, Any]): "auto" leaves calls to the model, "none" shows it no tools,
                "required" asks for a call, and a name, or OpenAI's object with it, for a call of that tool. A
                grammar holds calls that are asked for to their schemas.
            parallel_tool_calls (bool): Whether a call that is asked for may be several.
            tool_parser (ToolParser | None): The form of calls in the model's text; None takes that of its template.
            reasoning_parser (ReasoningParser | None): The form of its thinking; None takes that of its template.
            run_tools (bool): Runs the tools, which are functions, and goes on with their results until a reply calls none.
            max_tool_rounds (int): How often tools are run at most; the calls of a last reply are left to the caller.
            documents (Sequence[Mapping[str, Any]] | None): Dicts, usually with "title" and "text".
            chat_template (str | None): A Jinja template, or the name of one of the model's. None is
                the model's own.
            chat_template_kwargs (Mapping[str, Any] | None): Further variables for the template, such
                as `{"enable_thinking": False}`.
            continue_final_message (bool | str): Continues the final message instead of replying. A
                text names the field of the message to continue.
            streamer (Streamer | None): An object with `put(ids)` and `end()`: see `generate()`.
            cache (KeptCache | Sequence[KeptCache] | None): The `cache` of the last reply: what the
                conversation shares with it is not computed again.
            past_key_values (KeptCache | Sequence[KeptCache] | None): Another name of `cache`.
            return_cache (bool): Keeps the blocks of the reply for the next call: see `generate()`.
            describe_output (bool): Writes the schema of the `output_type` at the end of the last message of the
                user.
            progress (bool | Callable[[int, int], object] | None): True shows a bar of a list's
                conversations. A function is called with the number done, and of all.

        Returns:
            GenerationOutput[_T]: The replies.

        Example:
            >>> gen.chat([{"role": "user", "content": "Tell me a story about a fox."}]).text
        """
    def classify(
        self,
        context: str | Ids,
        labels: Sequence[str],
        *,
        content_free: str | Ids | None = None,
        normalization: Literal["sum", "mean", "bytes"] = "sum",
        adapter: Adapter | None = None,
    ) -> dict[str, float]:
        """Returns the probabilities of labels after a context.

        They are the softmax of what `rank` ranks the labels by.

        Args:
            context (str | Ids): A text that ends where a label follows, or its token ids.
            labels (Sequence[str]): The labels, as they would follow; for example " positive".
            content_free (str | Ids | None): The context with "N/A" or nothing in place of the text to
                classify. The probabilities are divided by those after it, and add up to 1 again: the
                contextual calibration of Zhao et al., arXiv:2102.09690.
            normalization (Literal["sum", "mean", "bytes"]): As for `rank`.
            adapter (Adapter | None): The name of an adapter that `load_adapter` has loaded, or a list of
                names with weights.

        Returns:
            dict[str, float]: The probability of each label, in the order of `labels`. They add up to 1.

        Raises:
            InputError: There is no label, or a text cannot be scored.

        Example:
            >>> gen.classify("The sun is", [" hot", " cold"])
        """
    def close(self) -> None:
        """Returns the memory of the model and its KV cache at once, whatever still refers to this object.

        Calls and streams that run, in any thread or task, end with a `CancelledError`, and later ones raise
        `InputError`. Outputs, the tokenizer and a given assistant can still be used. Closing twice has no effect.
        A server that runs on it ends its requests, and keeps the memory until it ends itself; so does a generator
        that it drafts for.

        Example:
            >>> with rsgen.Generator(num_threads=1) as own:
            ...     out = own.generate("Once upon a time", max_new_tokens=60)
            >>> out.text, own.closed
        """
    def constrained_beam_search(
        self,
        prompt: Prompt | Encoding | None = None,
        generation_config: AnyGenerationConfig | None = None,
        *,
        input_ids: Prompt | None = None,
        inputs: Prompt | None = None,
        attention_mask: ArrayLike | None = None,
        inputs_embeds: ArrayLike | Sequence[ArrayLike] | None = None,
        decoder_input_ids: Ids | Sequence[Ids] | None = None,
        decoder_attention_mask: ArrayLike | None = None,
        logits_processor: types.LogitsProcessor | Sequence[types.LogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        allowed_sequences: TokenTrie | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        adapter: Adapter | Sequence[Adapter | None] | None = None,
        streamer: Streamer | None = None,
        assistant_model: Generator | None = None,
        cache: KeptCache | Sequence[KeptCache] | None = None,
        past_key_values: KeptCache | Sequence[KeptCache] | None = None,
        return_cache: bool = False,
        output_type: TypeForm[_T] | TypeAdapter[_T] | None = None,
        describe_output: bool = False,
        progress: bool | Callable[[int, int], object] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> GenerationOutput[_T]:
        """Finds, with 4 beams unless `num_beams` is set, the best output that holds the tokens of `force_words_ids` and `constraints`.

        Otherwise as `generate()`.

        Args:
            prompt (Prompt | Encoding | None): A text, or its token ids as a sequence or array of integers. A
                two-dimensional array of ids is one request, as transformers takes it: its rows
                share one random generator. A list of texts and ids holds independent prompts,
                which are computed together; each gives what it gives alone. What a tokenizer
                returns is taken, too. None begins the text with the `bos_token_id`.
            input_ids (Prompt | None): Another name of the prompt, as in transformers.
            inputs (Prompt | None): Another name of the prompt, as in transformers.
            generation_config (AnyGenerationConfig | None): rsgen's or transformers'. Fields of the call take
                precedence over it, and it takes precedence over the model's own.
            attention_mask (ArrayLike | None): 0 for padding and 1 for tokens, in the shape of a
                two-dimensional prompt. None tells padding from the `pad_token_id`, as transformers
                does.
            inputs_embeds (ArrayLike | Sequence[ArrayLike] | None): Embeddings in place of tokens:
                an array of floats, `[seq, hidden]` or `[batch, seq, hidden]`, or a list of the former
                for independent prompts. `embed()` gives those of tokens. `sequences` then holds new
                tokens alone, unless `input_ids` are given as well: what processors see as the prompt.
            decoder_input_ids (Ids | Sequence[Ids] | None): What the decoder of a model with an encoder
                begins with, in one row for all prompts or one for each. The prompts are the sources of
                such models. The `decoder_start_token_id` is prepended unless a row begins with it, and
                the output begins with these ids.
            decoder_attention_mask (ArrayLike | None): 0 for padding before `decoder_input_ids`, which
                models whose tokens have positions do not take.
            logits_processor (rsgen.types.LogitsProcessor | Sequence[rsgen.types.LogitsProcessor] | None):
                Functions that change the scores of each step. Those of `rsgen.processors` run
                without Python, others cost time at each token.
            prefix_allowed_tokens_fn (PrefixAllowedTokens | None): A function that returns the tokens
                that may follow.
            allowed_sequences (TokenTrie | None): The catalogue of which every output is an entry: see
                `GenerationOutput.entries`.
            stopping_criteria (StoppingCriterion | Sequence[StoppingCriterion] | None): Functions that
                say whether a row ends. Those of `rsgen.stopping_criteria` run without Python.
            constraints (Constraint | Sequence[Constraint] | None): What the output of a constrained
                beam search has to hold: see `rsgen.constraints`.
            adapter (Adapter | Sequence[Adapter | None] | None): The name of an adapter that `load_adapter` has
                loaded, or a list of names with weights, whose products add up; for several prompts, or a list
                with one of those or None for each. None is the model alone.
            streamer (Streamer | None): An object with the methods `put(ids)` and `end()`, as in
                transformers: `rsgen.TextStreamer` prints. It is given the prompt, `[1, len]`, then
                each new token, `[1]`, as int64 arrays, between the steps. One prompt and one row.
            assistant_model (Generator | None): A smaller model with the same tokens that drafts
                tokens, which greedy search and sampling check several at a time. The tokens of greedy
                search stay the same. It is that of the Generator unless given; None is none. Another
                name is `assistant`.
            cache (KeptCache | Sequence[KeptCache] | None): A kept text, which the prompt continues: the
                prompt is only what follows. A text gets no special tokens then, and None goes on with
                the kept text itself. A list holds one for each prompt.
            past_key_values (KeptCache | Sequence[KeptCache] | None): The same with the whole text as the
                prompt, which begins with the kept tokens, as in transformers.
            return_cache (bool): Keeps the blocks of each row from the end of the call on, for the `cache`
                of a later call: see `GenerationOutput.cache`.
            output_type (TypeForm[_T] | TypeAdapter[_T] | None): The type that the text is a value of, as JSON: a
                dataclass, TypedDict, NamedTuple, Enum, Literal, list, dict, union, plain type, or a model or
                TypeAdapter of pydantic's. The grammar comes from it; see `GenerationOutput.parsed`.
            describe_output (bool): Writes the schema of the `output_type` before the prompt.
            progress (bool | Callable[[int, int], object] | None): True shows a bar of a list's
                prompts. A function is called with the number of prompts done, and of all.
            **fields: The fields of `GenerationConfig`, each documented there. None switches a field
                off. With `seed=s`, prompt `i` of a list draws with seed `s + i`; with
                `seed=[...]` each has its own.

        Returns:
            GenerationOutput[_T]: Texts, token ids, scores and statistics.

        Raises:
            TypeError: A keyword is unknown; the message suggests the one that was meant.
            ConfigError: A field or argument has a value that is not possible.
            InputError: The prompt cannot be used.
            CapacityError: The KV cache cannot hold the request.
            NumericalError: The model computed NaN or infinity.

        Example:
            >>> gen.constrained_beam_search("Once upon a time", max_new_tokens=20, force_words=[" moon"]).text
        """
    def contrastive_search(
        self,
        prompt: Prompt | Encoding | None = None,
        generation_config: AnyGenerationConfig | None = None,
        *,
        input_ids: Prompt | None = None,
        inputs: Prompt | None = None,
        attention_mask: ArrayLike | None = None,
        inputs_embeds: ArrayLike | Sequence[ArrayLike] | None = None,
        decoder_input_ids: Ids | Sequence[Ids] | None = None,
        decoder_attention_mask: ArrayLike | None = None,
        logits_processor: types.LogitsProcessor | Sequence[types.LogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        allowed_sequences: TokenTrie | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        adapter: Adapter | Sequence[Adapter | None] | None = None,
        streamer: Streamer | None = None,
        assistant_model: Generator | None = None,
        cache: KeptCache | Sequence[KeptCache] | None = None,
        past_key_values: KeptCache | Sequence[KeptCache] | None = None,
        return_cache: bool = False,
        output_type: TypeForm[_T] | TypeAdapter[_T] | None = None,
        describe_output: bool = False,
        progress: bool | Callable[[int, int], object] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> GenerationOutput[_T]:
        """Takes, of the `top_k` most probable tokens (4 unless set), the one that is probable and leads to a state unlike those before it; `penalty_alpha` (0.6 unless set) weighs the two.

        Otherwise as `generate()`.

        Args:
            prompt (Prompt | Encoding | None): A text, or its token ids as a sequence or array of integers. A
                two-dimensional array of ids is one request, as transformers takes it: its rows
                share one random generator. A list of texts and ids holds independent prompts,
                which are computed together; each gives what it gives alone. What a tokenizer
                returns is taken, too. None begins the text with the `bos_token_id`.
            input_ids (Prompt | None): Another name of the prompt, as in transformers.
            inputs (Prompt | None): Another name of the prompt, as in transformers.
            generation_config (AnyGenerationConfig | None): rsgen's or transformers'. Fields of the call take
                precedence over it, and it takes precedence over the model's own.
            attention_mask (ArrayLike | None): 0 for padding and 1 for tokens, in the shape of a
                two-dimensional prompt. None tells padding from the `pad_token_id`, as transformers
                does.
            inputs_embeds (ArrayLike | Sequence[ArrayLike] | None): Embeddings in place of tokens:
                an array of floats, `[seq, hidden]` or `[batch, seq, hidden]`, or a list of the former
                for independent prompts. `embed()` gives those of tokens. `sequences` then holds new
                tokens alone, unless `input_ids` are given as well: what processors see as the prompt.
            decoder_input_ids (Ids | Sequence[Ids] | None): What the decoder of a model with an encoder
                begins with, in one row for all prompts or one for each. The prompts are the sources of
                such models. The `decoder_start_token_id` is prepended unless a row begins with it, and
                the output begins with these ids.
            decoder_attention_mask (ArrayLike | None): 0 for padding before `decoder_input_ids`, which
                models whose tokens have positions do not take.
            logits_processor (rsgen.types.LogitsProcessor | Sequence[rsgen.types.LogitsProcessor] | None):
                Functions that change the scores of each step. Those of `rsgen.processors` run
                without Python, others cost time at each token.
            prefix_allowed_tokens_fn (PrefixAllowedTokens | None): A function that returns the tokens
                that may follow.
            allowed_sequences (TokenTrie | None): The catalogue of which every output is an entry: see
                `GenerationOutput.entries`.
            stopping_criteria (StoppingCriterion | Sequence[StoppingCriterion] | None): Functions that
                say whether a row ends. Those of `rsgen.stopping_criteria` run without Python.
            constraints (Constraint | Sequence[Constraint] | None): What the output of a constrained
                beam search has to hold: see `rsgen.constraints`.
            adapter (Adapter | Sequence[Adapter | None] | None): The name of an adapter that `load_adapter` has
                loaded, or a list of names with weights, whose products add up; for several prompts, or a list
                with one of those or None for each. None is the model alone.
            streamer (Streamer | None): An object with the methods `put(ids)` and `end()`, as in
                transformers: `rsgen.TextStreamer` prints. It is given the prompt, `[1, len]`, then
                each new token, `[1]`, as int64 arrays, between the steps. One prompt and one row.
            assistant_model (Generator | None): A smaller model with the same tokens that drafts
                tokens, which greedy search and sampling check several at a time. The tokens of greedy
                search stay the same. It is that of the Generator unless given; None is none. Another
                name is `assistant`.
            cache (KeptCache | Sequence[KeptCache] | None): A kept text, which the prompt continues: the
                prompt is only what follows. A text gets no special tokens then, and None goes on with
                the kept text itself. A list holds one for each prompt.
            past_key_values (KeptCache | Sequence[KeptCache] | None): The same with the whole text as the
                prompt, which begins with the kept tokens, as in transformers.
            return_cache (bool): Keeps the blocks of each row from the end of the call on, for the `cache`
                of a later call: see `GenerationOutput.cache`.
            output_type (TypeForm[_T] | TypeAdapter[_T] | None): The type that the text is a value of, as JSON: a
                dataclass, TypedDict, NamedTuple, Enum, Literal, list, dict, union, plain type, or a model or
                TypeAdapter of pydantic's. The grammar comes from it; see `GenerationOutput.parsed`.
            describe_output (bool): Writes the schema of the `output_type` before the prompt.
            progress (bool | Callable[[int, int], object] | None): True shows a bar of a list's
                prompts. A function is called with the number of prompts done, and of all.
            **fields: The fields of `GenerationConfig`, each documented there. None switches a field
                off. With `seed=s`, prompt `i` of a list draws with seed `s + i`; with
                `seed=[...]` each has its own.

        Returns:
            GenerationOutput[_T]: Texts, token ids, scores and statistics.

        Raises:
            TypeError: A keyword is unknown; the message suggests the one that was meant.
            ConfigError: A field or argument has a value that is not possible.
            InputError: The prompt cannot be used.
            CapacityError: The KV cache cannot hold the request.
            NumericalError: The model computed NaN or infinity.

        Example:
            >>> gen.contrastive_search("Once upon a time", max_new_tokens=20).text
        """
    def dola(
        self,
        prompt: Prompt | Encoding | None = None,
        generation_config: AnyGenerationConfig | None = None,
        *,
        input_ids: Prompt | None = None,
        inputs: Prompt | None = None,
        attention_mask: ArrayLike | None = None,
        inputs_embeds: ArrayLike | Sequence[ArrayLike] | None = None,
        decoder_input_ids: Ids | Sequence[Ids] | None = None,
        decoder_attention_mask: ArrayLike | None = None,
        logits_processor: types.LogitsProcessor | Sequence[types.LogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        allowed_sequences: TokenTrie | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        adapter: Adapter | Sequence[Adapter | None] | None = None,
        streamer: Streamer | None = None,
        assistant_model: Generator | None = None,
        cache: KeptCache | Sequence[KeptCache] | None = None,
        past_key_values: KeptCache | Sequence[KeptCache] | None = None,
        return_cache: bool = False,
        output_type: TypeForm[_T] | TypeAdapter[_T] | None = None,
        describe_output: bool = False,
        progress: bool | Callable[[int, int], object] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> GenerationOutput[_T]:
        """Contrasts the last layer's logits with those of an inner one; `dola_layers` says which, `"high"` unless set, and `repetition_penalty` is 1.2 unless set.

        Otherwise as `generate()`.

        Args:
            prompt (Prompt | Encoding | None): A text, or its token ids as a sequence or array of integers. A
                two-dimensional array of ids is one request, as transformers takes it: its rows
                share one random generator. A list of texts and ids holds independent prompts,
                which are computed together; each gives what it gives alone. What a tokenizer
                returns is taken, too. None begins the text with the `bos_token_id`.
            input_ids (Prompt | None): Another name of the prompt, as in transformers.
            inputs (Prompt | None): Another name of the prompt, as in transformers.
            generation_config (AnyGenerationConfig | None): rsgen's or transformers'. Fields of the call take
                precedence over it, and it takes precedence over the model's own.
            attention_mask (ArrayLike | None): 0 for padding and 1 for tokens, in the shape of a
                two-dimensional prompt. None tells padding from the `pad_token_id`, as transformers
                does.
            inputs_embeds (ArrayLike | Sequence[ArrayLike] | None): Embeddings in place of tokens:
                an array of floats, `[seq, hidden]` or `[batch, seq, hidden]`, or a list of the former
                for independent prompts. `embed()` gives those of tokens. `sequences` then holds new
                tokens alone, unless `input_ids` are given as well: what processors see as the prompt.
            decoder_input_ids (Ids | Sequence[Ids] | None): What the decoder of a model with an encoder
                begins with, in one row for all prompts or one for each. The prompts are the sources of
                such models. The `decoder_start_token_id` is prepended unless a row begins with it, and
                the output begins with these ids.
            decoder_attention_mask (ArrayLike | None): 0 for padding before `decoder_input_ids`, which
                models whose tokens have positions do not take.
            logits_processor (rsgen.types.LogitsProcessor | Sequence[rsgen.types.LogitsProcessor] | None):
                Functions that change the scores of each step. Those of `rsgen.processors` run
                without Python, others cost time at each token.
            prefix_allowed_tokens_fn (PrefixAllowedTokens | None): A function that returns the tokens
                that may follow.
            allowed_sequences (TokenTrie | None): The catalogue of which every output is an entry: see
                `GenerationOutput.entries`.
            stopping_criteria (StoppingCriterion | Sequence[StoppingCriterion] | None): Functions that
                say whether a row ends. Those of `rsgen.stopping_criteria` run without Python.
            constraints (Constraint | Sequence[Constraint] | None): What the output of a constrained
                beam search has to hold: see `rsgen.constraints`.
            adapter (Adapter | Sequence[Adapter | None] | None): The name of an adapter that `load_adapter` has
                loaded, or a list of names with weights, whose products add up; for several prompts, or a list
                with one of those or None for each. None is the model alone.
            streamer (Streamer | None): An object with the methods `put(ids)` and `end()`, as in
                transformers: `rsgen.TextStreamer` prints. It is given the prompt, `[1, len]`, then
                each new token, `[1]`, as int64 arrays, between the steps. One prompt and one row.
            assistant_model (Generator | None): A smaller model with the same tokens that drafts
                tokens, which greedy search and sampling check several at a time. The tokens of greedy
                search stay the same. It is that of the Generator unless given; None is none. Another
                name is `assistant`.
            cache (KeptCache | Sequence[KeptCache] | None): A kept text, which the prompt continues: the
                prompt is only what follows. A text gets no special tokens then, and None goes on with
                the kept text itself. A list holds one for each prompt.
            past_key_values (KeptCache | Sequence[KeptCache] | None): The same with the whole text as the
                prompt, which begins with the kept tokens, as in transformers.
            return_cache (bool): Keeps the blocks of each row from the end of the call on, for the `cache`
                of a later call: see `GenerationOutput.cache`.
            output_type (TypeForm[_T] | TypeAdapter[_T] | None): The type that the text is a value of, as JSON: a
                dataclass, TypedDict, NamedTuple, Enum, Literal, list, dict, union, plain type, or a model or
                TypeAdapter of pydantic's. The grammar comes from it; see `GenerationOutput.parsed`.
            describe_output (bool): Writes the schema of the `output_type` before the prompt.
            progress (bool | Callable[[int, int], object] | None): True shows a bar of a list's
                prompts. A function is called with the number of prompts done, and of all.
            **fields: The fields of `GenerationConfig`, each documented there. None switches a field
                off. With `seed=s`, prompt `i` of a list draws with seed `s + i`; with
                `seed=[...]` each has its own.

        Returns:
            GenerationOutput[_T]: Texts, token ids, scores and statistics.

        Raises:
            TypeError: A keyword is unknown; the message suggests the one that was meant.
            ConfigError: A field or argument has a value that is not possible.
            InputError: The prompt cannot be used.
            CapacityError: The KV cache cannot hold the request.
            NumericalError: The model computed NaN or infinity.

        Example:
            >>> gen.dola("Once upon a time", max_new_tokens=20).text
        """
    @overload
    def embed(
        self,
        ids: str | Ids,
        *,
        pooling: None = None,
        normalize: bool = True,
        layer: int = -1,
        adapter: Adapter | None = None,
    ) -> NDArray[np.float32]:
        """Returns the embeddings of tokens, or with `pooling` one vector for each text.

        Those of tokens are the rows of the model's embedding matrix, as `get_input_embeddings()` of
        transformers gives them, to make a prompt of: see `inputs_embeds`.

        The vector of a text is made of the hidden states of one layer, of the encoder in a model that has
        one: to search, to cluster, or to train a classifier on. Texts of a list are computed together, and
        each gets the same vector as alone.

        Args:
            ids (Prompt): Token ids as a sequence or array, or a text; or a list of them.
            pooling (Literal["mean", "last", "cls"] | None): The mean over the tokens of a text, or the state
                of its last or its first token. None gives the embeddings of tokens.
            normalize (bool): Divides a text's vector by its length, so that a dot product is the cosine
                similarity.
            layer (int): The layer, as `hidden_states` of transformers counts: 0 is before the first, -1 after
                the last and the final norm.
            adapter (Adapter | None): The name of an adapter that `load_adapter` has loaded, or a list of
                names with weights.

        Returns:
            Any: An array of float32. With `pooling` `[hidden]`, for a list or a two-dimensional array
                `[texts, hidden]`; without it `[seq, hidden]`, for a two-dimensional array of ids
                `[batch, seq, hidden]`, for a list a list of arrays.

        Raises:
            InputError: An id is not in the vocabulary, or a text is longer than the model's context.
            ConfigError: `pooling` is unknown, or the model has no such layer.

        Example:
            >>> embeds = gen.embed("Once upon a time")
            >>> gen.generate(inputs_embeds=embeds + 0.01, max_new_tokens=20).text
            >>> vectors = gen.embed(["Tom had a dog.", "Tom had a cat."], pooling="mean")
            >>> vectors[0] @ vectors[1]
        """
    @overload
    def embed(
        self,
        ids: list[str] | tuple[str, ...] | Sequence[Ids],
        *,
        pooling: None = None,
        normalize: bool = True,
        layer: int = -1,
        adapter: Adapter | None = None,
    ) -> list[NDArray[np.float32]]:
        """Returns the embeddings of tokens, or with `pooling` one vector for each text.

        Those of tokens are the rows of the model's embedding matrix, as `get_input_embeddings()` of
        transformers gives them, to make a prompt of: see `inputs_embeds`.

        The vector of a text is made of the hidden states of one layer, of the encoder in a model that has
        one: to search, to cluster, or to train a classifier on. Texts of a list are computed together, and
        each gets the same vector as alone.

        Args:
            ids (Prompt): Token ids as a sequence or array, or a text; or a list of them.
            pooling (Literal["mean", "last", "cls"] | None): The mean over the tokens of a text, or the state
                of its last or its first token. None gives the embeddings of tokens.
            normalize (bool): Divides a text's vector by its length, so that a dot product is the cosine
                similarity.
            layer (int): The layer, as `hidden_states` of transformers counts: 0 is before the first, -1 after
                the last and the final norm.
            adapter (Adapter | None): The name of an adapter that `load_adapter` has loaded, or a list of
                names with weights.

        Returns:
            Any: An array of float32. With `pooling` `[hidden]`, for a list or a two-dimensional array
                `[texts, hidden]`; without it `[seq, hidden]`, for a two-dimensional array of ids
                `[batch, seq, hidden]`, for a list a list of arrays.

        Raises:
            InputError: An id is not in the vocabulary, or a text is longer than the model's context.
            ConfigError: `pooling` is unknown, or the model has no such layer.

        Example:
            >>> embeds = gen.embed("Once upon a time")
            >>> gen.generate(inputs_embeds=embeds + 0.01, max_new_tokens=20).text
            >>> vectors = gen.embed(["Tom had a dog.", "Tom had a cat."], pooling="mean")
            >>> vectors[0] @ vectors[1]
        """
    @overload
    def embed(
        self,
        ids: Prompt,
        *,
        pooling: Literal["mean", "last", "cls"],
        normalize: bool = True,
        layer: int = -1,
        adapter: Adapter | None = None,
    ) -> NDArray[np.float32]:
        """Returns the embeddings of tokens, or with `pooling` one vector for each text.

        Those of tokens are the rows of the model's embedding matrix, as `get_input_embeddings()` of
        transformers gives them, to make a prompt of: see `inputs_embeds`.

        The vector of a text is made of the hidden states of one layer, of the encoder in a model that has
        one: to search, to cluster, or to train a classifier on. Texts of a list are computed together, and
        each gets the same vector as alone.

        Args:
            ids (Prompt): Token ids as a sequence or array, or a text; or a list of them.
            pooling (Literal["mean", "last", "cls"] | None): The mean over the tokens of a text, or the state
                of its last or its first token. None gives the embeddings of tokens.
            normalize (bool): Divides a text's vector by its length, so that a dot product is the cosine
                similarity.
            layer (int): The layer, as `hidden_states` of transformers counts: 0 is before the first, -1 after
                the last and the final norm.
            adapter (Adapter | None): The name of an adapter that `load_adapter` has loaded, or a list of
                names with weights.

        Returns:
            Any: An array of float32. With `pooling` `[hidden]`, for a list or a two-dimensional array
                `[texts, hidden]`; without it `[seq, hidden]`, for a two-dimensional array of ids
                `[batch, seq, hidden]`, for a list a list of arrays.

        Raises:
            InputError: An id is not in the vocabulary, or a text is longer than the model's context.
            ConfigError: `pooling` is unknown, or the model has no such layer.

        Example:
            >>> embeds = gen.embed("Once upon a time")
            >>> gen.generate(inputs_embeds=embeds + 0.01, max_new_tokens=20).text
            >>> vectors = gen.embed(["Tom had a dog.", "Tom had a cat."], pooling="mean")
            >>> vectors[0] @ vectors[1]
        """
    @overload
    def forward(
        self,
        ids: Ids | Sequence[Ids],
        *,
        output_hidden_states: Literal[False] = False,
        output_attentions: Literal[False] = False,
        adapter: Adapter | None = None,
    ) -> NDArray[np.float32]:
        """Returns the model's logits after each token, and what its layers compute.

        Args:
            ids (Ids | Sequence[Ids]): Token ids as a sequence, which is a batch of one, several
                sequences of one length, or a two-dimensional array.
            output_hidden_states (bool): Returns the states before each layer and after the last as well.
            output_attentions (bool): Returns the attention weights of each layer as well.
            adapter (Adapter | None): The name of an adapter that `load_adapter` has loaded, or a list of
                names with weights.

        Returns:
            NDArray[np.float32] | ModelOutput: The logits, `[batch, seq, vocab_size]`; in an object
                with what else was asked for.

        Raises:
            InputError: The lengths differ, or an id is not in the vocabulary.

        Example:
            >>> logits = gen.forward(gen.tokenizer.encode("Once upon a"))
            >>> gen.tokenizer.decode(logits[0, -1].argmax())  # the most probable next token
        """
    @overload
    def forward(
        self,
        ids: Ids | Sequence[Ids],
        *,
        output_hidden_states: Literal[True],
        output_attentions: bool = False,
        adapter: Adapter | None = None,
    ) -> ModelOutput:
        """Returns the model's logits after each token, and what its layers compute.

        Args:
            ids (Ids | Sequence[Ids]): Token ids as a sequence, which is a batch of one, several
                sequences of one length, or a two-dimensional array.
            output_hidden_states (bool): Returns the states before each layer and after the last as well.
            output_attentions (bool): Returns the attention weights of each layer as well.
            adapter (Adapter | None): The name of an adapter that `load_adapter` has loaded, or a list of
                names with weights.

        Returns:
            NDArray[np.float32] | ModelOutput: The logits, `[batch, seq, vocab_size]`; in an object
                with what else was asked for.

        Raises:
            InputError: The lengths differ, or an id is not in the vocabulary.

        Example:
            >>> logits = gen.forward(gen.tokenizer.encode("Once upon a"))
            >>> gen.tokenizer.decode(logits[0, -1].argmax())  # the most probable next token
        """
    @overload
    def forward(
        self,
        ids: Ids | Sequence[Ids],
        *,
        output_hidden_states: bool = False,
        output_attentions: Literal[True],
        adapter: Adapter | None = None,
    ) -> ModelOutput:
        """Returns the model's logits after each token, and what its layers compute.

        Args:
            ids (Ids | Sequence[Ids]): Token ids as a sequence, which is a batch of one, several
                sequences of one length, or a two-dimensional array.
            output_hidden_states (bool): Returns the states before each layer and after the last as well.
            output_attentions (bool): Returns the attention weights of each layer as well.
            adapter (Adapter | None): The name of an adapter that `load_adapter` has loaded, or a list of
                names with weights.

        Returns:
            NDArray[np.float32] | ModelOutput: The logits, `[batch, seq, vocab_size]`; in an object
                with what else was asked for.

        Raises:
            InputError: The lengths differ, or an id is not in the vocabulary.

        Example:
            >>> logits = gen.forward(gen.tokenizer.encode("Once upon a"))
            >>> gen.tokenizer.decode(logits[0, -1].argmax())  # the most probable next token
        """
    @classmethod
    def from_pretrained(
        cls,
        model: str | os.PathLike[str] | None = None,
        *,
        dtype: DType = "auto",
        compute_dtype: DType = "float32",
        kv_dtype: DType = "auto",
        num_threads: int | None = None,
        assistant: str | os.PathLike[str] | Generator | None = None,
        adapter: str | os.PathLike[str] | None = None,
        tokenizer: str | os.PathLike[str] | None = None,
        kv_cache_bytes: int | None = None,
        prefix_caching: bool = True,
        local_files_only: bool = True,
        revision: str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        torch_dtype: DType | None = None,
        generation_config: str = "auto",
        progress: Callable[[str, int, int], object] | None = None,
    ) -> Self:
        """Opens a model: the same as `Generator(model, ...)`.

        Returns:
            Self: The generator.
        """
    @classmethod
    def from_tensors(
        cls,
        config: Any,
        tensors: Mapping[str, Any],
        tokenizer: Any = None,
        *,
        generation_config: AnyGenerationConfig | str | None = None,
        dtype: DType = "auto",
        compute_dtype: DType = "float32",
        kv_dtype: DType = "auto",
        num_threads: int | None = None,
        assistant: str | os.PathLike[str] | Generator | None = None,
        adapter: str | os.PathLike[str] | None = None,
        kv_cache_bytes: int | None = None,
        prefix_caching: bool = True,
        local_files_only: bool = True,
        revision: str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        torch_dtype: DType | None = None,
        progress: Callable[[str, int, int], object] | None = None,
    ) -> Self:
        """Opens a model that is in memory; no file is written.

        The tensors are copied in parts while they are packed, so they may change afterwards. A
        generator of this kind cannot be pickled. All other arguments are the options of `Generator()`.

        Args:
            config (Any): The `config.json`: a mapping, its text, its path, or the `config` of a model
                of transformers.
            tensors (Mapping[str, Any]): Tensors by the names of a checkpoint, such as the
                `state_dict()` of a model of transformers: numpy arrays, or anything with DLPack or
                the buffer protocol, in float32, bfloat16 or float16. Those with gaps are copied.
            tokenizer (Any): A folder or Hub id, the path of a `tokenizer.json`, an
                `rsgen.Tokenizer`, a fast tokenizer of transformers, or None: prompts are ids then.
            generation_config (AnyGenerationConfig | str | None): The defaults of calls, as a folder
                has them in `generation_config.json`. None takes the generation fields of `config`.

        Returns:
            Self: The generator.

        Raises:
            LoadError: A tensor is missing, or of another shape or type.

        Example:
            gen = rsgen.Generator.from_tensors(model.config, model.state_dict(), tokenizer)
        """
    def generate(
        self,
        prompt: Prompt | Encoding | None = None,
        generation_config: AnyGenerationConfig | None = None,
        *,
        input_ids: Prompt | None = None,
        inputs: Prompt | None = None,
        attention_mask: ArrayLike | None = None,
        inputs_embeds: ArrayLike | Sequence[ArrayLike] | None = None,
        decoder_input_ids: Ids | Sequence[Ids] | None = None,
        decoder_attention_mask: ArrayLike | None = None,
        logits_processor: types.LogitsProcessor | Sequence[types.LogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        allowed_sequences: TokenTrie | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        adapter: Adapter | Sequence[Adapter | None] | None = None,
        streamer: Streamer | None = None,
        assistant_model: Generator | None = None,
        cache: KeptCache | Sequence[KeptCache] | None = None,
        past_key_values: KeptCache | Sequence[KeptCache] | None = None,
        return_cache: bool = False,
        output_type: TypeForm[_T] | TypeAdapter[_T] | None = None,
        describe_output: bool = False,
        progress: bool | Callable[[int, int], object] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> GenerationOutput[_T]:
        """Continues one prompt, or each of a list, as the fields of the call say.

        Greedy search is the default; `do_sample=True` samples, `num_beams=4` searches with beams, and the
        methods of strategies, such as `beam_search()`, set such fields. Without any limit of length it
        stops after 20 new tokens, with a warning.

        Args:
            prompt (Prompt | Encoding | None): A text, or its token ids as a sequence or array of integers. A
                two-dimensional array of ids is one request, as transformers takes it: its rows
                share one random generator. A list of texts and ids holds independent prompts,
                which are computed together; each gives what it gives alone. What a tokenizer
                returns is taken, too. None begins the text with the `bos_token_id`.
            input_ids (Prompt | None): Another name of the prompt, as in transformers.
            inputs (Prompt | None): Another name of the prompt, as in transformers.
            generation_config (AnyGenerationConfig | None): rsgen's or transformers'. Fields of the call take
                precedence over it, and it takes precedence over the model's own.
            attention_mask (ArrayLike | None): 0 for padding and 1 for tokens, in the shape of a
                two-dimensional prompt. None tells padding from the `pad_token_id`, as transformers
                does.
            inputs_embeds (ArrayLike | Sequence[ArrayLike] | None): Embeddings in place of tokens:
                an array of floats, `[seq, hidden]` or `[batch, seq, hidden]`, or a list of the former
                for independent prompts. `embed()` gives those of tokens. `sequences` then holds new
                tokens alone, unless `input_ids` are given as well: what processors see as the prompt.
            decoder_input_ids (Ids | Sequence[Ids] | None): What the decoder of a model with an encoder
                begins with, in one row for all prompts or one for each. The prompts are the sources of
                such models. The `decoder_start_token_id` is prepended unless a row begins with it, and
                the output begins with these ids.
            decoder_attention_mask (ArrayLike | None): 0 for padding before `decoder_input_ids`, which
                models whose tokens have positions do not take.
            logits_processor (rsgen.types.LogitsProcessor | Sequence[rsgen.types.LogitsProcessor] | None):
                Functions that change the scores of each step. Those of `rsgen.processors` run
                without Python, others cost time at each token.
            prefix_allowed_tokens_fn (PrefixAllowedTokens | None): A function that returns the tokens
                that may follow.
            allowed_sequences (TokenTrie | None): The catalogue of which every output is an entry: see
                `GenerationOutput.entries`.
            stopping_criteria (StoppingCriterion | Sequence[StoppingCriterion] | None): Functions that
                say whether a row ends. Those of `rsgen.stopping_criteria` run without Python.
            constraints (Constraint | Sequence[Constraint] | None): What the output of a constrained
                beam search has to hold: see `rsgen.constraints`.
            adapter (Adapter | Sequence[Adapter | None] | None): The name of an adapter that `load_adapter` has
                loaded, or a list of names with weights, whose products add up; for several prompts, or a list
                with one of those or None for each. None is the model alone.
            streamer (Streamer | None): An object with the methods `put(ids)` and `end()`, as in
                transformers: `rsgen.TextStreamer` prints. It is given the prompt, `[1, len]`, then
                each new token, `[1]`, as int64 arrays, between the steps. One prompt and one row.
            assistant_model (Generator | None): A smaller model with the same tokens that drafts
                tokens, which greedy search and sampling check several at a time. The tokens of greedy
                search stay the same. It is that of the Generator unless given; None is none. Another
                name is `assistant`.
            cache (KeptCache | Sequence[KeptCache] | None): A kept text, which the prompt continues: the
                prompt is only what follows. A text gets no special tokens then, and None goes on with
                the kept text itself. A list holds one for each prompt.
            past_key_values (KeptCache | Sequence[KeptCache] | None): The same with the whole text as the
                prompt, which begins with the kept tokens, as in transformers.
            return_cache (bool): Keeps the blocks of each row from the end of the call on, for the `cache`
                of a later call: see `GenerationOutput.cache`.
            output_type (TypeForm[_T] | TypeAdapter[_T] | None): The type that the text is a value of, as JSON: a
                dataclass, TypedDict, NamedTuple, Enum, Literal, list, dict, union, plain type, or a model or
                TypeAdapter of pydantic's. The grammar comes from it; see `GenerationOutput.parsed`.
            describe_output (bool): Writes the schema of the `output_type` before the prompt.
            progress (bool | Callable[[int, int], object] | None): True shows a bar of a list's
                prompts. A function is called with the number of prompts done, and of all.
            **fields: The fields of `GenerationConfig`, each documented there. None switches a field
                off. With `seed=s`, prompt `i` of a list draws with seed `s + i`; with
                `seed=[...]` each has its own.

        Returns:
            GenerationOutput[_T]: Texts, token ids, scores and statistics.

        Raises:
            TypeError: A keyword is unknown; the message suggests the one that was meant.
            ConfigError: A field or argument has a value that is not possible.
            InputError: The prompt cannot be used.
            CapacityError: The KV cache cannot hold the request.
            NumericalError: The model computed NaN or infinity.

        Example:
            >>> gen.generate("Once upon a time", num_beams=4, max_new_tokens=40).text
            >>> gen.generate(["One day", "Tom had"], do_sample=True, seed=7, max_new_tokens=40).texts
        """
    def greedy_search(
        self,
        prompt: Prompt | Encoding | None = None,
        generation_config: AnyGenerationConfig | None = None,
        *,
        input_ids: Prompt | None = None,
        inputs: Prompt | None = None,
        attention_mask: ArrayLike | None = None,
        inputs_embeds: ArrayLike | Sequence[ArrayLike] | None = None,
        decoder_input_ids: Ids | Sequence[Ids] | None = None,
        decoder_attention_mask: ArrayLike | None = None,
        logits_processor: types.LogitsProcessor | Sequence[types.LogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        allowed_sequences: TokenTrie | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        adapter: Adapter | Sequence[Adapter | None] | None = None,
        streamer: Streamer | None = None,
        assistant_model: Generator | None = None,
        cache: KeptCache | Sequence[KeptCache] | None = None,
        past_key_values: KeptCache | Sequence[KeptCache] | None = None,
        return_cache: bool = False,
        output_type: TypeForm[_T] | TypeAdapter[_T] | None = None,
        describe_output: bool = False,
        progress: bool | Callable[[int, int], object] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> GenerationOutput[_T]:
        """Takes the most probable token at each step, also where the model's own configuration samples or has beams.

        Otherwise as `generate()`.

        Args:
            prompt (Prompt | Encoding | None): A text, or its token ids as a sequence or array of integers. A
                two-dimensional array of ids is one request, as transformers takes it: its rows
                share one random generator. A list of texts and ids holds independent prompts,
                which are computed together; each gives what it gives alone. What a tokenizer
                returns is taken, too. None begins the text with the `bos_token_id`.
            input_ids (Prompt | None): Another name of the prompt, as in transformers.
            inputs (Prompt | None): Another name of the prompt, as in transformers.
            generation_config (AnyGenerationConfig | None): rsgen's or transformers'. Fields of the call take
                precedence over it, and it takes precedence over the model's own.
            attention_mask (ArrayLike | None): 0 for padding and 1 for tokens, in the shape of a
                two-dimensional prompt. None tells padding from the `pad_token_id`, as transformers
                does.
            inputs_embeds (ArrayLike | Sequence[ArrayLike] | None): Embeddings in place of tokens:
                an array of floats, `[seq, hidden]` or `[batch, seq, hidden]`, or a list of the former
                for independent prompts. `embed()` gives those of tokens. `sequences` then holds new
                tokens alone, unless `input_ids` are given as well: what processors see as the prompt.
            decoder_input_ids (Ids | Sequence[Ids] | None): What the decoder of a model with an encoder
                begins with, in one row for all prompts or one for each. The prompts are the sources of
                such models. The `decoder_start_token_id` is prepended unless a row begins with it, and
                the output begins with these ids.
            decoder_attention_mask (ArrayLike | None): 0 for padding before `decoder_input_ids`, which
                models whose tokens have positions do not take.
            logits_processor (rsgen.types.LogitsProcessor | Sequence[rsgen.types.LogitsProcessor] | None):
                Functions that change the scores of each step. Those of `rsgen.processors` run
                without Python, others cost time at each token.
            prefix_allowed_tokens_fn (PrefixAllowedTokens | None): A function that returns the tokens
                that may follow.
            allowed_sequences (TokenTrie | None): The catalogue of which every output is an entry: see
                `GenerationOutput.entries`.
            stopping_criteria (StoppingCriterion | Sequence[StoppingCriterion] | None): Functions that
                say whether a row ends. Those of `rsgen.stopping_criteria` run without Python.
            constraints (Constraint | Sequence[Constraint] | None): What the output of a constrained
                beam search has to hold: see `rsgen.constraints`.
            adapter (Adapter | Sequence[Adapter | None] | None): The name of an adapter that `load_adapter` has
                loaded, or a list of names with weights, whose products add up; for several prompts, or a list
                with one of those or None for each. None is the model alone.
            streamer (Streamer | None): An object with the methods `put(ids)` and `end()`, as in
                transformers: `rsgen.TextStreamer` prints. It is given the prompt, `[1, len]`, then
                each new token, `[1]`, as int64 arrays, between the steps. One prompt and one row.
            assistant_model (Generator | None): A smaller model with the same tokens that drafts
                tokens, which greedy search and sampling check several at a time. The tokens of greedy
                search stay the same. It is that of the Generator unless given; None is none. Another
                name is `assistant`.
            cache (KeptCache | Sequence[KeptCache] | None): A kept text, which the prompt continues: the
                prompt is only what follows. A text gets no special tokens then, and None goes on with
                the kept text itself. A list holds one for each prompt.
            past_key_values (KeptCache | Sequence[KeptCache] | None): The same with the whole text as the
                prompt, which begins with the kept tokens, as in transformers.
            return_cache (bool): Keeps the blocks of each row from the end of the call on, for the `cache`
                of a later call: see `GenerationOutput.cache`.
            output_type (TypeForm[_T] | TypeAdapter[_T] | None): The type that the text is a value of, as JSON: a
                dataclass, TypedDict, NamedTuple, Enum, Literal, list, dict, union, plain type, or a model or
                TypeAdapter of pydantic's. The grammar comes from it; see `GenerationOutput.parsed`.
            describe_output (bool): Writes the schema of the `output_type` before the prompt.
            progress (bool | Callable[[int, int], object] | None): True shows a bar of a list's
                prompts. A function is called with the number of prompts done, and of all.
            **fields: The fields of `GenerationConfig`, each documented there. None switches a field
                off. With `seed=s`, prompt `i` of a list draws with seed `s + i`; with
                `seed=[...]` each has its own.

        Returns:
            GenerationOutput[_T]: Texts, token ids, scores and statistics.

        Raises:
            TypeError: A keyword is unknown; the message suggests the one that was meant.
            ConfigError: A field or argument has a value that is not possible.
            InputError: The prompt cannot be used.
            CapacityError: The KV cache cannot hold the request.
            NumericalError: The model computed NaN or infinity.

        Example:
            >>> gen.greedy_search("Once upon a time", max_new_tokens=20).text
        """
    def group_beam_search(
        self,
        prompt: Prompt | Encoding | None = None,
        generation_config: AnyGenerationConfig | None = None,
        *,
        input_ids: Prompt | None = None,
        inputs: Prompt | None = None,
        attention_mask: ArrayLike | None = None,
        inputs_embeds: ArrayLike | Sequence[ArrayLike] | None = None,
        decoder_input_ids: Ids | Sequence[Ids] | None = None,
        decoder_attention_mask: ArrayLike | None = None,
        logits_processor: types.LogitsProcessor | Sequence[types.LogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        allowed_sequences: TokenTrie | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        adapter: Adapter | Sequence[Adapter | None] | None = None,
        streamer: Streamer | None = None,
        assistant_model: Generator | None = None,
        cache: KeptCache | Sequence[KeptCache] | None = None,
        past_key_values: KeptCache | Sequence[KeptCache] | None = None,
        return_cache: bool = False,
        output_type: TypeForm[_T] | TypeAdapter[_T] | None = None,
        describe_output: bool = False,
        progress: bool | Callable[[int, int], object] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> GenerationOutput[_T]:
        """Beam search in groups that are kept apart, so that results differ: 4 beams in 2 groups with a `diversity_penalty` of 1.0, unless set.

        Otherwise as `generate()`.

        Args:
            prompt (Prompt | Encoding | None): A text, or its token ids as a sequence or array of integers. A
                two-dimensional array of ids is one request, as transformers takes it: its rows
                share one random generator. A list of texts and ids holds independent prompts,
                which are computed together; each gives what it gives alone. What a tokenizer
                returns is taken, too. None begins the text with the `bos_token_id`.
            input_ids (Prompt | None): Another name of the prompt, as in transformers.
            inputs (Prompt | None): Another name of the prompt, as in transformers.
            generation_config (AnyGenerationConfig | None): rsgen's or transformers'. Fields of the call take
                precedence over it, and it takes precedence over the model's own.
            attention_mask (ArrayLike | None): 0 for padding and 1 for tokens, in the shape of a
                two-dimensional prompt. None tells padding from the `pad_token_id`, as transformers
                does.
            inputs_embeds (ArrayLike | Sequence[ArrayLike] | None): Embeddings in place of tokens:
                an array of floats, `[seq, hidden]` or `[batch, seq, hidden]`, or a list of the former
                for independent prompts. `embed()` gives those of tokens. `sequences` then holds new
                tokens alone, unless `input_ids` are given as well: what processors see as the prompt.
            decoder_input_ids (Ids | Sequence[Ids] | None): What the decoder of a model with an encoder
                begins with, in one row for all prompts or one for each. The prompts are the sources of
                such models. The `decoder_start_token_id` is prepended unless a row begins with it, and
                the output begins with these ids.
            decoder_attention_mask (ArrayLike | None): 0 for padding before `decoder_input_ids`, which
                models whose tokens have positions do not take.
            logits_processor (rsgen.types.LogitsProcessor | Sequence[rsgen.types.LogitsProcessor] | None):
                Functions that change the scores of each step. Those of `rsgen.processors` run
                without Python, others cost time at each token.
            prefix_allowed_tokens_fn (PrefixAllowedTokens | None): A function that returns the tokens
                that may follow.
            allowed_sequences (TokenTrie | None): The catalogue of which every output is an entry: see
                `GenerationOutput.entries`.
            stopping_criteria (StoppingCriterion | Sequence[StoppingCriterion] | None): Functions that
                say whether a row ends. Those of `rsgen.stopping_criteria` run without Python.
            constraints (Constraint | Sequence[Constraint] | None): What the output of a constrained
                beam search has to hold: see `rsgen.constraints`.
            adapter (Adapter | Sequence[Adapter | None] | None): The name of an adapter that `load_adapter` has
                loaded, or a list of names with weights, whose products add up; for several prompts, or a list
                with one of those or None for each. None is the model alone.
            streamer (Streamer | None): An object with the methods `put(ids)` and `end()`, as in
                transformers: `rsgen.TextStreamer` prints. It is given the prompt, `[1, len]`, then
                each new token, `[1]`, as int64 arrays, between the steps. One prompt and one row.
            assistant_model (Generator | None): A smaller model with the same tokens that drafts
                tokens, which greedy search and sampling check several at a time. The tokens of greedy
                search stay the same. It is that of the Generator unless given; None is none. Another
                name is `assistant`.
            cache (KeptCache | Sequence[KeptCache] | None): A kept text, which the prompt continues: the
                prompt is only what follows. A text gets no special tokens then, and None goes on with
                the kept text itself. A list holds one for each prompt.
            past_key_values (KeptCache | Sequence[KeptCache] | None): The same with the whole text as the
                prompt, which begins with the kept tokens, as in transformers.
            return_cache (bool): Keeps the blocks of each row from the end of the call on, for the `cache`
                of a later call: see `GenerationOutput.cache`.
            output_type (TypeForm[_T] | TypeAdapter[_T] | None): The type that the text is a value of, as JSON: a
                dataclass, TypedDict, NamedTuple, Enum, Literal, list, dict, union, plain type, or a model or
                TypeAdapter of pydantic's. The grammar comes from it; see `GenerationOutput.parsed`.
            describe_output (bool): Writes the schema of the `output_type` before the prompt.
            progress (bool | Callable[[int, int], object] | None): True shows a bar of a list's
                prompts. A function is called with the number of prompts done, and of all.
            **fields: The fields of `GenerationConfig`, each documented there. None switches a field
                off. With `seed=s`, prompt `i` of a list draws with seed `s + i`; with
                `seed=[...]` each has its own.

        Returns:
            GenerationOutput[_T]: Texts, token ids, scores and statistics.

        Raises:
            TypeError: A keyword is unknown; the message suggests the one that was meant.
            ConfigError: A field or argument has a value that is not possible.
            InputError: The prompt cannot be used.
            CapacityError: The KV cache cannot hold the request.
            NumericalError: The model computed NaN or infinity.

        Example:
            >>> gen.group_beam_search("Once upon a time", max_new_tokens=20).text
        """
    def inspect(self) -> dict[str, Any]:
        """Says what is in memory: the model, its KV cache, and the adapters beside it.

        Returns:
            dict[str, Any]: "model" and "architecture"; "weight_bytes", "kv_cache_bytes" that are allocated and
                "kv_cache_bytes_total"; "adapters", which holds for each name the "path", "rank", "modules" and "bytes".

        Example:
            >>> gen.inspect()["weight_bytes"]
        """
    def load_adapter(
        self, adapter: str | os.PathLike[str], name: str, *, cache_dir: str | os.PathLike[str] | None = None
    ) -> None:
        """Loads a LoRA adapter of PEFT beside the model, for the calls and rows that name it.

        Calls with different adapters run together: the model's own products are computed once for all of
        them. The results are those of the merged model, within rounding: `Generator(model, adapter=...)`
        merges one, and is faster where there is only one.

        After `gen.load_adapter(folder, name="support")`, `gen.generate(texts, adapter="support")` uses it, and
        `gen.generate([one, other], adapter=["support", None])` for the first text alone. Several add up with
        `adapter=[("support", 0.7), ("sales", 0.3)]`, as one that PEFT's `add_weighted_adapter` makes by `"cat"`.

        Args:
            adapter (str | os.PathLike[str]): The folder of the adapter, or its Hub id in the local cache.
            name (str): What calls name it by.
            cache_dir (str | os.PathLike[str] | None): The Hub cache.

        Raises:
            LoadError: There is no such adapter, or it belongs to another model, or it changes embeddings,
                experts or whole tensors, which only a merged one can.
            InputError: The name is taken.
        """
    def map(
        self,
        rows: Any,
        template: str | Callable[[Any], Any] | None = None,
        *,
        output: str = "text",
        in_order: bool = True,
        on_error: Literal["raise", "return"] = "raise",
        concurrency: int = 32,
        resume: str | os.PathLike[str] | None = None,
        details: bool = False,
        adapter: Adapter | Callable[[Any], Adapter | None] | None = None,
        progress: bool | Callable[[int, int | None], object] = False,
        **keywords: Any,
    ) -> RowResults:
        """Generates for each row of a table or a file, while the rows that come are iterated.

        A row that is a text is its own prompt. The results are dicts: the row, and the text under the name `output`.
        Rows are read as they are needed, and no more than `concurrency` are computed at a time, so any number of
        them takes little memory.

        Args:
            rows (Any): A list or another iterable of dicts or texts, a dict of columns, a DataFrame of pandas or polars,
                a table, batch or reader of Arrow, a data set of Hugging Face, or the path of a file of JSON lines.
            template (str | Callable[[Any], Any] | None): The prompt with the names of columns in braces, as for
                `str.format`, or a function that returns the prompt of a row: a text, ids, or messages for `chat()`.
                None is the column `prompt`.
            output (str): The name under which a result has its text; with `output_type` what is parsed. With several
                returned sequences it is a list.
            in_order (bool): Gives results in the order of the rows; False as soon as they are there.
            on_error (Literal["raise", "return"]): "raise" ends with the error of a row, which names the row; "return"
                gives the row with the message under `error`, which is None for the others.
            concurrency (int): How many rows are computed at a time.
            resume (str | os.PathLike[str] | None): A file that keeps the finished rows. Called again with it, those are
                read and not computed.
            details (bool): Gives `token_count` and `finish_reason` besides, and with `allowed_sequences` the `entry` and
                its `entry_logprob`.
            adapter (Adapter | Callable[[Any], Adapter | None] | None): The adapter of all rows, as `generate()` takes it for
                one prompt, or a function that returns that of a row.
            progress (bool | Callable[[int, int | None], object]): True shows a bar with the rate and the time that is
                left. A function is called with the number of rows done, and of all if that is known.
            **keywords (Any): The other arguments of `generate()`. With `seed=s`, row `i` draws with seed `s + i`; the
                name of a column takes the seeds from there.

        Returns:
            RowResults: An iterator of dicts.

        Example:
            >>> rows = [{"name": "Tom"}, {"name": "Mia"}]
            >>> for row in gen.map(rows, "One day, {name}", max_new_tokens=20, output="story"):
            ...     print(row["name"], row["story"])
        """
    def perplexity(
        self,
        text: str | Ids | Sequence[str] | Sequence[Ids],
        *,
        stride: int | None = None,
        window: int | None = None,
        adapter: Adapter | None = None,
    ) -> float:
        """Returns the perplexity of a text of any length, or of several together.

        It is e to the mean of the tokens' negative log-probabilities. A longer text than `window` is cut
        into windows that begin every `stride` tokens, and each token counts in the first window that has
        it, as in transformers' documentation, "Perplexity of fixed-length models".

        Args:
            text (str | Ids | Sequence[str] | Sequence[Ids]): A text or its token ids, or a list of them.
            stride (int | None): The tokens between the beginnings of windows, at most `window`. A smaller
                one gives each token more of the text before it, and takes longer. None is half a window.
            window (int | None): The tokens of a window. None is the model's context.
            adapter (Adapter | None): The name of an adapter that `load_adapter` has loaded, or a list of
                names with weights.

        Returns:
            float: The perplexity: 1 when each token was certain.

        Raises:
            ConfigError: `window` or `stride` is out of range.
            InputError: No text has two tokens.

        Example:
            >>> gen.perplexity("Once upon a time, there was a little girl.")
        """
    @overload
    def prefill(
        self,
        prompt: str | Ids | None = None,
        *,
        cache: KeptCache | None = None,
        adapter: Adapter | None = None,
    ) -> KeptCache:
        """Computes a prompt and keeps its cache, so that calls can continue it.

        Args:
            prompt (Prompt | None): A text, its token ids, or a list of those. None begins a text with the
                `bos_token_id`.
            cache (KeptCache | None): A kept text, which the prompt continues.
            adapter (Adapter | None): The name of an adapter that `load_adapter` has loaded, or a list of
                names with weights.

        Returns:
            KeptCache | list[KeptCache]: The handle to pass as `cache`; a list for a list.

        Raises:
            InputError: The prompt cannot be used, or the cache is of another generator.
            CapacityError: The KV cache cannot hold the prompt.

        Example:
            >>> story = gen.prefill("Once upon a time there was a fox.")
            >>> gen.generate(" It was sad", cache=story, max_new_tokens=20).text
        """
    @overload
    def prefill(
        self,
        prompt: list[str] | tuple[str, ...] | Sequence[Ids],
        *,
        cache: KeptCache | None = None,
        adapter: Adapter | None = None,
    ) -> list[KeptCache]:
        """Computes a prompt and keeps its cache, so that calls can continue it.

        Args:
            prompt (Prompt | None): A text, its token ids, or a list of those. None begins a text with the
                `bos_token_id`.
            cache (KeptCache | None): A kept text, which the prompt continues.
            adapter (Adapter | None): The name of an adapter that `load_adapter` has loaded, or a list of
                names with weights.

        Returns:
            KeptCache | list[KeptCache]: The handle to pass as `cache`; a list for a list.

        Raises:
            InputError: The prompt cannot be used, or the cache is of another generator.
            CapacityError: The KV cache cannot hold the prompt.

        Example:
            >>> story = gen.prefill("Once upon a time there was a fox.")
            >>> gen.generate(" It was sad", cache=story, max_new_tokens=20).text
        """
    def prompt_lookup(
        self,
        prompt: Prompt | Encoding | None = None,
        generation_config: AnyGenerationConfig | None = None,
        *,
        input_ids: Prompt | None = None,
        inputs: Prompt | None = None,
        attention_mask: ArrayLike | None = None,
        inputs_embeds: ArrayLike | Sequence[ArrayLike] | None = None,
        decoder_input_ids: Ids | Sequence[Ids] | None = None,
        decoder_attention_mask: ArrayLike | None = None,
        logits_processor: types.LogitsProcessor | Sequence[types.LogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        allowed_sequences: TokenTrie | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        adapter: Adapter | Sequence[Adapter | None] | None = None,
        streamer: Streamer | None = None,
        assistant_model: Generator | None = None,
        cache: KeptCache | Sequence[KeptCache] | None = None,
        past_key_values: KeptCache | Sequence[KeptCache] | None = None,
        return_cache: bool = False,
        output_type: TypeForm[_T] | TypeAdapter[_T] | None = None,
        describe_output: bool = False,
        progress: bool | Callable[[int, int], object] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> GenerationOutput[_T]:
        """Greedy search or sampling that checks several tokens in a pass: those that followed the newest ones where they occurred before. `prompt_lookup_num_tokens` (10 unless set) is how many at most.

        Otherwise as `generate()`.

        Args:
            prompt (Prompt | Encoding | None): A text, or its token ids as a sequence or array of integers. A
                two-dimensional array of ids is one request, as transformers takes it: its rows
                share one random generator. A list of texts and ids holds independent prompts,
                which are computed together; each gives what it gives alone. What a tokenizer
                returns is taken, too. None begins the text with the `bos_token_id`.
            input_ids (Prompt | None): Another name of the prompt, as in transformers.
            inputs (Prompt | None): Another name of the prompt, as in transformers.
            generation_config (AnyGenerationConfig | None): rsgen's or transformers'. Fields of the call take
                precedence over it, and it takes precedence over the model's own.
            attention_mask (ArrayLike | None): 0 for padding and 1 for tokens, in the shape of a
                two-dimensional prompt. None tells padding from the `pad_token_id`, as transformers
                does.
            inputs_embeds (ArrayLike | Sequence[ArrayLike] | None): Embeddings in place of tokens:
                an array of floats, `[seq, hidden]` or `[batch, seq, hidden]`, or a list of the former
                for independent prompts. `embed()` gives those of tokens. `sequences` then holds new
                tokens alone, unless `input_ids` are given as well: what processors see as the prompt.
            decoder_input_ids (Ids | Sequence[Ids] | None): What the decoder of a model with an encoder
                begins with, in one row for all prompts or one for each. The prompts are the sources of
                such models. The `decoder_start_token_id` is prepended unless a row begins with it, and
                the output begins with these ids.
            decoder_attention_mask (ArrayLike | None): 0 for padding before `decoder_input_ids`, which
                models whose tokens have positions do not take.
            logits_processor (rsgen.types.LogitsProcessor | Sequence[rsgen.types.LogitsProcessor] | None):
                Functions that change the scores of each step. Those of `rsgen.processors` run
                without Python, others cost time at each token.
            prefix_allowed_tokens_fn (PrefixAllowedTokens | None): A function that returns the tokens
                that may follow.
            allowed_sequences (TokenTrie | None): The catalogue of which every output is an entry: see
                `GenerationOutput.entries`.
            stopping_criteria (StoppingCriterion | Sequence[StoppingCriterion] | None): Functions that
                say whether a row ends. Those of `rsgen.stopping_criteria` run without Python.
            constraints (Constraint | Sequence[Constraint] | None): What the output of a constrained
                beam search has to hold: see `rsgen.constraints`.
            adapter (Adapter | Sequence[Adapter | None] | None): The name of an adapter that `load_adapter` has
                loaded, or a list of names with weights, whose products add up; for several prompts, or a list
                with one of those or None for each. None is the model alone.
            streamer (Streamer | None): An object with the methods `put(ids)` and `end()`, as in
                transformers: `rsgen.TextStreamer` prints. It is given the prompt, `[1, len]`, then
                each new token, `[1]`, as int64 arrays, between the steps. One prompt and one row.
            assistant_model (Generator | None): A smaller model with the same tokens that drafts
                tokens, which greedy search and sampling check several at a time. The tokens of greedy
                search stay the same. It is that of the Generator unless given; None is none. Another
                name is `assistant`.
            cache (KeptCache | Sequence[KeptCache] | None): A kept text, which the prompt continues: the
                prompt is only what follows. A text gets no special tokens then, and None goes on with
                the kept text itself. A list holds one for each prompt.
            past_key_values (KeptCache | Sequence[KeptCache] | None): The same with the whole text as the
                prompt, which begins with the kept tokens, as in transformers.
            return_cache (bool): Keeps the blocks of each row from the end of the call on, for the `cache`
                of a later call: see `GenerationOutput.cache`.
            output_type (TypeForm[_T] | TypeAdapter[_T] | None): The type that the text is a value of, as JSON: a
                dataclass, TypedDict, NamedTuple, Enum, Literal, list, dict, union, plain type, or a model or
                TypeAdapter of pydantic's. The grammar comes from it; see `GenerationOutput.parsed`.
            describe_output (bool): Writes the schema of the `output_type` before the prompt.
            progress (bool | Callable[[int, int], object] | None): True shows a bar of a list's
                prompts. A function is called with the number of prompts done, and of all.
            **fields: The fields of `GenerationConfig`, each documented there. None switches a field
                off. With `seed=s`, prompt `i` of a list draws with seed `s + i`; with
                `seed=[...]` each has its own.

        Returns:
            GenerationOutput[_T]: Texts, token ids, scores and statistics.

        Raises:
            TypeError: A keyword is unknown; the message suggests the one that was meant.
            ConfigError: A field or argument has a value that is not possible.
            InputError: The prompt cannot be used.
            CapacityError: The KV cache cannot hold the request.
            NumericalError: The model computed NaN or infinity.

        Example:
            >>> gen.prompt_lookup("Once upon a time", max_new_tokens=20).text
        """
    def rank(
        self,
        context: str | Ids,
        candidates: Sequence[str] | Sequence[Ids],
        *,
        normalization: Literal["sum", "mean", "bytes"] = "sum",
        adapter: Adapter | None = None,
    ) -> list[RankedCandidate]:
        """Ranks candidates by how probable the model finds them after a context.

        The context is computed once. In a model with an encoder it is the source. A candidate as text
        continues the text of the context as in lm-eval: white space at the end of the context belongs to
        the candidate.

        Args:
            context (str | Ids): A text or its token ids.
            candidates (Sequence[str] | Sequence[Ids]): What may follow.
            normalization (Literal["sum", "mean", "bytes"]): What candidates are ranked by: the sum of their
                tokens' log-probabilities, its mean over tokens, or the sum over the bytes of their text.
            adapter (Adapter | None): The name of an adapter that `load_adapter` has loaded, or a list of
                names with weights.

        Returns:
            list[RankedCandidate]: The most probable first, equal ones in their order.

        Raises:
            InputError: The context or a candidate has no token, or both do not fit the model's context.

        Example:
            >>> best = gen.rank("Once upon a", [" time", " banana"])[0]
            >>> best.index, round(best.logprob, 2)
        """
    def sample(
        self,
        prompt: Prompt | Encoding | None = None,
        generation_config: AnyGenerationConfig | None = None,
        *,
        input_ids: Prompt | None = None,
        inputs: Prompt | None = None,
        attention_mask: ArrayLike | None = None,
        inputs_embeds: ArrayLike | Sequence[ArrayLike] | None = None,
        decoder_input_ids: Ids | Sequence[Ids] | None = None,
        decoder_attention_mask: ArrayLike | None = None,
        logits_processor: types.LogitsProcessor | Sequence[types.LogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        allowed_sequences: TokenTrie | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        adapter: Adapter | Sequence[Adapter | None] | None = None,
        streamer: Streamer | None = None,
        assistant_model: Generator | None = None,
        cache: KeptCache | Sequence[KeptCache] | None = None,
        past_key_values: KeptCache | Sequence[KeptCache] | None = None,
        return_cache: bool = False,
        output_type: TypeForm[_T] | TypeAdapter[_T] | None = None,
        describe_output: bool = False,
        progress: bool | Callable[[int, int], object] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> GenerationOutput[_T]:
        """Draws each token at random from the model's distribution, which `temperature`, `top_k`, `top_p` and others shape; the same `seed` gives the same text.

        Otherwise as `generate()`.

        Args:
            prompt (Prompt | Encoding | None): A text, or its token ids as a sequence or array of integers. A
                two-dimensional array of ids is one request, as transformers takes it: its rows
                share one random generator. A list of texts and ids holds independent prompts,
                which are computed together; each gives what it gives alone. What a tokenizer
                returns is taken, too. None begins the text with the `bos_token_id`.
            input_ids (Prompt | None): Another name of the prompt, as in transformers.
            inputs (Prompt | None): Another name of the prompt, as in transformers.
            generation_config (AnyGenerationConfig | None): rsgen's or transformers'. Fields of the call take
                precedence over it, and it takes precedence over the model's own.
            attention_mask (ArrayLike | None): 0 for padding and 1 for tokens, in the shape of a
                two-dimensional prompt. None tells padding from the `pad_token_id`, as transformers
                does.
            inputs_embeds (ArrayLike | Sequence[ArrayLike] | None): Embeddings in place of tokens:
                an array of floats, `[seq, hidden]` or `[batch, seq, hidden]`, or a list of the former
                for independent prompts. `embed()` gives those of tokens. `sequences` then holds new
                tokens alone, unless `input_ids` are given as well: what processors see as the prompt.
            decoder_input_ids (Ids | Sequence[Ids] | None): What the decoder of a model with an encoder
                begins with, in one row for all prompts or one for each. The prompts are the sources of
                such models. The `decoder_start_token_id` is prepended unless a row begins with it, and
                the output begins with these ids.
            decoder_attention_mask (ArrayLike | None): 0 for padding before `decoder_input_ids`, which
                models whose tokens have positions do not take.
            logits_processor (rsgen.types.LogitsProcessor | Sequence[rsgen.types.LogitsProcessor] | None):
                Functions that change the scores of each step. Those of `rsgen.processors` run
                without Python, others cost time at each token.
            prefix_allowed_tokens_fn (PrefixAllowedTokens | None): A function that returns the tokens
                that may follow.
            allowed_sequences (TokenTrie | None): The catalogue of which every output is an entry: see
                `GenerationOutput.entries`.
            stopping_criteria (StoppingCriterion | Sequence[StoppingCriterion] | None): Functions that
                say whether a row ends. Those of `rsgen.stopping_criteria` run without Python.
            constraints (Constraint | Sequence[Constraint] | None): What the output of a constrained
                beam search has to hold: see `rsgen.constraints`.
            adapter (Adapter | Sequence[Adapter | None] | None): The name of an adapter that `load_adapter` has
                loaded, or a list of names with weights, whose products add up; for several prompts, or a list
                with one of those or None for each. None is the model alone.
            streamer (Streamer | None): An object with the methods `put(ids)` and `end()`, as in
                transformers: `rsgen.TextStreamer` prints. It is given the prompt, `[1, len]`, then
                each new token, `[1]`, as int64 arrays, between the steps. One prompt and one row.
            assistant_model (Generator | None): A smaller model with the same tokens that drafts
                tokens, which greedy search and sampling check several at a time. The tokens of greedy
                search stay the same. It is that of the Generator unless given; None is none. Another
                name is `assistant`.
            cache (KeptCache | Sequence[KeptCache] | None): A kept text, which the prompt continues: the
                prompt is only what follows. A text gets no special tokens then, and None goes on with
                the kept text itself. A list holds one for each prompt.
            past_key_values (KeptCache | Sequence[KeptCache] | None): The same with the whole text as the
                prompt, which begins with the kept tokens, as in transformers.
            return_cache (bool): Keeps the blocks of each row from the end of the call on, for the `cache`
                of a later call: see `GenerationOutput.cache`.
            output_type (TypeForm[_T] | TypeAdapter[_T] | None): The type that the text is a value of, as JSON: a
                dataclass, TypedDict, NamedTuple, Enum, Literal, list, dict, union, plain type, or a model or
                TypeAdapter of pydantic's. The grammar comes from it; see `GenerationOutput.parsed`.
            describe_output (bool): Writes the schema of the `output_type` before the prompt.
            progress (bool | Callable[[int, int], object] | None): True shows a bar of a list's
                prompts. A function is called with the number of prompts done, and of all.
            **fields: The fields of `GenerationConfig`, each documented there. None switches a field
                off. With `seed=s`, prompt `i` of a list draws with seed `s + i`; with
                `seed=[...]` each has its own.

        Returns:
            GenerationOutput[_T]: Texts, token ids, scores and statistics.

        Raises:
            TypeError: A keyword is unknown; the message suggests the one that was meant.
            ConfigError: A field or argument has a value that is not possible.
            InputError: The prompt cannot be used.
            CapacityError: The KV cache cannot hold the request.
            NumericalError: The model computed NaN or infinity.

        Example:
            >>> gen.sample("Once upon a time", max_new_tokens=20).text
        """
    @overload
    def score(
        self,
        text: str | Ids,
        target: str | Ids | Sequence[str] | Sequence[Ids] | None = None,
        *,
        cache: KeptCache | Sequence[KeptCache] | None = None,
        adapter: Adapter | None = None,
        top_logprobs: None = None,
        progress: bool | Callable[[int, int], object] | None = None,
    ) -> NDArray[np.float32]:
        """Returns the log-probability of each token of a text given those before it.

        The texts of a list are computed together.

        Args:
            text (str | Ids | Sequence[str] | Sequence[Ids]): A text or its token ids, or a list of
                them.
            target (str | Ids | Sequence[str] | Sequence[Ids] | None): For a model with an encoder, what
                is scored: `text` is its source then. A list holds one for each source.
            cache (KeptCache | Sequence[KeptCache] | None): What the texts continue, one for all or one for
                each: it is not computed again, and only the tokens after it are scored. Texts are encoded
                without special tokens then.
            adapter (Adapter | None): The name of an adapter that `load_adapter` has loaded, or a list of
                names with weights.
            top_logprobs (int | None): The number of most probable tokens to return for each token;
                0 returns the ranks alone.
            progress (bool | Callable[[int, int], object] | None): True shows a progress bar. A
                function is called with the number of texts done, and of all.

        Returns:
            NDArray[np.float32] | list[NDArray[np.float32]] | TokenScores | list[TokenScores]: Log-probabilities
                in nats, `[tokens]`, and with `top_logprobs` more about each token; a list for a
                list. The first is 0, because nothing predicts the first token; not of a `target`,
                whose first token follows the start token of the decoder, nor of what follows a `cache`.

        Raises:
            InputError: A text is longer than the model's context.

        Example:
            >>> gen.score("Once upon a time").sum()
            >>> gen.score(["One day", "Tom had"], top_logprobs=5)[0].ranks
            >>> story = gen.prefill("Once upon a time, there was a")
            >>> [logprobs.sum() for logprobs in gen.score([" girl", " dog"], cache=story)]
        """
    @overload
    def score(
        self,
        text: list[str] | tuple[str, ...] | Sequence[Ids],
        target: str | Ids | Sequence[str] | Sequence[Ids] | None = None,
        *,
        cache: KeptCache | Sequence[KeptCache] | None = None,
        adapter: Adapter | None = None,
        top_logprobs: None = None,
        progress: bool | Callable[[int, int], object] | None = None,
    ) -> list[NDArray[np.float32]]:
        """Returns the log-probability of each token of a text given those before it.

        The texts of a list are computed together.

        Args:
            text (str | Ids | Sequence[str] | Sequence[Ids]): A text or its token ids, or a list of
                them.
            target (str | Ids | Sequence[str] | Sequence[Ids] | None): For a model with an encoder, what
                is scored: `text` is its source then. A list holds one for each source.
            cache (KeptCache | Sequence[KeptCache] | None): What the texts continue, one for all or one for
                each: it is not computed again, and only the tokens after it are scored. Texts are encoded
                without special tokens then.
            adapter (Adapter | None): The name of an adapter that `load_adapter` has loaded, or a list of
                names with weights.
            top_logprobs (int | None): The number of most probable tokens to return for each token;
                0 returns the ranks alone.
            progress (bool | Callable[[int, int], object] | None): True shows a progress bar. A
                function is called with the number of texts done, and of all.

        Returns:
            NDArray[np.float32] | list[NDArray[np.float32]] | TokenScores | list[TokenScores]: Log-probabilities
                in nats, `[tokens]`, and with `top_logprobs` more about each token; a list for a
                list. The first is 0, because nothing predicts the first token; not of a `target`,
                whose first token follows the start token of the decoder, nor of what follows a `cache`.

        Raises:
            InputError: A text is longer than the model's context.

        Example:
            >>> gen.score("Once upon a time").sum()
            >>> gen.score(["One day", "Tom had"], top_logprobs=5)[0].ranks
            >>> story = gen.prefill("Once upon a time, there was a")
            >>> [logprobs.sum() for logprobs in gen.score([" girl", " dog"], cache=story)]
        """
    @overload
    def score(
        self,
        text: str | Ids,
        target: str | Ids | Sequence[str] | Sequence[Ids] | None = None,
        *,
        cache: KeptCache | Sequence[KeptCache] | None = None,
        adapter: Adapter | None = None,
        top_logprobs: int,
        progress: bool | Callable[[int, int], object] | None = None,
    ) -> TokenScores:
        """Returns the log-probability of each token of a text given those before it.

        The texts of a list are computed together.

        Args:
            text (str | Ids | Sequence[str] | Sequence[Ids]): A text or its token ids, or a list of
                them.
            target (str | Ids | Sequence[str] | Sequence[Ids] | None): For a model with an encoder, what
                is scored: `text` is its source then. A list holds one for each source.
            cache (KeptCache | Sequence[KeptCache] | None): What the texts continue, one for all or one for
                each: it is not computed again, and only the tokens after it are scored. Texts are encoded
                without special tokens then.
            adapter (Adapter | None): The name of an adapter that `load_adapter` has loaded, or a list of
                names with weights.
            top_logprobs (int | None): The number of most probable tokens to return for each token;
                0 returns the ranks alone.
            progress (bool | Callable[[int, int], object] | None): True shows a progress bar. A
                function is called with the number of texts done, and of all.

        Returns:
            NDArray[np.float32] | list[NDArray[np.float32]] | TokenScores | list[TokenScores]: Log-probabilities
                in nats, `[tokens]`, and with `top_logprobs` more about each token; a list for a
                list. The first is 0, because nothing predicts the first token; not of a `target`,
                whose first token follows the start token of the decoder, nor of what follows a `cache`.

        Raises:
            InputError: A text is longer than the model's context.

        Example:
            >>> gen.score("Once upon a time").sum()
            >>> gen.score(["One day", "Tom had"], top_logprobs=5)[0].ranks
            >>> story = gen.prefill("Once upon a time, there was a")
            >>> [logprobs.sum() for logprobs in gen.score([" girl", " dog"], cache=story)]
        """
    @overload
    def score(
        self,
        text: list[str] | tuple[str, ...] | Sequence[Ids],
        target: str | Ids | Sequence[str] | Sequence[Ids] | None = None,
        *,
        cache: KeptCache | Sequence[KeptCache] | None = None,
        adapter: Adapter | None = None,
        top_logprobs: int,
        progress: bool | Callable[[int, int], object] | None = None,
    ) -> list[TokenScores]:
        """Returns the log-probability of each token of a text given those before it.

        The texts of a list are computed together.

        Args:
            text (str | Ids | Sequence[str] | Sequence[Ids]): A text or its token ids, or a list of
                them.
            target (str | Ids | Sequence[str] | Sequence[Ids] | None): For a model with an encoder, what
                is scored: `text` is its source then. A list holds one for each source.
            cache (KeptCache | Sequence[KeptCache] | None): What the texts continue, one for all or one for
                each: it is not computed again, and only the tokens after it are scored. Texts are encoded
                without special tokens then.
            adapter (Adapter | None): The name of an adapter that `load_adapter` has loaded, or a list of
                names with weights.
            top_logprobs (int | None): The number of most probable tokens to return for each token;
                0 returns the ranks alone.
            progress (bool | Callable[[int, int], object] | None): True shows a progress bar. A
                function is called with the number of texts done, and of all.

        Returns:
            NDArray[np.float32] | list[NDArray[np.float32]] | TokenScores | list[TokenScores]: Log-probabilities
                in nats, `[tokens]`, and with `top_logprobs` more about each token; a list for a
                list. The first is 0, because nothing predicts the first token; not of a `target`,
                whose first token follows the start token of the decoder, nor of what follows a `cache`.

        Raises:
            InputError: A text is longer than the model's context.

        Example:
            >>> gen.score("Once upon a time").sum()
            >>> gen.score(["One day", "Tom had"], top_logprobs=5)[0].ranks
            >>> story = gen.prefill("Once upon a time, there was a")
            >>> [logprobs.sum() for logprobs in gen.score([" girl", " dog"], cache=story)]
        """
    def stats(self) -> CacheStats:
        """Returns the current usage of the KV cache.

        Returns:
            CacheStats: Blocks and bytes.
        """
    def stream(
        self,
        prompt: Prompt | Encoding | None = None,
        generation_config: AnyGenerationConfig | None = None,
        *,
        input_ids: Prompt | None = None,
        inputs: Prompt | None = None,
        attention_mask: ArrayLike | None = None,
        inputs_embeds: ArrayLike | Sequence[ArrayLike] | None = None,
        decoder_input_ids: Ids | Sequence[Ids] | None = None,
        decoder_attention_mask: ArrayLike | None = None,
        logits_processor: types.LogitsProcessor | Sequence[types.LogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        allowed_sequences: TokenTrie | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        adapter: Adapter | None = None,
        assistant_model: Generator | None = None,
        cache: KeptCache | Sequence[KeptCache] | None = None,
        past_key_values: KeptCache | Sequence[KeptCache] | None = None,
        return_cache: bool = False,
        output_type: TypeForm[_T] | TypeAdapter[_T] | None = None,
        describe_output: bool = False,
        **fields: Unpack[GenerationFields],
    ) -> TokenStream[_T]:
        """Generates token by token, while the stream is iterated.

        Takes the arguments of `generate()`, with one prompt: a text, its ids, or a two-dimensional
        array. Without any limit of length it goes on to an end-of-sequence token or the end of
        the model's context.

        Returns:
            TokenStream[_T]: An iterator of `StreamedToken`.

        Example:
            >>> for token in gen.stream("Once upon a time"):
            ...     print(token, end="", flush=True)
        """
    def stream_chat(
        self,
        messages: Conversation,
        generation_config: AnyGenerationConfig | None = None,
        *,
        tools: Sequence[Tool] | None = None,
        tool_choice: str | Mapping[str, Any] = "auto",
        parallel_tool_calls: bool = True,
        tool_parser: ToolParser | None = None,
        reasoning_parser: ReasoningParser | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        continue_final_message: bool | str = False,
        logits_processor: types.LogitsProcessor | Sequence[types.LogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        allowed_sequences: TokenTrie | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        adapter: Adapter | None = None,
        assistant_model: Generator | None = None,
        cache: KeptCache | Sequence[KeptCache] | None = None,
        past_key_values: KeptCache | Sequence[KeptCache] | None = None,
        return_cache: bool = False,
        output_type: TypeForm[_T] | TypeAdapter[_T] | None = None,
        describe_output: bool = False,
        **fields: Unpack[GenerationFields],
    ) -> TokenStream[_T]:
        """Replies to a conversation token by token: `chat()` as a stream.

        Takes the arguments of `chat()`, with one conversation. Leaving the loop ends the work.

        Args:
            messages (Conversation): A list of messages, each a dict with "role" and "content".

        Returns:
            TokenStream[_T]: An iterator of `StreamedToken`.

        Example:
            >>> for token in gen.stream_chat([{"role": "user", "content": "Tell me a story."}]):
            ...     print(token, end="", flush=True)
        """
    def submit(
        self,
        prompt: Prompt | Encoding | None = None,
        generation_config: AnyGenerationConfig | None = None,
        *,
        input_ids: Prompt | None = None,
        inputs: Prompt | None = None,
        attention_mask: ArrayLike | None = None,
        inputs_embeds: ArrayLike | Sequence[ArrayLike] | None = None,
        decoder_input_ids: Ids | Sequence[Ids] | None = None,
        decoder_attention_mask: ArrayLike | None = None,
        logits_processor: types.LogitsProcessor | Sequence[types.LogitsProcessor] | None = None,
        prefix_allowed_tokens_fn: PrefixAllowedTokens | None = None,
        allowed_sequences: TokenTrie | None = None,
        stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        adapter: Adapter | None = None,
        streamer: Streamer | None = None,
        assistant_model: Generator | None = None,
        cache: KeptCache | Sequence[KeptCache] | None = None,
        past_key_values: KeptCache | Sequence[KeptCache] | None = None,
        return_cache: bool = False,
        output_type: TypeForm[_T] | TypeAdapter[_T] | None = None,
        describe_output: bool = False,
        progress: bool | Callable[[int, int], object] | None = None,
        **fields: Unpack[GenerationFields],
    ) -> concurrent.futures.Future[GenerationOutput[_T]]:
        """Generates on another thread, and returns a future at once.

        Takes the arguments of `generate()`. `cancel()` of the future ends the work, also in the middle of a
        prompt. Calls that run at the same time share their passes.

        Returns:
            concurrent.futures.Future[GenerationOutput[_T]]: The output, once it is there.

        Example:
            >>> from concurrent.futures import as_completed
            >>> calls = [gen.submit(prompt, max_new_tokens=60) for prompt in ("One day", "Tom had")]
            >>> for call in as_completed(calls):
            ...     print(call.result().text)
        """
    def summarize(
        self, texts: Prompt, generation_config: AnyGenerationConfig | None = None, **keywords: Any
    ) -> GenerationOutput:
        """Summarizes a text, or a list of any length, with a model that has an encoder.

        It is `generate()` with the model's own defaults; without any limit of length it goes on to an
        end-of-sequence token, or to 512 tokens or twice those of the longest text. T5 takes its task in the text:
        "summarize: …".

        Args:
            texts (Prompt): A text, or a list of them, or their token ids.
            generation_config (AnyGenerationConfig | None): As for `generate()`.
            **keywords (Any): The other arguments of `generate()`.

        Returns:
            GenerationOutput: The summaries: `text`, and `texts` of a list.

        Raises:
            InputError: The model has no encoder, or a text is too long.
        """
    def translate(
        self,
        texts: Prompt,
        generation_config: AnyGenerationConfig | None = None,
        *,
        source: str | None = None,
        target: str | None = None,
        split: Literal["sentences"] | None = None,
        **keywords: Any,
    ) -> GenerationOutput:
        """Translates a text, or a list of any length, with a model that has an encoder.

        Takes the arguments of `generate()`. The languages decide the special tokens of the texts, and the
        token that the translation begins with. Without any limit of length it goes on to an
        end-of-sequence token, or to 512 tokens or twice those of the longest text.

        Args:
            texts (Prompt): A text, or a list of them, or their token ids.
            generation_config (AnyGenerationConfig | None): As for `generate()`.
            source (str | None): The language of the texts, one of `languages`. None is the one that the
                tokenizer's files name.
            target (str | None): The language to translate into. A model of a single pair takes None.
            split (Literal["sentences"] | None): "sentences" translates each text sentence by sentence, cut by
                the rules of Unicode, and puts the translations together with the white space between them. Limits
                of length are those of a sentence, and no term of a `glossary` is cut. A text without words stays
                as it is.
            **keywords (Any): The other arguments of `generate()`.

        Returns:
            GenerationOutput: The translations: `text`, and `texts` of a list.

        Raises:
            InputError: The model has no encoder or does not know a language, or a text is too long.

        Example:
            mt = rsgen.Generator("path/to/opus-mt-en-de")
            mt.translate(["The house is small.", "I like tea."], num_beams=4).texts
        """
    def unload_adapter(self, name: str) -> None:
        """Unloads an adapter. Calls that run with it go on, and its memory goes back when they have ended.

        Args:
            name (str): Its name.

        Raises:
            InputError: There is none of this name.
        """
    @property
    def adapters(self) -> dict[str, int]:
        """The adapters that are loaded beside the model: the bytes that each takes, by name."""
    @property
    def assistant(self) -> Generator | None:
        """The model that drafts for this one, unless a call names another."""
    @property
    def closed(self) -> bool:
        """Whether it is closed."""
    @property
    def config(self) -> dict[str, Any]:
        """A copy of the model's `config.json`."""
    @property
    def generation_config(self) -> GenerationConfig:
        """The model's `generation_config.json`: the defaults of every call."""
    @property
    def isa(self) -> str:
        """The instruction set in use, such as "avx512_bf16", "avx2", "neon_dotprod" or "scalar".

        The variable RSGEN_ISA forces one. Results are equal.
        """
    @property
    def languages(self) -> list[str]:
        """The languages that the model translates from and to; empty for a model of one pair."""
    @property
    def name_or_path(self) -> str:
        """The folder or id that the model was loaded from."""
    @property
    def num_threads(self) -> int:
        """The number of threads that compute, the calling one included."""
    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer. Raises `InputError` when the model came without one."""

def _read_file(path: str | os.PathLike[str]) -> bytes:
    """Reads a file that a caller names, within the limits of those of a folder.

    Args:
        path (str | os.PathLike[str]): The file.

    Returns:
        bytes: Its contents.

    Raises:
        LoadError: It cannot be read, is too large, or is a pipe or a device.
    """

def _replace_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Writes a file as a whole: whatever ends the process, it holds what it held before or the new contents.

    Args:
        path (str | os.PathLike[str]): The file.
        content (bytes): Its contents.

    Raises:
        OSError: It cannot be written.
    """

@final
class KeptCache:
    """The computed keys and values of a text, kept so that calls can continue it.

    `Generator.prefill()` and `GenerationOutput.cache` return one. It can be reused: any number of
    calls may continue it, also concurrently from several threads, with exactly the results of the
    whole text. It reserves no memory: when the KV cache is full, its blocks are evicted, and the
    next call that continues it recomputes them. It cannot be pickled.

    Example:
        >>> with gen.prefill("Once upon a time there was a fox.") as story:
        ...     for ending in (" It was sad", " It was glad"):
        ...         print(gen.generate(ending, cache=story, max_new_tokens=20).text)
    """

    def __copy__(self) -> KeptCache: ...
    def __deepcopy__(self, memo: Any, /) -> KeptCache: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: Any) -> None: ...
    def __reduce__(self) -> NoReturn: ...
    def close(self) -> None:
        """Releases the blocks. Running calls continue. Closing twice has no effect."""
    def fork(self) -> KeptCache:
        """Returns a second handle of the same text, to be closed independently.

        Calls never change a handle: forks are for code that closes its own.

        Returns:
            KeptCache: The second handle.
        """
    @property
    def closed(self) -> bool:
        """Whether the handle is closed."""
    @property
    def num_computed(self) -> int:
        """The number of leading tokens whose keys and values are in the cache now.

        The last token of a generated text is not computed, and a full KV cache evicts blocks.
        """
    @property
    def token_ids(self) -> NDArray[np.int64]:
        """The tokens of the text, `[tokens]`."""
    def __len__(self) -> int: ...

@final
class GenerationOutput(Generic[_T_co]):
    """The result of a call.

    It is a list of rows: iteration and `out[0]` give each as a `GeneratedRow`, `len()` is their number.
    Each prompt has `num_return_sequences` rows, the prompts in order. `str()` is the text of the first.
    Its values have names besides, as in a mapping: `out["scores"]`, `out.keys()`, `dict(out)`.

    Example:
        >>> out = gen.generate("Once upon a time", max_new_tokens=60)
        >>> out.text, out.finish_reasons, out.usage.generated_tokens
        >>> for row in out:
        ...     print(row.text, row.token_ids, row.score, row.finish_reason)
    """

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]: ...
    @classmethod
    def __class_getitem__(cls, item: Any, /) -> GenericAlias: ...
    def __reduce__(self) -> tuple[Any, tuple[Any]]: ...
    def _repr_html_(self) -> str:
        """Draws how the text was found, for notebooks: the probability of each token, and with
        `output_events=True` alternatives, beams and drafts.

        Returns:
            str: HTML without scripts.
        """
    def compute_transition_scores(self, normalize_logits: bool = False) -> NDArray[np.float32]:
        """Returns the processed score that each token was chosen by.

        With beams the scores of a row sum up to its entry of `sequences_scores`, before the
        division by the length penalty.

        Args:
            normalize_logits (bool): Returns the logarithm of the scores' softmax.

        Returns:
            NDArray[np.float32]: The scores, `[rows, longest]`, 0 after the end of a row.

        Raises:
            InputError: The call was without `output_scores=True`.
        """
    def get(self, key: str, default: Any = None, /) -> Any:
        """Returns a value by its name.

        Args:
            key (str): The name.
            default (Any): What is returned where there is no such value.

        Returns:
            Any: The value.
        """
    def items(self) -> list[tuple[str, Any]]:
        """Returns the names with their values.

        Returns:
            list[tuple[str, Any]]: The pairs.
        """
    def keys(self) -> list[str]:
        """Returns the names of the values that there are, as `ModelOutput` of transformers does.

        `dict(output)` and `output["sequences"]` work as with a mapping. But iteration gives the rows, and `len()`
        is their number.

        Returns:
            list[str]: Names of attributes that are not None.
        """
    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes all events to a file, which `rsgen show` draws.

        Args:
            path (str | os.PathLike[str]): The file, in JSON. It is replaced if it exists.

        Raises:
            InputError: The call was without `output_events=True`.
            LoadError: The file cannot be written.
        """
    def to_dict(self) -> dict[str, Any]:
        """Returns all of it as plain Python: numbers, texts, lists and dicts, arrays as lists.

        Returns:
            dict[str, Any]: The values by their names.
        """
    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Writes what notebooks show of the output as a page for browsers: see `_repr_html_()`.

        Args:
            path (str | os.PathLike[str]): The file, which is replaced if it exists.

        Raises:
            OSError: The file cannot be written.
        """
    def to_pandas(self) -> Any:
        """Returns the rows as a DataFrame of pandas.

        Its columns are `prompt_index`, `text`, `token_ids`, `finish_reason`, `score` with beams, and `entry` and
        `entry_logprob` with a catalogue.

        Returns:
            Any: A `pandas.DataFrame` with a line for each row.

        Raises:
            ImportError: pandas is not installed.
        """
    def values(self) -> list[Any]:
        """Returns the values of `keys()`.

        Returns:
            list[Any]: The values.
        """
    @property
    def alignments(self) -> tuple[NDArray[np.float32], ...] | None:
        """How the tokens of each row follow from its source, of a model with
        an encoder and `output_attentions=True`.

        For each row `[tokens, source tokens]`, padding left out: the weights over the source by which each token was
        chosen, in the decoder's last layer, averaged over all its heads. `argmax(-1)` is the source token that each
        token looks at most.
        """
    @property
    def attentions(self) -> tuple[tuple[NDArray[np.float32], ...], ...] | None:
        """The weights of each step, with
        `output_attentions=True`.

        For each step those of each layer: of the prompt `[rows, num_heads, width, width]`, then
        of each new token `[rows, num_heads, 1, width + step]`. A layer with a sliding window keeps
        no more columns than that after the prompt. Padding has no weight, and holds NaN as a query.
        """
    @property
    def beam_indices(self) -> NDArray[np.int32] | None:
        """The row of `scores` that each token was chosen from. None without beams.

        The shape is `[rows, longest]`, with -1 after the end of a row.
        """
    @property
    def cache(self) -> KeptCache:
        """The first row, its prompt and continuation, for a call that goes on with it.

        With `return_cache=True` its blocks are kept from the end of the call on; otherwise those that
        are still cached at the first access.
        """
    @property
    def caches(self) -> list[KeptCache]:
        """The `cache` of each row."""
    @property
    def cross_attentions(self) -> tuple[tuple[NDArray[np.float32], ...], ...] | None:
        """The weights of each step over the source, of a model
        with an encoder and `output_attentions=True`.

        For each step those of each layer, `[rows, num_heads, tokens, source]`, with the tokens of `attentions`.
        Padding of a source has no weight.
        """
    @property
    def decoder_attentions(self) -> tuple[tuple[NDArray[np.float32], ...], ...] | None:
        """`attentions` of a model with an encoder, as
        transformers names them.
        """
    @property
    def decoder_hidden_states(self) -> tuple[tuple[NDArray[np.float32], ...], ...] | None:
        """`hidden_states` of a model with an encoder, as
        transformers names them.
        """
    @property
    def draft_stats(self) -> DraftStats | None:
        """What became of drafts, in assisted decoding and prompt lookup."""
    @property
    def encoder_attentions(self) -> tuple[NDArray[np.float32], ...] | None:
        """The encoder's weights, with `output_attentions=True`.

        Those of each layer, `[prompts, num_heads, source, source]`. Padding has no weight, and holds NaN as a
        query.
        """
    @property
    def encoder_hidden_states(self) -> tuple[NDArray[np.float32], ...] | None:
        """The encoder's states of the sources, with
        `output_hidden_states=True`.

        Those before each layer, and after the last and the norm, `[prompts, source, hidden_size]`. Padding holds
        NaN.
        """
    @property
    def entries(self) -> list[Any] | None:
        """The entry of the catalogue that each row is. None without `allowed_sequences`.

        It is the payload of the entry, or its index in a catalogue without payloads, and None for a
        row that was cut before the token that ends an entry. With beams an entry is named once for each
        prompt, at its best row: where beams outnumber the entries, further rows repeat them.
        """
    @property
    def entry_logprobs(self) -> NDArray[np.float32] | None:
        """The log-probability of each row under the model's own logits, `[rows]`. None
        without `allowed_sequences`.

        It is the sum of its `logprobs`, that of the token that ends the entry included.
        """
    @property
    def events(self) -> list[GenerationEvent] | None:
        """How each token was found, with `output_events=True`.

        The alternatives of each token and what removed them, the nodes of beams, and drafts, as
        dicts in the order of what happened. A list of prompts has the events of each in turn.
        """
    @property
    def finish_reasons(self) -> list[FinishReason]:
        """Why each row ended: "eos", "stop", "length", "time" or "cancelled"."""
    @property
    def hidden_states(self) -> tuple[tuple[NDArray[np.float32], ...], ...] | None:
        """The states of each step, with
        `output_hidden_states=True`.

        For each step those before each layer, and after the last and the norm: of the prompt
        `[rows, width, hidden_size]`, then of each new token `[rows, 1, hidden_size]`. The rows
        are those of `scores`. Padding and rows that have ended hold NaN.
        """
    @property
    def logits(self) -> list[NDArray[np.float32]] | None:
        """The model's own logits of each step, with `output_logits=True`.

        The shapes are those of `scores`.
        """
    @property
    def logprobs(self) -> list[NDArray[np.float32]]:
        """The log-probability of each token under the model's own logits, in nats.

        One array for each row, `[tokens]`.
        """
    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages that a conversation goes on with after this output: the first row, with its
        calls of tools.

        With `run_tools` those of all rounds: replies, results of tools, and the last reply.
        """
    @property
    def parsed(self) -> _T_co:
        """The text of the first row as a value of the call's `output_type`; None for a call without one.

        Raises `ParseError` for a text that was cut off, which names what is missing, and for one whose values a
        class refuses.
        """
    @property
    def parsed_all(self) -> list[_T_co | ParseError]:
        """The texts of all rows as values of the call's `output_type`.

        A text that is none has its `ParseError` in the list. None for each row of a call without an
        `output_type`.
        """
    @property
    def past_key_values(self) -> KeptCache | list[KeptCache] | None:
        """The `cache` of the row, or those of all rows, as in transformers.

        None where none was kept, as for embeddings and for outputs of another process.
        """
    @property
    def prompt_indices(self) -> list[int]:
        """The index of the prompt that each row continues."""
    @property
    def reasoning(self) -> str:
        """What the model thought in the first row before it answered; empty if it did not think.

        `text` has it as the model wrote it, and `messages` have the answer without it.
        """
    @property
    def scores(self) -> list[NDArray[np.float32]] | None:
        """The processed scores of each step, with `output_scores=True`.

        Each array is `[rows, vocab_size]`. With beams the rows are the beams of each prompt, and
        the scores are log-probabilities. Rows that have ended hold NaN.
        """
    @property
    def seed(self) -> int | None:
        """The seed of the first prompt. None when nothing was drawn."""
    @property
    def seeds(self) -> list[int]:
        """The seeds of all prompts. Empty when nothing was drawn."""
    @property
    def sequences(self) -> NDArray[np.int64]:
        """Prompts and continuations, `[rows, width]`, as transformers gives them.

        Prompts are padded on the left to equal width, continuations on the right. Padding is
        the `pad_token_id`, or 0 when there is none.
        """
    @property
    def sequences_scores(self) -> NDArray[np.float32] | None:
        """The score of each row, `[rows]`. None without beams.

        It is the sum of the processed log-probabilities, divided by the length to the power of
        `length_penalty`.
        """
    @property
    def text(self) -> str:
        """The continuation of the first row, without special tokens. A stop string is kept."""
    @property
    def texts(self) -> list[str]:
        """The continuations of all rows."""
    @property
    def timings(self) -> Timings:
        """Where the time went."""
    @property
    def token_ids(self) -> list[NDArray[np.int64]]:
        """The tokens of each continuation, `[tokens]`, with the token that ended it."""
    @property
    def tool_calls(self) -> list[ToolCall]:
        """The calls of tools that the first row makes, in their order.

        Empty for a reply that makes none, and for a call without `tools`. A call that was cut off, or whose arguments
        are no JSON, has its text.
        """
    @property
    def top_logprobs(self) -> list[list[dict[int, float]]] | None:
        """The most probable tokens at each step, with `top_logprobs=N`.

        For each token of each row a dict of N ids with their log-probabilities under the model's
        own logits, the most probable first.
        """
    @property
    def usage(self) -> Usage:
        """The number of tokens in and out."""
    def __contains__(self, key: object, /) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...
    @overload
    def __getitem__(self, key: SupportsIndex, /) -> GeneratedRow: ...
    @overload
    def __getitem__(self, key: Any, /) -> Any: ...
    def __iter__(self) -> Iterator[GeneratedRow]: ...
    def __len__(self) -> int: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

def pack(
    model: str | os.PathLike[str] | None,
    out: str | os.PathLike[str],
    *,
    dtype: DType,
    num_threads: int | None = None,
    adapter: str | os.PathLike[str] | None = None,
    revision: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    progress: Callable[[str, int, int], object] | None = None,
) -> int:
    """Quantizes a model and writes it to a new folder.

    The folder opens as any model does, without `dtype`, and as fast as it can be read. The results are
    those of the original model with that `dtype`.

    Args:
        model (str | os.PathLike[str] | None): A folder in the Hugging Face layout, a GGUF file, or the id
            of a model in the local Hub cache. None is the bundled story model.
        out (str | os.PathLike[str]): The folder to write: a new one, or an empty one.
        dtype (DType): "int8" or "int4".
        num_threads (int | None): The number of threads, as of a `Generator`.
        adapter (str | os.PathLike[str] | None): A LoRA adapter to merge before, as of a `Generator`.
        revision (str | None): A branch, tag or commit in the Hub cache. None is "main".
        cache_dir (str | os.PathLike[str] | None): The Hub cache. None is that of the environment.
        progress (Callable[[str, int, int], object] | None): Called in this thread with the stage
            ("pack"), the bytes of weights done, and all bytes. What it raises ends the packing.

    Returns:
        int: The bytes of the packed weights.

    Raises:
        LoadError: The model is missing, damaged, not supported or packed already, or the folder
            cannot be written.
        CapacityError: The model does not fit into memory.
        ConfigError: An argument has a value that is not possible.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> size = rsgen.pack(None, folder, dtype="int4")  # the story model
        >>> gen = rsgen.Generator(folder)
    """

@disjoint_base
class BuiltInLogitsProcessor:
    """The base of the processors of `rsgen.processors`.

    Calling one with `input_ids`, `[rows, len]`, and `scores`, `[rows, vocab_size]`, returns the new
    scores in float32 and leaves those given as they are. `current_tokens` and `beam_group_idx` are
    for `HammingDiversityLogitsProcessor` alone, as in transformers.

    Args:
        *arguments (Any): Those of the class.
        **keywords (Any): Those of the class.
    """

    def __new__(cls, *arguments: Any, **keywords: Any) -> Self: ...
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]: ...
    def __call__(
        self,
        input_ids: ArrayLike,
        scores: ArrayLike,
        current_tokens: ArrayLike | None = None,
        beam_group_idx: int = 0,
    ) -> NDArray[np.float32]: ...

@final
class _RowFile:
    """The finished rows in a file, which one run has at a time.

    Args:
        path (str | os.PathLike[str]): The file, which is made if it is not there.
    """

    def __new__(cls, path: str | os.PathLike[str]) -> Self: ...
    def read(
        self, number: int, prompt: str
    ) -> tuple[list[str], list[str | None], list[int], str | None] | None:
        """Returns what was written of a row.

        Args:
            number (int): The number of the row.
            prompt (str): A digest of its prompt.

        Returns:
            tuple[list[str], list[str | None], list[int], str | None] | None: Its texts, why they ended, how many tokens
                they have, and the JSON of their entries of a catalogue. None if it is not finished.
        """
    def release(self) -> None:
        """Lets another run have the file, until it is used again."""
    def write(
        self, number: int, prompt: str, answer: tuple[list[str], list[str | None], list[int], str | None]
    ) -> None:
        """Adds a row, by one call of the system.

        Args:
            number (int): The number of the row.
            prompt (str): A digest of its prompt.
            answer (tuple[list[str], list[str | None], list[int], str | None]): Its texts, why they ended, how many tokens
                they have, and the JSON of their entries of a catalogue.
        """

@final
class Seed:
    """Random numbers that go on from call to call, as those of `torch.Generator` do.

    With `seed=7` each call draws the same numbers. With one `Seed(7)` for several calls each goes on where
    the last one ended: they draw what transformers draws in several calls after one `torch.manual_seed(7)`. The
    prompts of a list draw independently of each other, each with a seed that is drawn from it. Calls at the same
    time need a Seed each, and calls with drafts a number.

    Args:
        seed (int): The seed, as for `torch.manual_seed`.

    Example:
        >>> seed = rsgen.Seed(7)
        >>> first = gen.sample("One day", seed=seed, max_new_tokens=20)
        >>> second = gen.sample("One day", seed=seed, max_new_tokens=20)  # another story
    """

    def __new__(cls, seed: int) -> Self: ...
    def __copy__(self) -> Seed: ...
    def __deepcopy__(self, memo: Any, /) -> Seed: ...
    def __reduce__(self) -> tuple[Any, tuple[bytes]]: ...
    def get_state(self) -> NDArray[np.uint8]:
        """Returns the state, as `torch.Generator.get_state()` does: `torch.from_numpy` makes torch's of it.

        Returns:
            NDArray[np.uint8]: The bytes, `[5056]`.
        """
    def initial_seed(self) -> int:
        """Returns the seed that it began with.

        Returns:
            int: The seed.
        """
    def manual_seed(self, seed: int) -> Self:
        """Begins anew.

        Args:
            seed (int): The seed.

        Returns:
            Self: This object.
        """
    def set_state(self, state: NDArray[np.uint8]) -> None:
        """Goes on from a state of `get_state()`, or one of torch: `generator.get_state().numpy()`.

        Args:
            state (NDArray[np.uint8]): The bytes, `[5056]`.

        Raises:
            InputError: It is no state.
        """

def serve(
    model: Generator | StrPath | Mapping[str, Generator | StrPath] | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    api_key: str | Sequence[str] | Mapping[str, str] | None = None,
    insecure_no_auth: bool = False,
    allowed_hosts: Sequence[str] = (),
    cors_origin: str | Sequence[str] | None = None,
    served_model_name: str | None = None,
    load_on_startup: Literal["first", "all", "none"] = "first",
    models_max: int | None = None,
    models_memory: int | None = None,
    keep_alive: float | str | None = None,
    lora_modules: Mapping[str, str | os.PathLike[str]] | None = None,
    tool_parser: ToolParser | None = None,
    reasoning_parser: ReasoningParser | None = None,
    catalogues: Mapping[str, TokenTrie] | None = None,
    max_requests: int = 64,
    max_requests_per_key: int | None = None,
    max_queue: int = 256,
    max_queue_per_key: int | None = None,
    max_tokens_per_key: int | None = None,
    max_stored_responses: int = 1024,
    max_stored_bytes: int = 67108864,
    queue_timeout: float = 60.0,
    grace: float = 30.0,
    log_format: Literal["text", "json"] = "text",
    strict_api: bool = False,
    ui: bool = True,
    on_start: Callable[[str], object] | None = None,
    dtype: DType = "auto",
    compute_dtype: DType = "float32",
    kv_dtype: DType = "auto",
    num_threads: int | None = None,
    kv_cache_bytes: int | None = None,
    prefix_caching: bool = True,
    generation_config: str = "auto",
    revision: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> None:
    """Serves a model over HTTP, as OpenAI's API does, until Ctrl-C.

    Ctrl-C ends it in an orderly way: it takes no more requests and finishes those that run, for at most
    `grace` seconds; a second one ends it at once. In another thread than the main one it serves until the
    process ends.

    Args:
        model (Generator | StrPath | Mapping[str, Generator | StrPath] | None): A generator, a path of a
            folder, or the id of a model in the Hub cache; the bundled story model if `None`. Several models are a dict of
            names, by which requests choose one.
        host (str): The address to listen on; one that other machines reach needs an `api_key`.
        port (int): The port; 0 takes a free one.
        api_key (str | Sequence[str] | Mapping[str, str] | None): The key, or keys, of which clients must send one; a dict has
            them by the names that the log gives them.
        insecure_no_auth (bool): Lets other machines in without a key.
        allowed_hosts (Sequence[str]): Further names by which browsers may call the server.
        cors_origin (str | Sequence[str] | None): The origins whose pages may read answers (CORS); `"*"` is any.
        served_model_name (str | None): The model's name in the API.
        load_on_startup (Literal["first", "all", "none"]): Which of the models that are given as paths are loaded before the
            first request. The others are loaded with their first request.
        models_max (int | None): How many models are loaded at a time; no limit if `None`.
        models_memory (int | None): The bytes for all loaded models; if `None`, what the system has left.
        keep_alive (float | str | None): How long a model stays loaded without a request, in seconds or as in `"5m"`; until
            another one needs its memory if `None`.
        lora_modules (Mapping[str, str | os.PathLike[str]] | None): LoRA adapters beside the first model, which `model` of a
            request may name, by their names; beside another model as `"model:name"`.
        tool_parser (ToolParser | None): The form of tool calls, such as `"hermes"`; by default that of the chat template.
        reasoning_parser (ReasoningParser | None): The form of the model's thinking, such as `"qwen3"`, or `"none"`; by
            default that of the chat template.
        catalogues (Mapping[str, TokenTrie] | None): The catalogues that requests may name as their
            `allowed_sequences`.
        max_requests (int): How many requests run at a time.
        max_requests_per_key (int | None): How many of each key run or wait at a time; no limit if `None`.
        max_queue (int): How many wait for their turn.
        max_queue_per_key (int | None): How many of each key wait; no limit if `None`.
        max_tokens_per_key (int | None): How many tokens a minute each key has, prompts included; no limit if `None`.
        max_stored_responses (int): How many responses of `/v1/responses` are kept.
        max_stored_bytes (int): The memory for them.
        queue_timeout (float): Seconds that a request may wait.
        grace (float): Seconds that requests may go on at the end.
        log_format (Literal["text", "json"]): How the logger `rsgen.serve.request` writes the line of a request.
        strict_api (bool): Refuses unknown fields.
        ui (bool): Shows the playground at the address: a page for browsers.
        on_start (Callable[[str], object] | None): Gets the address once the server listens; it is printed if `None`.
        dtype (DType): As for `Generator`, for the models that are given as paths, like the arguments that follow.
        compute_dtype (DType): As for `Generator`.
        kv_dtype (DType): As for `Generator`.
        num_threads (int | None): As for `Generator`; several models share the threads.
        kv_cache_bytes (int | None): As for `Generator`, for each model.
        prefix_caching (bool): As for `Generator`.
        generation_config (str): As for `Generator`.
        revision (str | None): As for `Generator`.
        cache_dir (str | os.PathLike[str] | None): As for `Generator`.

    Raises:
        ConfigError: An option breaks its rule, or the port is in use.
        LoadError: The model cannot be loaded.
        InternalError: The server ended itself after many defects of rsgen; start it in a new process.
    """

@disjoint_base
class BuiltInStoppingCriteria:
    """The base of the criteria of `rsgen.stopping_criteria`, which run without Python.

    Calling one with `input_ids`, `[rows, len]`, returns for each row whether it ends with its newest
    token, as an array of bool, `[rows]`. `ConfidenceCriteria` alone needs `scores`,
    `[rows, vocab_size]`, or a tuple of such arrays, of which the last counts.

    Args:
        *arguments (Any): Those of the class.
        **keywords (Any): Those of the class.
    """

    def __new__(cls, *arguments: Any, **keywords: Any) -> Self: ...
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]: ...
    def __call__(
        self, input_ids: ArrayLike, scores: ArrayLike | Sequence[ArrayLike] | None = None
    ) -> NDArray[np.bool_]: ...

@final
class TokenStream(PythonGenerator[StreamedToken, None, GenerationOutput[_T_co]]):
    """The tokens of a request, as they are generated.

    With beams they are those of the best sequence: a token comes once nothing can change it any
    more, and the last ones at the end.

    It is an iterator, a context manager and a generator in Python's sense, and with asyncio an
    asynchronous iterator and context manager. The model works while a token is waited for.
    Leaving the stream ends the work and frees its cache blocks at once: by `break` when nothing
    else refers to it, by the end of a `with` block, or by `close()`.

    In a generator function, `output = yield from stream` gives the finished output. An exception
    of a callback, or Ctrl-C, ends the stream, and so does cancelling the task that waits for a
    token. One reader at a time: a second one gets a `ValueError`.

    Example:
        >>> with gen.stream("Once upon a time", max_new_tokens=60) as stream:
        ...     for token in stream:
        ...         print(token, end="", flush=True)
        >>> stream.output.usage
        Usage(prompt_tokens=5, cached_prompt_tokens=0, generated_tokens=60)
    """

    def __aenter__(self) -> Future[Self]: ...
    def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> Future[None]: ...
    @classmethod
    def __class_getitem__(cls, item: Any, /) -> GenericAlias: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> None: ...
    def __reduce__(self) -> NoReturn: ...
    def aclose(self) -> Future[None]:
        """Ends the work and waits until it has ended.

        Returns:
            Future[None]: Done when the work has ended.
        """
    def close(self) -> None:
        """Ends the work. Rows that have not ended are marked as "cancelled" in the output.

        Called from another thread while a token is computed, it ends that computation with
        `CancelledError`.
        """
    def events(self) -> EventStream:
        """Returns an iterator over the stream's events, from the first one on: everything that happens, as it
        happens.

        Returns:
            EventStream: The events, as dicts.

        Raises:
            InputError: The call was without `output_events=True`.
        """
    def send(self, value: None, /) -> StreamedToken:
        """Returns the next token, as a generator does.

        Args:
            value (None): Must be None: a stream takes no values.

        Returns:
            StreamedToken: The token.
        """
    def throw(self, typ: Any, val: Any = None, tb: Any = None, /) -> StreamedToken:
        """Closes the stream and raises the exception, as a generator does.

        Args:
            typ (Any): An exception, or its class.
            val (Any): The exception, or an argument for its class.
            tb (Any): A traceback.

        Returns:
            StreamedToken: Never: it raises.
        """
    @property
    def is_reasoning(self) -> bool:
        """Whether the last token that was read is thinking, or a mark of it: not the answer.

        False outside of conversations, and for models that do not think.
        """
    @property
    def output(self) -> GenerationOutput[_T_co] | None:
        """The output of a stream that has ended, was closed or was interrupted.

        None before that, and after an error. It begins with the tokens that the stream gave; with
        beams it may go on beyond them.
        """
    @property
    def partial(self) -> Any:
        """What the first row has so far of a value of the call's `output_type`, as JSON has it.

        Objects are dicts with the properties that have begun; a text that has not ended is there as far as it goes,
        a number is not. None before there is any of it, and for a call without an `output_type`.
        """
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Future[StreamedToken]: ...
    def __iter__(self) -> PythonGenerator[StreamedToken, None, GenerationOutput[_T_co]]: ...
    def __next__(self) -> StreamedToken: ...

@final
class BayesianDetectorModel:
    """A trained judge of SynthID's watermark: transformers' class of that name.

    `from_pretrained()` opens one.
    """

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | os.PathLike[str]) -> Self:
        """Opens a detector that transformers' `save_pretrained` has written.

        Args:
            pretrained_model_name_or_path (str | os.PathLike[str]): The folder, with `config.json` and
                `model.safetensors`, or an id in the local Hub cache.

        Returns:
            Self: The model.

        Raises:
            LoadError: A file is missing or damaged, or is not that of such a model.
        """
    @property
    def model_name(self) -> str | None:
        """The model whose texts it was trained for, if its folder says so."""
    @property
    def watermarking_config(self) -> SynthIDTextWatermarkingConfig | None:
        """How those texts are marked, if its folder says so."""
    @property
    def watermarking_depth(self) -> int:
        """The layers of the tournament: the number of keys."""

@final
class SynthIDTextWatermarkDetector:
    """Finds SynthID's watermark in texts: transformers' class of that name.

    Args:
        detector_module (BayesianDetectorModel | None): The trained model. Without one there are no
            probabilities, but the means of g-values.
        logits_processor (Any): How the texts were marked: a SynthIDTextWatermarkingConfig, a dict of
            its fields, or a SynthIDTextWatermarkLogitsProcessor. None takes what the model's folder
            says.
        tokenizer (Any): The tokenizer or an id: from the first `eos_token_id` on, tokens do not
            count. None counts all.

    Raises:
        ConfigError: A value is outside of its range.

    Example:
        >>> watermark = rsgen.SynthIDTextWatermarkingConfig(ngram_len=5, keys=[654, 400, 836, 123])
        >>> out = gen.sample("Once upon a time", max_new_tokens=60, watermarking_config=watermark)
        >>> detector = rsgen.SynthIDTextWatermarkDetector(None, watermark, gen.tokenizer)
        >>> detector.weighted_mean_scores(out.token_ids)
    """

    def __new__(
        cls,
        detector_module: BayesianDetectorModel | None = None,
        logits_processor: Any = None,
        tokenizer: Any = None,
    ) -> Self: ...
    def compute_context_repetition_mask(self, input_ids: Ids | Sequence[Ids]) -> NDArray[np.bool_]:
        """Returns which n-grams of texts have a context that has not come before.

        Args:
            input_ids (Ids | Sequence[Ids]): Token ids of one text, or of several of one length.

        Returns:
            NDArray[np.bool_]: `[rows, len - (ngram_len - 1)]`
        """
    def compute_eos_token_mask(self, input_ids: Ids | Sequence[Ids]) -> NDArray[np.bool_]:
        """Returns which tokens of texts come before the end.

        Args:
            input_ids (Ids | Sequence[Ids]): Token ids of one text, or of several of one length.

        Returns:
            NDArray[np.bool_]: `[rows, len]`
        """
    def compute_g_values(self, input_ids: Ids | Sequence[Ids]) -> NDArray[np.int64]:
        """Returns the g-values of the n-grams of texts.

        Args:
            input_ids (Ids | Sequence[Ids]): Token ids of one text, or of several of one length.

        Returns:
            NDArray[np.int64]: 0 or 1, `[rows, len - (ngram_len - 1), depth]`.
        """
    def mean_scores(self, input_ids: Ids | Sequence[Ids]) -> NDArray[np.float64]:
        """Returns the mean of the g-values that count, about 0.5 without a mark.

        Args:
            input_ids (Ids | Sequence[Ids]): Token ids of one text or several. Best without the prompt.

        Returns:
            NDArray[np.float64]: A score for each text, `[rows]`; NaN where no g-value counts.
        """
    def weighted_mean_scores(self, input_ids: Ids | Sequence[Ids]) -> NDArray[np.float64]:
        """Returns the mean of the g-values that count, the first layers weighing more.

        Args:
            input_ids (Ids | Sequence[Ids]): Token ids of one text or several. Best without the prompt.

        Returns:
            NDArray[np.float64]: A score for each text, `[rows]`; NaN where no g-value counts.
        """
    def __call__(self, tokenized_outputs: Ids | Sequence[Ids]) -> NDArray[np.float32]: ...

def _tables() -> dict[str, list[dict[str, Any]]]:
    """Returns the fields of a configuration, the strategies, and the classes of processors, criteria
    and constraints.

    The classes themselves, the stubs and the pages of the documentation are made from it.

    Returns:
        dict[str, list[dict[str, Any]]]: Descriptions by name of the table.
    """

@final
class TokenTrie:
    """A catalogue of texts or token sequences, one of which the output of a call is to be.

    `allowed_sequences=trie` lets every search and sampling end in its entries only, and
    `GenerationOutput.entries` names them. It cannot be changed, so that calls and threads share it.

    A text is encoded as what follows a prompt, without special tokens: begin it with a space
    where a word is to follow. Tokenizers that put a space before the first word put it once. In
    models with an encoder it is a target. Entries with the same tokens, and empty ones, are refused.

    Args:
        entries (Iterable[str] | Iterable[Ids]): The texts, or their token ids. It is iterated once.
        payload (Iterable[Any] | None): What each entry stands for, such as an id: values of JSON,
            which `GenerationOutput.entries` holds in place of the entry's index.
        tokenizer (Tokenizer | Generator | None): What encodes texts. Ids need none.

    Raises:
        InputError: There is no entry, one has no token or those of another one, or `payload` holds
            more or fewer values than there are entries.
        ConfigError: A payload is no value of JSON.
        CapacityError: The memory does not suffice.

    Example:
        >>> trie = rsgen.TokenTrie([" fox", " little bird"], tokenizer=gen)
        >>> out = gen.beam_search("There was a", num_beams=2, allowed_sequences=trie, max_new_tokens=8)
        >>> out.text, out.entries
    """

    def __new__(
        cls,
        entries: Iterable[str] | Iterable[Ids],
        *,
        payload: Iterable[Any] | None = None,
        tokenizer: Tokenizer | Generator | None = None,
    ) -> Self: ...
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, memo: Any, /) -> Self: ...
    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]: ...
    @classmethod
    def open(cls, path: str | os.PathLike[str], *, tokenizer: Tokenizer | Generator | None = None) -> Self:
        """Opens a catalogue that `save()` has written.

        The file is read into memory, not mapped.

        Args:
            path (str | os.PathLike[str]): The file.
            tokenizer (Tokenizer | Generator | None): What encodes the texts that are looked for with `in`.

        Returns:
            Self: The catalogue.

        Raises:
            LoadError: The file is missing, damaged, or of another kind.
        """
    def payload(self, index: int) -> Any:
        """Returns the payload of an entry.

        Args:
            index (int): The place of the entry, in the order in which they were given.

        Returns:
            Any: The value, None in a catalogue without payloads.
        """
    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the catalogue to a file, which any machine can open.

        Args:
            path (str | os.PathLike[str]): The file. It is replaced if it exists.

        Raises:
            LoadError: The file cannot be written.
        """
    @property
    def longest(self) -> int:
        """The number of tokens of the longest entry, without the token that ends it."""
    @property
    def memory_bytes(self) -> int:
        """The bytes of memory that the catalogue takes."""
    def __contains__(self, entry: str | Ids, /) -> bool: ...
    def __getitem__(self, index: SupportsIndex, /) -> list[int]: ...
    def __iter__(self) -> Iterator[list[int]]: ...
    def __len__(self) -> int: ...

@final
class Tokenizer:
    """The tokenizer of a model: text to token ids and back.

    It opens without the model; a generator's own is `gen.tokenizer`. Names are those of
    transformers' tokenizers, and `len()` is the size of the vocabulary.

    Args:
        model (str | os.PathLike[str] | None): A folder, or the id of a model in the local Hub
            cache. None is the story model that comes with the package.
        revision (str | None): A branch, tag or commit in the Hub cache. None is "main".
        cache_dir (str | os.PathLike[str] | None): The Hub cache. None is the one that the
            environment names.
        local_files_only (bool): Must be True: rsgen never downloads.
        padding_side (Literal["left", "right"] | None): The side on which shorter rows are filled
            up. None is "right" for the sources of encoder-decoder models, else "left".
        pad_token (str | None): The token that fills them up. None is that of the files.
        src_lang (str | None): The language of sources. None is that of the files.
        tgt_lang (str | None): The language of targets. None is that of the files.

    Raises:
        LoadError: The files are missing, damaged or not supported.

    Example:
        >>> tokenizer = rsgen.Tokenizer()
        >>> tokenizer.decode(tokenizer.encode("Once upon a time"))
        >>> tokenizer(["Once upon a time", "One day"], padding=True, return_tensors="np")
    """

    def __new__(
        cls,
        model: str | os.PathLike[str] | None = None,
        *,
        revision: str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        local_files_only: bool = True,
        padding_side: Literal["left", "right"] | None = None,
        pad_token: str | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
    ) -> Self: ...
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, memo: Any, /) -> Self: ...
    def __reduce__(self) -> tuple[Any, tuple[type[Self], tuple[str | None], dict[str, Any]]]: ...
    @overload
    def apply_chat_template(
        self,
        conversation: Conversation,
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        tokenize: bool = True,
        padding: bool | Literal["longest", "max_length", "do_not_pad"] = False,
        truncation: bool | None = None,
        max_length: int | None = None,
        return_tensors: None = None,
        *,
        return_dict: Literal[False],
        **kwargs: Any,
    ) -> list[int]:
        """Returns the prompt of a conversation by the model's chat template, as transformers does.

        The template writes the special tokens; the tokenizer adds none. Templates are not trusted:
        they run in a sandbox with limits of time and memory.

        Args:
            conversation (Conversation | Sequence[Conversation]): A list of messages, or a list of
                conversations, which gives a list of prompts.
            tools (Sequence[Tool] | None): What the model may call: JSON schemas, or functions with type hints
                and a docstring.
            documents (Sequence[Mapping[str, Any]] | None): Documents for the template.
            chat_template (str | None): A template, or the name of one of the model's.
            add_generation_prompt (bool): Ends with the words that begin a reply.
            continue_final_message (bool | str): Leaves the final message open, to be continued. A
                text names the field of the message to continue.
            tokenize (bool): Returns token ids; False returns the text.
            padding (bool | Literal["longest", "max_length", "do_not_pad"]): As for a call of the tokenizer, and so
                are the next three.
            truncation (bool | None): Cuts the prompts.
            max_length (int | None): The length for `padding` and `truncation`.
            return_tensors (Literal["np"] | None): "np" returns arrays.
            return_dict (bool): Returns what a call of the tokenizer returns, for `gen.generate(**inputs)`; False
                returns the ids alone.
            **kwargs (Any): Further variables for the template.

        Returns:
            Any: The token ids or the text, one for each conversation of a list; or an encoding.

        Raises:
            InputError: The model has no chat template and none is given, or the template fails.
            LoadError: Its files are damaged.

        Example:
            >>> template = "{% for message in messages %}{{ message.content }}{% endfor %}"
            >>> messages = [{"role": "user", "content": "Once upon a time"}]
            >>> gen.tokenizer.apply_chat_template(messages, chat_template=template).input_ids
        """
    @overload
    def apply_chat_template(
        self,
        conversation: Sequence[Conversation],
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        tokenize: bool = True,
        padding: bool | Literal["longest", "max_length", "do_not_pad"] = False,
        truncation: bool | None = None,
        max_length: int | None = None,
        return_tensors: None = None,
        *,
        return_dict: Literal[False],
        **kwargs: Any,
    ) -> list[list[int]]:
        """Returns the prompt of a conversation by the model's chat template, as transformers does.

        The template writes the special tokens; the tokenizer adds none. Templates are not trusted:
        they run in a sandbox with limits of time and memory.

        Args:
            conversation (Conversation | Sequence[Conversation]): A list of messages, or a list of
                conversations, which gives a list of prompts.
            tools (Sequence[Tool] | None): What the model may call: JSON schemas, or functions with type hints
                and a docstring.
            documents (Sequence[Mapping[str, Any]] | None): Documents for the template.
            chat_template (str | None): A template, or the name of one of the model's.
            add_generation_prompt (bool): Ends with the words that begin a reply.
            continue_final_message (bool | str): Leaves the final message open, to be continued. A
                text names the field of the message to continue.
            tokenize (bool): Returns token ids; False returns the text.
            padding (bool | Literal["longest", "max_length", "do_not_pad"]): As for a call of the tokenizer, and so
                are the next three.
            truncation (bool | None): Cuts the prompts.
            max_length (int | None): The length for `padding` and `truncation`.
            return_tensors (Literal["np"] | None): "np" returns arrays.
            return_dict (bool): Returns what a call of the tokenizer returns, for `gen.generate(**inputs)`; False
                returns the ids alone.
            **kwargs (Any): Further variables for the template.

        Returns:
            Any: The token ids or the text, one for each conversation of a list; or an encoding.

        Raises:
            InputError: The model has no chat template and none is given, or the template fails.
            LoadError: Its files are damaged.

        Example:
            >>> template = "{% for message in messages %}{{ message.content }}{% endfor %}"
            >>> messages = [{"role": "user", "content": "Once upon a time"}]
            >>> gen.tokenizer.apply_chat_template(messages, chat_template=template).input_ids
        """
    @overload
    def apply_chat_template(
        self,
        conversation: Conversation,
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        *,
        tokenize: Literal[False],
        padding: bool | Literal["longest", "max_length", "do_not_pad"] = False,
        truncation: bool | None = None,
        max_length: int | None = None,
        return_tensors: Literal["np"] | None = None,
        return_dict: bool = True,
        **kwargs: Any,
    ) -> str:
        """Returns the prompt of a conversation by the model's chat template, as transformers does.

        The template writes the special tokens; the tokenizer adds none. Templates are not trusted:
        they run in a sandbox with limits of time and memory.

        Args:
            conversation (Conversation | Sequence[Conversation]): A list of messages, or a list of
                conversations, which gives a list of prompts.
            tools (Sequence[Tool] | None): What the model may call: JSON schemas, or functions with type hints
                and a docstring.
            documents (Sequence[Mapping[str, Any]] | None): Documents for the template.
            chat_template (str | None): A template, or the name of one of the model's.
            add_generation_prompt (bool): Ends with the words that begin a reply.
            continue_final_message (bool | str): Leaves the final message open, to be continued. A
                text names the field of the message to continue.
            tokenize (bool): Returns token ids; False returns the text.
            padding (bool | Literal["longest", "max_length", "do_not_pad"]): As for a call of the tokenizer, and so
                are the next three.
            truncation (bool | None): Cuts the prompts.
            max_length (int | None): The length for `padding` and `truncation`.
            return_tensors (Literal["np"] | None): "np" returns arrays.
            return_dict (bool): Returns what a call of the tokenizer returns, for `gen.generate(**inputs)`; False
                returns the ids alone.
            **kwargs (Any): Further variables for the template.

        Returns:
            Any: The token ids or the text, one for each conversation of a list; or an encoding.

        Raises:
            InputError: The model has no chat template and none is given, or the template fails.
            LoadError: Its files are damaged.

        Example:
            >>> template = "{% for message in messages %}{{ message.content }}{% endfor %}"
            >>> messages = [{"role": "user", "content": "Once upon a time"}]
            >>> gen.tokenizer.apply_chat_template(messages, chat_template=template).input_ids
        """
    @overload
    def apply_chat_template(
        self,
        conversation: Sequence[Conversation],
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        *,
        tokenize: Literal[False],
        padding: bool | Literal["longest", "max_length", "do_not_pad"] = False,
        truncation: bool | None = None,
        max_length: int | None = None,
        return_tensors: Literal["np"] | None = None,
        return_dict: bool = True,
        **kwargs: Any,
    ) -> list[str]:
        """Returns the prompt of a conversation by the model's chat template, as transformers does.

        The template writes the special tokens; the tokenizer adds none. Templates are not trusted:
        they run in a sandbox with limits of time and memory.

        Args:
            conversation (Conversation | Sequence[Conversation]): A list of messages, or a list of
                conversations, which gives a list of prompts.
            tools (Sequence[Tool] | None): What the model may call: JSON schemas, or functions with type hints
                and a docstring.
            documents (Sequence[Mapping[str, Any]] | None): Documents for the template.
            chat_template (str | None): A template, or the name of one of the model's.
            add_generation_prompt (bool): Ends with the words that begin a reply.
            continue_final_message (bool | str): Leaves the final message open, to be continued. A
                text names the field of the message to continue.
            tokenize (bool): Returns token ids; False returns the text.
            padding (bool | Literal["longest", "max_length", "do_not_pad"]): As for a call of the tokenizer, and so
                are the next three.
            truncation (bool | None): Cuts the prompts.
            max_length (int | None): The length for `padding` and `truncation`.
            return_tensors (Literal["np"] | None): "np" returns arrays.
            return_dict (bool): Returns what a call of the tokenizer returns, for `gen.generate(**inputs)`; False
                returns the ids alone.
            **kwargs (Any): Further variables for the template.

        Returns:
            Any: The token ids or the text, one for each conversation of a list; or an encoding.

        Raises:
            InputError: The model has no chat template and none is given, or the template fails.
            LoadError: Its files are damaged.

        Example:
            >>> template = "{% for message in messages %}{{ message.content }}{% endfor %}"
            >>> messages = [{"role": "user", "content": "Once upon a time"}]
            >>> gen.tokenizer.apply_chat_template(messages, chat_template=template).input_ids
        """
    @overload
    def apply_chat_template(
        self,
        conversation: Conversation | Sequence[Conversation],
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        tokenize: bool = True,
        padding: bool | Literal["longest", "max_length", "do_not_pad"] = False,
        truncation: bool | None = None,
        max_length: int | None = None,
        *,
        return_tensors: Literal["np"],
        return_dict: Literal[False],
        **kwargs: Any,
    ) -> NDArray[np.int64]:
        """Returns the prompt of a conversation by the model's chat template, as transformers does.

        The template writes the special tokens; the tokenizer adds none. Templates are not trusted:
        they run in a sandbox with limits of time and memory.

        Args:
            conversation (Conversation | Sequence[Conversation]): A list of messages, or a list of
                conversations, which gives a list of prompts.
            tools (Sequence[Tool] | None): What the model may call: JSON schemas, or functions with type hints
                and a docstring.
            documents (Sequence[Mapping[str, Any]] | None): Documents for the template.
            chat_template (str | None): A template, or the name of one of the model's.
            add_generation_prompt (bool): Ends with the words that begin a reply.
            continue_final_message (bool | str): Leaves the final message open, to be continued. A
                text names the field of the message to continue.
            tokenize (bool): Returns token ids; False returns the text.
            padding (bool | Literal["longest", "max_length", "do_not_pad"]): As for a call of the tokenizer, and so
                are the next three.
            truncation (bool | None): Cuts the prompts.
            max_length (int | None): The length for `padding` and `truncation`.
            return_tensors (Literal["np"] | None): "np" returns arrays.
            return_dict (bool): Returns what a call of the tokenizer returns, for `gen.generate(**inputs)`; False
                returns the ids alone.
            **kwargs (Any): Further variables for the template.

        Returns:
            Any: The token ids or the text, one for each conversation of a list; or an encoding.

        Raises:
            InputError: The model has no chat template and none is given, or the template fails.
            LoadError: Its files are damaged.

        Example:
            >>> template = "{% for message in messages %}{{ message.content }}{% endfor %}"
            >>> messages = [{"role": "user", "content": "Once upon a time"}]
            >>> gen.tokenizer.apply_chat_template(messages, chat_template=template).input_ids
        """
    @overload
    def apply_chat_template(
        self,
        conversation: Conversation | Sequence[Conversation],
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        tokenize: Literal[True] = True,
        padding: bool | Literal["longest", "max_length", "do_not_pad"] = False,
        truncation: bool | None = None,
        max_length: int | None = None,
        return_tensors: Literal["np"] | None = None,
        return_dict: Literal[True] = True,
        **kwargs: Any,
    ) -> BatchEncoding:
        """Returns the prompt of a conversation by the model's chat template, as transformers does.

        The template writes the special tokens; the tokenizer adds none. Templates are not trusted:
        they run in a sandbox with limits of time and memory.

        Args:
            conversation (Conversation | Sequence[Conversation]): A list of messages, or a list of
                conversations, which gives a list of prompts.
            tools (Sequence[Tool] | None): What the model may call: JSON schemas, or functions with type hints
                and a docstring.
            documents (Sequence[Mapping[str, Any]] | None): Documents for the template.
            chat_template (str | None): A template, or the name of one of the model's.
            add_generation_prompt (bool): Ends with the words that begin a reply.
            continue_final_message (bool | str): Leaves the final message open, to be continued. A
                text names the field of the message to continue.
            tokenize (bool): Returns token ids; False returns the text.
            padding (bool | Literal["longest", "max_length", "do_not_pad"]): As for a call of the tokenizer, and so
                are the next three.
            truncation (bool | None): Cuts the prompts.
            max_length (int | None): The length for `padding` and `truncation`.
            return_tensors (Literal["np"] | None): "np" returns arrays.
            return_dict (bool): Returns what a call of the tokenizer returns, for `gen.generate(**inputs)`; False
                returns the ids alone.
            **kwargs (Any): Further variables for the template.

        Returns:
            Any: The token ids or the text, one for each conversation of a list; or an encoding.

        Raises:
            InputError: The model has no chat template and none is given, or the template fails.
            LoadError: Its files are damaged.

        Example:
            >>> template = "{% for message in messages %}{{ message.content }}{% endfor %}"
            >>> messages = [{"role": "user", "content": "Once upon a time"}]
            >>> gen.tokenizer.apply_chat_template(messages, chat_template=template).input_ids
        """
    def batch_decode(
        self,
        sequences: Sequence[Ids] | ArrayLike,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: None = None,
    ) -> list[str]:
        """Returns the texts of several rows of token ids, such as an output of `generate()`.

        Args:
            sequences (Sequence[Ids] | ArrayLike): The rows.
            skip_special_tokens (bool): Leaves special tokens out.
            clean_up_tokenization_spaces (None): The files of the tokenizer decide it.

        Returns:
            list[str]: The texts.
        """
    def convert_ids_to_tokens(self, ids: int | Ids, skip_special_tokens: bool = False) -> Any:
        """Returns the tokens of ids as the vocabulary writes them.

        Args:
            ids (int | Ids): An id or several.
            skip_special_tokens (bool): Leaves special tokens out.

        Returns:
            Any: The token; a list of tokens for several ids. None stands for an id without a token.
        """
    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> Any:
        """Returns the ids of tokens as the vocabulary writes them.

        Args:
            tokens (str | Sequence[str]): A token or several.

        Returns:
            Any: The id; a list of ids for several tokens. An unknown token has the `unk_token_id`.
        """
    @overload
    def decode(
        self,
        token_ids: int | np.integer[Any] | Ids,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: None = None,
    ) -> str:
        """Returns the text of token ids. Bytes that form no whole character become U+FFFD.

        Args:
            token_ids (int | Ids | Sequence[Ids]): An id, ids, or several rows of ids. Ids that are
                no token are left out.
            skip_special_tokens (bool): Leaves special tokens out.
            clean_up_tokenization_spaces (None): The files of the tokenizer decide it.

        Returns:
            Any: The text; a list of texts for several rows.

        Example:
            >>> ids = gen.tokenizer.encode("Once upon a time")
            >>> gen.tokenizer.decode(ids, skip_special_tokens=True)
        """
    @overload
    def decode(
        self,
        token_ids: Sequence[Ids],
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: None = None,
    ) -> list[str]:
        """Returns the text of token ids. Bytes that form no whole character become U+FFFD.

        Args:
            token_ids (int | Ids | Sequence[Ids]): An id, ids, or several rows of ids. Ids that are
                no token are left out.
            skip_special_tokens (bool): Leaves special tokens out.
            clean_up_tokenization_spaces (None): The files of the tokenizer decide it.

        Returns:
            Any: The text; a list of texts for several rows.

        Example:
            >>> ids = gen.tokenizer.encode("Once upon a time")
            >>> gen.tokenizer.decode(ids, skip_special_tokens=True)
        """
    @overload
    def encode(self, text: str, *, add_special_tokens: bool = True, return_tensors: None = None) -> list[int]:
        """Returns the token ids of a text.

        Args:
            text (str): The text.
            add_special_tokens (bool): Adds the special tokens that the model expects around a text.
            return_tensors (Literal["np"] | None): "np" gives an array, `[1, len]`.

        Returns:
            Any: The ids, a list unless an array was asked for.

        Example:
            >>> gen.tokenizer.encode("Once upon a time")
            >>> gen.tokenizer.encode(" moon", add_special_tokens=False)  # as it follows other text
        """
    @overload
    def encode(
        self, text: str, *, add_special_tokens: bool = True, return_tensors: Literal["np"]
    ) -> NDArray[np.int64]:
        """Returns the token ids of a text.

        Args:
            text (str): The text.
            add_special_tokens (bool): Adds the special tokens that the model expects around a text.
            return_tensors (Literal["np"] | None): "np" gives an array, `[1, len]`.

        Returns:
            Any: The ids, a list unless an array was asked for.

        Example:
            >>> gen.tokenizer.encode("Once upon a time")
            >>> gen.tokenizer.encode(" moon", add_special_tokens=False)  # as it follows other text
        """
    def encode_target(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Returns the token ids of a target, as `tokenizer(text_target=...)`.

        Those of Marian have pieces of their own, and those of multilingual models begin or end with
        `tgt_lang`; others are the ids of `encode()`.

        Args:
            text (str): The text.
            add_special_tokens (bool): Adds the special tokens that the model expects around a text.

        Returns:
            list[int]: The ids.
        """
    @classmethod
    def from_pretrained(
        cls,
        model: str | os.PathLike[str] | None = None,
        *,
        revision: str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        local_files_only: bool = True,
        padding_side: Literal["left", "right"] | None = None,
        pad_token: str | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
    ) -> Self:
        """Opens a tokenizer, with the arguments of `Tokenizer()`.

        Returns:
            Self: The tokenizer.
        """
    def get_vocab(self) -> dict[str, int]:
        """Returns all tokens with their ids.

        Returns:
            dict[str, int]: The ids by their tokens.
        """
    def save_pretrained(self, save_directory: str | os.PathLike[str]) -> tuple[str, ...]:
        """Writes the files of the tokenizer into a folder, from which rsgen and transformers open it.

        They are those that it was opened from, chat templates included. A `pad_token` and a `padding_side` that
        were set are written as well.

        Args:
            save_directory (str | os.PathLike[str]): The folder. It is made if it is missing, and files of the same
                names are replaced.

        Returns:
            tuple[str, ...]: The paths of the files.

        Raises:
            InputError: The tokenizer is in a GGUF file, and has none of its own.
        """
    def tokenize(self, text: str, *, add_special_tokens: bool = False) -> list[str]:
        """Returns the tokens of a text as the vocabulary writes them, such as `Ġthe`.

        Args:
            text (str): The text.
            add_special_tokens (bool): Adds the special tokens that the model expects around a text.

        Returns:
            list[str]: The tokens.
        """
    @property
    def all_special_ids(self) -> list[int]:
        """The ids of the special tokens, in ascending order."""
    @property
    def all_special_tokens(self) -> list[str]:
        """The special tokens, in the order of their ids."""
    @property
    def bos_token(self) -> str | None:
        """The token that begins a text."""
    @property
    def bos_token_id(self) -> int | None:
        """The id of the token that begins a text."""
    @property
    def eos_token(self) -> str | None:
        """The token that ends a text."""
    @property
    def eos_token_id(self) -> int | None:
        """The id of the token that ends a text.

        `Generator.generation_config` holds all tokens that end generation.
        """
    @property
    def languages(self) -> list[str]:
        """The languages that a multilingual tokenizer knows, by the names that it takes."""
    @property
    def model_max_length(self) -> int | None:
        """The most tokens of a text with `truncation=True`, if its files name a limit."""
    @property
    def pad_token(self) -> str | None:
        """The token that fills up shorter rows. It can be set, for example to `eos_token`."""
    @pad_token.setter
    def pad_token(self, value: str | None, /) -> None: ...
    @property
    def pad_token_id(self) -> int | None:
        """The id of the token that fills up shorter rows. It can be set."""
    @pad_token_id.setter
    def pad_token_id(self, value: int | None, /) -> None: ...
    @property
    def padding_side(self) -> Literal["left", "right"]:
        """The side on which shorter rows are filled up. It can be set.

        A prompt that is to be continued needs "left", and the source of an encoder-decoder model
        "right": the defaults.
        """
    @padding_side.setter
    def padding_side(self, value: Literal["left", "right"], /) -> None: ...
    @property
    def special_tokens_map(self) -> dict[str, str]:
        """The special tokens that have names, such as `bos_token`, with their texts."""
    @property
    def src_lang(self) -> str | None:
        """The language of sources. It can be set, to one of `languages`."""
    @src_lang.setter
    def src_lang(self, value: str | None, /) -> None: ...
    @property
    def tgt_lang(self) -> str | None:
        """The language of targets. It can be set, to one of `languages`.

        Marian's is written before a source, such as `>>fra<<`.
        """
    @tgt_lang.setter
    def tgt_lang(self, value: str | None, /) -> None: ...
    @property
    def unk_token(self) -> str | None:
        """The token that stands for what the vocabulary lacks."""
    @property
    def unk_token_id(self) -> int | None:
        """The id of the token that stands for what the vocabulary lacks."""
    @property
    def vocab_size(self) -> int:
        """The number of different tokens, added ones included. The model may have more."""
    def __call__(
        self,
        text: str | Sequence[str] | None = None,
        *,
        text_target: str | Sequence[str] | None = None,
        add_special_tokens: bool = True,
        padding: bool | Literal["longest", "max_length", "do_not_pad"] = False,
        truncation: bool | None = None,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: Literal["left", "right"] | None = None,
        return_tensors: Literal["np"] | None = None,
        return_attention_mask: bool | None = None,
        return_token_type_ids: Literal[False] | None = None,
        return_offsets_mapping: bool = False,
    ) -> BatchEncoding: ...
    def __len__(self) -> int: ...

@final
class WatermarkDetector:
    """Finds the watermark of green lists in texts: transformers' class of that name.

    It needs the settings that the texts were marked with, and the size of the vocabulary.

    Args:
        model_config (Any): The generator, its `config`, or transformers' configuration of the
            model: `vocab_size` counts, and `bos_token_id`, which is left out in front of a text.
        device (Any): Accepted for transformers' sake, without effect.
        watermarking_config (WatermarkingConfig | dict[str, Any] | None): The settings. None is
            `WatermarkingConfig()`.
        ignore_repeated_ngrams (bool): Counts n-grams that come again once.
        max_cache_size (int): Accepted for transformers' sake, without effect.

    Raises:
        ConfigError: A value is outside of its range.

    Example:
        >>> watermark = rsgen.WatermarkingConfig(bias=4.0)
        >>> out = gen.sample("Once upon a time", max_new_tokens=60, watermarking_config=watermark)
        >>> detector = rsgen.WatermarkDetector(gen, "cpu", watermark)
        >>> detector(out.token_ids, return_dict=True).z_score
    """

    def __new__(
        cls,
        model_config: Any,
        device: Any = None,
        watermarking_config: WatermarkingConfig | dict[str, Any] | None = None,
        ignore_repeated_ngrams: bool = False,
        max_cache_size: int = 128,
    ) -> Self: ...
    @overload
    def __call__(
        self, input_ids: Ids | Sequence[Ids], z_threshold: float = 3.0, return_dict: Literal[False] = False
    ) -> NDArray[np.bool_]: ...
    @overload
    def __call__(
        self, input_ids: Ids | Sequence[Ids], z_threshold: float = 3.0, *, return_dict: Literal[True]
    ) -> WatermarkDetectorOutput: ...

def _watermark(values: dict[str, Any], validate: bool = False) -> dict[str, Any]:
    """Checks the types of the values of a watermark, and returns them as Python's own.

    Args:
        values (dict[str, Any]): Values by name.
        validate (bool): Checks their ranges as well.

    Returns:
        dict[str, Any]: A new dict.

    Raises:
        ConfigError: A value has a wrong type, or is outside of its range.
    """
