"""Random blocks of each GGML type with their weights as gguf-py dequantizes them.

Run: `python tools/golden/block_goldens.py` with `gguf` 0.19; writes tests/golden/blocks.json.
"""

import json
from pathlib import Path

import gguf
import numpy as np

BLOCKS = 3
# Where the half-precision scales of a block are, in bytes.
SCALES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [],
}  # fmt: skip
# Of any size, subnormal numbers and the largest one among them.
EXTREMES = [6e-8, -3.1e-5, 65504.0]


def main() -> None:
    random = np.random.default_rng(5)
    types = {}
    for name, scales in SCALES.items():
        kind = gguf.GGMLQuantizationType[name]
        _, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = random.integers(0, 256, (BLOCKS + len(EXTREMES), size), np.uint8)
        for index, block in enumerate(blocks):
            for place in scales:
                scale = EXTREMES[index - BLOCKS] if index >= BLOCKS else random.normal(0, 0.01)
                block[place : place + 2] = np.float16([scale]).view(np.uint8)
            if name == "MXFP4":
                block[0] = [118, 127, 130, 0, 1, 251][index]
        weights = gguf.quants.dequantize(blocks, kind).astype("<f4")
        types[name] = {"blocks": blocks.tobytes().hex(), "weights": weights.tobytes().hex()}
    path = Path(__file__).parents[2] / "tests/golden/blocks.json"
    path.write_text(json.dumps({"format": 1, "gguf": "0.19.0", "types": types}, indent=1) + "\n")


if __name__ == "__main__":
    main()
