"""How GPTQ and AWQ lay out bits, in numpy, and rounding to the nearest code.

No writer of these two formats installs without a GPU's toolchain, so this is one: it packs as AutoGPTQ and AutoAWQ do.
"""

from __future__ import annotations

import numpy as np
import torch

#: The output, among eight, of each nibble of a word of AWQ.
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def pack(values: np.ndarray, bits: int) -> np.ndarray:
    """Codes [n, columns] as words [n * bits / 32, columns]: value i of a column starts at bit `i * bits`, lowest first."""
    planes = (values[:, None, :].astype(np.uint8) >> np.arange(bits, dtype=np.uint8)[None, :, None]) & 1
    stream = planes.reshape(-1, 32, values.shape[1]).astype(np.uint32)
    words = (stream << np.arange(32, dtype=np.uint32)[None, :, None]).sum(1, dtype=np.uint32)
    return words.astype(np.uint32).view(np.int32)


def unpack(words: np.ndarray, bits: int) -> np.ndarray:
    """The codes of packed words, along the first axis."""
    stream = (words.view(np.uint32)[:, None, :] >> np.arange(32, dtype=np.uint32)[None, :, None]) & 1
    planes = stream.reshape(-1, bits, words.shape[1]).astype(np.int64)
    return (planes << np.arange(bits)[None, :, None]).sum(1)


def rounded(
    weight: np.ndarray, bits: int, g_idx: np.ndarray, is_symmetric: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes [in, out], scales in float16 [groups, out] and zero points [groups, out] of a weight [out, in]."""
    groups, top = int(g_idx.max()) + 1, 2**bits - 1
    scales = np.zeros((groups, weight.shape[0]), dtype=np.float16)
    zeros = np.full(scales.shape, 2 ** (bits - 1), dtype=np.int64)
    for group in range(groups):
        part = weight[:, g_idx == group]
        low, high = np.minimum(part.min(1), 0), np.maximum(part.max(1), 0)
        if is_symmetric:
            high = np.maximum(high, -low)
            low = -high
        scales[group] = (high - low) / top
        if not is_symmetric:
            zeros[group] = np.clip(np.rint(-low / scales[group].astype(np.float32)), 1, top)
    codes = np.rint(weight.T / scales[g_idx].astype(np.float32)) + zeros[g_idx]
    return np.clip(codes, 0, top).astype(np.int64), scales, zeros


def gptq_tensors(
    weight: np.ndarray, bits: int, g_idx: np.ndarray, is_symmetric: bool, zero_offset: int
) -> dict[str, np.ndarray]:
    """A module as GPTQ stores it. Version 1 stores zero points less one, version 2 as they are."""
    codes, scales, zeros = rounded(weight, bits, g_idx, is_symmetric)
    return {
        "qweight": pack(codes, bits),
        "qzeros": np.ascontiguousarray(pack((zeros - zero_offset).T, bits).T),
        "scales": scales,
        "g_idx": g_idx.astype(np.int32),
    }


def gptq_weight(stored: dict[str, np.ndarray], bits: int, zero_offset: int) -> np.ndarray:
    """The float32 weight [out, in] of a module of GPTQ."""
    codes = unpack(stored["qweight"], bits)
    zeros = (unpack(np.ascontiguousarray(stored["qzeros"].T), bits).T + zero_offset) % 2**bits
    g_idx = stored["g_idx"]
    differences = (codes - zeros[g_idx]).astype(np.float32)
    return np.ascontiguousarray((stored["scales"].astype(np.float32)[g_idx] * differences).T)


def awq_words(codes: np.ndarray) -> np.ndarray:
    """Codes [rows, out] as words [rows, out / 8]."""
    ordered = codes.reshape(codes.shape[0], -1, 8)[:, :, AWQ_ORDER].reshape(codes.shape)
    return np.ascontiguousarray(pack(ordered.T, 4).T)


def awq_codes(words: np.ndarray) -> np.ndarray:
    """The codes [rows, out] of words of AWQ."""
    nibbles = unpack(np.ascontiguousarray(words.T), 4).T.reshape(words.shape[0], -1, 8)
    codes = np.empty_like(nibbles)
    codes[:, :, AWQ_ORDER] = nibbles
    return codes.reshape(words.shape[0], -1)


def awq_tensors(weight: np.ndarray, group_size: int) -> dict[str, np.ndarray]:
    """A module as AutoAWQ's GEMM version stores it."""
    codes, scales, zeros = rounded(weight, 4, np.arange(weight.shape[1]) // group_size, False)
    return {"qweight": awq_words(codes), "qzeros": awq_words(zeros), "scales": scales}


def awq_weight(stored: dict[str, np.ndarray], group_size: int) -> np.ndarray:
    """The float32 weight [out, in] of a module of AWQ."""
    codes, zeros = awq_codes(stored["qweight"]), awq_codes(stored["qzeros"])
    group = np.arange(codes.shape[0]) // group_size
    return np.ascontiguousarray(
        (stored["scales"].astype(np.float32)[group] * (codes - zeros[group]).astype(np.float32)).T
    )


def as_torch(arrays: dict[str, np.ndarray], module: str) -> dict[str, torch.Tensor]:
    """Arrays as tensors of a module."""
    return {f"{module}.{name}": torch.from_numpy(array.copy()) for name, array in arrays.items()}
