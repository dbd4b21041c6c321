"""LoRA adapters by PEFT: folders in `tests/golden/adapters`, and what `merge_and_unload` makes of the committed models.

pip install torch==2.15.0 transformers==5.24.0 peft==0.21.2
python tools/golden/adapter_goldens.py
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from family_goldens import write_folder
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
MLP = ["gate_proj", "up_proj", "down_proj"]
PROMPT = [3, 14, 15, 9, 26, 5, 35, 8, 9, 7]

#: Where the models of families are written.
WRITTEN = tempfile.TemporaryDirectory()

STORY = "python/rsgen/models/story-3m"

#: Name: base model, fields of the configuration, and the type that the adapter's file is converted to.
CASES: dict[str, tuple[str, dict[str, Any], torch.dtype | None]] = {
    "patterns": (
        "tied",
        {
            "target_modules": ATTENTION + MLP,
            "rank_pattern": {"q_proj": 2, r"model\.layers\.0\.mlp\.up_proj": 6},
            "alpha_pattern": {"k_proj": 3, "layers.0.mlp.down_proj": 5},
        },
        None,
    ),
    "rslora_in_bfloat16": (
        "bfloat16",
        {"target_modules": "all-linear", "use_rslora": True, "r": 3, "lora_alpha": 5},
        torch.bfloat16,
    ),
    "on_float16": ("float16", {"target_modules": ATTENTION, "r": 17, "lora_alpha": 11}, None),
    "fused": ("phi3_fused", {"target_modules": ["qkv_proj", "gate_up_proj", "o_proj"]}, None),
    "sharded": (
        "sharded",
        {"target_modules": ["v_proj", "down_proj"], "init_lora_weights": "gaussian"},
        None,
    ),
    "tied_embedding": ("tied", {"target_modules": [*ATTENTION, "embed_tokens"]}, None),
    "tied_both": ("tied", {"target_modules": ["embed_tokens", "lm_head"]}, None),
    "tied_saved_head": ("tied", {"target_modules": ATTENTION, "modules_to_save": ["lm_head"]}, None),
    "tied_saved_embedding": (
        "tied",
        {"target_modules": ["v_proj"], "modules_to_save": ["embed_tokens"]},
        None,
    ),
    "story": (STORY, {"target_modules": ["q_proj", "v_proj"], "r": 2, "lora_alpha": 8}, torch.bfloat16),
    "apart": (
        "multi_head",
        {"target_modules": ["embed_tokens", "lm_head"], "modules_to_save": ["norm"]},
        None,
    ),
    "tied_more_rows": ("tied", {"target_modules": ["v_proj"]}, None),
    "saved_more_rows": (
        "multi_head",
        {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"]},
        None,
    ),
    "fewer_rows": ("multi_head", {"target_modules": ["embed_tokens", "q_proj"]}, None),
    "pickled": ("bfloat16", {"target_modules": ["q_proj", "up_proj"]}, None),
    # Families with other names, and with matrices that are stored the other way round.
    "gpt2": ("families/gpt2", {"target_modules": ["c_attn", "c_proj", "c_fc"], "fan_in_fan_out": True}, None),
    "gpt2_tied_embedding": ("families/gpt2", {"target_modules": ["c_attn", "wte"]}, None),
    "gpt2_tied_head": (
        "families/gpt2_inverse",
        {"target_modules": ["c_proj"], "modules_to_save": ["lm_head"]},
        None,
    ),
    "gpt_neox": ("families/gpt_neox", {"target_modules": ["query_key_value", "embed_in", "embed_out"]}, None),
    "opt": ("families/opt", {"target_modules": ["q_proj", "fc1", "embed_tokens"]}, torch.bfloat16),
    "opt_more_rows": ("families/opt_plain", {"target_modules": ["v_proj"]}, None),
    "bloom": ("families/bloom", {"target_modules": ["query_key_value", "lm_head"]}, None),
}

#: What the file of an adapter says, whatever PEFT has made of it.
FAN_IN_FAN_OUT = {"gpt2_tied_embedding": False, "gpt2_tied_head": None}

#: By how many rows the embeddings are resized before.
MORE_ROWS = {"tied_more_rows": 6, "opt_more_rows": 2, "saved_more_rows": 3, "fewer_rows": -4}


def checksum(tensor: torch.Tensor) -> str:
    """FNV-1a of the bytes, little-endian and row-major."""
    state = 0xCBF29CE484222325
    for byte in tensor.contiguous().view(torch.uint8).flatten().tolist():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return f"{state:016x}"


def base_folder(name: str) -> str:
    """The folder of a committed model, or the golden of a family, relative to the repository."""
    if name.startswith("families/"):
        return f"tests/golden/{name}.json"
    return name if "/" in name else f"tests/golden/models/{name}"


def base_model(case: str, resized: bool = True) -> Any:
    """The model of a case, in the type that it is stored in, resized."""
    folder = ROOT / base_folder(CASES[case][0])
    if folder.suffix == ".json":
        # PEFT looks at the folder again when it saves an adapter.
        write_folder(json.loads(folder.read_text()), written := Path(WRITTEN.name) / folder.stem)
        folder = written
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
    if resized and case in MORE_ROWS:
        model.resize_token_embeddings(model.config.vocab_size + MORE_ROWS[case])
    return model


def draw_adapter(name: str, seed: int) -> Path:
    """Writes the adapter of a case."""
    base, fields, dtype = CASES[name]
    torch.manual_seed(seed)
    fields = {"r": 4, "lora_alpha": 6, "init_lora_weights": False} | fields
    model = get_peft_model(base_model(name), LoraConfig(task_type="CAUSAL_LM", **fields))
    for key, parameter in model.named_parameters():
        if "lora_B" in key or "modules_to_save" in key:
            parameter.data += 0.05 * torch.randn_like(parameter)
    folder = GOLDEN / "adapters" / name
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as written:
        model.save_pretrained(written)
        folder.mkdir(parents=True)
        config = json.loads((Path(written) / "adapter_config.json").read_text())
        # The path of this machine says nothing to others, and the order of a set differs from run to run.
        config["base_model_name_or_path"] = base
        for field in ("target_modules", "modules_to_save"):
            config[field] = sorted(config[field]) if config[field] else config[field]
        config["fan_in_fan_out"] = FAN_IN_FAN_OUT.get(name, config["fan_in_fan_out"])
        (folder / "adapter_config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
        tensors = load_file(Path(written) / "adapter_model.safetensors")
        if dtype is not None:
            tensors = {key: tensor.to(dtype) for key, tensor in tensors.items()}
        if name == "pickled":
            torch.save(tensors, folder / "adapter_model.bin")
        else:
            save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def golden_of(name: str, seed: int) -> dict[str, Any]:
    """What PEFT makes of a case."""
    base, _, _ = CASES[name]
    folder = draw_adapter(name, seed)
    before = base_model(name, resized=False).state_dict()
    merged = PeftModel.from_pretrained(base_model(name), folder).merge_and_unload()
    changed = {
        key: checksum(tensor)
        for key, tensor in merged.state_dict().items()
        if key not in before or not torch.equal(tensor, before[key])
    }
    vocab_size = merged.config.vocab_size
    prompt = [token % vocab_size for token in PROMPT]
    with torch.no_grad():
        logits = merged.float()(torch.tensor([prompt])).logits[0, -1]
    return {
        "base": base_folder(base),
        "adapter": f"tests/golden/adapters/{name}",
        "changed": changed,
        "is_tied": merged.get_output_embeddings().weight.data_ptr()
        == merged.get_input_embeddings().weight.data_ptr(),
        "input_ids": prompt,
        "logits": logits.tolist(),
    }


def written_with() -> dict[str, Any]:
    """The head of a file of these."""
    return {
        "format": 1,
        "made_with": {
            "peft": peft.__version__,
            "torch": torch.__version__.split("+")[0],
            "transformers": transformers.__version__,
        },
    }


def main() -> None:
    """Writes all of them."""
    head = written_with()
    texts: dict[str, list[str]] = {"adapters": [], "family_adapters": []}
    for seed, name in enumerate(CASES):
        case = golden_of(name, seed)
        file = "family_adapters" if case["base"].endswith(".json") else "adapters"
        texts[file].append(f"{json.dumps(name)}: {json.dumps(case)}")
    for file, cases in texts.items():
        text = (
            json.dumps(head, indent=1).removesuffix("\n}")
            + ',\n "cases": {\n  '
            + ",\n  ".join(cases)
            + "\n }\n}\n"
        )
        (GOLDEN / f"{file}.json").write_text(text)


if __name__ == "__main__":
    main()
