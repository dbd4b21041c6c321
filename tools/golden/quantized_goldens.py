"""Goldens of weights that are quantized as published: `tests/golden/quantized/`.

Each folder holds a model as the tool that quantizes writes it. What is expected comes from transformers in float32 with
the unrounded float32 weights, which an implementation of others confirms to the bit where there is one.
"""

from __future__ import annotations

import base64
import json
import shutil
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import quantized_floats
import quantized_libraries
import quantized_words
import torch
import transformers
from adapter_goldens import checksum
from margins import margins
from quantized_models import Made, with_weights

PROMPT, NEW_TOKENS = 12, 24
#: No choice is nearer to a tie, in nats.
MARGIN = 3e-4
torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def expected(name: str, made: Made) -> dict[str, Any]:
    """What transformers computes with the weights, for the first prompt whose choices are clear."""
    model = with_weights(made.model, made.weights)
    vocab = model.config.vocab_size
    drawn = np.random.default_rng(zlib.crc32(name.encode()))
    for _ in range(100):
        ids = torch.from_numpy(drawn.integers(3, vocab, (1, PROMPT)))
        common = {"do_sample": False, "max_new_tokens": NEW_TOKENS, "eos_token_id": None, "pad_token_id": 0}
        with torch.no_grad(), margins() as found:
            logits = model(ids).logits[0, -1]
            greedy = model.generate(ids, **common)[0, PROMPT:]
            beams = model.generate(ids, num_beams=3, **common)[0, PROMPT:]
        if min(found) >= MARGIN:
            break
    else:
        raise AssertionError(f"{name}: every prompt is near to a tie")
    assert logits.std() > 0.3, (name, logits.std())
    weight = made.weights[f"{made.matrix}.weight" if "experts" not in made.matrix else made.matrix]
    rows = weight[0].T[:2] if weight.dim() == 3 else weight[:2]
    return {
        "oracle": made.oracle,
        "input_ids": ids[0].tolist(),
        "logits": {
            "shape": [vocab],
            "f32": base64.b64encode(logits.numpy().astype("<f4").tobytes()).decode(),
        },
        "greedy": greedy.tolist(),
        "beams": beams.tolist(),
        "margin": float(f"{min(found):.3g}"),
        "matrix": made.matrix,
        "rows": [row.contiguous().numpy().astype("<f4").tobytes().hex() for row in rows],
        "checksums": {key: checksum(tensor) for key, tensor in sorted(made.weights.items())},
    }


def main() -> None:
    folder = Path(__file__).parents[2] / "tests/golden/quantized"
    path = folder / "expected.json"
    golden = json.loads(path.read_text())["models"] if path.exists() else {}
    makers = {
        **quantized_words.folders(),
        **quantized_floats.folders(),
        **quantized_libraries.folders(),
    }
    for name, (make, arguments) in makers.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir(parents=True)
        made = make(folder / name, **arguments)
        golden[name] = expected(name, made)
        size = sum(file.stat().st_size for file in (folder / name).iterdir())
        print(f"{name}: {size} bytes, margin {golden[name]['margin']}", flush=True)
    made_with = {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]}
    body = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(golden[name], separators=(',', ':'))}"
        for name in makers
        if name in golden
    )
    path.write_text(f'{{"made_with": {json.dumps(made_with)}, "models": {{\n{body}\n}}}}\n')


if __name__ == "__main__":
    main()
