"""CTranslate2 for models with an encoder, in float32 or int8."""

from __future__ import annotations

from ctranslate2_worker import convert
from word_tokenizer import word
from worker import Generate, Ids, by_clients, main


def load(
    folder: str, threads: int, arithmetic: str, parallel: str, batch_type: str, batch_size: str
) -> Generate:
    """Loads the model; `parallel` says whether the threads compute a batch together, or each has its own."""
    from ctranslate2 import Translator

    inter, intra = (threads, 1) if parallel == "workers" else (1, threads)
    translator = Translator(
        folder, device="cpu", compute_type=arithmetic, inter_threads=inter, intra_threads=intra
    )

    def translate(prompts: Ids, new_tokens: int, num_beams: int) -> Ids:
        results = translator.translate_batch(
            [[word(token) for token in prompt] for prompt in prompts],
            batch_type=batch_type,
            max_batch_size=int(batch_size),
            beam_size=num_beams,
            min_decoding_length=new_tokens,
            max_decoding_length=new_tokens,
        )
        # The word of a token is its number behind a sign for the space.
        return [[number(token) for token in result.hypotheses[0]] for result in results]

    return by_clients(translate)


def number(token: str) -> int:
    """The token of a word; the words that a converter adds or drops count as the first one."""
    return int(token[1:]) if token[1:].isdigit() else 0


if __name__ == "__main__":
    main(load, ["ctranslate2"], convert)
