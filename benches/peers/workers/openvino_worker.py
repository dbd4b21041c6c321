"""OpenVINO GenAI, with either of its attention backends, computing in bfloat16."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from worker import Generate, Ids, main


def convert(checkpoint: Path, folder: Path, weights: str, packages: list[str]) -> None:
    """As its documentation says: by optimum-intel."""
    export = ["export", "openvino", "--task", "text-generation-with-past", "--disable-convert-tokenizer"]
    command = [sys.executable, "-m", "optimum.commands.optimum_cli", *export]
    subprocess.run([*command, "--weight-format", weights, "-m", str(checkpoint), str(folder)], check=True)


def load(folder: str, threads: int, backend: str) -> Generate:
    """Loads the model; no prompt is remembered for the next call."""
    import numpy as np
    from openvino import Tensor
    from openvino_genai import LLMPipeline, SchedulerConfig, TokenizedInputs

    properties: dict[str, object] = {"ATTENTION_BACKEND": backend}
    if backend == "PA":
        scheduler = SchedulerConfig()
        scheduler.enable_prefix_caching = False
        # As the pipeline itself has it: a prompt is one batch.
        scheduler.max_num_batched_tokens = sys.maxsize
        properties["scheduler_config"] = scheduler
    pipeline = LLMPipeline(
        folder,
        "CPU",
        INFERENCE_PRECISION_HINT="bf16",
        INFERENCE_NUM_THREADS=threads,
        PERFORMANCE_HINT="LATENCY",
        **properties,
    )

    def generate(prompts: Ids, new_tokens: int, num_beams: int) -> Ids:
        ids = np.array(prompts, dtype=np.int64)
        output = pipeline.generate(
            TokenizedInputs(Tensor(ids), Tensor(np.ones_like(ids))),
            max_new_tokens=new_tokens,
            min_new_tokens=new_tokens,
            num_beams=num_beams,
            ignore_eos=True,
            do_sample=False,
        )
        return [list(tokens) for tokens in output.tokens]

    return generate


if __name__ == "__main__":
    main(load, ["numpy", "openvino", "openvino_genai"], convert)
