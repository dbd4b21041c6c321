"""transformers on torch, in the type of the checkpoint."""

from __future__ import annotations

from worker import Generate, Ids, main


def load(folder: str, threads: int) -> Generate:
    """Loads the model; end-of-sequence is disabled."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    model.generation_config.eos_token_id = None

    def generate(prompts: Ids, new_tokens: int, num_beams: int) -> Ids:
        # `generate` asks for the logits of the last position only. Shorter prompts are padded on the left.
        longest = max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        with torch.inference_mode():
            out = model.generate(
                ids,
                attention_mask=mask,
                do_sample=False,
                num_beams=num_beams,
                max_new_tokens=new_tokens,
                min_new_tokens=new_tokens,
                pad_token_id=0,
            )
        return out[:, ids.shape[1] :].tolist()

    return generate


if __name__ == "__main__":
    main(load, ["torch", "transformers"])
