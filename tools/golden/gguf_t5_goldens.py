"""Goldens of GGUF files with an encoder: whole files that llama.cpp's converter writes for tiny models of T5, and what transformers
computes with the weights that gguf-py makes of them.

`python gguf_t5_goldens.py LLAMA_CPP` needs the sources of llama.cpp, as `gguf_goldens.py` does, and writes `tests/golden/gguf_t5`.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from family_goldens import numbers, weight
from safetensors.torch import load_file, save_file
from sentencepiece_models import UNIGRAM, small_nmt_nfkc, train
from transformers import AutoConfig, AutoModelForSeq2SeqLM, T5Tokenizer
from translation_texts import AWKWARD

FOLDER = Path(__file__).parents[2] / "tests" / "golden" / "gguf_t5"
PIECES, VOCAB = 800, 928
FIELDS: dict[str, Any] = {
    "vocab_size": VOCAB,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
    "pad_token_id": 0,
    "eos_token_id": 1,
}
GATED = {"feed_forward_proj": "gated-gelu"}
#: The type, fields, whether there is a head of its own, and the type that the converter writes matrices in.
MODELS: dict[str, tuple[str, dict[str, Any], bool, str]] = {
    "t5": ("t5", FIELDS, False, "ALL_F32"),
    "t5_v1_1": ("t5", {**FIELDS, **GATED, "num_decoder_layers": 3}, True, "MOSTLY_Q8_0"),
    "umt5": ("umt5", {**FIELDS, **GATED, "d_kv": 12}, True, "MOSTLY_F16"),
}
#: The second is long enough for the last distance that has a number of its own.
LENGTHS = (9, 170)
NEW_TOKENS = 20


def write(path: Path, config: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
    """A folder of transformers."""
    (path / "config.json").write_text(json.dumps(config))
    named = {name: torch.from_numpy(values.copy()) for name, values in tensors.items()}
    save_file(named, path / "model.safetensors", metadata={"format": "pt"})


def converted(path: Path, kind: str) -> Path:
    """Runs llama.cpp's converter."""
    import conversion
    import gguf
    from conversion.base import ModelBase

    architecture = ModelBase.load_hparams(path, False)["architectures"][0]
    out = path / "model.gguf"
    conversion.get_model_class(architecture)(path, gguf.LlamaFileType[kind], out).write()
    return out


def read(file: Path, tensors: dict[str, np.ndarray], layers: int) -> dict[str, np.ndarray]:
    """The numbers that a file gives for each tensor of the folder that it was made of."""
    import gguf

    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(file).tensors}
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.T5, layers)
    made = {}
    for name, values in tensors.items():
        tensor = stored.pop(names.get_name(name, try_suffixes=(".weight",)))
        made[name] = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(values.shape)
    assert not stored, list(stored)
    return made


def golden(name: str, spiece: Path) -> dict[str, Any]:
    """Writes the file of a model, and returns what transformers computes."""
    model_type, fields, has_head, kind = MODELS[name]
    empty = AutoModelForSeq2SeqLM.from_config(AutoConfig.for_model(model_type, **fields))
    with tempfile.TemporaryDirectory() as temporary:
        first, second = Path(temporary) / "first", Path(temporary) / "second"
        empty.save_pretrained(first)
        config = json.loads((first / "config.json").read_text())
        shapes = {key: list(tensor.shape) for key, tensor in load_file(first / "model.safetensors").items()}
        if has_head:
            config = config | {"tie_word_embeddings": False}
            config.pop("scale_decoder_outputs", None)
            shapes["lm_head.weight"] = [VOCAB, fields["d_model"]]
        tensors = {key: weight(key, shape, norms_around_0=False) for key, shape in shapes.items()}
        write(first, config, tensors)
        shutil.copy(spiece, first / "spiece.model")
        file = converted(first, kind)
        second.mkdir()
        most = max(fields["num_layers"], fields["num_decoder_layers"])
        write(second, config, read(file, tensors, most))
        shutil.copy(spiece, second / "spiece.model")
        (FOLDER / f"{name}.gguf").write_bytes(file.read_bytes())
        model = AutoModelForSeq2SeqLM.from_pretrained(second, attn_implementation="eager").float().eval()
        tokenizer = T5Tokenizer.from_pretrained(second)
    assert bool(model.config.scale_decoder_outputs) != has_head, name
    assert (model.lm_head.weight.data_ptr() == model.shared.weight.data_ptr()) != has_head, name
    draw = iter(np.abs(numbers(f"{name} sources", sum(LENGTHS))))
    sources = []
    for length in LENGTHS:
        ids = [*(int(next(draw) * (PIECES - 4)) + 3 for _ in range(length - 1)), 1]
        out, beams = (
            model.generate(
                torch.tensor([ids]),
                max_new_tokens=NEW_TOKENS,
                num_beams=count,
                do_sample=False,
                output_logits=True,
                return_dict_in_generate=True,
            )
            for count in (1, 3)
        )
        steps = [logits[0] for logits in out.logits]
        gaps = [float(best[0] - best[1]) for best in (step.topk(2).values for step in steps)]
        assert min(gaps) > 1e-4, (name, min(gaps))
        sources.append(
            {
                "ids": ids,
                "greedy": out.sequences[0, 1:].tolist(),
                "beams": beams.sequences[0, 1:].tolist(),
                "logits": [[round(float(x), 6) for x in step] for step in (steps[0], steps[-1])],
            }
        )
    texts = [*AWKWARD, "A <extra_id_0> gap <extra_id_99>.", "two  spaces\tand ﬁne Ａ  "]
    return {
        "made_with": {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]},
        "sources": sources,
        "texts": [{"text": text, "ids": tokenizer(text).input_ids} for text in texts],
        "vocabulary": len(tokenizer),
    }


def main() -> None:
    """Writes all goldens."""
    for folder in ("", "gguf-py"):
        sys.path.insert(0, str(Path(sys.argv[1]) / folder))
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        places = {"vocab_size": PIECES, "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
        rules = {"normalization_rule_tsv": str(small_nmt_nfkc(folder))}
        spiece = folder / "spiece.model"
        spiece.write_bytes(train(UNIGRAM | places | rules))
        for name in MODELS:
            text = json.dumps(golden(name, spiece), separators=(",", ":"))
            (FOLDER / f"{name}.json").write_text(text + "\n")
            print(name, len(text), (FOLDER / f"{name}.gguf").stat().st_size, flush=True)


if __name__ == "__main__":
    main()
