"""Writes `tests/golden/token_healing.json`: prompts that end within a word, and how transformers 5.23.0 heals and continues them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from margins import margins
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).resolve().parents[2]
STORY = ROOT / "python" / "rsgen" / "models" / "story-3m"
OUT = ROOT / "tests" / "golden" / "token_healing.json"
#: A choice that is nearer to a tie than this in float64 is no golden.
LEAST_MARGIN = 3e-5

PROMPTS = [
    *("T", "O", "Li", "S", "<", "1", "z", "hap", "Once", "The", "th"),
    *(
        'He said, "We',
        'She said, "Le',
        "Once upon a ti",
        "The wolf (li",
        "It was a big-he",
        "Lily and Tom's mo",
        "naïv",
        "x.y",
    ),
    *("One day, a cat ", "  One day\n", "Tom-To", "a/b", "The end.Th", "Max said:No"),
]
FIELDS: list[dict[str, Any]] = [
    {"do_sample": False},
    {"do_sample": True, "top_k": 20},
    {"do_sample": False, "num_beams": 3, "num_return_sequences": 2},
    {"do_sample": False, "repetition_penalty": 1.3, "encoder_repetition_penalty": 1.2},
]


def main() -> None:
    """Runs each prompt with each search."""
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(STORY)
    model = AutoModelForCausalLM.from_pretrained(STORY, dtype=torch.float32)
    exact = AutoModelForCausalLM.from_pretrained(STORY, dtype=torch.float64)
    cases = []
    for number, prompt in enumerate(PROMPTS):
        fields = FIELDS[number % len(FIELDS)] | {"max_new_tokens": 8}
        inputs = tokenizer([prompt], return_tensors="pt")

        def answer(
            model: Any, inputs: Any = inputs, number: int = number, fields: Any = fields
        ) -> list[list[int]]:
            torch.manual_seed(number)
            given = {"input_ids": inputs["input_ids"], "attention_mask": inputs["attention_mask"]}
            return model.generate(**given, token_healing=True, tokenizer=tokenizer, **fields).tolist()

        sequences = answer(model)
        with margins() as found:
            assert answer(exact) == sequences, prompt
        assert min(found) > LEAST_MARGIN, (prompt, min(found))
        cases.append({"prompt": prompt, "config": fields, "seed": number, "sequences": sequences})
    made_with = {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__}
    head = json.dumps({"format": 1, "made_with": made_with})[:-1]
    lines = ",\n".join(map(json.dumps, cases))
    OUT.write_text(f'{head}, "cases": [\n{lines}\n]}}\n')
    print(f"{OUT.relative_to(ROOT)}: {len(cases)} cases")


if __name__ == "__main__":
    main()
