"""Draws requests for the strategies of `generate()`, runs them in transformers, and says how near a tie they were."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import transformers
import watermarks
from guidance import draw_guidance, fit_prompts, for_transformers, of_prompt, recomputed
from margins import margins, router_margins
from outgrown import computed_anew
from reference import reset_rope
from transformers.utils import is_sklearn_available

VERSION = tuple(int(part) for part in transformers.__version__.split(".")[:2])
#: Where the installed transformers stands: the one that rsgen follows by itself, the last with all searches, the old one.
ERA = "5" if VERSION >= (5, 0) else "4.55" if VERSION >= (4, 50) else "4.49"
#: The field with which rsgen follows the installed transformers.
COMPAT = {"compat": "5.23" if ERA == "5" else ERA} if ERA != "4.55" and VERSION < (5, 24) else {}
#: The strategies, and the eras that they are compared with.
FAMILIES: dict[str, tuple[str, ...]] = {
    "greedy_search": ("5", "4.49"),
    "sample": ("5", "4.49"),
    "beam_search": ("5", "4.49"),
    "beam_sample": ("5", "4.49"),
    "group_beam_search": ("4.55", "4.49"),
    "constrained_beam_search": ("4.55", "4.49"),
    "contrastive_search": ("4.55", "4.49"),
    "dola": ("4.55", "4.49"),
    "prompt_lookup": ("5",),
    "early_exit": ("5",),
    "assisted_greedy": ("5",),
    "assisted_sample": ("5",),
    "guidance": ("5",),
    "guided_beams": ("5",),
    "guided_lookup": ("5",),
    **watermarks.FAMILIES,
}
#: Those that transformers has for one prompt and one row alone. It masks the pad token in the drafts of an assistant.
ASSISTED = ("prompt_lookup", "early_exit", "assisted_greedy", "assisted_sample", "guided_lookup")
ASSISTED += ("assisted_watermark",)
#: Those that move away from a negative prompt, and those of them where transformers' cache of it goes astray.
GUIDED = ("guidance", "guided_beams", "guided_lookup")
ASTRAY = ("guided_beams", "guided_lookup")
#: Fields that transformers reads from the assistant.
OF_THE_ASSISTANT = (
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "assistant_confidence_threshold",
)
#: The architectures that the installed transformers computes as the newest does.
ARCHITECTURES = (
    ("llama", "mistral", "phi3", "qwen2", "qwen3") if ERA != "4.49" else ("llama", "mistral", "qwen2")
)


@dataclass(frozen=True)
class StrategyCase:
    """A request: rows of ids of equal width, padded on the left where the mask is 0, and the fields of the call."""

    family: str
    input_ids: list[list[int]]
    attention_mask: list[list[int]]
    fields: dict[str, Any]
    seed: int
    #: Whether the prompts are requests of their own.
    is_list: bool = False

    @property
    def is_padded(self) -> bool:
        """Whether the rows need their mask."""
        return not all(map(all, self.attention_mask))

    def alone(self) -> list[StrategyCase]:
        """The prompts as requests of their own."""
        rows = [
            [token for token, real in zip(ids, mask, strict=True) if real]
            for ids, mask in zip(self.input_ids, self.attention_mask, strict=True)
        ]
        return [
            StrategyCase(
                self.family, [ids], [[1] * len(ids)], of_prompt(self.fields, place), self.seed + place
            )
            for place, ids in enumerate(rows)
        ]


@dataclass(frozen=True)
class StrategyAnswer:
    """For each row of the result its generated tokens, and with beams their lanes and the row's score.

    Without beams `token_scores` are the processed scores of the tokens. Of DoLa transformers also says the largest logit of any
    layer that it has looked at.
    """

    tokens: list[list[int]]
    beam_indices: list[list[int]] | None = None
    scores: list[float] | None = None
    token_scores: list[list[float]] | None = None
    largest_logit: float = 0.0


def draw_case(family: str, rng: random.Random, vocab_size: int, num_layers: int) -> StrategyCase:
    """A random request of a family: prompts, fields of the strategy, and processors that go with it."""
    fields: dict[str, Any] = {"max_new_tokens": rng.randint(1, 32)}
    pad = rng.randrange(vocab_size)
    if rng.random() < 0.8:
        fields["eos_token_id"] = rng.sample(range(vocab_size), rng.randint(1, 4))
        fields["pad_token_id"] = pad
    DRAWS[family](fields, rng, num_layers, vocab_size)
    if family in GUIDED:
        draw_guidance(fields, rng, vocab_size)
    needs_pad = ERA == "4.49" or "beam" in family
    rows = 1 if rng.random() < 0.7 or (needs_pad and "pad_token_id" not in fields) else rng.randint(2, 3)
    # DoLa chooses one layer for all rows of a batch in transformers, one for each in rsgen.
    is_list = rows > 1 and (family in ("dola", *ASSISTED) or rng.random() < 0.4)
    prompts = [[rng.randrange(vocab_size) for _ in range(rng.randint(1, 24))] for _ in range(rows)]
    if rows > 1 and not is_list and "pad_token_id" not in fields:
        prompts = [prompt[:1] * len(prompts[0]) for prompt in prompts]
    fit_prompts(fields, rows)
    if family in ("prompt_lookup", "guided_lookup"):
        few = rng.sample(range(vocab_size), 4)
        prompts = [[rng.choice(few) for _ in prompt] for prompt in prompts]
    width = max(map(len, prompts))
    case = StrategyCase(
        family,
        [[pad] * (width - len(prompt)) + prompt for prompt in prompts],
        [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts],
        fields,
        rng.randrange(1 << 31),
        is_list,
    )
    _draw_processors(fields, rng, vocab_size, padded=case.is_padded and not is_list)
    if ERA == "4.55" and "bad_words_ids" in fields:
        # It lets a bad word be completed while the ids are not longer than its first tokens.
        fewest = min(map(len, prompts)) if is_list else width
        words = [word for word in fields.pop("bad_words_ids") if len(word) <= fewest]
        fields |= {"bad_words_ids": words} if words else {}
    if family in ASSISTED:
        fields.pop("pad_token_id", None)
    return case


def _draw_processors(fields: dict[str, Any], rng: random.Random, vocab_size: int, *, padded: bool) -> None:
    """Processors of both versions whose results are the same in the installed one and in the one that rsgen follows."""

    def ids(most: int) -> list[int]:
        return [rng.randrange(1, vocab_size) for _ in range(rng.randint(1, most))]

    beams = fields.get("num_beams", 1) > 1
    drawn: dict[str, Any] = {
        "repetition_penalty": round(rng.uniform(0.8, 1.6), 2),
        "encoder_repetition_penalty": round(rng.uniform(0.8, 1.6), 2),
        "no_repeat_ngram_size": rng.randint(2, 4),
        "encoder_no_repeat_ngram_size": rng.randint(2, 4),
        "min_new_tokens": rng.randint(1, min(6, fields["max_new_tokens"])),
        "bad_words_ids": [ids(3) for _ in range(rng.randint(1, 4))],
        "sequence_bias": [[ids(1), round(rng.uniform(-8, 8), 2)] for _ in range(rng.randint(1, 4))],
        "exponential_decay_length_penalty": (rng.randint(0, 6), round(rng.uniform(1.0, 1.3), 2)),
        "suppress_tokens": ids(6),
        "begin_suppress_tokens": ids(6),
        "forced_eos_token_id": rng.randrange(vocab_size),
        "renormalize_logits": True,
        "remove_invalid_values": True,
    }
    # What changed between the versions, for some inputs: compared with the version that rsgen follows alone.
    if ERA == "4.55" and (padded or beams):
        del drawn["encoder_repetition_penalty"], drawn["repetition_penalty"]
    if ERA == "4.55" and beams:
        del drawn["encoder_no_repeat_ngram_size"]
    if "eos_token_id" not in fields:
        del drawn["exponential_decay_length_penalty"], drawn["min_new_tokens"]
    elif ERA != "5":
        del drawn["exponential_decay_length_penalty"]
    fields |= {name: value for name, value in drawn.items() if rng.random() < 0.12}
    # An end that is forced and suppressed at once is refused by rsgen.
    if fields.get("forced_eos_token_id") in fields.get("suppress_tokens", []):
        del fields["suppress_tokens"]


def _draw_greedy(_fields: dict[str, Any], _rng: random.Random, _num_layers: int, _vocab_size: int) -> None:
    pass


def _draw_beams(fields: dict[str, Any], rng: random.Random, _num_layers: int, _vocab_size: int) -> None:
    beams = rng.randint(2, 8)
    fields["num_beams"] = beams
    fields["num_return_sequences"] = rng.randint(1, beams)
    fields["early_stopping"] = rng.choice([True, False, "never"])
    fields["length_penalty"] = rng.choice([1.0, 0.0, 2.0, 0.5, -1.0, -0.3])


def _draw_beam_sample(fields: dict[str, Any], rng: random.Random, num_layers: int, vocab_size: int) -> None:
    _draw_beams(fields, rng, num_layers, vocab_size)
    _draw_sample(fields, rng, num_layers, vocab_size)


def _draw_groups(fields: dict[str, Any], rng: random.Random, num_layers: int, vocab_size: int) -> None:
    _draw_beams(fields, rng, num_layers, vocab_size)
    groups = rng.randint(2, 4)
    fields["num_beams"] = groups * rng.randint(1, 3)
    fields["num_beam_groups"] = groups
    fields["num_return_sequences"] = rng.randint(1, fields["num_beams"])
    # 4.55 refuses groups without one.
    if rng.random() < 0.8 or ERA == "4.55":
        fields["diversity_penalty"] = rng.choice([0.2, 0.5, 1.0, 3.0])


def _draw_constraints(fields: dict[str, Any], rng: random.Random, num_layers: int, vocab_size: int) -> None:
    _draw_beams(fields, rng, num_layers, vocab_size)
    fields["max_new_tokens"] = rng.randint(4, 24)

    def phrase() -> list[int]:
        return [rng.randrange(vocab_size) for _ in range(rng.randint(1, 3))]

    # Of one choice with several phrases under way transformers forgets the progress; rsgen does so with `compat` alone.
    choices = [[[first], [second]] for first, second in [rng.sample(range(vocab_size), 2)]]
    words: list[Any] = [phrase() for _ in range(rng.randint(1, 3))]
    fields["force_words_ids"] = words if rng.random() < 0.7 else choices


def _draw_sample(fields: dict[str, Any], rng: random.Random, _num_layers: int, _vocab_size: int) -> None:
    fields["do_sample"] = True
    warpers = {
        "temperature": round(rng.uniform(0.5, 3.0), 2),
        "top_k": rng.choice([0, 2, 5, 20, 50]),
        "top_p": round(rng.uniform(0.3, 1.0), 2),
        "min_p": round(rng.uniform(0.001, 0.2), 3),
        "typical_p": round(rng.uniform(0.2, 0.99), 2),
        "epsilon_cutoff": rng.choice([3e-4, 1e-3, 0.01]),
        "eta_cutoff": rng.choice([3e-4, 1e-3, 0.01]),
    }
    if ERA == "5" and "num_beams" not in fields:
        warpers["top_h"] = round(rng.uniform(0.1, 1.0), 2)
    fields |= {name: value for name, value in warpers.items() if rng.random() < 0.3}
    if "num_beams" not in fields and "dola_layers" not in fields:
        fields["num_return_sequences"] = rng.choice([1, 1, 2, 4])


def _draw_contrastive(fields: dict[str, Any], rng: random.Random, _num_layers: int, _vocab_size: int) -> None:
    fields["penalty_alpha"] = round(rng.uniform(0.05, 0.95), 2)
    fields["top_k"] = rng.randint(2, 12)


def _draw_dola(fields: dict[str, Any], rng: random.Random, num_layers: int, vocab_size: int) -> None:
    layers = sorted(rng.sample(range(num_layers), rng.randint(1, num_layers)))
    fields["dola_layers"] = rng.choice(["high", "low", layers] if num_layers == 4 else ["high", layers])
    if rng.random() < 0.5:
        _draw_sample(fields, rng, num_layers, vocab_size)


def _draw_lookup(fields: dict[str, Any], rng: random.Random, num_layers: int, vocab_size: int) -> None:
    fields["prompt_lookup_num_tokens"] = rng.randint(1, 8)
    if rng.random() < 0.5:
        fields["max_matching_ngram_size"] = rng.randint(1, 4)
    _draw_one_row(fields, rng, num_layers, vocab_size, samples=rng.random() < 0.5)


def _draw_guided(fields: dict[str, Any], rng: random.Random, num_layers: int, vocab_size: int) -> None:
    if rng.random() < 0.5:
        _draw_sample(fields, rng, num_layers, vocab_size)


def _draw_guided_beams(fields: dict[str, Any], rng: random.Random, num_layers: int, vocab_size: int) -> None:
    draw = rng.choice([_draw_beams, _draw_beam_sample])
    draw(fields, rng, num_layers, vocab_size)


def _draw_guided_lookup(fields: dict[str, Any], rng: random.Random, num_layers: int, vocab_size: int) -> None:
    fields["prompt_lookup_num_tokens"] = rng.randint(1, 8)
    _draw_one_row(fields, rng, num_layers, vocab_size, samples=False)


def _draw_assistant(fields: dict[str, Any], rng: random.Random, *, adapts: bool) -> None:
    fields["num_assistant_tokens"] = rng.randint(1, 8)
    fields["num_assistant_tokens_schedule"] = rng.choice(["constant", "heuristic_transient"])
    # transformers adapts the threshold of a draft model with scikit-learn, if that is installed.
    threshold = rng.choice([0.0, 0.1, 0.4, 0.7])
    fields["assistant_confidence_threshold"] = 0.0 if adapts and not is_sklearn_available() else threshold
    if rng.random() < 0.15:
        fields["assistant_ensemble_weight"] = round(rng.uniform(0.05, 0.95), 2)


def _draw_one_row(
    fields: dict[str, Any], rng: random.Random, num_layers: int, vocab_size: int, *, samples: bool
) -> None:
    if samples:
        _draw_sample(fields, rng, num_layers, vocab_size)
        fields.pop("num_return_sequences", None)


def _draw_early_exit(fields: dict[str, Any], rng: random.Random, num_layers: int, vocab_size: int) -> None:
    _draw_assistant(fields, rng, adapts=False)
    fields["assistant_early_exit"] = rng.randint(1, num_layers)
    _draw_one_row(fields, rng, num_layers, vocab_size, samples=rng.random() < 0.5)


def _draw_assisted_greedy(
    fields: dict[str, Any], rng: random.Random, _num_layers: int, _vocab_size: int
) -> None:
    _draw_assistant(fields, rng, adapts=True)


def _draw_assisted_sample(
    fields: dict[str, Any], rng: random.Random, num_layers: int, vocab_size: int
) -> None:
    _draw_assistant(fields, rng, adapts=True)
    _draw_one_row(fields, rng, num_layers, vocab_size, samples=True)


def _draw_assisted(fields: dict[str, Any], rng: random.Random, num_layers: int, vocab_size: int) -> None:
    _draw_assistant(fields, rng, adapts=True)
    _draw_one_row(fields, rng, num_layers, vocab_size, samples=rng.random() < 0.5)


DRAWS: dict[str, Callable[[dict[str, Any], random.Random, int, int], None]] = {
    "greedy_search": _draw_greedy,
    "sample": _draw_sample,
    "beam_search": _draw_beams,
    "beam_sample": _draw_beam_sample,
    "group_beam_search": _draw_groups,
    "constrained_beam_search": _draw_constraints,
    "contrastive_search": _draw_contrastive,
    "dola": _draw_dola,
    "prompt_lookup": _draw_lookup,
    "early_exit": _draw_early_exit,
    "assisted_greedy": _draw_assisted_greedy,
    "assisted_sample": _draw_assisted_sample,
    "guidance": _draw_guided,
    "guided_beams": _draw_guided_beams,
    "guided_lookup": _draw_guided_lookup,
    **watermarks.draws(_draw_sample, [_draw_beams, _draw_beam_sample], _draw_assisted),
}


def assistant_of(model: Any, rng: random.Random) -> Any:
    """A model that drafts for another: its copy, disturbed."""
    assistant = copy.deepcopy(model)
    noise = torch.Generator().manual_seed(rng.randrange(1 << 31))
    amount = rng.choice([0.02, 0.1, 0.3])
    with torch.no_grad():
        for _, weights in sorted(assistant.named_parameters()):
            if weights.ndim == 2:
                weights += torch.randn(weights.shape, generator=noise) * weights.std() * amount
    return assistant


def answer(model: Any, case: StrategyCase, assistant: Any = None) -> StrategyAnswer:
    """What transformers gives, seeded right before. The assistant drafts in the families that have one."""
    if case.is_list:
        return joined([answer(model, alone, assistant) for alone in case.alone()])
    reset_rope(model)
    given: dict[str, Any] = {}
    if case.family.startswith("assisted"):
        reset_rope(assistant)
        given["assistant_model"] = assistant
    drafting = (assistant if given else model).generation_config
    for name in OF_THE_ASSISTANT if case.family in ASSISTED else ():
        setattr(drafting, name, case.fields.get(name))
    torch.manual_seed(case.seed)
    # Of constrained beams the old versions cannot always give scores, of groups not in float64.
    is_float64 = model.dtype == torch.float64
    with_scores = case.family != "constrained_beam_search" and not (
        case.family == "group_beam_search" and is_float64
    )
    rows_each = max(case.fields.get("num_beams", 1), case.fields.get("num_return_sequences", 1))
    fields = case.fields | for_transformers(case.fields, len(case.input_ids), rows_each)
    of_guidance = recomputed(len(case.input_ids[0])) if case.family in ASTRAY else nullcontext()
    anew = computed_anew(model) if ERA != "5" else nullcontext({})
    with _largest_logit(model) as largest, of_guidance, _all_layers(model), anew as recorder:
        out = model.generate(
            torch.tensor(case.input_ids),
            attention_mask=torch.tensor(case.attention_mask),
            return_dict_in_generate=True,
            output_scores=with_scores,
            **recorder,
            **given,
            **{
                name: _as_transformers_has_it(name, value)
                for name, value in fields.items()
                if name not in OF_THE_ASSISTANT
            },
        )
    generated = out.sequences[:, len(case.input_ids[0]) :].tolist()
    fields = case.fields
    eos = fields.get("eos_token_id", model.generation_config.eos_token_id)
    eos = eos if isinstance(eos, list) else [] if eos is None else [eos]
    if fields.get("num_beams", 1) == 1:
        tokens = [_until(row, eos) for row in generated]
        scores = [
            [float(out.scores[step][row, token]) for step, token in enumerate(ids)]
            for row, ids in enumerate(tokens)
        ]
        return StrategyAnswer(tokens, None, None, scores, max(largest))
    if ERA != "5":
        # Where a row ends cannot be seen: what fills it are the same ids.
        scores = getattr(out, "sequences_scores", None)
        return StrategyAnswer(
            [without_fill(row, case) for row in generated], None, None if scores is None else scores.tolist()
        )
    lanes = [[lane for lane in row if lane >= 0] for row in out.beam_indices.tolist()]
    tokens = [row[: len(lane)] for row, lane in zip(generated, lanes, strict=True)]
    return StrategyAnswer(tokens, lanes, out.sequences_scores.tolist())


@contextmanager
def _largest_logit(model: Any) -> Iterator[list[float]]:
    """Collects the largest logit of each use of the output matrix, which DoLa applies to inner layers too."""
    found: list[float] = []
    hook = model.get_output_embeddings().register_forward_hook(
        lambda _module, _inputs, logits: found.append(float(logits.abs().max()))
    )
    try:
        yield found
    finally:
        hook.remove()


@contextmanager
def _all_layers(model: Any) -> Iterator[None]:
    """Restores the number of layers, which an early exit changes, after an exception too."""
    config = model.config.get_text_config()
    layers = config.num_hidden_layers
    try:
        yield
    finally:
        config.num_hidden_layers = layers


def _as_transformers_has_it(name: str, value: Any) -> Any:
    if name == "watermarking_config" and "keys" in value:
        return transformers.SynthIDTextWatermarkingConfig(**value)
    return [[list(ids), bias] for ids, bias in value] if name == "sequence_bias" else value


def joined(answers: list[StrategyAnswer]) -> StrategyAnswer:
    """Requests of their own as one result: their lanes one after the other."""

    def all_of(name: str) -> Any:
        each = [getattr(answer, name) for answer in answers]
        return None if None in each else [value for one in each for value in one]

    largest = max(answer.largest_logit for answer in answers)
    return StrategyAnswer(all_of("tokens"), None, all_of("scores"), all_of("token_scores"), largest)


def _until(row: list[int], eos: list[int]) -> list[int]:
    """A row without what fills it after its end."""
    end = next((index for index, token in enumerate(row) if token in eos), len(row))
    return row[: end + 1]


def without_fill(row: list[int], case: StrategyCase) -> list[int]:
    """A row without the padding at its end."""
    end = len(row)
    while end and row[end - 1] == case.fields.get("pad_token_id"):
        end -= 1
    return row[:end]


@dataclass(frozen=True)
class ExactAnswer:
    """What transformers gives in float64, and how near to others its choices were."""

    answer: StrategyAnswer
    #: The smallest margin among tokens.
    margin: float
    #: The smallest margin among experts.
    router_margin: float


def exact_answer(model64: Any, case: StrategyCase, assistant64: Any = None) -> ExactAnswer:
    """What transformers gives in float64, and the smallest margins of its choices."""
    with router_margins() as of_routers, margins() as found:
        exact = answer(model64, case, assistant64)
    return ExactAnswer(exact, min(found, default=math.inf), min(of_routers, default=math.inf))
