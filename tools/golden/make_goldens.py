"""Writes `tests/golden/`: tiny models, and what transformers gives for them and for the bundled model."""

from __future__ import annotations

import argparse
import base64
import json
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import AutoTokenizer

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "tests" / "parity")]

from chat_goldens import write_chat_golden  # noqa: E402
from config_goldens import write_config_goldens  # noqa: E402
from excuse import candidates  # noqa: E402
from family_models import FAMILY_MODELS  # noqa: E402
from jinja_goldens import write_jinja_golden  # noqa: E402
from processor_goldens import write_processor_goldens, write_rng_goldens  # noqa: E402
from reference import Answer, Reference, Request  # noqa: E402
from story_goldens import STORY_REQUESTS, chat_prompt, tokenizer_golden  # noqa: E402
from tiny_models import build_model, draw_config, save_model  # noqa: E402

OUT = ROOT / "tests" / "golden"
STORY = ROOT / "python" / "rsgen" / "models" / "story-3m"
FORMAT = 1
#: Deciding margin that every committed step has at least: no correct implementation can come out differently.
SAFE_MARGIN = 3e-4

SMALL = {
    "vocab_size": 61,
    "hidden_size": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": None,
    "intermediate_size": 37,
    "num_hidden_layers": 2,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
    "rope_type": "default",
}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 24}

HALF = {"dtype": "bfloat16"}

#: Committed models: what each one differs in from `SMALL`, and how its folder is written.
MODELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "rope_default": ({}, {}),
    "rope_linear": ({"rope_type": "linear"}, HALF),
    "rope_dynamic": ({"rope_parameters": DYNAMIC, "max_position_embeddings": 40}, {}),
    "rope_llama3": ({"rope_type": "llama3"}, HALF),
    "rope_yarn": ({"rope_parameters": YARN, "max_position_embeddings": 256}, {}),
    "rope_yarn_options": (
        {
            "rope_parameters": YARN
            | {"beta_fast": 8.0, "beta_slow": 0.5, "mscale": 0.707, "mscale_all_dim": 0.5, "truncate": False},
            "max_position_embeddings": 256,
        },
        HALF,
    ),
    "rope_yarn_attention_factor": (
        {"rope_parameters": YARN | {"attention_factor": 1.25}, "max_position_embeddings": 256},
        HALF,
    ),
    "multi_head": ({"num_key_value_heads": 4, "num_hidden_layers": 1}, {}),
    "multi_query": ({"hidden_size": 30, "num_attention_heads": 3, "num_key_value_heads": 1}, HALF),
    "one_head": ({"num_attention_heads": 1, "num_key_value_heads": 1, "hidden_size": 18}, HALF),
    "wide_head_dim": ({"head_dim": 20, "num_hidden_layers": 1}, HALF),
    "narrow_head_dim": ({"head_dim": 4, "hidden_size": 32, "tie_word_embeddings": True}, {}),
    "attention_bias": ({"attention_bias": True}, HALF),
    "mlp_bias": ({"mlp_bias": True}, HALF),
    "tied": ({"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}, {}),
    "four_layers": ({"num_hidden_layers": 4, "hidden_size": 16, "intermediate_size": 29}, HALF),
    "bfloat16": ({"vocab_size": 97, "tie_word_embeddings": True}, {"dtype": "bfloat16"}),
    "float16": ({"vocab_size": 97}, {"dtype": "float16"}),
    "sharded": ({"hidden_size": 16}, {"max_shard_size": "12KB"}),
    "config_4_default": ({}, {"config_form": 4, "dtype": "bfloat16"}),
    "config_4_linear": (
        {"rope_type": "linear"},
        {"config_form": 4, "dtype": "bfloat16", "old_type_key": True},
    ),
    "config_4_dynamic": (
        {"rope_parameters": DYNAMIC, "max_position_embeddings": 33},
        {"config_form": 4, "dtype": "float16"},
    ),
    "config_4_llama3": ({"rope_type": "llama3"}, {"config_form": 4, "dtype": "bfloat16"}),
    "config_4_yarn": (
        {"rope_parameters": YARN, "max_position_embeddings": 256},
        {"config_form": 4, "dtype": "float16"},
    ),
    "generation_defaults": (
        {},
        {
            "dtype": "bfloat16",
            "defaults": {
                "do_sample": True,
                "temperature": 0.8,
                "top_k": 12,
                "repetition_penalty": 1.1,
                "eos_token_id": [7, 23],
                "pad_token_id": 0,
                "max_length": 48,
            },
        },
    ),
    "head_of_its_own": ({}, {"claims_to_be_tied": True}),
}

#: What is asked of each tiny model: label, prompts of random length (left-padded when several), fields.
TINY_REQUESTS: list[tuple[str, int, dict[str, Any]]] = [
    ("greedy", 1, {"max_new_tokens": 150, "do_sample": False}),
    ("greedy_repetition_penalty", 1, {"max_new_tokens": 60, "do_sample": False, "repetition_penalty": 1.3}),
    (
        "greedy_left_padded",
        3,
        {"max_new_tokens": 30, "do_sample": False, "repetition_penalty": 1.2, "pad_token_id": 5},
    ),
    ("sample_pure", 1, {"max_new_tokens": 40, "do_sample": True, "top_k": 0}),
    (
        "sample_top_k_top_p",
        1,
        {"max_new_tokens": 150, "do_sample": True, "temperature": 1.4, "top_k": 20, "top_p": 0.95},
    ),
    (
        "sample_min_p",
        1,
        {"max_new_tokens": 40, "do_sample": True, "temperature": 1.7, "top_k": 0, "min_p": 0.02},
    ),
    (
        "sample_all",
        1,
        {
            "max_new_tokens": 40,
            "do_sample": True,
            "temperature": 1.5,
            "top_k": 30,
            "top_p": 0.9,
            "min_p": 0.01,
            "repetition_penalty": 1.15,
        },
    ),
    (
        "sample_eos_list",
        1,
        {
            "max_new_tokens": 60,
            "min_new_tokens": 6,
            "do_sample": True,
            "temperature": 2.0,
            "top_k": 0,
            "eos_token_id": [3, 11, 17, 29],
            "pad_token_id": 2,
        },
    ),
    (
        "sample_num_return_sequences",
        1,
        {
            "max_new_tokens": 40,
            "do_sample": True,
            "temperature": 1.8,
            "num_return_sequences": 3,
            "eos_token_id": [4, 9, 15],
            "pad_token_id": 1,
        },
    ),
    (
        "sample_left_padded",
        3,
        {
            "max_new_tokens": 25,
            "do_sample": True,
            "temperature": 1.3,
            "top_p": 0.9,
            "repetition_penalty": 1.2,
            "eos_token_id": [8],
            "pad_token_id": 0,
        },
    ),
]

#: What is asked of the model whose `generation_config.json` holds defaults.
DEFAULTS_REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("defaults", {}),
    ("defaults_again", {}),
    ("defaults_but_one_eos", {"eos_token_id": 60}),
    ("defaults_but_new_tokens", {"max_new_tokens": 60, "eos_token_id": 60}),
    ("defaults_but_greedy", {"do_sample": False}),
]


def main() -> None:
    """Writes everything, or the models named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="models and files to write again; by default all")
    rest = {
        "configs": lambda: write_json(
            OUT / "configs.json", {"format": FORMAT, **write_config_goldens(made_with())}
        ),
        "story-3m": write_story_golden,
        "processors": lambda: write_processor_goldens(OUT / "processors.json", made_with()),
        "rng": lambda: write_rng_goldens(OUT / "rng.json", made_with()),
        "chat_templates": lambda: write_chat_golden(OUT / "chat_templates.json"),
        "jinja": lambda: write_jinja_golden(OUT / "jinja.json"),
    }
    for name in parser.parse_args().names or [*MODELS, *FAMILY_MODELS, *rest]:
        if name in rest:
            rest[name]()
        elif name in MODELS:
            write_tiny_golden(name, 1000 + list(MODELS).index(name), *MODELS[name])
        else:
            changes, form = FAMILY_MODELS[name]
            write_tiny_golden(name, 2000 + list(FAMILY_MODELS).index(name), changes, form, length=300)
    size = sum(path.stat().st_size for path in OUT.rglob("*") if path.is_file())
    print(f"{OUT.relative_to(ROOT)}: {size / 1e6:.2f} MB")


def made_with() -> dict[str, str]:
    """The versions that the numbers come from."""
    return {
        "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }


def tensor(array: np.ndarray) -> dict[str, Any]:
    """An array as JSON: its shape and the base64 of its little-endian float32 values."""
    values = np.ascontiguousarray(array, dtype="<f4")
    return {"shape": list(values.shape), "f32": base64.b64encode(values.tobytes()).decode()}


def write_tiny_golden(
    name: str, seed: int, changes: dict[str, Any], form: dict[str, Any], length: int = 70
) -> None:
    """One tiny model and its golden, with logits of a text of `length` tokens."""
    model_folder = OUT / "models" / name
    write_model(model_folder, seed, {**SMALL, **changes}, dict(form))
    reference = Reference(model_folder)
    numbers = np.random.RandomState(seed)
    requests = [
        (label, tiny_request(reference, numbers, rows, fields))
        for label, rows, fields in TINY_REQUESTS
        if not (label == "sample_left_padded" and reference.couples_rows())
    ]
    if form.get("defaults"):
        requests = [
            (label, tiny_request(reference, numbers, 1, fields, sampled="do_sample" not in fields))
            for label, fields in DEFAULTS_REQUESTS
        ]
    golden = {
        "format": FORMAT,
        "made_with": made_with(),
        "model": f"tests/golden/models/{name}",
        "model_seed": seed,
        **evaluation(
            reference,
            [random_ids(reference, numbers, length)],
            # Beginnings and ends of the cache's blocks of 32 tokens and of attention's spans of 256.
            positions=[
                0,
                1,
                2,
                15,
                31,
                32,
                33,
                50,
                *([255, 256, 257] if length > 257 else []),
                length - 2,
                length - 1,
            ],
        ),
        "generate": [generate_golden(reference, label, request, seed) for label, request in requests],
    }
    write_json(OUT / f"{name}.json", golden)
    print(
        f"{name}: margin {min(case['margin'] for case in golden['generate']):.1e},"
        f" float32 off by {golden['forward']['reference_error']:.1e}"
    )


def write_model(folder: Path, seed: int, changes: dict[str, Any], form: dict[str, Any]) -> None:
    """Draws the model and writes its folder afresh."""
    shutil.rmtree(folder, ignore_errors=True)
    old_type_key, defaults = form.pop("old_type_key", False), form.pop("defaults", {})
    old_type, claims_to_be_tied = form.pop("old_type", "longrope"), form.pop("claims_to_be_tied", False)
    config = draw_config(seed, **changes)
    model = build_model(config, seed, attention_spread=1.0)
    for field, value in defaults.items():
        setattr(model.generation_config, field, value)
    model.generation_config._from_model_config = False
    save_model(model, folder, **form)
    if old_type_key:
        path = folder / "config.json"
        text = path.read_text().replace('"rope_type"', '"type"')
        path.write_text(text.replace('"longrope"', f'"{old_type}"'))
    if claims_to_be_tied:
        path = folder / "config.json"
        untied, tied = '"tie_word_embeddings": false', '"tie_word_embeddings": true'
        path.write_text(path.read_text().replace(untied, tied))


def random_ids(reference: Reference, numbers: np.random.RandomState, length: int) -> list[int]:
    """A prompt of random tokens."""
    return numbers.randint(0, reference.vocab_size, length).tolist()


def tiny_request(
    reference: Reference,
    numbers: np.random.RandomState,
    rows: int,
    fields: dict[str, Any],
    *,
    sampled: bool = False,
) -> Request:
    """Random prompts; several are padded on the left with `pad_token_id`. The seed is found later."""
    prompts = [random_ids(reference, numbers, int(numbers.randint(3, 14))) for _ in range(rows)]
    seed = 0 if sampled or fields.get("do_sample") else None
    if rows == 1:
        return Request(prompts, fields, seed)
    width, pad = max(map(len, prompts)), fields["pad_token_id"]
    ids = [[pad] * (width - len(prompt)) + prompt for prompt in prompts]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return Request(ids, fields, seed, mask)


def evaluation(reference: Reference, ids: list[list[int]], positions: list[int]) -> dict[str, Any]:
    """Logits at chosen positions of a prompt, and the log-probabilities of all its tokens."""
    logits, exact = reference.forward(ids), reference.forward(ids, float64=True)
    log_softmax = torch.log_softmax(torch.from_numpy(logits[0]), dim=-1).numpy()
    logprobs = np.concatenate([[0.0], log_softmax[np.arange(len(ids[0]) - 1), ids[0][1:]]])
    return {
        "forward": {
            "input_ids": ids,
            "positions": positions,
            "logits": tensor(logits[:, positions]),
            "reference_error": float(np.abs(logits - exact).max()),
        },
        "score": {"input_ids": ids[0], "logprobs": tensor(logprobs)},
    }


def generate_golden(reference: Reference, label: str, request: Request, seed: int) -> dict[str, Any]:
    """One request under the first seed (for greedy: prompt) whose every step has a safe margin."""
    for attempt in range(400):
        request = Request(
            request.input_ids,
            request.fields,
            None if request.seed is None else seed + attempt,
            request.attention_mask,
        )
        if request.seed is None and attempt:
            request = shifted(reference, request)
        answer = answer_of(reference, request)
        margin = smallest_margin(reference, request, answer)
        if margin >= SAFE_MARGIN:
            return {"name": label, **describe(reference, request, answer), "margin": margin}
    raise RuntimeError(f"{label}: no request with a safe margin")


def shifted(reference: Reference, request: Request) -> Request:
    """The same request with all real prompt tokens moved on by one."""
    mask = request.attention_mask or [[1] * request.width] * len(request.input_ids)
    ids = [
        [
            (token + kept) % reference.vocab_size if kept else token
            for token, kept in zip(row, real, strict=True)
        ]
        for row, real in zip(request.input_ids, mask, strict=True)
    ]
    return Request(ids, request.fields, request.seed, request.attention_mask)


def answer_of(reference: Reference, request: Request) -> Answer:
    """What transformers gives. Where it would couple padded rows by the RoPE base, each row is run alone."""
    if not (request.attention_mask and reference.couples_rows()):
        return reference.generate(request)
    rows = [
        reference.generate(Request([request.prompt(row)], request.fields, request.seed))
        for row in range(request.rows)
    ]
    steps = max(len(answer.logits) for answer in rows)
    pad = request.fields["pad_token_id"]
    sequences = np.full((request.rows, request.width + steps), pad)
    for row, answer in enumerate(rows):
        start = request.width - len(request.prompt(row))
        sequences[row, start : start + answer.sequences.shape[1]] = answer.sequences[0]
    return Answer(sequences, rows[0].logits, rows[0].scores)


def smallest_margin(reference: Reference, request: Request, answer: Answer) -> float:
    """The least deciding margin of all steps, in float64, which must also agree with the tokens."""
    eos, smallest = reference.eos_ids(request), 1.0
    for row in range(request.rows):
        tokens = [int(token) for token in answer.sequences[row, request.width :]]
        tokens = tokens[: next((i + 1 for i, token in enumerate(tokens) if token in eos), len(tokens))]
        logits = reference.logits_along(request.prompt(row), tokens[:-1])
        for step, token in enumerate(tokens):
            choice = candidates(reference, request, row, tokens[:step], logits[step])
            if choice.distance(token) > 0.0:
                return 0.0
            smallest = min(smallest, choice.gap())
            if smallest < SAFE_MARGIN:
                return smallest
    return smallest


def describe(reference: Reference, request: Request, answer: Answer) -> dict[str, Any]:
    """A request and its answer as JSON; processed scores of the first steps of single-row requests."""
    described: dict[str, Any] = {
        "input_ids": request.input_ids,
        "config": request.fields,
        "seed": request.seed,
    }
    if request.attention_mask:
        described["attention_mask"] = request.attention_mask
    described["sequences"] = answer.sequences.tolist()
    described["finish_reasons"] = finish_reasons(reference, request, answer.sequences)
    if request.rows == 1 and not reference.tokenizer:
        tokens = answer.sequences[0, request.width :]
        logits = torch.from_numpy(np.concatenate(answer.logits))
        logprobs = torch.log_softmax(logits, dim=-1).numpy()[np.arange(len(tokens)), tokens]
        described["logprobs"] = tensor(logprobs)
        described["scores"] = tensor(np.stack(answer.scores[:2]))
    return described


def finish_reasons(reference: Reference, request: Request, sequences: np.ndarray) -> list[str]:
    """Why each row ended: `eos`, or `stop` when it has stop strings and is not at its limit, or `length`."""
    eos = reference.eos_ids(request)
    limit = (
        request.fields.get("max_new_tokens") or reference.setting(request, "max_length", 20) - request.width
    )
    reasons = []
    for row in sequences[:, request.width :].tolist():
        if any(token in eos for token in row):
            reasons.append("eos")
        else:
            reasons.append("stop" if "stop_strings" in request.fields and len(row) < limit else "length")
    return reasons


def write_story_golden() -> None:
    """The bundled model: stories, and its tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(STORY)
    tokenizer.padding_side = "left"
    reference = Reference(STORY, tokenizer)
    cases = []
    for label, prompts, fields in STORY_REQUESTS:
        texts = [chat_prompt(tokenizer) if prompt is None else prompt for prompt in prompts]
        encoded = tokenizer(texts, padding=len(texts) > 1, add_special_tokens=prompts[0] is not None)
        mask = encoded["attention_mask"] if len(texts) > 1 else None
        request = Request(encoded["input_ids"], fields, 0 if fields.get("do_sample") else None, mask)
        case = generate_golden(reference, label, request, seed=11 + len(cases))
        rows = [row[request.width :] for row in case["sequences"]]
        case["texts"] = [tokenizer.decode(row, skip_special_tokens=True) for row in rows]
        if case["input_ids"] == encoded["input_ids"] and prompts[0] is not None:
            case["prompts"] = texts
        cases.append(case)
        print(f"story-3m {label}: margin {case['margin']:.1e} {case['finish_reasons']}")
    ids = tokenizer("Once upon a time there was a little fox who lived in the wood.")["input_ids"]
    golden = {
        "format": FORMAT,
        "made_with": made_with(),
        "model": str(STORY.relative_to(ROOT)),
        **evaluation(reference, [ids], positions=[0, len(ids) - 1]),
        "generate": cases,
        "tokenizer": tokenizer_golden(tokenizer),
    }
    write_json(OUT / "story-3m.json", golden)


def write_json(path: Path, value: Any) -> None:
    """Two levels indented, one line for each case, so that differences stay readable."""
    lines = []
    for key, item in value.items():
        if isinstance(item, list) and item and isinstance(item[0], dict):
            entries = ",\n    ".join(json.dumps(entry, ensure_ascii=True) for entry in item)
            lines.append(f"  {json.dumps(key)}: [\n    {entries}\n  ]")
        else:
            lines.append(f"  {json.dumps(key)}: {json.dumps(item, ensure_ascii=True)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
