"""What adapters beside the model cost: the speed of 16 rows with eight of them over that of 16 rows without.

python benches/adapters.py                              # the bundled story model
python benches/adapters.py target/peers/models/S        # a model of the size of SmolLM2-135M

It needs the Python package, built for release. Drawn adapters change queries and values, or all matrices of the layers of a llama.
With "one each" two rows have the same adapter; in "lists" every second row has a list of two with weights, the others one. Calls
without and with take turns; a figure is the median over the rounds, of which the first does not count.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import rsgen

# The least speed with adapters, that without being 1.
LEAST = 0.7
ADAPTERS = 8
MODULES = {
    "queries and values": ("self_attn.q_proj", "self_attn.v_proj"),
    "all matrices": (
        *(f"self_attn.{name}_proj" for name in "qkvo"),
        *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
    ),
}


def sizes(config: dict[str, Any], module: str) -> tuple[int, int]:
    """The inputs and outputs of a matrix of a llama."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    queries = heads * config.get("head_dim", hidden // heads)
    keys = queries // heads * config.get("num_key_value_heads", heads)
    name = module.rpartition(".")[2][0]
    inputs = {"o": queries, "d": config["intermediate_size"]}.get(name, hidden)
    outputs = {
        "q": queries,
        "k": keys,
        "v": keys,
        "g": config["intermediate_size"],
        "u": config["intermediate_size"],
    }
    return inputs, outputs.get(name, hidden)


def write_adapter(
    folder: Path, config: dict[str, Any], modules: tuple[str, ...], rank: int, seed: int
) -> Path:
    """Writes an adapter with drawn factors."""
    draw, header, data = np.random.default_rng(seed), {}, b""
    for layer in range(config["num_hidden_layers"]):
        for module in modules:
            inputs, outputs = sizes(config, module)
            for factor, shape in (("A", (rank, inputs)), ("B", (outputs, rank))):
                part = draw.normal(scale=0.02, size=shape).astype("<f4").tobytes()
                name = f"base_model.model.model.layers.{layer}.{module}.lora_{factor}.weight"
                header[name] = {
                    "dtype": "F32",
                    "shape": shape,
                    "data_offsets": [len(data), len(data) + len(part)],
                }
                data += part
    folder.mkdir(parents=True)
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    fields = {"peft_type": "LORA", "r": rank, "lora_alpha": rank}
    fields["target_modules"] = [module.rpartition(".")[2] for module in modules]
    (folder / "adapter_config.json").write_text(json.dumps(fields))
    return folder


def main() -> None:
    """Measures, and says what is slower than it should be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", help="a model's folder (default: the bundled model)")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=32, help="of a prompt, and new ones")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--compute-dtype", default="float32")
    arguments = parser.parse_args()

    gen = rsgen.Generator(arguments.model, compute_dtype=arguments.compute_dtype, prefix_caching=False)
    draw = random.Random(0)
    words = range(3, gen.config["vocab_size"])
    prompts = [draw.choices(words, k=arguments.tokens) for _ in range(arguments.rows)]
    call = {"max_new_tokens": arguments.tokens, "eos_token_id": [], "pad_token_id": 0}

    def seconds(adapters: list[Any] | None) -> float:
        start = time.perf_counter()
        gen.generate(prompts, adapter=adapters, **call)
        return time.perf_counter() - start

    slow = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, modules in MODULES.items():
            names = [f"{kind} {number}" for number in range(ADAPTERS)]
            for number, name in enumerate(names):
                path = Path(folder) / name
                gen.load_adapter(write_adapter(path, gen.config, modules, arguments.rank, number), name=name)
            own = [names[row % ADAPTERS] for row in range(arguments.rows)]
            lists = [
                [(name, 0.7), (names[(row + 1) % ADAPTERS], 0.3)] if row % 2 else name
                for row, name in enumerate(own)
            ]
            for way, adapters in (("one each", own), ("lists", lists)):
                times = [(seconds(None), seconds(adapters)) for _ in range(1 + arguments.rounds)][1:]
                ratio = statistics.median(without / within for without, within in times)
                without, within = (statistics.median(column) for column in zip(*times, strict=True))
                print(
                    f"{kind}, rank {arguments.rank}, {way}: {ratio:.2f} of the speed without "
                    f"({within:.2f} s, without {without:.2f} s)",
                    flush=True,
                )
                slow += [f"{kind}, {way}"] * (ratio < LEAST)
            for name in names:
                gen.unload_adapter(name)
    assert not slow, f"slower than it should be: {', '.join(slow)}"


if __name__ == "__main__":
    main()
