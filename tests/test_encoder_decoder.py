"""Models with an encoder against goldens of transformers, and as users meet them."""

import json
from pathlib import Path

import numpy as np
import pytest
import rsgen
from tiny_encoder_decoder import without_fill, write_folder

GOLDENS = sorted((Path(__file__).parent / "golden/encoder_decoder_requests").glob("*.json"))


def read(path: Path) -> dict:
    return json.loads(path.read_text())


@pytest.fixture(scope="module", params=GOLDENS, ids=lambda path: path.stem)
def golden(request, tmp_path_factory):
    """A golden, its model and the model that drafts for it."""
    made = read(request.param)
    folder = tmp_path_factory.mktemp(request.param.stem)
    models = []
    for seed in ("", "assistant"):
        write_folder(folder / f"model{seed}", made["config"], made["tensors"], seed, **made["generation_config"])
        models.append(rsgen.Generator(folder / f"model{seed}", num_threads=1))
    return made, *models


def run(case: dict, model: rsgen.Generator, assistant: rsgen.Generator) -> rsgen.GenerationOutput:
    fields = dict(case["fields"])
    for name in ("attention_mask", "decoder_input_ids"):
        if case[name] is not None:
            fields[name] = np.array(case[name])
    if case["assisted"]:
        fields["assistant_model"] = assistant
    if case["seed"] is not None:
        fields["seed"] = case["seed"]
    return model.generate(np.array(case["input_ids"]), **fields)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_requests_give_what_transformers_gives(golden):
    made, model, assistant = golden
    differing = []
    for case in made["cases"]:
        out = run(case, model, assistant)
        expected = case["answer"]
        got, expected_rows = (
            without_fill(rows, made["generation_config"], case["decoder_input_ids"])
            for rows in (out.sequences.tolist(), expected["sequences"])
        )
        same = got == expected_rows
        if same and "sequences_scores" in expected:
            same = np.allclose(out.sequences_scores, expected["sequences_scores"], atol=2e-4)
        if not same:
            differing.append((case["name"], got, expected))
    assert not differing, f"{len(differing)} of {len(made['cases'])}: {differing[:2]}"
