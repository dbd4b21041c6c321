"""Compares every published format of quantized weights with transformers on drawn requests of all strategies.

Each model is written as its tool writes it, with numbers of its own; transformers computes with the float32 weights that
the format defines. `make parity-formats REQUESTS=100` draws so many requests for each format, and prints the table of
docs/weight_files.md.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy", reason="live parity needs numpy")
torch = pytest.importorskip("torch", reason="live parity needs torch (pip install torch==2.13.0)")
transformers = pytest.importorskip("transformers", reason="live parity needs transformers")

import quantized_floats  # noqa: E402
import quantized_libraries  # noqa: E402
import quantized_words  # noqa: E402
import rsgen  # noqa: E402
import strategies  # noqa: E402
from live_requests import Models, Verdict, check_requests, table  # noqa: E402
from parity_settings import BASE_SEED  # noqa: E402
from quantized_gguf import gguf  # noqa: E402
from quantized_models import Made, with_weights  # noqa: E402
from reference import Reference  # noqa: E402
from strategies import ERA, StrategyCase  # noqa: E402

if ERA != "5":
    pytest.skip("the writers of the formats need transformers 5", allow_module_level=True)
#: Requests of each format; 15 make one of each strategy.
REQUESTS = int(os.environ.get("RSGEN_PARITY_REQUESTS", "15"))
STRATEGIES = [strategy for strategy, eras in strategies.FAMILIES.items() if ERA in eras]
#: The models of quantized_goldens that come up here, and the package that writes them.
CHOSEN = {
    "GPTQ, 4 bits": ("gptq_4bit_sym", "auto_gptq"),
    "GPTQ, 4 bits, asymmetric, desc_act": ("gptq_4bit_asym_desc_act", "auto_gptq"),
    "AWQ": ("awq_gemm", "compressed_tensors"),
    "compressed-tensors, W4A16": ("ct_w4a16_asym", "compressed_tensors"),
    "compressed-tensors, FP8": ("ct_fp8_channel", "compressed_tensors"),
    "FP8, blocks": ("fp8_block", "torch"),
    "MXFP4": ("mxfp4_gpt_oss", "torch"),
    "NF4, double quantization": ("bnb_nf4_double_quant", "bitsandbytes"),
    "LLM.int8": ("bnb_int8", "bitsandbytes"),
    "MLX, 3 bits": ("mlx_3bit", "mlx_lm"),
    "MLX, 4 bits": ("mlx_4bit", "mlx_lm"),
    "MLX, 4 bits, experts": ("mlx_experts", "mlx_lm"),
}
GGUF = ("Q8_0", "Q4_0", "Q4_K", "Q6_K")
#: What the comparisons of each format came to, for the summary.
COUNTS: dict[str, Counter[Verdict]] = {}


def makers() -> dict[str, tuple[Callable[..., Made], dict[str, Any], str]]:
    """The function that writes a model of each format, its arguments, and the package that it needs."""
    folders = {
        **quantized_words.folders(),
        **quantized_floats.folders(),
        **quantized_libraries.folders(),
    }
    made = {f"GGUF, {kind}": (gguf, {"kind": kind}, "gguf") for kind in GGUF}
    return made | {name: (*folders[folder], package) for name, (folder, package) in CHOSEN.items()}


def drawn_models(name: str, seed: int, folder: Path) -> Models:
    """A model of the format, and a disturbed copy of it in float32, which drafts for it."""
    make, arguments, _ = makers()[name]
    # The numbers come from the name of the folder.
    folder = folder / f"model_{seed}"
    if name == "MXFP4":
        arguments = {"seed": seed}
    made = make(folder, **arguments)
    made.model.config.pad_token_id = None
    if (path := folder / "config.json").exists():
        # transformers masks padding tokens in the drafts of an assistant.
        path.write_text(json.dumps({**json.loads(path.read_text()), "pad_token_id": None}))
    model = with_weights(made.model, made.weights)
    file = folder / "model.gguf"
    generator = rsgen.Generator(file if file.exists() else folder, num_threads=1)
    model.save_pretrained(folder / "float32")
    ids = [list(range(3, 40))]
    plain = rsgen.Generator(folder / "float32", num_threads=1).forward(ids)
    assert np.array_equal(generator.forward(ids), plain), "products are those of the same weights in float32"
    strategies.assistant_of(model, random.Random(f"{name} {seed}")).save_pretrained(folder / "assistant")
    drafter = transformers.AutoModelForCausalLM.from_pretrained(folder / "assistant", dtype=torch.float32)
    assistant = rsgen.Generator(folder / "assistant", num_threads=1)
    return Models(model.config.to_dict(), Reference(model), generator, Reference(drafter), assistant)


def drawn_requests(name: str, folder: Path) -> Iterator[tuple[Models, StrategyCase, str]]:
    """So many requests of the format: a new model for each round of strategies."""
    seed = BASE_SEED
    for number, strategy in zip(range(REQUESTS), cycle(STRATEGIES)):
        if number % len(STRATEGIES) == 0:
            seed += 1
            models = drawn_models(name, seed, folder)
        config = models.reference.model.config
        rng = random.Random(f"{name} {seed} {number}")
        case = strategies.draw_case(strategy, rng, config.vocab_size, config.num_hidden_layers)
        yield models, case, f"{name}, seed {seed}: {case}"


@pytest.mark.parametrize("name", list(makers()))
def test_a_drawn_request_gives_the_tokens_and_scores_of_transformers(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(package := makers()[name][2]) is None:
        pytest.skip(f"no {package} writes it")
    check_requests(COUNTS.setdefault(name, Counter()), drawn_requests(name, tmp_path))


def rows() -> list[str]:
    """The table of docs/weight_files.md."""
    return table("format", COUNTS)
