"""ik_llama.cpp, a fork of llama.cpp with faster products of quantized weights, by the C functions of ik-llama-cpp-python."""

from __future__ import annotations

import ctypes
from pathlib import Path

import llama_cpp_worker
from llama_cpp_worker import BATCH, CALL_CONTEXT, CALL_SEQUENCES, MICRO_BATCH
from worker import Generate, main

# Functions of the library that the package does not name, and how many integers they take after the context.
FUNCTIONS = {"llama_get_logits": 0, "llama_kv_cache_seq_rm": 3, "llama_kv_cache_seq_cp": 4}


class Context(llama_cpp_worker.Context):
    """The fork has the functions of an older llama.cpp."""

    def __init__(self, folder: str, threads: int) -> None:
        from ik_llama_cpp import _ctypes_api as api

        self.api = api
        api.llama_backend_init()
        path = str(Path(folder) / "model.gguf").encode()
        model_params = api.llama_model_default_params()
        # Tensors as the fork's own kernels read them; it takes the file into memory for that.
        model_params.repack_tensors, model_params.use_mmap = True, False
        self.model = api.llama_model_load_from_file(path, model_params)
        params = api.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = CALL_CONTEXT, BATCH, MICRO_BATCH
        params.n_seq_max = CALL_SEQUENCES
        params.n_threads = params.n_threads_batch = threads
        self.context = api.llama_init_from_model(self.model, params)
        self.vocab_size = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.model))
        self.batch = api.llama_batch_init(BATCH, 0, 1)
        for name, numbers in FUNCTIONS.items():
            function = getattr(api._lib, name)
            function.argtypes = [ctypes.c_void_p, *[ctypes.c_int32] * numbers]
            function.restype = ctypes.c_void_p
            setattr(api, name, function)

    def clear(self) -> None:
        self.api.llama_kv_cache_clear(self.context)

    def copy(self, source: int, target: int) -> None:
        self.remove(target)
        self.api.llama_kv_cache_seq_cp(self.context, source, target, -1, -1)

    def remove(self, sequence: int) -> None:
        self.api.llama_kv_cache_seq_rm(self.context, sequence, -1, -1)


def load(folder: str, threads: int) -> Generate:
    """Loads the model, for calls."""
    return llama_cpp_worker.calls(Context(folder, threads))


if __name__ == "__main__":
    main(load, ["numpy", "ik_llama_cpp"])
