"""What weights of integers cost: how much the loss of a model rises, and how far its matrices are off.

python benches/quality.py                       # the story model on 500 stories that it was not trained on
python benches/quality.py --stories 50
python benches/quality.py --gguf                # activations of 8 bits against float32, on GGUF files of the story model

The last needs the package gguf. It prints the mean Kullback-Leibler divergence of the next token's distribution, in nats, and how
often the most likely token is the same.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import rsgen

sys.path.insert(0, str(Path(__file__).parent.parent / "tools" / "story_model"))
from story_corpus import write_stories

# Far from the seeds that the model was trained with.
SEED = 20_000_003
# The most that the loss may rise.
BOUNDS = {"int8": 0.005, "int4": 0.04}


def stories(count: int) -> list[str]:
    """Stories that the model was not trained on."""
    return [story.text for story in write_stories(count, SEED)]


def loss(gen: rsgen.Generator, texts: list[str]) -> float:
    """The mean negative log-probability of a token."""
    scores = [logprobs[1:] for logprobs in gen.score(texts)]
    return -float(sum(row.sum() for row in scores)) / sum(len(row) for row in scores)


#: The positions of the story model.
CONTEXT = 512
#: The tensors of a llama in GGUF files.
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
#: The types that gguf quantizes to, of blocks that divide the story model's width.
TYPES = ("Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0")


def tensors(folder: Path) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file in float32."""
    data = (folder / "model.safetensors").read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    found = {}
    for name, entry in header.items():
        if name != "__metadata__":
            first, last = (end + offset for offset in entry["data_offsets"])
            bits = np.frombuffer(data[first:last], dtype=np.uint16 if entry["dtype"] == "BF16" else np.uint32)
            wide = bits.astype(np.uint32) << 16 if entry["dtype"] == "BF16" else bits
            found[name] = wide.view(np.float32).reshape(entry["shape"])
    return found


def write_gguf(folder: Path, path: Path, kind: str) -> None:
    """A llama as a GGUF file of one type, beside its tokenizer."""
    import gguf

    config = json.loads((folder / "config.json").read_text())
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config.get("rope_theta") or config["rope_parameters"]["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    for name, values in tensors(folder).items():
        module = name.removesuffix(".weight")
        layer = ""
        if module.startswith("model.layers."):
            _, _, index, module = module.split(".", 3)
            layer = f"blk.{index}."
        if module in ("self_attn.q_proj", "self_attn.k_proj"):
            # Halves become pairs, as llama.cpp's converter stores them.
            count = heads if module == "self_attn.q_proj" else kv_heads
            shape = values.shape
            values = values.reshape(count, 2, shape[0] // count // 2, shape[1]).swapaxes(1, 2).reshape(shape)
        quantized = gguf.GGMLQuantizationType[kind if values.ndim > 1 else "F32"]
        writer.add_tensor(
            f"{layer}{NAMES[module]}.weight",
            gguf.quantize(np.ascontiguousarray(values), quantized),
            raw_dtype=quantized,
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (path.parent / name).write_bytes((folder / name).read_bytes())


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """The logarithms of the probabilities."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def distance(exact: rsgen.Generator, fast: rsgen.Generator, texts: list[str]) -> tuple[int, float, float]:
    """The positions of the texts, the mean divergence of one model from another, and the share of equal choices."""
    count, divergence, equal = 0, 0.0, 0
    for text in texts:
        ids = exact.tokenizer.encode(text)[:CONTEXT]
        expected, actual = (log_softmax(gen.forward([ids])[0]) for gen in (exact, fast))
        count += len(ids)
        divergence += float((np.exp(expected) * (expected - actual)).sum())
        equal += int((expected.argmax(axis=-1) == actual.argmax(axis=-1)).sum())
    return count, divergence / count, equal / count


def arithmetic(folder: Path, texts: list[str]) -> None:
    """Prints the distances of activations of 8 bits from float32, for each type."""
    with TemporaryDirectory() as temporary:
        for kind in TYPES:
            path = Path(temporary) / f"{kind}.gguf"
            write_gguf(folder, path, kind)
            exact, fast = rsgen.Generator(path), rsgen.Generator(path, compute_dtype="int8")
            rise = loss(fast, texts) / loss(exact, texts) - 1
            count, divergence, equal = distance(exact, fast, texts)
            print(
                f"  {kind}: {count} positions, divergence {divergence:.2e}, equal choices {100 * equal:.2f} %, "
                f"loss {100 * rise:+.3f} %"
            )


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("model", nargs="?", help="a folder; the story model if not given")
    arguments.add_argument("--stories", type=int, default=500)
    arguments.add_argument("--gguf", action="store_true", help="compare the two arithmetics of GGUF files")
    given = arguments.parse_args()
    texts = stories(given.stories)
    if given.gguf:
        arithmetic(Path(given.model or Path(rsgen.__file__).parent / "models" / "story-3m"), texts)
        return
    plain = loss(rsgen.Generator(given.model), texts)
    print(f"loss on {len(texts)} stories: {plain:.5f} as stored")
    failed = False
    for dtype, bound in BOUNDS.items():
        rise = loss(rsgen.Generator(given.model, dtype=dtype), texts) / plain - 1
        failed |= rise > bound
        print(f"  {dtype}: {100 * rise:+.2f} %, at most {100 * bound:.1f} %")
    sys.exit(failed)


if __name__ == "__main__":
    main()
