"""CTranslate2 in float32 or int8: it refuses bfloat16 on a CPU without AMX."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from word_tokenizer import with_word_tokenizer, word
from worker import Generate, Ids, OnFirst, common_length, main

if TYPE_CHECKING:
    from ctranslate2 import GenerationStepResult


def convert(checkpoint: Path, folder: Path, weights: str, packages: list[str]) -> None:
    """By its own converter, which takes the words of the tokenizer."""
    from ctranslate2.converters import TransformersConverter

    with TemporaryDirectory() as with_tokenizer:
        with_word_tokenizer(checkpoint, Path(with_tokenizer))
        TransformersConverter(with_tokenizer).convert(str(folder), quantization=weights, force=True)


def load(folder: str, threads: int, arithmetic: str) -> Generate:
    """Loads the model; the beginning that prompts share is given as a static one, which is computed once."""
    from ctranslate2 import Generator

    generator = Generator(
        folder, device="cpu", compute_type=arithmetic, inter_threads=1, intra_threads=threads
    )

    def generate(prompts: Ids, new_tokens: int, num_beams: int, on_first: OnFirst | None = None) -> Ids:
        shared = common_length(prompts)

        def step(result: GenerationStepResult) -> bool:
            """Tells when the first token comes, and that generation goes on."""
            if result.step == 0 and on_first:
                on_first(time.perf_counter())
            return False

        results = generator.generate_batch(
            [[word(token) for token in prompt[shared:]] for prompt in prompts],
            static_prompt=[word(token) for token in prompts[0][:shared]] or None,
            cache_static_prompt=False,
            beam_size=num_beams,
            min_length=new_tokens,
            max_length=new_tokens,
            include_prompt_in_result=False,
            callback=step if on_first else None,
        )
        return [result.sequences_ids[0] for result in results]

    return generate


if __name__ == "__main__":
    main(load, ["ctranslate2"], convert)
