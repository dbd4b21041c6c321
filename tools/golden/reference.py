"""transformers as the reference: float32 is the standard to equal, float64 the arbiter of near ties."""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from margins import InFloat64
from transformers import AutoModelForCausalLM, PreTrainedModel

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


@dataclass(frozen=True)
class Request:
    """One call of `generate`: rows of equal width, a mask when they are padded, a seed when it samples."""

    input_ids: list[list[int]]
    fields: dict[str, Any]
    seed: int | None = None
    attention_mask: list[list[int]] | None = None

    @property
    def width(self) -> int:
        """Length of the padded prompt."""
        return len(self.input_ids[0])

    @property
    def rows_per_prompt(self) -> int:
        """How many rows each prompt is expanded to."""
        return self.fields.get("num_return_sequences") or 1

    @property
    def rows(self) -> int:
        """How many rows the output has."""
        return len(self.input_ids) * self.rows_per_prompt

    def prompt(self, row: int) -> list[int]:
        """The unpadded prompt of an output row."""
        index = row // self.rows_per_prompt
        mask = self.attention_mask[index] if self.attention_mask else [1] * self.width
        return [token for token, kept in zip(self.input_ids[index], mask, strict=True) if kept]


@dataclass(frozen=True)
class Answer:
    """What transformers gives: ids of all rows, and for each step raw logits and scores, `[rows, vocab]`."""

    sequences: np.ndarray
    logits: list[np.ndarray] = field(repr=False)
    scores: list[np.ndarray] = field(repr=False)


class Reference:
    """A model folder, or a model, computed by transformers."""

    def __init__(self, model: PreTrainedModel | Path, tokenizer: Any = None) -> None:
        if isinstance(model, Path):
            model = AutoModelForCausalLM.from_pretrained(model).float()
        self.model = model.eval()
        self.tokenizer = tokenizer

    @cached_property
    def model64(self) -> PreTrainedModel:
        """The model in float64; what transformers would compute in float32 too, but for the rotary tables."""
        double = copy.deepcopy(self.model).double()
        for module in double.modules():
            for name, buffer in module.named_buffers(recurse=False):
                if name.endswith("inv_freq"):
                    setattr(module, name, buffer.float())
        if hasattr(double, "set_experts_implementation"):
            # The others have no kernel for float64.
            double.set_experts_implementation("eager")
        InFloat64.wrap(double)
        return double

    @property
    def vocab_size(self) -> int:
        """Width of the logits."""
        return self.model.config.get_text_config().vocab_size

    def couples_rows(self) -> bool:
        """Whether the frequencies of all rows of a batch depend on the longest one."""
        config = self.model.config.get_text_config()
        # transformers 4 calls them so.
        rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
        kind = rope.get("rope_type", rope.get("type"))
        return kind in ("dynamic", "longrope") and "alpha" not in rope

    def forward(self, input_ids: list[list[int]], *, float64: bool = False) -> np.ndarray:
        """Logits at every position, `[batch, seq, vocab]`."""
        model = self.model64 if float64 else self.model
        reset_rope(model)
        with torch.no_grad():
            return model(torch.tensor(input_ids), use_cache=False).logits.numpy()

    def generate(self, request: Request) -> Answer:
        """Runs `generate`, seeding torch right before."""
        ids = torch.tensor(request.input_ids)
        mask = torch.tensor(request.attention_mask) if request.attention_mask else torch.ones_like(ids)
        extra = {"tokenizer": self.tokenizer} if "stop_strings" in request.fields else {}
        reset_rope(self.model)
        if request.seed is not None:
            torch.manual_seed(request.seed)
        out = self.model.generate(
            ids,
            attention_mask=mask,
            return_dict_in_generate=True,
            output_logits=True,
            output_scores=True,
            **request.fields,
            **extra,
        )
        return Answer(
            out.sequences.numpy(),
            [step.numpy() for step in out.logits],
            [step.numpy() for step in out.scores],
        )

    def logits_along(self, prompt: list[int], continuation: list[int], *, float64: bool = True) -> np.ndarray:
        """Logits after the prompt and after each token, step by step: `[1 + len(continuation), vocab]`."""
        model = self.model64 if float64 else self.model
        reset_rope(model)
        ids = list(prompt)
        # `generate` drops the cache of a Phi-3 that becomes longer than this.
        original = getattr(model.config, "original_max_position_embeddings", None)
        # transformers 5 calls it so.
        cache = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
        with torch.no_grad():
            out = model(torch.tensor([ids]), use_cache=True)
            steps = [out.logits[0, -1]]
            for token in continuation:
                anew = len(ids) == original
                ids.append(token)
                fed, past = (ids, None) if anew else ([token], getattr(out, cache))
                out = model(torch.tensor([fed]), **{cache: past}, use_cache=True)
                steps.append(out.logits[0, -1])
        return torch.stack(steps).numpy()

    def setting(self, request: Request, name: str, default: Any = None) -> Any:
        """A generation field as `generate` resolves it: the call, then the model's file, then the default."""
        for value in (request.fields.get(name), getattr(self.model.generation_config, name, None)):
            if value is not None:
                return value
        return default

    def eos_ids(self, request: Request) -> list[int]:
        """The end-of-sequence ids in force, perhaps none."""
        eos = self.setting(request, "eos_token_id")
        return [] if eos is None else [eos] if isinstance(eos, int) else list(eos)


def reset_rope(model: PreTrainedModel) -> None:
    """Forgets the longest sequence seen, else dynamic RoPE would keep its base into the next call."""
    for module in model.modules():
        if hasattr(module, "original_inv_freq") and hasattr(module, "original_max_seq_len"):
            module.inv_freq = module.original_inv_freq.clone()
            module.max_seq_len_cached = module.original_max_seq_len


def noise_of_step(seed: int, rows: int, vocab_size: int, step: int) -> np.ndarray:
    """The noise `[rows, vocab]` that torch's multinomial divides by in a step of a seeded `generate`."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(step + 1):
        noise = torch.empty(rows, vocab_size).exponential_(1, generator=generator)
    return noise.double().numpy()
