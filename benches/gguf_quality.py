"""GGUF files in rsgen and in llama.cpp: the perplexity of both, and how far rsgen's fast arithmetic is from its exact one.

python benches/gguf_quality.py                     # the story model, and a drawn model of each family, on 12,000 tokens
python benches/gguf_quality.py --only story --only qwen3 --stories 10

Models become GGUF files by `rsgen convert`, and llama.cpp quantizes those. Rows of the story model are no multiples of 256, so its
K types are Q5_0 and Q8_0 for the most part; the drawn models have K types throughout. It needs the packages torch, transformers and
llama-cpp-python, and the command rsgen.

For each type it prints the perplexity of exact arithmetic, that of the other two relative to it, the mean Kullback-Leibler divergence of
the next token's distribution from the exact one in nats, and how often the most likely token is the same.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import llama_cpp
import numpy as np
import rsgen
import torch
import transformers
from quality import CONTEXT, log_softmax, stories

#: The types of llama.cpp's files.
TYPES = {"Q8_0": 7, "Q4_0": 2, "Q4_K_M": 15, "Q5_K_M": 17, "Q6_K": 18, "Q3_K_M": 12, "Q2_K": 10}
#: What drawn models have in common: rows of whole K blocks, and the story model's vocabulary.
SIZES: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256}
#: The families, by their type in transformers, and what each has beside the sizes.
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": None},
    "qwen2": {},
    "qwen3": {"head_dim": 64},
    "qwen3_moe": {"head_dim": 64, "norm_topk_prob": True, **EXPERTS},
    "gemma": {"head_dim": 64, "num_key_value_heads": 4},
    "gemma3_text": {"head_dim": 64, "query_pre_attn_scalar": 64, "sliding_window": 128},
    "phi3": {},
    "olmo2": {},
    "granite": {},
    "starcoder2": {"sliding_window": None},
    "stablelm": {},
    "smollm3": {"no_rope_layers": [1, 1, 1, 0]},
    "ernie4_5": {},
    "seed_oss": {"head_dim": 64},
    "nemotron": {},
    "arcee": {},
    "olmo": {},
    "apertus": {},
    "cohere2": {"head_dim": 64, "sliding_window": 128},
    # llama.cpp leaves windows out in a model of this size.
    "exaone4": {"sliding_window": None, "layer_types": ["full_attention"] * 4},
    "glm4": {"head_dim": 64},
    "hunyuan_v1_dense": {"head_dim": 64},
    "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None},
    "olmoe": {"num_key_value_heads": 4, "num_experts": 8, "num_experts_per_tok": 2},
    "gpt2": {"num_key_value_heads": 4, "n_inner": 512},
    "gpt_neox": {"num_key_value_heads": 4},
    "gpt_oss": {"head_dim": 64, "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 128},
    "phi": {},
}


def drawn(family: str, folder: Path, story: Path) -> Path:
    """A model of a family whose weights are drawn, with the story model's tokenizer."""
    torch.manual_seed(len(family))
    config = transformers.AutoConfig.for_model(family, **{**SIZES, **FAMILIES[family]})
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim > 1:
                # Logits of about 1: the head may be the embedding.
                is_embedding = "embed" in name and not config.tie_word_embeddings
                weight.normal_(0, 1.0 if is_embedding else weight.shape[-1] ** -0.5)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((story / name).read_bytes())
    return folder


@llama_cpp.llama_log_callback
def quiet(_level: int, _text: bytes, _data: object) -> None:
    """Takes what llama.cpp says."""


def quantize(source: Path, kind: str) -> Path:
    """The file in a type, by llama.cpp."""
    out = source.with_name(f"{source.stem}-{kind}.gguf")
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype, parameters.nthread = TYPES[kind], 2
    code = llama_cpp.llama_model_quantize(str(source).encode(), str(out).encode(), ctypes.byref(parameters))
    assert code == 0, f"llama.cpp could not write {out}"
    return out


def peer(path: Path, texts: list[list[int]]) -> list[np.ndarray]:
    """llama.cpp's logits after each token."""
    model = llama_cpp.Llama(str(path), n_ctx=CONTEXT, n_batch=CONTEXT, logits_all=True, verbose=False)
    logits = []
    for ids in texts:
        model.reset()
        model.eval(ids)
        logits.append(np.array(model.scores[: len(ids)]))
    model.close()
    return logits


class Sums:
    """The sums over all positions of one arithmetic, beside the exact one."""

    def __init__(self) -> None:
        self.tokens, self.positions = 0, 0
        self.loss, self.divergence, self.equal = 0.0, 0.0, 0

    def add(self, ids: list[int], exact: np.ndarray, logits: np.ndarray) -> None:
        """Adds a text by the logarithms of its probabilities."""
        self.tokens += len(ids) - 1
        self.positions += len(ids)
        self.loss -= float(logits[np.arange(len(ids) - 1), ids[1:]].sum())
        self.divergence += float((np.exp(exact) * (exact - logits)).sum())
        self.equal += int((exact.argmax(axis=-1) == logits.argmax(axis=-1)).sum())

    @property
    def perplexity(self) -> float:
        """e to the mean loss of a token."""
        return float(np.exp(self.loss / self.tokens))


def check(gen: rsgen.Generator, ids: list[int]) -> None:
    """Checks that `perplexity` is what is computed here."""
    sums, logits = Sums(), log_softmax(gen.forward([ids])[0])
    sums.add(ids, logits, logits)
    assert abs(gen.perplexity(ids) / sums.perplexity - 1) < 1e-4, "perplexity() is another number"


def compare(path: Path, texts: list[list[int]]) -> str:
    """A row of the table."""
    exact, fast = rsgen.Generator(path), rsgen.Generator(path, compute_dtype="int8")
    check(exact, texts[0])
    sums = [Sums() for _ in range(3)]
    for ids, theirs in zip(texts, peer(path, texts), strict=True):
        logits = [log_softmax(each) for each in (exact.forward([ids])[0], fast.forward([ids])[0], theirs)]
        for total, each in zip(sums, logits, strict=True):
            total.add(ids, logits[0], each)
    cells = [f"{sums[0].perplexity:.4f}"]
    for total in sums[1:]:
        cells += [
            f"{100 * (total.perplexity / sums[0].perplexity - 1):+.3f} %",
            f"{total.divergence / total.positions:.1e}",
            f"{100 * total.equal / total.positions:.2f} %",
        ]
    return f"{sums[0].positions} | " + " | ".join(cells)


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--only", action="append", help="story, or a family; may be given several times")
    arguments.add_argument("--type", action="append", choices=TYPES, help="may be given several times")
    arguments.add_argument("--command", default="rsgen", help="where the command rsgen is")
    arguments.add_argument("--stories", type=int, default=60)
    given = arguments.parse_args()
    story = Path(rsgen.__file__).parent / "models" / "story-3m"
    tokenizer = rsgen.Generator(story).tokenizer
    texts = [[int(token) for token in tokenizer.encode(text)][:CONTEXT] for text in stories(given.stories)]
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    print(
        "| model | type | positions | perplexity | fast | divergence | same | llama.cpp | divergence | same |"
    )
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for name in given.only or ["story", *FAMILIES]:
        with TemporaryDirectory() as temporary:
            folder = story if name == "story" else drawn(name, Path(temporary) / name, story)
            source = Path(temporary) / f"{name}.gguf"
            command = [given.command, "convert", str(folder), str(source)]
            if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode:
                # Of some types transformers changes how the story model's tokenizer cuts texts, which no file states.
                print(f"| {name} | not written |", flush=True)
                continue
            for kind in given.type or TYPES:
                try:
                    row = compare(quantize(source, kind), texts)
                except (AssertionError, ValueError) as error:
                    row = f"{error} |"
                print(f"| {name} | {kind} | {row} |", flush=True)


if __name__ == "__main__":
    main()
