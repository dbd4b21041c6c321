"""Writes `tests/golden/seeds.json`: what transformers draws in several calls after one `torch.manual_seed`, and torch's states."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import torch
import transformers
from margins import margins
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).resolve().parents[2]
STORY = ROOT / "python" / "rsgen" / "models" / "story-3m"
OUT = ROOT / "tests" / "golden" / "seeds.json"
#: A choice that is nearer to a tie than this in float64 is no golden.
LEAST_MARGIN = 1e-6

PROMPTS = ["Once upon a time", "One day", "Tom had", "Near the lake"]
#: The fields of the calls that follow each other, by seeds.
CHAINS: dict[int, list[dict[str, Any]]] = {
    7: [{"max_new_tokens": 12}] * 3,
    8: [{"max_new_tokens": 6, "num_return_sequences": 3}, {"max_new_tokens": 9, "top_k": 20}],
    9: [{"max_new_tokens": 8, "num_beams": 3}, {"max_new_tokens": 8, "temperature": 0.7}],
    -4: [{"max_new_tokens": 4, "do_sample": False}, {"max_new_tokens": 5, "top_p": 0.9, "top_k": 0}],
    # Rows that end before others: torch draws for them as well.
    11: [{"max_new_tokens": 30, "num_return_sequences": 4, "eos_token_id": 388}, {"max_new_tokens": 5}],
    12: [{"max_new_tokens": 20, "num_beams": 2, "num_return_sequences": 2, "eos_token_id": 388}] * 2,
}


def main() -> None:
    """Runs each chain of calls."""
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(STORY)
    model = AutoModelForCausalLM.from_pretrained(STORY, dtype=torch.float32)
    exact = AutoModelForCausalLM.from_pretrained(STORY, dtype=torch.float64)
    chains = []
    for seed, calls in CHAINS.items():

        def answers(model: Any, seed: int = seed, calls: list[dict[str, Any]] = calls) -> list[Any]:
            torch.manual_seed(seed)
            found = []
            for prompt, fields in zip(PROMPTS, calls, strict=False):
                inputs = tokenizer([prompt], return_tensors="pt")
                given = {"input_ids": inputs["input_ids"], "attention_mask": inputs["attention_mask"]}
                found.append(model.generate(**given, **({"do_sample": True} | fields)).tolist())
            return found

        sequences = answers(model)
        state = torch.get_rng_state().numpy().tobytes()
        following = torch.randint(0, 1 << 30, (3,)).tolist()
        with margins() as found:
            assert answers(exact) == sequences, seed
        assert not found or min(found) > LEAST_MARGIN, (seed, min(found))
        made = [
            {"prompt": prompt, "config": {"do_sample": True} | fields, "sequences": rows}
            for prompt, fields, rows in zip(PROMPTS, calls, sequences, strict=False)
        ]
        chains.append(
            {"seed": seed, "calls": made, "state": base64.b64encode(state).decode(), "following": following}
        )
    made_with = {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__}
    head = json.dumps({"format": 1, "made_with": made_with})[:-1]
    lines = ",\n".join(map(json.dumps, chains))
    OUT.write_text(f'{head}, "chains": [\n{lines}\n]}}\n')
    print(f"{OUT.relative_to(ROOT)}: {len(chains)} chains")


if __name__ == "__main__":
    main()
