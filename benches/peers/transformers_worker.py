"""transformers on torch, in the type of the checkpoint."""

from __future__ import annotations

from collections.abc import Callable

import torch
from transformers import AutoModelForCausalLM
from worker import serve


def load(folder: str, threads: int) -> Callable[[list[int], int], list[int]]:
    """Loads the model; end-of-sequence is disabled."""
    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    model.generation_config.eos_token_id = None

    def generate(prompt: list[int], new_tokens: int) -> list[int]:
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=new_tokens,
                min_new_tokens=new_tokens,
                pad_token_id=0,
            )
        return out[0, len(prompt) :].tolist()

    return generate


if __name__ == "__main__":
    serve(load)
