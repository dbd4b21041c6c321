"""Makes objects of classes of the package in every way there is, lets Python's collector run over them, and ends with them.

    python collected.py NAME…

`test_collector.py` runs it: a class that breaks a rule of the collector kills the process.
"""

import contextlib
import copy
import faulthandler
import gc
import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import rsgen

IDS = [5, 6]


def generator() -> rsgen.Generator:
    if "gen" not in KEPT:
        KEPT["gen"] = rsgen.Generator(num_threads=1)
    return KEPT["gen"]


def output(**fields: object) -> rsgen.GenerationOutput:
    return generator().generate(IDS, max_new_tokens=2, **fields)


def called() -> rsgen.GenerationOutput:
    """A reply that calls a tool."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    messages = [{"role": "user", "content": "a"}]
    return generator().chat(
        messages, tools=[tool], tool_choice="f", chat_template="{{ tools }}", max_new_tokens=60
    )


def allowed(batch_id: int, input_ids: object) -> list[int]:
    return [1]


def rows() -> rsgen.RowResults:
    """Results that are being computed, with a callback."""
    results = generator().map(
        [IDS] * 9, max_new_tokens=9, concurrency=2, logits_processor=lambda ids, scores: scores
    )
    next(results)
    return results


#: What lives until the process ends.
KEPT: dict[str, object] = {}

#: The arguments of the constructors.
ARGUMENTS: dict[str, Callable[[], dict[str, object]]] = {
    "Generator": lambda: {"num_threads": 1},
    "Tokenizer": dict,
    "TokenTrie": lambda: {"entries": [IDS, [7]], "payload": ["a", {"b": 1}], "tokenizer": generator()},
    "Seed": lambda: {"seed": 7},
    "GenerationConfig": lambda: {"top_k": 5, "bad_words_ids": [[5]]},
    "TextStreamer": lambda: {"tokenizer": generator().tokenizer},
    "WatermarkingConfig": dict,
    "SynthIDTextWatermarkingConfig": lambda: {"ngram_len": 5, "keys": [1, 2]},
    "WatermarkDetector": lambda: {"model_config": generator()},
    "SynthIDTextWatermarkDetector": lambda: {
        "detector_module": rsgen.BayesianDetectorModel.from_pretrained(sys.argv[1]),
        "tokenizer": generator().tokenizer,
    },
    "constraints.Constraint": dict,
    "constraints.PhrasalConstraint": lambda: {"token_ids": IDS},
    "constraints.DisjunctiveConstraint": lambda: {"nested_token_ids": [IDS, [7]]},
    "stopping_criteria.StoppingCriteria": dict,
    "stopping_criteria.MaxLengthCriteria": lambda: {"max_length": 5},
    "stopping_criteria.MaxTimeCriteria": lambda: {"max_time": 5.0},
    "stopping_criteria.StopStringCriteria": lambda: {
        "tokenizer": generator().tokenizer,
        "stop_strings": ["a"],
    },
    "stopping_criteria.EosTokenCriteria": lambda: {"eos_token_id": [5]},
    "stopping_criteria.ConfidenceCriteria": lambda: {"assistant_confidence_threshold": 0.5},
    "processors.LogitsProcessor": dict,
    "processors.LogitBiasLogitsProcessor": lambda: {"logit_bias": {3: -100.0}},
    "processors.HammingDiversityLogitsProcessor": lambda: {
        "diversity_penalty": 1.0,
        "num_beams": 2,
        "num_beam_groups": 2,
    },
    "processors.ThinkingTokenBudgetLogitsProcessor": lambda: {
        "thinking_token_budget": 2,
        "think_end_token_ids": [3],
    },
    "processors.FrequencyPenaltyLogitsProcessor": lambda: {"frequency_penalty": 0.5},
    "processors.PresencePenaltyLogitsProcessor": lambda: {"presence_penalty": 0.5},
    "processors.PrefixConstrainedLogitsProcessor": lambda: {
        "prefix_allowed_tokens_fn": allowed,
        "num_beams": 1,
    },
}

#: Objects that calls return.
RETURNED: dict[str, Callable[[], object]] = {
    "GenerationOutput": lambda: output(
        output_type=bool, output_scores=True, output_logits=True, output_hidden_states=True
    ),
    "GeneratedRow": lambda: output()[0],
    "TokenStream": lambda: generator().stream(
        IDS, output_type=bool, logits_processor=lambda ids, scores: scores
    ),
    "EventStream": lambda: generator().stream(IDS, output_events=True, max_new_tokens=2).events(),
    "StreamedToken": lambda: next(generator().stream(IDS, max_new_tokens=2)),
    "TokenScores": lambda: generator().score(IDS, top_logprobs=2),
    "ModelOutput": lambda: generator().forward(IDS, output_attentions=True),
    "KeptCache": lambda: output(return_cache=True).cache,
    "RowResults": lambda: rows(),
    "Usage": lambda: output().usage,
    "Timings": lambda: output().timings,
    "ToolCall": lambda: called().tool_calls[0],
    "RankedCandidate": lambda: generator().rank(IDS, [[5]])[0],
    "DraftStats": lambda: generator().prompt_lookup(IDS, max_new_tokens=2).draft_stats,
    "CacheStats": lambda: generator().stats(),
    "BayesianDetectorModel": lambda: rsgen.BayesianDetectorModel.from_pretrained(sys.argv[1]),
    "WatermarkDetectorOutput": lambda: rsgen.WatermarkDetector(generator())([5, 6, 7], return_dict=True),
}
#: Classes that are only the bases of others.
BASES = {"constraints.BuiltInConstraint", "stopping_criteria.BuiltInStoppingCriteria"}

for case in json.loads((Path(__file__).parent / "golden" / "processors.json").read_text())["cases"]:
    for processor in vars(rsgen.processors).values():
        if getattr(processor, "_entry", None) == case["processor"]:
            ARGUMENTS.setdefault(f"processors.{processor.__name__}", lambda case=case: case["args"])
for name in rsgen.__all__:
    if name.endswith("Error"):
        ARGUMENTS[name] = dict


def names() -> list[str]:
    """The names of the classes in both tables."""
    return sorted({*ARGUMENTS, *RETURNED})


def public_classes() -> set[str]:
    """The names of all public classes: those of `rsgen`, and those of its modules."""
    names = set()
    for module in ("", "constraints.", "processors.", "stopping_criteria."):
        holder = getattr(rsgen, module[:-1]) if module else rsgen
        names |= {f"{module}{name}" for name in dir(holder) if isinstance(getattr(holder, name), type)}
    return names


def found(name: str) -> type:
    module, _, cls = name.rpartition(".")
    return getattr(getattr(rsgen, module) if module else rsgen, cls)


def derived(name: str) -> type:
    """A class of a caller's, where pickle finds it."""
    cls = found(name)
    own = type(f"Own{cls.__name__}", (cls,), {"__module__": __name__})
    globals()[own.__name__] = own
    return own


def ways(name: str) -> list[object]:
    """An object of a class for each way to make one."""
    if name in RETURNED:
        return again([RETURNED[name]()])
    made = [found(name)(**ARGUMENTS[name]())]
    if found(name).__flags__ & 1 << 10:
        made.append(derived(name)(**ARGUMENTS[name]()))
    return again(made)


def again(made: list[object]) -> list[object]:
    """These objects, their copies and what their pickles hold."""
    same = list(made)
    for value in made:
        for way in (copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))):
            try:
                same.append(way(value))
            except (TypeError, AttributeError, pickle.PicklingError) as error:
                print(f"{type(value).__name__}: {error}", file=sys.stderr)
    return same


def check(name: str) -> None:
    for value in ways(name):
        # In a cycle with a list, and where it can be by an attribute of its own.
        cycle = [value]
        cycle.append(cycle)
        with contextlib.suppress(AttributeError, TypeError):
            value.itself = cycle
        gc.collect()
    del value, cycle
    gc.collect()
    for index, value in enumerate(ways(name)):
        KEPT[f"{name} {index}"] = value
        with contextlib.suppress(AttributeError, TypeError):
            value.itself = value
    gc.collect()
    use(KEPT[f"{name} 0"])
    gc.collect()


def use(value: object) -> None:
    """Calls a processor or a criterion, and lets a generator have it."""
    ids, scores = np.array([IDS]), np.zeros((1, 2048), dtype=np.float32)
    if (
        isinstance(value, rsgen.processors.LogitsProcessor)
        and type(value) is not rsgen.processors.LogitsProcessor
    ):
        value(ids, scores)
    if isinstance(value, rsgen.stopping_criteria.BuiltInStoppingCriteria):
        value(ids, scores)
        generator().generate(IDS, max_new_tokens=1, stopping_criteria=[value])
    if isinstance(value, rsgen.constraints.BuiltInConstraint):
        generator().generate(IDS, max_new_tokens=3, num_beams=2, constraints=[value])


if __name__ == "__main__":
    faulthandler.enable()
    for each in sys.argv[2:]:
        print(each, flush=True)
        check(each)
