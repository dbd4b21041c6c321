"""What transformers' users bring along: its objects, read by their public attributes. transformers is never imported."""

from __future__ import annotations

import inspect
from typing import Any

#: Arguments of constructors that objects of transformers keep under another name.
RENAMED = {"bad_words_ids": "bad_word_ids", "hashing_key": "hash_key"}
#: Classes whose attributes do not say what they were made from.
UNREADABLE = {"EncoderRepetitionPenaltyLogitsProcessor"}


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


def counterpart(item: Any) -> Any:
    """rsgen's own processor or criterion for one of transformers, which would compute on torch's tensors."""
    from . import processors, stopping_criteria

    cls = type(item)
    name = cls.__name__
    ours = getattr(processors, name, None) or getattr(stopping_criteria, name, None)
    is_theirs = cls.__module__.startswith("transformers.")
    if is_theirs and ours is not None and name not in UNREADABLE:
        arguments = _arguments(ours, item)
        if arguments is not None:
            return ours(**arguments)
    if is_theirs and ours is not None:
        remedy = f"give {ours.__module__}.{name} made from the same arguments"
    else:
        base = "LogitsProcessor" if _is_processor(cls) else "StoppingCriteria"
        module = processors if base == "LogitsProcessor" else stopping_criteria
        remedy = (
            f"derive it from {module.__name__}.{base} and compute with numpy's arrays, or wrap the object: "
            "lambda ids, scores: object(torch.from_numpy(ids), torch.from_numpy(scores)).numpy()"
        )
    raise TypeError(
        f"{name} computes on torch's tensors, as all of transformers' classes do, and rsgen on numpy's arrays; {remedy}"
    )


def _is_processor(cls: type) -> bool:
    return any(base.__name__ in ("LogitsProcessor", "LogitsWarper") for base in cls.__mro__)


def _arguments(ours: type, item: Any) -> dict[str, Any] | None:
    """The arguments that an object was made from; ``None`` when one of them is not kept."""
    arguments = {}
    for name, parameter in inspect.signature(ours).parameters.items():
        if name == "device" or parameter.kind is parameter.KEYWORD_ONLY:
            continue
        missing = parameter.default
        value = getattr(item, RENAMED.get(name, name), missing)
        if value is parameter.empty:
            return None
        # Of tensors the values.
        arguments[name] = value.tolist() if hasattr(value, "tolist") else value
    if "greenlist_ratio" in arguments and hasattr(item, "greenlist_size"):
        # The ratio itself is not kept. One of the middle is rounded to the same size.
        arguments["greenlist_ratio"] = (item.greenlist_size + 0.5) / item.vocab_size
    return arguments
