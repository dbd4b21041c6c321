"""Goldens of requests to tiny models with an encoder, one file a family: what transformers' `generate` returns.

    python tools/golden/encoder_decoder_request_goldens.py [family …]

The weights follow from their names, so a golden holds the configuration, the shapes and the requests. transformers 4.55
adds those of the strategies that version 5 has dropped to goldens that are there.
`tests/test_encoder_decoder.py` runs them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from encoder_decoder_requests import (  # noqa: E402
    CONFIGS,
    NOT_IN_4_55,
    NOT_SAVED,
    STATES,
    Case,
    arrays,
    dropped_requests,
    requests,
    states_request,
)
from tiny_encoder_decoder import numbers, write_folder  # noqa: E402
from transformers import AutoConfig, AutoModelForSeq2SeqLM  # noqa: E402

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def shapes_of(config: dict[str, Any]) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """The configuration as transformers saves it, and the tensors of the model."""
    parsed = AutoConfig.for_model(**config)
    model = AutoModelForSeq2SeqLM.from_config(parsed)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        saved = json.loads((Path(folder) / "config.json").read_text())
        from safetensors.torch import load_file

        tensors = load_file(Path(folder) / "model.safetensors")
    shapes = {
        name: list(tensor.shape)
        for name, tensor in tensors.items()
        if not any(name.endswith(ending) for ending in NOT_SAVED.get(config["model_type"], ()))
    }
    return saved, shapes


def answer(model: Any, case: Case, assistant: Any = None, *, scores: bool = True) -> dict[str, Any]:
    """What transformers returns for a request."""
    inputs = {"input_ids": torch.tensor(case.input_ids)}
    if case.attention_mask is not None:
        inputs["attention_mask"] = torch.tensor(case.attention_mask)
    if case.decoder_input_ids is not None:
        inputs["decoder_input_ids"] = torch.tensor(case.decoder_input_ids)
    fields = dict(case.fields)
    if case.assisted:
        inputs["assistant_model"] = assistant
    if case.seed is not None:
        torch.manual_seed(case.seed)
    with torch.no_grad():
        out = model.generate(**inputs, **fields, output_scores=scores, return_dict_in_generate=True)
    found: dict[str, Any] = {"sequences": out.sequences.tolist()}
    if getattr(out, "sequences_scores", None) is not None:
        found["sequences_scores"] = [round(score, 6) for score in out.sequences_scores.tolist()]
    return found


def states(model: Any, case: Case) -> dict[str, Any]:
    """What layers compute in a request: the shape of each array, its mean size, and its first and last number."""
    model.set_attn_implementation("eager")
    both = {"output_hidden_states": True, "output_attentions": True, "return_dict_in_generate": True}
    ids, mask = torch.tensor(case.input_ids), torch.tensor(case.attention_mask)
    with torch.no_grad():
        out = model.generate(input_ids=ids, attention_mask=mask, **case.fields, **both)
    found: dict[str, Any] = {"sequences": out.sequences.tolist()}
    for name in STATES:
        numbers_of = ((list(array.shape), summary(array)) for array in arrays(getattr(out, name)))
        found[name] = [[shape, [round(number, 5) for number in few]] for shape, few in numbers_of]
    return found


def summary(array: Any) -> list[float]:
    """The mean size of the first row, which is not padded, and its first and last number."""
    first = array[0].reshape(-1)
    return [float(abs(first).mean()), float(first[0]), float(first[-1])]


def dropped(family: str, made: dict[str, Any]) -> list[dict[str, Any]]:
    """The requests of the strategies that transformers 5 has dropped."""
    with tempfile.TemporaryDirectory() as name:
        write_folder(Path(name), made["config"], made["tensors"], "", **made["generation_config"])
        model = AutoModelForSeq2SeqLM.from_pretrained(name, torch_dtype=torch.float32).eval()
    found = []
    for case in dropped_requests(family, numbers):
        try:
            found.append(vars(case) | {"answer": answer(model, case)})
        except RuntimeError:
            # A constrained hypothesis that ends at the limit has no `beam_indices` there, which the scores need.
            found.append(vars(case) | {"answer": answer(model, case, scores=False)})
    return found


def golden(family: str) -> dict[str, Any]:
    """The golden of a family."""
    config, fields = CONFIGS[family]
    saved, shapes = shapes_of(config)
    with tempfile.TemporaryDirectory() as name:
        models = []
        for seed in ("", "assistant"):
            folder = Path(name) / f"model{seed}"
            write_folder(folder, saved, shapes, seed, **fields)
            models.append(AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval())
        model, assistant = models
        cases = []
        for case in requests(family, numbers):
            cases.append(vars(case) | {"answer": answer(model, case, assistant)})
        case = states_request(family, numbers)
        kept = vars(case) | {"answer": states(model, case)}
    return {
        "config": saved,
        "generation_config": fields,
        "tensors": shapes,
        "cases": cases,
        "states": kept,
    }


def main() -> None:
    folder = ROOT / "tests/golden/encoder_decoder_requests"
    folder.mkdir(exist_ok=True)
    made_with = {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]}
    is_old = transformers.__version__.startswith("4.")
    for family in sys.argv[1:] or CONFIGS:
        if is_old and family in NOT_IN_4_55:
            continue
        path = folder / f"{family}.json"
        before = json.loads(path.read_text()) if path.exists() else {}
        if is_old:
            made = before | {"dropped_made_with": made_with, "dropped": dropped(family, before)}
        else:
            kept = {name: before[name] for name in ("dropped_made_with", "dropped") if name in before}
            made = {"format": 1, "made_with": made_with, **golden(family), **kept}
        (folder / f"{family}.json").write_text(json.dumps(made, separators=(",", ":")) + "\n")
        ends = sum(len(set(map(tuple, case["answer"]["sequences"]))) for case in made["cases"])
        print(family, len(made["cases"]), "requests,", ends, "different rows", flush=True)


if __name__ == "__main__":
    main()
