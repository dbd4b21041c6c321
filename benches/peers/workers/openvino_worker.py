"""OpenVINO GenAI computing in bfloat16: calls with either of its attention backends, and continuous batching."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from worker import Generate, Ids, OnFirst, common_length, main

# What the export is asked for besides the type of the weights. Groups are of 128 inputs, and smaller where 128 does not
# divide them.
GROUPS = {"int4": ["--group-size", "128", "--group-size-fallback", "adjust"]}


def convert(checkpoint: Path, folder: Path, weights: str, packages: list[str]) -> None:
    """As its documentation says: by optimum-intel."""
    export = ["export", "openvino", "--task", "text-generation-with-past", "--disable-convert-tokenizer"]
    command = [sys.executable, "-m", "optimum.commands.optimum_cli", *export]
    weight_format = ["--weight-format", weights, *GROUPS.get(weights, [])]
    subprocess.run([*command, *weight_format, "-m", str(checkpoint), str(folder)], check=True)


def load(folder: str, threads: int, mode: str) -> Generate:
    """Loads the model: `PA` and `SDPA` are backends of attention, a number is the tokens of a batch of requests, and
    `lookup` is prompt lookup.
    """
    properties = {
        "INFERENCE_PRECISION_HINT": "bf16",
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
    }
    if os.environ.get("PEERS_ISA") == "avx2":
        # As it does by itself on a processor with AVX2 alone. On a better one it asks oneDNN, which is kept to AVX2, for
        # bfloat16 and for 8-bit products of activations, and ends with an error.
        properties |= {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
    if mode in ("PA", "SDPA"):
        return load_calls(folder, properties, mode)
    if mode == "lookup":
        return load_calls(folder, properties | {"prompt_lookup": True}, "PA")
    return load_requests(folder, properties, int(mode))


def load_calls(folder: str, properties: dict[str, object], backend: str) -> Generate:
    """Every call is a batch of its own; no prompt is remembered for the next one."""
    import numpy as np
    from openvino import Tensor
    from openvino_genai import LLMPipeline, SchedulerConfig, TokenizedInputs

    properties["ATTENTION_BACKEND"] = backend
    if backend == "PA":
        scheduler = SchedulerConfig()
        scheduler.enable_prefix_caching = False
        # As the pipeline itself has it: a prompt is one batch.
        scheduler.max_num_batched_tokens = sys.maxsize
        properties["scheduler_config"] = scheduler
    pipeline = LLMPipeline(folder, "CPU", **properties)

    def generate(
        prompts: Ids, new_tokens: int, num_beams: int, lookup: int = 0, on_first: OnFirst | None = None
    ) -> Ids:
        # Of n-grams as long as transformers' and rsgen's.
        candidates = {"num_assistant_tokens": lookup, "max_ngram_size": 2} if lookup else {}
        ids = np.array(prompts, dtype=np.int64)
        begin = time.perf_counter()
        output = pipeline.generate(
            TokenizedInputs(Tensor(ids), Tensor(np.ones_like(ids))),
            max_new_tokens=new_tokens,
            min_new_tokens=new_tokens,
            num_beams=num_beams,
            ignore_eos=True,
            do_sample=False,
            **candidates,
        )
        if on_first:
            on_first(begin + output.perf_metrics.get_ttft().mean / 1000)
        return [list(tokens) for tokens in output.tokens]

    return generate


def load_requests(folder: str, properties: dict[str, object], batched_tokens: int) -> Generate:
    """The prompts are requests that arrive at once; a batch has the next token of those that decode, then prompts."""
    import numpy as np
    from openvino import Tensor
    from openvino_genai import ContinuousBatchingPipeline, GenerationConfig, SchedulerConfig

    scheduler = SchedulerConfig()
    # What prompts begin with is computed once; no call has a prompt of another one.
    scheduler.enable_prefix_caching = True
    scheduler.dynamic_split_fuse = True
    scheduler.max_num_batched_tokens = batched_tokens
    # In gigabytes: more than the tasks take.
    scheduler.cache_size = 4
    pipeline = ContinuousBatchingPipeline(folder, scheduler, "CPU", properties)

    def generate(prompts: Ids, new_tokens: int, num_beams: int) -> Ids:
        config = GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = new_tokens
        config.num_beams = num_beams
        config.ignore_eos = True
        requests = []
        for index, prompt in enumerate(prompts):
            requests.append(pipeline.add_request(index, Tensor(np.array([prompt], dtype=np.int64)), config))
            if index == 0 and common_length(prompts) > 0:
                # The others find the blocks of the beginning that they share: it remembers what was computed.
                while not requests[0].can_read():
                    pipeline.step()
        while pipeline.has_non_finished_requests():
            pipeline.step()
        return [list(request.read_all()[0].generated_ids) for request in requests]

    return generate


if __name__ == "__main__":
    main(load, ["numpy", "openvino", "openvino_genai"], convert)
