"""Weighted LoRA adapters by PEFT: what `add_weighted_adapter(..., combination_type="cat")` makes of committed ones.

pip install torch==2.13.0 transformers==5.24.0 peft==0.21.2
python tools/golden/weighted_adapter_goldens.py
"""

from __future__ import annotations

import json
from typing import Any

import torch
from adapter_goldens import GOLDEN, PROMPT, written_with
from peft import PeftModel
from transformers import AutoModelForCausalLM

#: Name: base model, and the adapters with their weights. The first one is without `use_rslora`: PEFT scales the sum of
#: others by the root of all ranks.
CASES: dict[str, tuple[str, list[tuple[str, float]]]] = {
    "two": ("bfloat16", [("pickled", 0.7), ("rslora_in_bfloat16", 0.3)]),
    "one": ("bfloat16", [("pickled", 0.25)]),
    "negative": ("bfloat16", [("pickled", 1.0), ("rslora_in_bfloat16", -0.5)]),
    "zero": ("bfloat16", [("pickled", 0.0), ("rslora_in_bfloat16", 1.5)]),
    "twice": ("bfloat16", [("pickled", 0.5), ("rslora_in_bfloat16", 0.75), ("pickled", 0.25)]),
    "three_with_patterns": (
        "bfloat16",
        [("patterns", 0.6), ("pickled", -1.25), ("rslora_in_bfloat16", 0.5)],
    ),
}


def golden_of(name: str) -> dict[str, Any]:
    """The logits after a prompt, in float32."""
    base, weighted = CASES[name]
    folder = GOLDEN / "models" / base
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    names = list(dict.fromkeys(adapter for adapter, _ in weighted))
    model = PeftModel.from_pretrained(model, GOLDEN / "adapters" / names[0], adapter_name=names[0])
    for other in names[1:]:
        model.load_adapter(GOLDEN / "adapters" / other, adapter_name=other)
    adapters, weights = map(list, zip(*weighted, strict=True))
    model.add_weighted_adapter(adapters, weights, "sum", combination_type="cat")
    model.set_adapter("sum")
    with torch.no_grad():
        logits = model.merge_and_unload()(torch.tensor([PROMPT])).logits[0, -1]
    return {
        "base": f"tests/golden/models/{base}",
        "adapters": [[f"tests/golden/adapters/{adapter}", weight] for adapter, weight in weighted],
        "input_ids": PROMPT,
        "logits": logits.tolist(),
    }


def main() -> None:
    """Writes all of them."""
    head = written_with()
    cases = ",\n  ".join(f"{json.dumps(name)}: {json.dumps(golden_of(name))}" for name in CASES)
    text = json.dumps(head, indent=1).removesuffix("\n}") + ',\n "cases": {\n  ' + cases + "\n }\n}\n"
    (GOLDEN / "weighted_adapters.json").write_text(text)


if __name__ == "__main__":
    main()
