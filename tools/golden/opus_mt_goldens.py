"""A tiny opus-mt as the first ones were published, and what transformers translates with it.

    python tools/golden/opus_mt_goldens.py

The weights are a `pytorch_model.bin` of the form before torch 1.6 and nothing else, and the fields of generation are
in `config.json`. `tests/test_opus_mt.py` puts its SentencePiece models beside, those of `tests/golden/translation`.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from tiny_encoder_decoder import weight  # noqa: E402
from transformers import MarianConfig, MarianMTModel, MarianTokenizer  # noqa: E402

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

GOLDEN = ROOT / "tests" / "golden"
TRANSLATION = GOLDEN / "translation"
OUT = GOLDEN / "opus_mt"
PAD = 587
CONFIG: dict[str, Any] = {
    "_num_labels": 3,
    "activation_dropout": 0.0,
    "activation_function": "swish",
    "add_bias_logits": False,
    "add_final_layer_norm": False,
    "architectures": ["MarianMTModel"],
    "attention_dropout": 0.0,
    "bad_words_ids": [[PAD]],
    "bos_token_id": 0,
    "classif_dropout": 0.0,
    "d_model": 8,
    "decoder_attention_heads": 2,
    "decoder_ffn_dim": 12,
    "decoder_layerdrop": 0.0,
    "decoder_layers": 2,
    "decoder_start_token_id": PAD,
    "dropout": 0.1,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 12,
    "encoder_layerdrop": 0.0,
    "encoder_layers": 2,
    "eos_token_id": 0,
    "extra_pos_embeddings": PAD + 1,
    "id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"},
    "init_std": 0.02,
    "is_encoder_decoder": True,
    "label2id": {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2},
    "max_length": 24,
    "max_position_embeddings": 64,
    "model_type": "marian",
    "normalize_before": False,
    "normalize_embedding": False,
    "num_beams": 6,
    "num_hidden_layers": 2,
    "pad_token_id": PAD,
    "scale_embedding": True,
    "static_position_embeddings": True,
    "vocab_size": PAD + 1,
}
TEXTS = ["The house is small.", "I like tea.", "Mr. Smith has a red kite, and the garden is green!"]
CALLS: list[dict[str, Any]] = [
    {},
    {"num_beams": 1},
    {"num_beams": 3, "no_repeat_ngram_size": 2, "max_length": 12},
    {"num_beams": 4, "num_return_sequences": 2, "length_penalty": 0.6},
    {"num_beams": 1, "do_sample": True, "top_k": 20, "seed": 7},
]


def write(folder: Path) -> None:
    """The files as they were published."""
    cases = json.loads((TRANSLATION / "cases.json").read_text())["cases"]
    vocab = next(case for case in cases if case["name"] == "marian")["files"]["vocab.json"]
    if list(vocab) == ["row"]:
        vocab = json.loads((TRANSLATION / "rows.json").read_text())[vocab["row"]]
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"target_lang": "de", "source_lang": "en"}))
    (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False))
    model = MarianMTModel(MarianConfig(**CONFIG))
    state = model.state_dict()
    for name, tensor in state.items():
        # The tables of positions stay as they are.
        if "embed_positions" not in name and name not in ("lm_head.weight", *TIED):
            values = torch.from_numpy(weight(name, list(tensor.shape), ""))
            if name == "final_logits_bias":
                # Some translations end early.
                values[0, 0] = 1.8
            if name == "model.shared.weight":
                # Else the last token is repeated.
                values *= 0.7
            tensor.copy_(values)
    # They shared one table then, and the head was not saved.
    del state["lm_head.weight"]
    torch.save(state, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)


TIED = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")


def main() -> None:
    """Writes the folder and the golden."""
    OUT.mkdir(exist_ok=True)
    write(OUT)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "model"
        shutil.copytree(OUT, folder)
        for side in ("source", "target"):
            shutil.copy(TRANSLATION / f"{side}.model", folder / f"{side}.spm")
        tokenizer = MarianTokenizer.from_pretrained(folder)
        models = [
            MarianMTModel.from_pretrained(folder, dtype=dtype, use_safetensors=False).eval()
            for dtype in (torch.float32, torch.float64)
        ]
        requests = []
        for call in CALLS:
            fields = {key: value for key, value in call.items() if key != "seed"}
            rows = []
            for text in TEXTS:
                found = []
                for model in models:
                    torch.manual_seed(call.get("seed", 0))
                    with torch.no_grad():
                        found.append(
                            model.generate(**tokenizer([text], return_tensors="pt"), **fields).tolist()
                        )
                # Else a difference could be rounding.
                assert found[0] == found[1], (call, text)
                rows += found[0]
            texts = tokenizer.batch_decode(rows, skip_special_tokens=True)
            requests.append({"call": call, "sequences": rows, "texts": texts})
        golden = {
            "made_with": {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]},
            "texts": TEXTS,
            "sources": tokenizer(TEXTS).input_ids,
            "requests": requests,
        }
    (OUT / "expected.json").write_text(json.dumps(golden, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
