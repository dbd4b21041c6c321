"""transformers on torch, in the type of the checkpoint."""

from __future__ import annotations

import time

from worker import Generate, Ids, OnFirst, by_clients, main


class First:
    """A streamer that tells when the first token comes, which is the second thing that it is given: the first is the prompt."""

    def __init__(self, on_first: OnFirst) -> None:
        self.on_first = on_first
        self.given = 0

    def put(self, _: object) -> None:
        self.given += 1
        if self.given == 2:
            self.on_first(time.perf_counter())

    def end(self) -> None:
        pass


def load(folder: str, threads: int) -> Generate:
    """Loads the model; end-of-sequence is disabled."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

    torch.set_num_threads(threads)
    has_encoder = AutoConfig.from_pretrained(folder).is_encoder_decoder
    auto = AutoModelForSeq2SeqLM if has_encoder else AutoModelForCausalLM
    model = auto.from_pretrained(folder, dtype=torch.bfloat16).eval()
    model.generation_config.eos_token_id = None

    def generate(
        prompts: Ids, new_tokens: int, num_beams: int, lookup: int = 0, on_first: OnFirst | None = None
    ) -> Ids:
        # `generate` asks for the logits of the last position only. Shorter prompts are padded on the left, sources on the right.
        longest = max(map(len, prompts))
        padding = [[0] * (longest - len(prompt)) for prompt in prompts]
        seen = [[1] * len(prompt) for prompt in prompts]

        def padded(rows: Ids) -> torch.Tensor:
            pairs = zip(rows, padding, strict=True)
            return torch.tensor([row + rest if has_encoder else rest + row for row, rest in pairs])

        ids, mask = padded(prompts), padded(seen)
        with torch.inference_mode():
            out = model.generate(
                ids,
                attention_mask=mask,
                do_sample=False,
                num_beams=num_beams,
                max_new_tokens=new_tokens,
                min_new_tokens=new_tokens,
                pad_token_id=0,
                prompt_lookup_num_tokens=lookup or None,
                streamer=First(on_first) if on_first else None,
            )
        return out[:, 1 if has_encoder else ids.shape[1] :].tolist()

    return by_clients(generate)


if __name__ == "__main__":
    main(load, ["torch", "transformers"])
