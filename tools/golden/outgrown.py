"""Computes a text that outgrows the original context of a Phi-3 as transformers 5 does, in transformers 4.

Where longrope switches to its long factors, the cache holds keys of the short ones, so the text has to be computed anew.
transformers 4 does not manage: its searches drop the cache, but pass the whole text with the `cache_position` of the last token
alone, whose mask lets each token see those after it. Contrastive search passes the candidates by themselves, so the cache with
the keys of the short factors stays. On the models of the goldens, logits are then up to 3 away from those of a fresh pass over the same
text in the same version; in transformers 5 they are those of a fresh pass.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from transformers import LogitsProcessorList


@contextmanager
def computed_anew(model: Any) -> Iterator[dict[str, Any]]:
    """Mends `generate` of a model that switches; yields the arguments that it takes."""
    config = model.config
    rope = getattr(config, "rope_scaling", None) or {}
    if config.model_type != "phi3" or rope.get("rope_type", rope.get("type")) != "longrope":
        yield {}
        return
    prepared, computed = model.prepare_inputs_for_generation, model.forward
    chosen: list[torch.Tensor] = []

    def record(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        chosen[:] = [ids]
        return scores

    @functools.wraps(prepared)
    def prepare(ids: torch.Tensor, *args: Any, **kwargs: Any) -> dict[str, Any]:
        past = kwargs["past_key_values"].get_seq_length() if kwargs.get("past_key_values") else 0
        if past == config.original_max_position_embeddings:
            if ids.shape[1] == 1:
                # The candidates of contrastive search.
                ids = torch.cat([chosen[0].repeat_interleave(len(ids) // len(chosen[0]), 0), ids], dim=1)
            kwargs |= {"past_key_values": None, "cache_position": torch.arange(ids.shape[1])}
        return prepared(ids, *args, **kwargs)

    @functools.wraps(computed)
    def forward(*args: Any, **kwargs: Any) -> Any:
        out = computed(*args, **kwargs)
        if chosen and getattr(out, "hidden_states", None) is not None:
            # After the prompt a search looks at the newest tokens alone.
            out.hidden_states = tuple(states[:, -1:] for states in out.hidden_states)
        return out

    replaced = {"prepare_inputs_for_generation": prepare, "forward": forward}
    with patch.multiple(model, **replaced):
        yield {"logits_processor": LogitsProcessorList([record])}
