"""The same request gives the same tokens and the same bits: alone, in a list, streamed, on any threads, in any chunks."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import rsgen

PROMPTS = [
    "Once upon a time",
    "One day, a little girl named Lily went to the park with her mom and her dog.",
    "Tom",
    "The big red ball was under the old tree, and nobody could find it, not even the cat",
    "There was a frog",
    "In the morning the sun came up and all the animals of the farm woke up one after another. "
    "The hen was the first, and the pig was the last, because he liked to sleep",
    "Sara and Ben like to play",
    "A fish swam in the sea. It was",
]
SEEDS = [11, 7, 2**63, 0, 5, 123456789, 42, 3]
FIELDS = {
    "greedy": {"do_sample": False},
    "sampled": {"do_sample": True, "top_p": 0.95, "temperature": 0.9, "repetition_penalty": 1.1},
}


def bits(arrays) -> list[bytes]:
    return [np.ascontiguousarray(array).tobytes() for array in arrays]


@pytest.fixture(scope="module")
def generators(gen):
    return {1: rsgen.Generator(num_threads=1), 2: gen}


def alone(gen, mode, index, **fields):
    seed = {"seed": SEEDS[index]} if mode == "sampled" else {}
    return gen.generate(
        PROMPTS[index], **FIELDS[mode], **seed, max_new_tokens=24, output_logits=True, **fields
    )


@pytest.fixture(scope="module", params=list(FIELDS))
def mode(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def expected(gen, mode):
    return [alone(gen, mode, index) for index in range(len(PROMPTS))]


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("chunk", [None, 1, 7, 512])
def test_in_a_list_of_eight(generators, mode, expected, num_threads, chunk):
    seed = {"seed": SEEDS} if mode == "sampled" else {}
    out = generators[num_threads].generate(
        PROMPTS, **FIELDS[mode], **seed, max_new_tokens=24, output_logits=True, prefill_chunk_size=chunk
    )
    assert out.texts == [each.text for each in expected]
    for row, each in enumerate(expected):
        np.testing.assert_array_equal(out.token_ids[row], each.token_ids[0])
        assert bits([out.logprobs[row]]) == bits(each.logprobs)
        steps = len(each.token_ids[0])
        assert bits(logits[row] for logits in out.logits[:steps]) == bits(logits[0] for logits in each.logits)


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("chunk", [1, 7, 512])
def test_alone_in_chunks(generators, mode, expected, num_threads, chunk):
    for index in (1, 5):
        out = alone(generators[num_threads], mode, index, prefill_chunk_size=chunk)
        np.testing.assert_array_equal(out.sequences, expected[index].sequences)
        assert bits(out.logits) == bits(expected[index].logits)


def test_streamed(gen, mode, expected):
    for index, each in enumerate(expected):
        seed = {"seed": SEEDS[index]} if mode == "sampled" else {}
        stream = gen.stream(PROMPTS[index], **FIELDS[mode], **seed, max_new_tokens=24, output_logits=True)
        tokens = list(stream)
        assert [token.id for token in tokens] == each.token_ids[0].tolist()
        assert "".join(token.text for token in tokens) == each.text
        assert bits([np.array([token.logprob for token in tokens], np.float32)]) == bits(each.logprobs)
        assert bits(stream.output.logits) == bits(each.logits)


def test_among_return_sequences_the_first_row_of_a_step_is_computed_alike(gen):
    prompt = PROMPTS[3]
    many = gen.sample(prompt, seed=4, num_return_sequences=17, max_new_tokens=8, output_logits=True)
    again = gen.sample(prompt, seed=4, num_return_sequences=17, max_new_tokens=8, output_logits=True)
    np.testing.assert_array_equal(many.sequences, again.sequences)
    for row in range(17):
        prefix = many.sequences[row]
        length = len(many.token_ids[row])
        logits = gen.forward([prefix[: -1 if length == 8 else length - 8 - 1]])[0]
        assert bits([logits[-1]]) == bits([many.logits[length - 1][row]])


INSTRUCTION_SETS = (
    *("avx512_bf16", "avx512", "avx_vnni", "avx2"),
    *("neon_bf16", "neon_dotprod", "neon"),
    "scalar",
)
ISA_PROGRAM = """
import hashlib, json, sys
import rsgen
gen = rsgen.Generator(num_threads=2)
out = gen.sample(json.loads(sys.argv[1]), seed=5, max_new_tokens=16, output_logits=True)
digest = hashlib.sha256()
for logits in out.logits:
    digest.update(logits.tobytes())
print(json.dumps([gen.isa, out.sequences.tolist(), digest.hexdigest()]))
"""


def test_every_instruction_set_gives_the_same_bits(gen):
    results = {}
    for isa in INSTRUCTION_SETS:
        run = subprocess.run(
            [sys.executable, "-c", ISA_PROGRAM, json.dumps(PROMPTS[:4])],
            env={**os.environ, "RSGEN_ISA": isa},
            capture_output=True,
            text=True,
        )
        if run.returncode != 0:
            assert "must name an instruction set of this machine" in run.stderr
            continue
        used, *results[isa] = json.loads(run.stdout)
        assert used == isa
    assert "scalar" in results
    assert gen.isa in results
    assert all(result == results["scalar"] for result in results.values())
