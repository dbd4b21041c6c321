"""Files of torch.save, and what torch reads from them: tests/golden/torch. Run by itself.

Other files in that folder are what rsgen refuses to read.
"""

import json
import shutil
from collections import OrderedDict
from pathlib import Path

import numpy
import torch
from safetensors.torch import load_file

GOLDEN = Path(__file__).parents[2] / "tests" / "golden"
OUT = GOLDEN / "torch"
DTYPES = [
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
    "complex64",
]
NEW_DTYPES = ["uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"]


class Module(torch.nn.Module):
    """Its state dict has parameters, a buffer, a tied matrix and metadata."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(6, 4)
        self.head = torch.nn.Linear(4, 6, bias=False)
        self.head.weight = self.embed.weight
        self.norm = torch.nn.BatchNorm1d(3)


def tensors(dtypes):
    """Tensors of each type, and in each place of a storage."""
    numbers = torch.arange(12).reshape(3, 4)
    state = OrderedDict((f"{dtype}.weight", numbers.to(getattr(torch, dtype))) for dtype in dtypes)
    base = torch.randn(5, 6)
    state |= {
        "base": base,
        "same": base,
        "rows": base[1:3],
        "columns": base[:, 2:4],
        "element": base[4, 5],
        "transposed": base.T,
        "permuted": torch.randn(2, 3, 4).permute(2, 0, 1),
        "expanded": torch.tensor([2.0]).expand(2, 3),
        "one_row": base.T[:1],
        "empty": base[:0],
        "parameter": torch.nn.Parameter(torch.randn(3)),
        "with_attribute": torch.nn.Parameter(torch.randn(2), requires_grad=False),
        "half": base.to(torch.float16)[::2],
    }
    state["with_attribute"].note = "kept beside the tensor"
    return state


def shown(value):
    """The type, the shape and the bytes of a tensor."""
    value = value.detach().contiguous()
    flat = value.reshape(-1).view(torch.uint8) if value.numel() else torch.zeros(0, dtype=torch.uint8)
    dtype = str(value.dtype).removeprefix("torch.")
    return {"dtype": dtype, "shape": list(value.shape), "bytes": flat.numpy().tobytes().hex()}


def main():
    torch.manual_seed(1)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    older = {"_use_new_zipfile_serialization": False}
    module = Module()
    saved = {
        "zip.bin": (tensors(DTYPES + NEW_DTYPES), {}),
        "legacy.bin": (tensors(DTYPES), older),
        "module.bin": (module.state_dict(), {}),
        "module_legacy.bin": (module.state_dict(), older),
        "data_parallel.bin": ({f"module.{name}": value for name, value in module.state_dict().items()}, {}),
        "beside.bin": ({"step": 3, "rate": 0.5, "note": "text", "list": [1, (2,)], "w": torch.ones(2)}, {}),
    }
    expected = {}
    for name, (state, options) in saved.items():
        torch.save(state, OUT / name, **options)
        read = torch.load(OUT / name, weights_only=True)
        expected[name] = {key: shown(value) for key, value in read.items() if isinstance(value, torch.Tensor)}
    (OUT / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")

    torch.save(module, OUT / "refused_module.bin")
    torch.save({"state_dict": module.state_dict()}, OUT / "refused_nested.bin")
    torch.save([torch.ones(2)], OUT / "refused_list.bin")
    torch.save({"w": numpy.ones(2)}, OUT / "refused_numpy.bin")
    torch.save({"w": torch.ones(2)}, OUT / "refused_protocol.bin", pickle_protocol=4)
    torch.save({"w": torch.eye(3).to_sparse()}, OUT / "refused_sparse.bin")
    torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(2)), OUT / "refused_script.bin")

    # Models of tests/golden/models, as one file, as an older one, and in parts.
    for folder, (model, options) in {
        "model": ("mistral_no_window", {}),
        "model_legacy": ("mistral_no_window", older),
        "model_parts": ("bfloat16", {}),
    }.items():
        (OUT / folder).mkdir()
        shutil.copy(GOLDEN / "models" / model / "config.json", OUT / folder)
        weights = load_file(GOLDEN / "models" / model / "model.safetensors")
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
        if folder != "model_parts":
            torch.save(weights, OUT / folder / "pytorch_model.bin", **options)
            continue
        parts = {f"pytorch_model-0000{part + 1}-of-00002.bin": sorted(weights)[part::2] for part in (0, 1)}
        for name, names in parts.items():
            torch.save({tensor: weights[tensor] for tensor in names}, OUT / folder / name)
        index = {
            "metadata": {},
            "weight_map": {tensor: name for name, names in parts.items() for tensor in names},
        }
        (OUT / folder / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=1) + "\n")

    # Quantized models of tests/golden/quantized: integers of 8 and 32 bits, and descriptions in JSON.
    for name in ("gptq_4bit_sym", "awq_gemm", "bnb_nf4_double_quant", "bnb_int8", "ct_fp8_channel"):
        folder, source = OUT / "quantized" / name, GOLDEN / "quantized" / name
        folder.mkdir(parents=True)
        shutil.copy(source / "config.json", folder)
        torch.save(load_file(source / "model.safetensors"), folder / "pytorch_model.bin")


if __name__ == "__main__":
    main()
