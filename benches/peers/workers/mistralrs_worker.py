"""mistral.rs. Its Python interface takes one prompt at a time, as text, and has no beams."""

from __future__ import annotations

import os
from pathlib import Path

from word_tokenizer import with_word_tokenizer
from worker import Generate, Ids, main


def convert(checkpoint: Path, folder: Path, weights: str, packages: list[str]) -> None:
    """The checkpoint as it is; only the tokenizer is wanting."""
    with_word_tokenizer(checkpoint, folder)


def load(folder: str, threads: int) -> Generate:
    """Loads the model without a prefix cache."""
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    from mistralrs import Architecture, CompletionRequest, Runner, Which

    runner = Runner(Which.Plain(model_id=folder, arch=Architecture.Llama), prefix_cache_n=0)

    def generate(prompts: Ids, new_tokens: int, num_beams: int) -> Ids:
        if len(prompts) > 1 or num_beams > 1:
            raise ValueError("mistral.rs takes one prompt at a time, and has no beams")
        prompt = " ".join(map(str, prompts[0]))
        request = CompletionRequest(
            prompt=prompt, model="default", max_tokens=new_tokens, temperature=0.0, ignore_eos=True
        )
        response = runner.send_completion_request(request)
        return [[int(word) for word in response.choices[0].text.split()]]

    return generate


if __name__ == "__main__":
    main(load, ["mistralrs"], convert)
