"""Shows what `tools/golden/outgrown.py` mends in transformers 4, and that it mends it."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy", reason="live parity needs numpy")
torch = pytest.importorskip("torch", reason="live parity needs torch (pip install torch==2.13.0)")
pytest.importorskip("transformers", reason="live parity needs transformers")

from family_goldens import write_folder  # noqa: E402
from outgrown import computed_anew  # noqa: E402
from parity_settings import ROOT  # noqa: E402
from reference import Reference, reset_rope  # noqa: E402
from strategies import ERA  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

pytestmark = pytest.mark.skipif(ERA != "4.55", reason="transformers 5 computes the text anew as it should")

SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "dola": {"dola_layers": "high"},
    "contrastive": {"penalty_alpha": 0.6, "top_k": 3},
}
#: A prompt below the original context of 40 tokens.
PROMPT = [[3 + 7 * index % 50 for index in range(34)]]


@pytest.mark.parametrize("search", SEARCHES)
def test_logits_of_a_phi3_stray_where_it_outgrows_its_original_context(search: str, tmp_path: Path) -> None:
    write_folder(json.loads((ROOT / "tests/golden/families/phi3.json").read_text()), tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager")
    reference, original = Reference(model), model.config.original_max_position_embeddings

    def errors(*, mended: bool) -> Any:
        """How far the logits of each step are from those of a pass over the same text."""
        reset_rope(model)
        with computed_anew(model) if mended else nullcontext({}) as given:
            out = model.generate(
                torch.tensor(PROMPT),
                max_new_tokens=12,
                eos_token_id=None,
                pad_token_id=0,
                return_dict_in_generate=True,
                output_logits=True,
                **given,
                **SEARCHES[search],
            )
        ends = range(len(PROMPT[0]), out.sequences.shape[1])
        fresh = [reference.forward(out.sequences[:, :end].tolist())[0, -1] for end in ends]
        return ends, [
            float(np.abs(step[0].numpy() - own).max()) for step, own in zip(out.logits, fresh, strict=True)
        ]

    ends, astray = errors(mended=False)
    assert all((error > 0.1) == (end > original) for end, error in zip(ends, astray, strict=True)), astray
    _, mended = errors(mended=True)
    assert max(mended) < 1e-4, mended
