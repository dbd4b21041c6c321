"""What tests share: the story model, and tiny models made on the spot."""

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import rsgen


@pytest.fixture(scope="session")
def gen() -> rsgen.Generator:
    """The bundled story model, on two threads."""
    return rsgen.Generator(num_threads=2)


@pytest.fixture(autouse=True)
def no_blocks_are_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test that uses the story model its KV cache is empty: whatever happened has given its blocks back."""
    yield
    if "gen" in request.fixturenames:
        stats = request.getfixturevalue("gen").stats()
        assert (stats.blocks_used, stats.blocks_reserved) == (0, 0)


MakeLlama = Callable[..., Path]


@pytest.fixture(scope="session")
def make_llama(tmp_path_factory: pytest.TempPathFactory) -> MakeLlama:
    """Writes a llama with random weights into a folder and returns it. It has no tokenizer."""

    def make(*, seed: int = 0, **fields: object) -> Path:
        config = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": 64,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "max_position_embeddings": 256,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": True,
            "hidden_act": "silu",
            "torch_dtype": "float32",
            "bos_token_id": None,
            "eos_token_id": None,
            **fields,
        }
        folder = tmp_path_factory.mktemp("llama")
        (folder / "config.json").write_text(json.dumps(config))
        write_safetensors(folder / "model.safetensors", llama_tensors(config, np.random.default_rng(seed)))
        return folder

    return make


def llama_tensors(config: dict, rng: np.random.Generator) -> dict[str, np.ndarray]:
    hidden, intermediate = config["hidden_size"], config["intermediate_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]

    def matrix(rows: int, columns: int) -> np.ndarray:
        return rng.normal(0.0, 0.5, (rows, columns)).astype("<f4")

    def ones() -> np.ndarray:
        return np.ones(hidden, "<f4")

    tensors = {"model.embed_tokens.weight": matrix(config["vocab_size"], hidden), "model.norm.weight": ones()}
    for index in range(config["num_hidden_layers"]):
        layer = f"model.layers.{index}"
        tensors |= {
            f"{layer}.input_layernorm.weight": ones(),
            f"{layer}.self_attn.q_proj.weight": matrix(queries, hidden),
            f"{layer}.self_attn.k_proj.weight": matrix(keys, hidden),
            f"{layer}.self_attn.v_proj.weight": matrix(keys, hidden),
            f"{layer}.self_attn.o_proj.weight": matrix(hidden, queries),
            f"{layer}.post_attention_layernorm.weight": ones(),
            f"{layer}.mlp.gate_proj.weight": matrix(intermediate, hidden),
            f"{layer}.mlp.up_proj.weight": matrix(intermediate, hidden),
            f"{layer}.mlp.down_proj.weight": matrix(hidden, intermediate),
        }
    return tensors


def write_safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    header, offset = {}, 0
    for name, tensor in tensors.items():
        end = offset + tensor.nbytes
        header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.tobytes())
