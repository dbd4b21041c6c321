"""Checks that the committed goldens are still what the installed transformers gives. Needs no rsgen."""

from __future__ import annotations

import json
from typing import Any

import pytest

np = pytest.importorskip("numpy", reason="live parity needs numpy")
pytest.importorskip("torch", reason="live parity needs torch (pip install torch==2.13.0)")
transformers = pytest.importorskip("transformers", reason="live parity needs transformers==5.24.0")

from parity_settings import ROOT  # noqa: E402
from reference import Reference, Request  # noqa: E402

GOLDENS = {
    path.stem: json.loads(path.read_text()) for path in sorted((ROOT / "tests" / "golden").glob("*.json"))
}


@pytest.mark.parametrize("name", [name for name, golden in GOLDENS.items() if "model" in golden])
def test_transformers_still_gives_the_committed_tokens(name: str) -> None:
    golden = GOLDENS[name]
    folder = ROOT / golden["model"]
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder) if name == "story-3m" else None
    reference = Reference(folder, tokenizer)
    for case in golden["generate"]:
        mask = case.get("attention_mask")
        if mask and reference.couples_rows():
            continue  # Its rows were made one by one.
        request = Request(case["input_ids"], case["config"], case["seed"], mask)
        np.testing.assert_array_equal(
            reference.generate(request).sequences, case["sequences"], err_msg=case["name"]
        )
