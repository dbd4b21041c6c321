"""What transformers' users bring along: its objects, read by their public attributes. transformers is never imported."""

from __future__ import annotations

import inspect
import math
import sys
import warnings
from typing import Any

_SMALLER = 'weights become integers while they are loaded: dtype="int8" or dtype="int4"'

#: Arguments of `from_pretrained` that have no counterpart: the values that ask for nothing, and what to do instead of others.
OPTIONS: dict[str, tuple[list[str], str]] = {
    "load_in_8bit": (["False", "None"], _SMALLER),
    "load_in_4bit": (["False", "None"], _SMALLER),
    "quantization_config": (["None"], _SMALLER),
    "device": (["None", "'cpu'", "device(type='cpu')"], "rsgen computes on CPUs alone"),
    "device_map": (["None", "'cpu'", "'auto'", "{'': 'cpu'}"], "rsgen computes on CPUs alone"),
    "attn_implementation": (
        ["None", "'eager'", "'sdpa'"],
        "rsgen has its own attention, in float32 or bfloat16",
    ),
    "low_cpu_mem_usage": (["None", "False", "True"], "loading needs no copy of the weights"),
    "use_safetensors": (["None", "True"], "rsgen reads safetensors alone; convert the model"),
    "use_fast": (["None", "False", "True"], "there is a single tokenizer"),
    "trust_remote_code": (["None", "False"], "rsgen never runs code of a model's folder"),
    "force_download": (["None", "False"], "rsgen never downloads; use `hf download <model>`"),
    "token": (["None", "False"], "rsgen never downloads; use `hf download <model> --token …`"),
    "subfolder": (["None", "''"], "give the path of the folder"),
}


def is_neutral(name: str, value: Any) -> bool:
    """Whether an option is one of transformers' that asks for nothing; one that asks for something is an error."""
    if name not in OPTIONS:
        return False
    from ._errors import ConfigError

    neutral, remedy = OPTIONS[name]
    if repr(value) not in neutral:
        given = f"{value!r:.60} ({type(value).__name__})"
        raise ConfigError(f"`{name}` must be {' or '.join(neutral)}, or left out, got {given}; {remedy}")
    return True


def config_fields(config: Any) -> dict[str, Any]:
    """The fields that are set in a ``GenerationConfig`` of transformers."""
    classes = {cls.__name__ for cls in type(config).__mro__}
    if "GenerationConfig" not in classes or not hasattr(config, "to_dict"):
        raise TypeError(
            "`generation_config` must be a GenerationConfig, rsgen's or transformers', "
            f"got an object of {type(config).__name__}; fields may be keyword arguments as well"
        )
    # The older versions' to_dict holds the defaults, too, as if they had been set.
    fields = config.to_diff_dict() if hasattr(config, "to_diff_dict") else config.to_dict()
    return {name: value for name, value in fields.items() if value is not None}


class OnTensors:
    """A processor or criterion that computes on torch's tensors, as a function of arrays: they share their memory."""

    def __init__(self, item: Any) -> None:
        self.item, self.__name__ = item, type(item).__name__

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        from_numpy = sys.modules["torch"].from_numpy
        result = self.item(from_numpy(input_ids), from_numpy(scores))
        return result.detach().cpu().numpy() if hasattr(result, "detach") else result


def counterpart(item: Any) -> Any:
    """rsgen's own processor or criterion for one of transformers, or that one itself on torch's tensors."""
    from . import processors, stopping_criteria

    cls = type(item)
    name = cls.__name__
    ours = getattr(processors, name, None) or getattr(stopping_criteria, name, None)
    is_theirs = cls.__module__.startswith("transformers.")
    if is_theirs and ours is not None:
        if ours is processors.NoBadWordsLogitsProcessor and set(_biases(item).values()) != {-math.inf}:
            ours = processors.SequenceBiasLogitsProcessor
        arguments = _arguments(ours, item)
        if arguments is not None:
            return ours(**arguments)
        remedy = f"give {ours.__module__}.{name} made from the same arguments, which is faster"
    else:
        base = "LogitsProcessor" if _is_processor(cls) else "StoppingCriteria"
        module = processors if base == "LogitsProcessor" else stopping_criteria
        remedy = f"derive it from {module.__name__}.{base} and compute with numpy's arrays, which is faster"
    if "torch" in sys.modules:
        warnings.warn(f"{name} computes on torch's tensors after each token; {remedy}", stacklevel=2)
        return OnTensors(item)
    raise TypeError(
        f"{name} computes on torch's tensors, but torch is not imported, and rsgen has numpy's arrays; {remedy}"
    )


def _is_processor(cls: type) -> bool:
    return any(base.__name__ in ("LogitsProcessor", "LogitsWarper") for base in cls.__mro__)


def _arguments(ours: type, item: Any) -> dict[str, Any] | None:
    """The arguments that an object was made from; ``None`` when one of them is not kept."""
    derived = DERIVED.get(ours.__name__, {})
    arguments = {}
    for name, parameter in inspect.signature(ours).parameters.items():
        if name == "device" or parameter.kind is parameter.KEYWORD_ONLY:
            continue
        try:
            value = derived[name](item) if name in derived else getattr(item, name, parameter.default)
        except AttributeError:
            return None
        if value is parameter.empty:
            return None
        # Of tensors the values.
        arguments[name] = value.tolist() if hasattr(value, "tolist") else value
    return arguments


def _inverse(number: float) -> float:
    """The number whose reciprocal is this one, to the bit."""
    guess = 1 / number
    near = (guess, math.nextafter(guess, 0), math.nextafter(guess, math.inf))
    return next((candidate for candidate in near if 1 / candidate == number), guess)


def _walked(ngrams: dict[tuple[int, ...], list[int]]) -> list[int]:
    """The text of n-grams: for the tokens before each, in the order of the text, those that followed."""
    if not ngrams:
        return []
    text = list(next(iter(ngrams)))
    rest, width = {before: list(after) for before, after in ngrams.items()}, len(text)
    while after := rest.get(tuple(text[len(text) - width :])):
        text.append(after.pop(0))
    return text


def _biases(item: Any) -> dict[tuple[int, ...], float]:
    """The biases that an object adds: once it has run, those of its tensors, whatever its dictionary says."""
    if not item.prepared_bias_variables:
        return dict(item.sequence_bias)
    biases = {(token,): bias for token, bias in enumerate(item.length_1_bias.tolist()) if bias}
    # Older versions keep the longer ones in the dictionary alone.
    if not hasattr(item, "multi_token_biases"):
        return biases | {ids: bias for ids, bias in item.sequence_bias.items() if len(ids) > 1}
    for columns in item.multi_token_biases:
        for before, last, bias in zip(*(column.tolist() for column in columns), strict=True):
            ids = (*before, last)
            biases[ids] = biases.get(ids, 0.0) + bias
    return biases


def _constant(name: str, value: Any) -> Any:
    """An attribute that no argument sets: an object with another value is computed by itself."""

    def read(item: Any) -> None:
        if getattr(item, name, value) != value:
            raise AttributeError(name)

    return read


def _penalty(item: Any) -> float:
    _constant("cu_seq_lens_q", None)(item)
    _constant("logits_indices", None)(item)
    return item.penalty


def _top_h(item: Any) -> float:
    _constant("top_n", 100)(item)
    return item.top_h


def _hashing_key(item: Any) -> int:
    """The key, if the table of the scheme "selfhash" is the one that it gives."""
    if item.seeding_scheme == "selfhash":
        torch = sys.modules["torch"]
        generator = torch.Generator().manual_seed(item.hash_key)
        if not torch.equal(item.fixed_table.cpu(), torch.randperm(item.table_size, generator=generator)):
            raise AttributeError("hashing_key")
    return item.hash_key


def _keys(item: Any) -> Any:
    # An object that has run goes on with the contexts that it has seen.
    _constant("state", None)(item)
    return item.keys


def _encoder_input_ids(item: Any) -> list[list[int]]:
    widths = {len(before) for ngrams in item.generated_ngrams for before in ngrams}
    if widths - {item.ngram_size - 1} or len(item.generated_ngrams) != item.batch_size:
        raise AttributeError("encoder_input_ids")
    rows = [_walked(ngrams) for ngrams in item.generated_ngrams]
    # A text that is shorter than an n-gram has none, whatever it is.
    return [row or [0] for row in rows]


def _sampling_table_seed(item: Any) -> int:
    """The default seed, if the table is the one that it gives: the seed itself is not kept."""
    torch = sys.modules["torch"]
    generator = torch.Generator().manual_seed(0)
    table = torch.randint(0, 2, (len(item.sampling_table),), generator=generator)
    if not torch.equal(table, item.sampling_table.cpu()):
        raise AttributeError("sampling_table_seed")
    return 0


#: Arguments of constructors that objects keep under another name or in another form.
DERIVED: dict[str, dict[str, Any]] = {
    "EncoderNoRepeatNGramLogitsProcessor": {
        "encoder_ngram_size": lambda item: item.ngram_size,
        "encoder_input_ids": _encoder_input_ids,
    },
    "EncoderRepetitionPenaltyLogitsProcessor": {"penalty": lambda item: _inverse(item.penalty)},
    "ExponentialDecayLengthPenalty": {
        "exponential_decay_length_penalty": lambda item: (item.regulation_start, item.regulation_factor),
        "input_ids_seq_length": lambda item: 0,
    },
    # Without the end token by itself, which is no bad word.
    "NoBadWordsLogitsProcessor": {
        "bad_words_ids": lambda item: [list(ids) for ids in _biases(item)],
        "eos_token_id": lambda item: None,
    },
    "PrefixConstrainedLogitsProcessor": {
        "prefix_allowed_tokens_fn": lambda item: item._prefix_allowed_tokens_fn,
        "num_beams": lambda item: item._num_beams,
    },
    "RepetitionPenaltyLogitsProcessor": {"penalty": _penalty},
    "SequenceBiasLogitsProcessor": {"sequence_bias": _biases},
    "SynthIDTextWatermarkLogitsProcessor": {
        "keys": _keys,
        "sampling_table_size": lambda item: len(item.sampling_table),
        "sampling_table_seed": _sampling_table_seed,
    },
    "TopHLogitsWarper": {"top_h": _top_h},
    # It counted when the object was made.
    "TopKLogitsWarper": {"min_tokens_to_keep": lambda item: 1},
    "UnbatchedClassifierFreeGuidanceLogitsProcessor": {
        "model": lambda item: None,
        "unconditional_ids": lambda item: item.unconditional_context["input_ids"],
        "unconditional_attention_mask": lambda item: item.unconditional_context["attention_mask"],
        "use_cache": lambda item: item.unconditional_context["use_cache"],
    },
    "WatermarkLogitsProcessor": {
        "hashing_key": _hashing_key,
        # The ratio itself is not kept. One of the middle is rounded to the same size.
        "greenlist_ratio": lambda item: (item.greenlist_size + 0.5) / item.vocab_size,
    },
}
