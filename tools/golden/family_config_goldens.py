"""What the configuration classes of all families make of config.json files: `tests/golden/family_configs.json`.

The fields of each class with their defaults, and files in which fields are absent, null, or spelled as other versions do.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING, AutoConfig, PretrainedConfig
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
)

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"
#: Fields that all classes have: of the library, and none of a decoder.
COMMON = {field.name for field in dataclasses.fields(PretrainedConfig)}


#: What stood beside the parameters of rotary embeddings before transformers 5, and what some classes called it.
OUTSIDE = ("rope_theta", "partial_rotary_factor")
OLD_NAMES = {"gpt_neox": {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"}}


def models() -> dict[str, list[dict[str, Any]]]:
    """The configurations of the goldens of families, by the type of the decoder."""
    found: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("llama", "mistral", "phi3", "qwen2", "qwen3")
    }
    for path in sorted(
        path for folder in ("families", "encoders") for path in (GOLDEN / folder).glob("*.json")
    ):
        config = json.loads(path.read_text())["config"]
        found.setdefault(config.get("text_config", config)["model_type"], []).append(config)
    return found


def resolve(file: dict[str, Any]) -> dict[str, Any] | None:
    """The fields that transformers computes with; `None` where it refuses the file."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(file))
        try:
            config = AutoConfig.from_pretrained(folder)
        except Exception:
            return None
        config = config if config.is_encoder_decoder else config.get_text_config()
    names = {field.name for field in dataclasses.fields(config)} - COMMON
    sizes = {
        name for name in names if name.endswith(("_layers", "_heads", "_dim", "d_model", "d_kv", "d_ff"))
    }
    if config.is_encoder_decoder and any(getattr(config, name) is None for name in sizes):
        return None  # It cannot compute with these nulls.
    values = {name: getattr(config, name) for name in sorted(names)}

    # The widths that follow from others, by llama's names.
    def of_decoder(*names: str) -> Any:
        return next(getattr(config, name) for name in names if hasattr(config, name))

    heads = of_decoder("decoder_attention_heads", "num_attention_heads")
    derived = {
        "hidden_size": config.hidden_size,
        "num_hidden_layers": of_decoder("decoder_layers", "num_decoder_layers", "num_hidden_layers"),
        "num_attention_heads": heads,
        "head_dim": getattr(config, "head_dim", None) or config.hidden_size // heads,
    }
    return {name: value for name, value in (values | derived).items() if is_plain(value)}


def is_plain(value: Any) -> bool:
    """Whether JSON has it; sets and classes are of the library."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def changes(model_type: str, file: dict[str, Any]) -> list[dict[str, Any]]:
    """Other forms of a file: fields to set, and fields to leave out."""
    cls, made = CONFIG_MAPPING[model_type], []
    for field in dataclasses.fields(cls):
        if field.name in COMMON or field.name in ("vocab_size", "num_hidden_layers"):
            continue
        if field.name in file:
            made.append({"without": [field.name]})
        made.append({"set": {field.name: None}})
    # The names of llama, which most classes take as well.
    own = {name: own for name, own in (cls.attribute_map or {}).items() if own in file}
    if own:
        made.append(
            {"without": list(own.values()), "set": {name: file[field] for name, field in own.items()}}
        )
    rope = file.get("rope_parameters") or {}
    if "rope_theta" in rope:
        inner = dict(rope)
        legacy = {
            OLD_NAMES.get(model_type, {}).get(name, name): inner.pop(name)
            for name in OUTSIDE
            if name in inner
        }
        kind = inner.pop("rope_type", "default")
        scalings = [None] if kind == "default" else [{"rope_type": kind, **inner}, {"type": kind, **inner}]
        made += [
            {"without": ["rope_parameters"], "set": legacy | {"rope_scaling": scaling}}
            for scaling in scalings
        ]
    return made


def changed(file: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """The file with a change."""
    kept = {name: value for name, value in file.items() if name not in change.get("without", [])}
    return kept | change.get("set", {})


def group(model_type: str, file: dict[str, Any]) -> dict[str, Any]:
    """A file and its other forms, with what is different in each."""
    resolved = resolve(file)
    assert resolved is not None, file
    cases = []
    # Of the file of a wrapper the fields are elsewhere.
    for change in changes(model_type, file) if len(file) > 2 and "text_config" not in file else []:
        found = resolve(changed(file, change))
        if found is not None:
            differs = {name: value for name, value in found.items() if value != resolved.get(name)}
            differs |= dict.fromkeys(resolved.keys() - found.keys())
            cases.append(change | {"differs": differs})
    return {"file": file, "resolved": resolved, "cases": cases}


def main() -> None:
    """Writes the file."""
    fields, groups = {}, []
    for model_type, goldens in sorted(models().items()):
        cls = CONFIG_MAPPING[model_type]
        names = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        if cls().is_encoder_decoder:
            names = MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
        architecture = names[model_type]
        fields[model_type] = sorted({field.name for field in dataclasses.fields(cls)} - COMMON)
        groups.append(group(model_type, {"architectures": [architecture], "model_type": model_type}))
        for config in goldens:
            dropped = () if "text_config" in config else COMMON - {"architectures"}
            file = {name: value for name, value in config.items() if name not in dropped}
            groups.append(group(model_type, file))
        print(model_type, flush=True)
    made_with = {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__}
    lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in groups)
    head = json.dumps({"format": 1, "made_with": made_with, "fields": fields}, separators=(",", ":"))[:-1]
    (GOLDEN / "family_configs.json").write_text(f'{head},"groups":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
