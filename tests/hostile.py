"""Model folders to be damaged: a tiny llama, with the tokenizer of the story model where one is wanted."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import rsgen
from tiny_llama import llama_config, llama_tensors, write_safetensors

STORY = Path(rsgen.__file__).parent / "models" / "story-3m"
CONFIG = llama_config(max_position_embeddings=64)
EMBEDDING = "model.embed_tokens.weight"
NORM = "model.norm.weight"
INDEX = "model.safetensors.index.json"
#: The other files that are read as JSON.
JSON_FILES = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
]

Edit = Callable[["Folder"], None]
Json = dict[str, object]


class Folder:
    """A model folder, and the ways to damage it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_text = json.dumps(CONFIG)
        self.write("config.json", self.config_text)
        write_safetensors(path / "model.safetensors", llama_tensors(CONFIG, np.random.default_rng(0)))

    def write(self, name: str, content: str | bytes) -> None:
        (self.path / name).write_bytes(content.encode() if isinstance(content, str) else content)

    def json(self, name: str, content: object) -> None:
        self.write(name, json.dumps(content))

    def replace(self, name: str, make: Callable[[Path], object]) -> None:
        """Puts something that is no file in the place of a file."""
        path = self.path / name
        path.unlink(missing_ok=True)
        make(path)

    def header(self, change: Callable[[Json], object], data: Callable[[bytes], bytes] = bytes) -> None:
        """Changes the header of the weights, by hand or with a whole text, and their bytes."""
        whole = (self.path / "model.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", whole[:8])
        header = json.loads(whole[8 : 8 + length])
        text = change(header)
        text = text if isinstance(text, bytes) else json.dumps(header).encode()
        self.write("model.safetensors", struct.pack("<Q", len(text)) + text + data(whole[8 + length :]))

    def weight(self, name: str, value: float) -> None:
        """Sets the third number of a tensor."""
        places: list[int] = []
        self.header(lambda header: places.extend(header[name]["data_offsets"]))
        whole = bytearray((self.path / "model.safetensors").read_bytes())
        (length,) = struct.unpack("<Q", whole[:8])
        at = 8 + length + places[0] + 8
        whole[at : at + 4] = struct.pack("<f", value)
        self.write("model.safetensors", bytes(whole))

    def index(self, change: Callable[[Json], object]) -> None:
        """Makes the weights a shard, and writes an index of it."""
        names: list[str] = []
        self.header(lambda header: names.extend(header))
        (self.path / "model.safetensors").rename(self.path / "a.safetensors")
        weight_map: Json = dict.fromkeys(names, "a.safetensors")
        index = change(weight_map)
        self.json(INDEX, {"weight_map": weight_map} if index is None else index)

    def tokenizer(self, change: Callable[[dict], object] = lambda _: None) -> None:
        """Adds the tokenizer of the story model, changed."""
        for name in ("tokenizer_config.json", "special_tokens_map.json"):
            shutil.copy(STORY / name, self.path)
        tokenizer = json.loads((STORY / "tokenizer.json").read_text())
        text = change(tokenizer)
        self.write("tokenizer.json", text if isinstance(text, str) else json.dumps(tokenizer))


def config(**fields: object) -> Edit:
    """Changes fields of config.json."""
    return lambda folder: folder.json("config.json", {**CONFIG, **fields})


def text(name: str, content: str | bytes) -> Edit:
    """Writes a file."""
    return lambda folder: folder.write(name, content)


def header(**fields: object) -> Edit:
    """Changes the entry of the embedding in the header of the weights."""
    return lambda folder: folder.header(lambda header: header[EMBEDDING].update(fields))


def tokenizer(**parts: object) -> Edit:
    """Adds a tokenizer with other parts."""
    return lambda folder: folder.tokenizer(lambda tokenizer: tokenizer.update(parts))


def model(**fields: object) -> Edit:
    """Adds a tokenizer whose model has other fields."""
    return lambda folder: folder.tokenizer(lambda tokenizer: tokenizer["model"].update(fields))


def template(single: list[object], **special: object) -> Edit:
    """Adds a tokenizer that puts this around a prompt."""
    pair = [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}]
    return tokenizer(
        post_processor={
            "type": "TemplateProcessing",
            "single": single,
            "pair": pair,
            "special_tokens": special,
        }
    )


def split(regex: str) -> Edit:
    """Adds a tokenizer that splits prompts by this expression."""
    return tokenizer(
        pre_tokenizer={"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    )


def replacement(pattern: dict[str, str], content: str) -> Edit:
    """Adds a tokenizer whose normalizer replaces something."""
    return tokenizer(normalizer={"type": "Replace", "pattern": pattern, "content": content})


def settings(**fields: object) -> Edit:
    """Adds a tokenizer, and fields to its tokenizer_config.json."""

    def edit(folder: Folder) -> None:
        folder.tokenizer()
        known = json.loads((STORY / "tokenizer_config.json").read_text())
        folder.json("tokenizer_config.json", {**known, **fields})

    return edit
