"""The table of the peers: what runs each of them, and of what it is made."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from environments import WORK, Environment, run
from tasks import CALLS, SERVING

WORKERS = Path(__file__).resolve().parent / "workers"
NUMPY = "numpy==2.4.6"
TORCH = Environment("torch", ("torch==2.13.0", NUMPY))
# What the converters import: the last transformers that optimum-intel takes, and the torchvision of this torch.
CONVERT = Environment(
    "convert",
    (
        "transformers==5.5.4",
        "optimum-intel==2.2.0",
        "torchvision==0.28.0",
        "openvino==2026.4.1",
        "ctranslate2==4.8.5",
        "safetensors",
        "pyyaml",
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
    # What its `load` is asked for.
    options: tuple[str, ...] = ()
    base: Environment | None = None
    # What it is measured on.
    tasks: tuple[str, ...] = CALLS

    @property
    def script(self) -> str:
        """The worker file."""
        return str(WORKERS / f"{self.worker}_worker.py")

    def command(self, checkpoint: Path, threads: int) -> list[str]:
        """What starts the worker, once it is installed and has its model."""
        python = Environment(self.worker, self.packages, self.base).python()
        return [str(python), self.script, "serve", str(self.model(checkpoint)), str(threads), *self.options]

    def model(self, checkpoint: Path) -> Path:
        """The folder of the model in the peer's own format, converted if it is not there."""
        if self.weights is None:
            return checkpoint
        folder = checkpoint.with_name(f"{checkpoint.name}.{self.worker}.{self.weights}")
        if not folder.exists():
            print(f"converting {folder} …", file=sys.stderr)
            partial = folder.with_name(f"{folder.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            convert = [str(CONVERT.python()), self.script, "convert", str(checkpoint), str(partial)]
            log = WORK / "logs" / f"convert.{folder.name}.log"
            run([*convert, self.weights, *self.packages], log, "its model could not be converted")
            partial.rename(folder)
        return folder


LLAMA = ("llama-cpp-python==0.3.36", NUMPY)
OPENVINO = ("openvino-genai==2026.4.1.0", NUMPY)
PEERS = [
    Peer(
        "transformers bf16", "transformers", ("transformers==5.23.0",), base=TORCH, tasks=(*CALLS, *SERVING)
    ),
    Peer("llama.cpp bf16", "llama_cpp", LLAMA, "bf16", ("calls",)),
    # Its two caches for requests: one for all, or one for each.
    Peer("llama.cpp bf16 unified", "llama_cpp", LLAMA, "bf16", ("unified",), tasks=SERVING),
    Peer("llama.cpp bf16 separate", "llama_cpp", LLAMA, "bf16", ("separate",), tasks=SERVING),
    # Its two backends: each is ahead on some tasks.
    Peer("OpenVINO bf16 paged", "openvino", OPENVINO, "fp16", ("PA",)),
    Peer("OpenVINO bf16 SDPA", "openvino", OPENVINO, "fp16", ("SDPA",)),
    # The tokens of a batch: 256 is its default.
    Peer("OpenVINO bf16 batch256", "openvino", OPENVINO, "fp16", ("256",), tasks=SERVING),
    Peer("OpenVINO bf16 batch2048", "openvino", OPENVINO, "fp16", ("2048",), tasks=SERVING),
    # It reads bfloat16 and computes in float32, of itself: told to keep bfloat16 it was three times slower.
    Peer("mistral.rs float32", "mistralrs", ("mistralrs==0.9.5",), "bf16"),
    # The largest comes last: memory may not do for all.
    Peer("CTranslate2 float32", "ctranslate2", ("ctranslate2==4.8.5",), "float32", tasks=(*CALLS, *SERVING)),
]
