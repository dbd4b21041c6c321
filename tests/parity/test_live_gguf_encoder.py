"""Compares GGUF files with an encoder with what llama.cpp computes with them.

The files are those of tests/golden/gguf_t5, which transformers has judged already. It needs llama-cpp-python.
"""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

import pytest

np = pytest.importorskip("numpy", reason="live parity needs numpy")
llama_cpp = pytest.importorskip("llama_cpp", reason="it needs llama-cpp-python")

import rsgen  # noqa: E402

FOLDER = Path(__file__).parents[1] / "golden" / "gguf_t5"
#: The largest difference in units of the logits' deviation: llama.cpp has keys, values and a table of GELU in float16, and rounds
#: activations to 8 bits for Q8_0.
CLOSE = {"t5": 0.01, "t5_v1_1": 0.15, "umt5": 0.01}
#: It leaves out the factor of the outputs of the first T5, whose rows have 32 numbers.
UNSCALED = {"t5": 32**-0.5}


@llama_cpp.llama_log_callback
def quiet(_level: int, _text: bytes, _data: object) -> None:
    """Takes what llama.cpp says."""


def peer(path: Path, source: list[int], target: list[int]) -> np.ndarray:
    """llama.cpp's logits after each token of the decoder."""
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    parameters = llama_cpp.llama_context_default_params()
    parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = 512
    context = llama_cpp.llama_init_from_model(model, parameters)
    tokens = (ctypes.c_int32 * len(source))(*source)
    assert llama_cpp.llama_encode(context, llama_cpp.llama_batch_get_one(tokens, len(source))) == 0
    assert llama_cpp.llama_model_decoder_start_token(model) == target[0]
    vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    logits = []
    for token in target:
        batch = llama_cpp.llama_batch_get_one((ctypes.c_int32 * 1)(token), 1)
        assert llama_cpp.llama_decode(context, batch) == 0
        logits.append(np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), (vocab_size,)).copy())
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return np.stack(logits)


@pytest.mark.parametrize("name", sorted(CLOSE))
def test_logits_are_near_those_of_llama_cpp(name: str) -> None:
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    path = FOLDER / f"{name}.gguf"
    generator = rsgen.Generator(path, num_threads=1)
    for source in json.loads((FOLDER / f"{name}.json").read_text())["sources"]:
        output = generator.generate(source["ids"], max_new_tokens=20, output_logits=True)
        tokens = [int(token) for token in output.token_ids[0]]
        ours = np.stack([step[0] for step in output.logits])
        theirs = peer(path, source["ids"], [0, *tokens[:-1]]) * UNSCALED.get(name, 1.0)
        error = float(np.abs(ours - theirs).max() / theirs.std())
        print(f"{name}, {len(source['ids'])} tokens: {error:.1e} of the logits' deviation")
        assert error < CLOSE[name]
