"""llama.cpp through the low-level interface of llama-cpp-python: lists, beams, and requests batched as its server does."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from word_tokenizer import with_word_tokenizer
from worker import Generate, Ids, OnFirst, common_length, main

if TYPE_CHECKING:
    import numpy as np

# Twice as many as beams, to reorder them; and the most requests at once.
CALL_SEQUENCES, REQUESTS = 16, 64
# The tokens of a batch, and those that are computed together.
BATCH, MICRO_BATCH = 2048, 512
# The cells of the cache: for calls, and for each request.
CALL_CONTEXT, REQUEST_CONTEXT = 16896, 1280
# What the library makes of a file in bfloat16.
QUANTIZED = {
    "q8_0": "LLAMA_FTYPE_MOSTLY_Q8_0",
    "q4_0": "LLAMA_FTYPE_MOSTLY_Q4_0",
    "q4_k_m": "LLAMA_FTYPE_MOSTLY_Q4_K_M",
}


def convert(checkpoint: Path, folder: Path, weights: str, packages: list[str]) -> None:
    """By the script of the source package, without a vocabulary: prompts are ids. A quantized one by the library."""
    if weights in QUANTIZED:
        quantize(checkpoint / "model.gguf", folder / "model.gguf", QUANTIZED[weights])
        return
    with TemporaryDirectory() as source:
        requirement = packages[0]
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        no_binary = ["--no-binary", requirement.split("==")[0]]
        subprocess.run([*pip, *no_binary, "--dest", source, requirement], check=True)
        with tarfile.open(next(Path(source).glob("*.tar.gz"))) as archive:
            archive.extractall(source, filter="data")
        sys.path.insert(0, str(next(Path(source).glob("*/vendor/llama.cpp"))))
        import convert_hf_to_gguf
        from conversion import get_model_class

        config = json.loads((checkpoint / "config.json").read_text())
        model = get_model_class(config["architectures"][0])
        model.set_vocab = model._set_vocab_none
        set_gguf_parameters = model.set_gguf_parameters

        def with_vocab_size(self: Any) -> None:
            """Without a vocabulary the library needs its size, which the script writes for some architectures alone."""
            set_gguf_parameters(self)
            key = f"{self.gguf_writer.arch}.vocab_size"
            if not any(key in values for values in self.gguf_writer.kv_data):
                self.gguf_writer.add_vocab_size(config["vocab_size"])

        model.set_gguf_parameters = with_vocab_size
        # The script takes the size of the vocabulary from its file, for Gemma.
        with_tokenizer = Path(source) / "checkpoint"
        with_tokenizer.mkdir()
        with_word_tokenizer(checkpoint, with_tokenizer)
        outfile = str(folder / "model.gguf")
        sys.argv = ["convert", str(with_tokenizer), "--outtype", weights, "--outfile", outfile]
        convert_hf_to_gguf.main()


def quantize(source: Path, target: Path, file_type: str) -> None:
    """With the library's own choice of types: it keeps more bits of the matrix of the logits."""
    import llama_cpp

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, file_type)
    if llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), params) != 0:
        raise RuntimeError(f"llama_model_quantize failed for {file_type}")


@dataclass
class Part:
    """Tokens that a batch appends to a sequence."""

    sequence: int
    position: int
    tokens: list[int]
    # Whether the logits of its last token are wanted, or those of all.
    logits: bool = True
    all_logits: bool = False


class Context:
    """A model and its key-value cache, which the sequences share if it is unified."""

    def __init__(self, folder: str, threads: int, cells: int, sequences: int, unified: bool) -> None:
        import llama_cpp

        self.api = llama_cpp
        llama_cpp.llama_backend_init()
        path = str(Path(folder) / "model.gguf").encode()
        self.model = llama_cpp.llama_model_load_from_file(path, llama_cpp.llama_model_default_params())
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = cells, BATCH, MICRO_BATCH
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = threads
        params.kv_unified = unified
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.batch = llama_cpp.llama_batch_init(BATCH, 0, 1)

    def forward(self, parts: list[Part]) -> np.ndarray:
        """Appends to sequences, in one batch; a row of logits for each token that wants them."""
        import numpy as np

        batch, index, rows = self.batch, 0, 0
        for part in parts:
            for offset, token in enumerate(part.tokens):
                batch.token[index] = token
                batch.pos[index] = part.position + offset
                batch.n_seq_id[index] = 1
                batch.seq_id[index][0] = part.sequence
                wanted = part.all_logits or (part.logits and offset == len(part.tokens) - 1)
                batch.logits[index], rows = wanted, rows + wanted
                index += 1
        batch.n_tokens = index
        if self.api.llama_decode(self.context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        logits = ctypes.cast(self.api.llama_get_logits(self.context), ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(logits, (rows, self.vocab_size))

    def extend(self, rows: Ids, position: int) -> np.ndarray:
        """Appends rows of one length to the first sequences, in batches; the logits of the last token of each."""
        length, width = len(rows[0]), BATCH // len(rows)
        for start in range(0, length, width):
            is_last = start + width >= length
            logits = self.forward(
                [
                    Part(sequence, position + start, row[start : start + width], is_last)
                    for sequence, row in enumerate(rows)
                ]
            )
        return logits

    def clear(self) -> None:
        """Forgets all sequences."""
        self.api.llama_memory_clear(self.memory, False)

    def copy(self, source: int, target: int) -> None:
        """Makes one sequence what another is; their cells are shared."""
        self.remove(target)
        self.api.llama_memory_seq_cp(self.memory, source, target, -1, -1)

    def remove(self, sequence: int, start: int = -1) -> None:
        """Forgets a sequence, or what it has from a position on."""
        self.api.llama_memory_seq_rm(self.memory, sequence, start, -1)

    def reorder(self, parents: list[int]) -> None:
        """Sequence `i` becomes what `parents[i]` was."""
        moved = [beam for beam, parent in enumerate(parents) if parent != beam]
        for beam in moved:
            self.copy(parents[beam], len(parents) + beam)
        for beam in moved:
            self.copy(len(parents) + beam, beam)
        for beam in moved:
            self.remove(len(parents) + beam)


def greedy(context: Context, prompts: Ids, new_tokens: int, on_first: OnFirst | None = None) -> Ids:
    """All prompts in one batch."""
    tokens: Ids = [[] for _ in prompts]
    logits = context.extend(prompts, 0)
    for step in range(new_tokens):
        if step > 0:
            logits = context.extend([row[-1:] for row in tokens], len(prompts[0]) + step - 1)
        for row, best in zip(tokens, logits.argmax(axis=1).tolist(), strict=True):
            row.append(best)
        if step == 0 and on_first:
            on_first(time.perf_counter())
    return tokens


def prompt_lookup(context: Context, prompt: list[int], new_tokens: int, lookup: int) -> list[int]:
    """With the candidates that the package's own prompt lookup finds, checked in one batch with the last token."""
    import numpy as np
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    find = LlamaPromptLookupDecoding(max_ngram_size=2, num_pred_tokens=lookup)
    text = [*prompt, int(context.extend([prompt], 0)[0].argmax())]
    while len(text) < len(prompt) + new_tokens:
        computed, room = len(text) - 1, len(prompt) + new_tokens - len(text)
        candidates = find(np.array(text, dtype=np.intc))[: room - 1].tolist()
        row = [text[-1], *candidates]
        best = context.forward([Part(0, computed, row, all_logits=True)]).argmax(axis=1).tolist()
        # One more than the candidates that are right.
        right = 1 + next((i for i, token in enumerate(candidates) if token != best[i]), len(candidates))
        text += best[:right]
        context.remove(0, computed + right)
    return text[len(prompt) :]


def beam_search(context: Context, prompt: list[int], new_tokens: int, num_beams: int) -> list[int]:
    """The best beam of those that all have the same length; the prompt is computed once."""
    import numpy as np

    logits = context.extend([prompt], 0)
    for beam in range(1, num_beams):
        context.copy(0, beam)
    beams: Ids = [[]]
    scores = np.zeros(1, dtype=np.float32)
    for step in range(new_tokens):
        if step > 0:
            logits = context.extend([beam[-1:] for beam in beams], len(prompt) + step - 1)
        top = np.argpartition(logits, -2 * num_beams, axis=1)[:, -2 * num_beams :]
        highest = logits.max(axis=1, keepdims=True)
        log_sum = highest + np.log(np.exp(logits - highest).sum(axis=1, keepdims=True))
        totals = scores[:, None] + np.take_along_axis(logits, top, axis=1) - log_sum
        best = np.argsort(-totals, axis=None)[:num_beams]
        parents = (best // top.shape[1]).tolist()
        beams = [
            [*beams[parent], token] for parent, token in zip(parents, top.flat[best].tolist(), strict=True)
        ]
        scores = totals.flat[best]
        context.reorder(parents if step > 0 else list(range(num_beams)))
    return beams[0]


def requests(context: Context, prompts: Ids, new_tokens: int) -> Ids:
    """Requests that arrive at once. A batch has the next token of those that decode, then as much of prompts as fits.

    What all prompts begin with is computed once, and its cells are shared.
    """
    shared = common_length(prompts)
    if shared:
        context.forward([Part(0, 0, prompts[0][:shared])])
        for sequence in range(1, len(prompts)):
            context.copy(0, sequence)
    computed = [shared] * len(prompts)
    tokens: Ids = [[] for _ in prompts]
    while any(len(row) < new_tokens for row in tokens):
        batch = [
            Part(sequence, len(prompt) + len(row) - 1, row[-1:])
            for sequence, (prompt, row) in enumerate(zip(prompts, tokens, strict=True))
            if 0 < len(row) < new_tokens
        ]
        room = BATCH - len(batch)
        for sequence, prompt in enumerate(prompts):
            chunk = prompt[computed[sequence] :][:room]
            if chunk:
                last = computed[sequence] + len(chunk) == len(prompt)
                batch.append(Part(sequence, computed[sequence], chunk, last))
                computed[sequence] += len(chunk)
                room -= len(chunk)
        best = context.forward(batch).argmax(axis=1).tolist()
        for part, token in zip((part for part in batch if part.logits), best, strict=True):
            tokens[part.sequence].append(token)
    return tokens


def calls(context: Context) -> Generate:
    """A call takes its prompts in one batch, or one after the other with beams, and begins with an empty cache."""

    def generate(
        prompts: Ids, new_tokens: int, num_beams: int, lookup: int = 0, on_first: OnFirst | None = None
    ) -> Ids:
        context.clear()
        if lookup:
            rows = []
            for prompt in prompts:
                rows.append(prompt_lookup(context, prompt, new_tokens, lookup))
                context.clear()
            return rows
        if num_beams == 1:
            return greedy(context, prompts, new_tokens, on_first)
        return [beam_search(context, prompt, new_tokens, num_beams) for prompt in prompts]

    return generate


def load(folder: str, threads: int, mode: str) -> Generate:
    """Loads the model, for calls or for requests, which are batched in a cache that they share or not."""
    if mode == "calls":
        return calls(Context(folder, threads, CALL_CONTEXT, CALL_SEQUENCES, unified=True))
    context = Context(folder, threads, REQUESTS * REQUEST_CONTEXT, REQUESTS, unified=mode == "unified")

    def generate(prompts: Ids, new_tokens: int, num_beams: int) -> Ids:
        context.clear()
        return requests(context, prompts, new_tokens)

    return generate


if __name__ == "__main__":
    main(load, ["numpy", "llama_cpp"], convert)
