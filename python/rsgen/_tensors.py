"""Models in memory: what ``Generator.from_tensors`` is given, as bytes and names."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ._errors import LoadError
from ._rsgen import _read_file

#: Types of numpy by their names; those of weights come first.
_WEIGHTS = ("float32", "bfloat16", "float16")

#: DLPack's codes of kinds of numbers, and of the memory that the processor reads.
_DL_UINT, _DL_BFLOAT = 1, 4
_DL_CPU = (1, 3)

_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def config_text(config: Any) -> str:
    """The text of a ``config.json``: of a mapping, a configuration of transformers, JSON, a file or a folder."""
    if isinstance(config, os.PathLike) or (isinstance(config, str) and not config.lstrip().startswith("{")):
        path = Path(config)
        return _read_file(path / "config.json" if path.is_dir() else path).decode(errors="replace")
    if isinstance(config, str):
        return config
    if not isinstance(config, Mapping):
        if not callable(getattr(config, "to_dict", None)):
            raise TypeError(
                "`config` must be a mapping, a configuration of transformers, the text of a config.json or its path, "
                f"got {_shown(config)}"
            )
        config = config.to_dict()
    return json.dumps(dict(config), default=_plain)


def _plain(value: Any) -> Any:
    """What JSON has no type for: types of numbers by their names, and lists."""
    if type(value).__name__ == "dtype":
        return str(value).removeprefix("torch.")
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    if callable(getattr(value, "to_dict", None)):
        return value.to_dict()
    raise TypeError(f"`config` must hold what JSON has types for, got {_shown(value)}")


def tokenizer_files(tokenizer: Any) -> tuple[str | None, list[tuple[str, bytes]]]:
    """A folder or Hub id that has the files of a tokenizer, or these files."""
    if tokenizer is None:
        return None, []
    if isinstance(tokenizer, (str, os.PathLike)):
        path = Path(tokenizer)
        if path.exists() and not path.is_dir():
            name = "tokenizer.model" if path.suffix == ".model" else "tokenizer.json"
            return None, [(name, _read_file(path))]
        return os.fspath(tokenizer), []
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not callable(getattr(backend, "to_str", None)):
        raise TypeError(
            "`tokenizer` must be a folder, a tokenizer.json, an rsgen.Tokenizer, a fast tokenizer of transformers, or "
            f"None, got {_shown(tokenizer)}; save it with save_pretrained() and give the folder"
        )
    files = [("tokenizer.json", backend.to_str().encode())]
    if backend is not tokenizer:
        files.append(("tokenizer_config.json", json.dumps(_tokenizer_config(tokenizer)).encode()))
    return None, files


def _tokenizer_config(tokenizer: Any) -> dict[str, Any]:
    config: dict[str, Any] = {
        name: str(token) for name in _SPECIAL if (token := getattr(tokenizer, name, None)) is not None
    }
    for name in ("add_bos_token", "add_eos_token", "clean_up_tokenization_spaces"):
        if isinstance(flag := getattr(tokenizer, name, None), bool):
            config[name] = flag
    template: Any = getattr(tokenizer, "chat_template", None)
    if isinstance(template, Mapping):
        template = [{"name": name, "template": text} for name, text in template.items()]
    if template is not None:
        config["chat_template"] = template
    return config


def tensors(given: Any) -> list[tuple[str, str, list[int], np.ndarray]]:
    """Name, type, shape and bytes of each tensor. The bytes are its own memory, unless that has gaps."""
    if not isinstance(given, Mapping):
        items: Any = getattr(given, "items", None)
        if not callable(items):
            raise TypeError(
                f"`tensors` must be a mapping of names and tensors, such as a state_dict, got {_shown(given)}"
            )
        pairs: Any = items()
        given = dict(pairs)
    found = []
    for name, tensor in _named(given):
        try:
            found.append((name, *_numbers(tensor)))
        except TypeError as error:
            raise TypeError(f"the tensor {name!r}: {error}") from error
        except (BufferError, RuntimeError, ValueError) as error:
            raise LoadError(f"the tensor {name!r}: {error}") from error
    return found


def _named(given: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Names without what compiled and distributed models of torch put before all of them."""
    names = list(given)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"`tensors` must have texts as names, got {_shown(name)}")
    prefix = ""
    for wrapper in ("_orig_mod.", "module.", "_orig_mod."):
        if names and all(name.startswith(prefix + wrapper) for name in names):
            prefix += wrapper
    for name, tensor in given.items():
        yield name.removeprefix(prefix), tensor


def _numbers(tensor: Any) -> tuple[str, list[int], np.ndarray]:
    """Type, shape and bytes of a tensor."""
    bits = False
    if isinstance(tensor, np.ndarray):
        array = tensor
    elif callable(getattr(tensor, "__dlpack__", None)):
        # Parameters of torch are exported without their gradients.
        detach: Any = getattr(tensor, "detach", None)
        exported: Any = detach() if callable(detach) else tensor
        place = exported.__dlpack_device__()[0]
        if place not in _DL_CPU:
            raise ValueError(
                f"it must be in the memory of the CPU, found DLPack's device type {int(place)}; move it, as by .cpu()"
            )
        try:
            array, bits = _imported(exported)
        except (BufferError, RuntimeError, TypeError):
            # Types that numpy has not, such as those of 8 bits, are an error when the model needs them.
            other = str(getattr(tensor, "dtype", "")).removeprefix("torch.")
            if not other or other in _WEIGHTS:
                raise
            return other, [int(size) for size in getattr(tensor, "shape", ())], np.empty(0, np.uint8)
    else:
        try:
            array = np.asarray(memoryview(tensor))
        except TypeError:
            raise TypeError(
                f"it must be a numpy array, or have DLPack or the buffer protocol, got {_shown(tensor)}"
            ) from None
    name = "bfloat16" if bits else array.dtype.name
    shape = list(array.shape)
    if name not in _WEIGHTS:
        return name, shape, np.empty(0, np.uint8)
    if not array.dtype.isnative or sys.byteorder == "big":
        array = array.astype(array.dtype.newbyteorder("<"))
    return name, shape, np.ascontiguousarray(array).reshape(-1).view(np.uint8)


class _Shape(ctypes.Structure):
    """DLPack's ``DLTensor``, up to the type of its numbers."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    )


class _Exported:
    """A tensor that numpy imports: its bfloat16 as 16-bit integers, which numpy has no type for."""

    def __init__(self, capsule: Any, device: Any) -> None:
        self.capsule, self.device = capsule, device

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> Any:
        return self.device


def _imported(tensor: Any) -> tuple[np.ndarray, bool]:
    """The same memory as an array, and whether it holds the bits of bfloat16."""
    capsule = tensor.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    # Without a version asked for, an unversioned capsule is what the protocol promises.
    shape = _Shape.from_address(pointer(capsule, b"dltensor"))
    bits = (shape.code, shape.bits, shape.lanes) == (_DL_BFLOAT, 16, 1)
    if bits:
        # The description belongs to this export alone.
        shape.code = _DL_UINT
    return np.from_dlpack(_Exported(capsule, tensor.__dlpack_device__())), bits


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, (str, int, float, bool, type(None))) else ""
    name = type(value).__name__
    return f"{name} {text[:60]}".rstrip() if text else f"an object of {type(value).__module__}.{name}"
