"""The table of the peers: what runs each of them, in which precision, and of what it is made."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from environments import WORK, Environment, run
from tasks import CALLS, LOOKUPS, SERVING, SOURCES, TASKS

# What peers are compared within: the weights are of this type, or near it in bits.
PRECISIONS = ("bfloat16", "int8", "int4")
# Where a model's weights are, in all formats.
WEIGHT_FILES = {".safetensors", ".gguf", ".bin"}
WORKERS = Path(__file__).resolve().parent / "workers"
NUMPY = "numpy==2.4.6"
TORCH = Environment("torch", ("torch==2.13.0", NUMPY))
# What the converters import: the last transformers whose Gemma 3 optimum-intel exports, and the torchvision of this torch.
CONVERT = Environment(
    "convert",
    (
        "transformers==5.0.0",
        "optimum-intel==2.2.0",
        "torchvision==0.28.0",
        "openvino==2026.4.1",
        "ctranslate2==4.8.5",
        "safetensors",
        "pyyaml",
        # Without it this transformers knows no tokenizer of a Marian.
        "sentencepiece",
        "requests",
        "tqdm",
    ),
    base=TORCH,
)


@dataclass(frozen=True)
class Peer:
    """A worker file, the packages it runs on, and how it is to run."""

    name: str
    # `workers/…_worker.py`
    worker: str
    packages: tuple[str, ...]
    # What the worker's `convert` is asked for; None if it takes the checkpoint as it is.
    weights: str | None = None
    # The weights that these are made of, in the peer's own format and environment; None if they are the checkpoint's.
    made_of: str | None = None
    # What its `load` is asked for.
    options: tuple[str, ...] = ()
    base: Environment | None = None
    # What it is measured on.
    tasks: tuple[str, ...] = CALLS
    precision: str = "bfloat16"
    # The peer whose file it reads; None if it has its own.
    file_of: Peer | None = None

    @property
    def script(self) -> str:
        """The worker file."""
        return str(WORKERS / f"{self.worker}_worker.py")

    def command(self, checkpoint: Path, threads: int) -> list[str]:
        """What starts the worker, once it is installed and has its model."""
        serve = [str(self.python()), self.script, "serve"]
        return [*serve, str(self.model(checkpoint)), str(threads), *self.options]

    def python(self) -> Path:
        """The interpreter of its environment."""
        return Environment(self.worker, self.packages, self.base).python()

    def weight_bytes(self, checkpoint: Path) -> int:
        """The bytes of its model's file, once it is there."""
        files = self.model(checkpoint).iterdir()
        return sum(file.stat().st_size for file in files if file.suffix in WEIGHT_FILES)

    def model(self, checkpoint: Path) -> Path:
        """The folder of the model in the peer's own format, converted if it is not there."""
        if self.file_of is not None:
            return self.file_of.model(checkpoint)
        if self.weights is None:
            return checkpoint
        folder = checkpoint.with_name(f"{checkpoint.name}.{self.worker}.{self.weights}")
        if not folder.exists():
            print(f"converting {folder} …", file=sys.stderr)
            partial = folder.with_name(f"{folder.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            python, source = CONVERT.python, checkpoint
            if self.made_of:
                source = replace(self, weights=self.made_of, made_of=None).model(checkpoint)
                python = self.python
            convert = [str(python()), self.script, "convert", str(source), str(partial)]
            log = WORK / "logs" / f"convert.{folder.name}.log"
            run([*convert, self.weights, *self.packages], log, "its model could not be converted")
            partial.rename(folder)
        return folder


LLAMA = ("llama-cpp-python==0.3.36", NUMPY)
OPENVINO = ("openvino-genai==2026.4.1.0", NUMPY)


def llama_cpp(name: str, precision: str, weights: str, made_of: str | None = None) -> list[Peer]:
    """llama.cpp for calls, and with its two caches for requests: one for all, or one for each."""
    calls = Peer(
        f"llama.cpp {name}",
        "llama_cpp",
        LLAMA,
        weights,
        made_of,
        ("calls",),
        tasks=(*CALLS, *LOOKUPS),
        precision=precision,
    )
    return [calls, *(variant(calls, cache, cache) for cache in ("unified", "separate"))]


def ik_llama_cpp(name: str, llama: Peer) -> Peer:
    """The fork of llama.cpp with faster products of quantized weights, on llama.cpp's file."""
    packages = ("ik-llama-cpp-python==0.1.5", NUMPY)
    return Peer(f"ik_llama.cpp {name}", "ik_llama_cpp", packages, file_of=llama, precision=llama.precision)


def openvino(name: str, precision: str, weights: str) -> list[Peer]:
    """OpenVINO with its two backends, each ahead on some tasks; with the tokens of a batch, of which 256 is its default; and
    with prompt lookup.
    """
    paged = Peer(f"OpenVINO {name} paged", "openvino", OPENVINO, weights, None, ("PA",), precision=precision)
    unpaged = replace(paged, name=f"OpenVINO {name} SDPA", options=("SDPA",))
    requests = replace(paged, name=f"OpenVINO {name}")
    lookup = replace(requests, name=f"{requests.name} lookup", options=("lookup",), tasks=LOOKUPS)
    return [
        paged,
        unpaged,
        *(variant(requests, f"batch{tokens}", tokens) for tokens in ("256", "2048")),
        lookup,
    ]


def variant(peer: Peer, name: str, option: str) -> Peer:
    """The peer for requests of a service."""
    return replace(peer, name=f"{peer.name} {name}", options=(option,), tasks=SERVING)


def ctranslate2(weights: str, precision: str, arithmetic: str) -> Peer:
    """CTranslate2, which takes calls and requests in the same way."""
    packages, tasks = ("ctranslate2==4.8.5",), (*CALLS, *SERVING)
    name = f"CTranslate2 {weights}"
    return Peer(name, "ctranslate2", packages, weights, None, (arithmetic,), tasks=tasks, precision=precision)


def translators(weights: str, precision: str, arithmetic: str) -> list[Peer]:
    """CTranslate2 for sources: all in one batch, in batches of 16 or of 1024 tokens, and with a worker for each thread."""
    packages = ("ctranslate2==4.8.5",)
    one = Peer(
        f"CTranslate2 {weights} whole",
        "ctranslate2_translator",
        packages,
        weights,
        options=(arithmetic, "threads", "examples", "0"),
        tasks=SOURCES,
        precision=precision,
    )
    many = [task for task in SOURCES if TASKS[task].num_prompts > 1]
    return [
        one,
        *(
            replace(
                one, name=f"CTranslate2 {weights} {name}", options=(arithmetic, *options), tasks=tuple(many)
            )
            for name, *options in (
                ("16", "threads", "examples", "16"),
                ("tokens1024", "threads", "tokens", "1024"),
                ("workers", "workers", "examples", "8"),
            )
        ),
    ]


LLAMA_Q8_0, LLAMA_Q4_0, LLAMA_Q4_K_M = (
    llama_cpp("Q8_0", "int8", "q8_0", made_of="bf16"),
    llama_cpp("Q4_0", "int4", "q4_0", made_of="bf16"),
    llama_cpp("Q4_K_M", "int4", "q4_k_m", made_of="bf16"),
)

PEERS = [
    Peer(
        "transformers bf16",
        "transformers",
        ("transformers==5.23.0",),
        base=TORCH,
        tasks=(*CALLS, "serve16", *SOURCES, *LOOKUPS),
    ),
    *llama_cpp("bf16", "bfloat16", "bf16"),
    *openvino("bf16", "bfloat16", "fp16"),
    # It reads bfloat16 and computes in float32, of itself: told to keep bfloat16 it was three times slower.
    Peer("mistral.rs float32", "mistralrs", ("mistralrs==0.9.5",), "bf16"),
    # The largest comes last: memory may not do for all.
    ctranslate2("float32", "bfloat16", "float32"),
    *translators("float32", "bfloat16", "float32"),
    *LLAMA_Q8_0,
    ik_llama_cpp("Q8_0", LLAMA_Q8_0[0]),
    *openvino("int8", "int8", "int8"),
    ctranslate2("int8", "int8", "int8_float32"),
    *translators("int8", "int8", "int8_float32"),
    *LLAMA_Q4_0,
    *LLAMA_Q4_K_M,
    ik_llama_cpp("Q4_0", LLAMA_Q4_0[0]),
    ik_llama_cpp("Q4_K_M", LLAMA_Q4_K_M[0]),
    *openvino("int4", "int4", "int4"),
]
