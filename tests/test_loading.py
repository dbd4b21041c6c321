"""Loading: its progress, and Ctrl-C at any time."""

import itertools
import json
import os
import signal
import struct
import sys
import threading
import time
from pathlib import Path

import pytest
import rsgen
from stopwatch import Stopwatch, not_longer


def test_progress_is_told_in_bytes_of_weights_up_to_all_of_them(make_llama):
    folder = make_llama()
    told: list[tuple[str, int, int]] = []
    threads = set()

    def progress(stage, done, total):
        told.append((stage, done, total))
        threads.add(threading.get_ident())

    gen = rsgen.Generator(folder, num_threads=1, progress=progress)
    header = struct.unpack("<Q", (folder / "model.safetensors").read_bytes()[:8])[0]
    weights = (folder / "model.safetensors").stat().st_size - 8 - header
    done = [done for _, done, _ in told]
    assert {(stage, total) for stage, _, total in told} == {("pack", weights)}
    assert done == sorted(set(done)), "it only grows"
    assert len(done) > 5
    assert done[-1] == weights
    assert threads == {threading.get_ident()}
    told.clear()
    rsgen.Generator.from_pretrained(folder, num_threads=1, progress=progress)
    assert [done for _, done, _ in told] == done
    assert gen.generate([1, 2], max_new_tokens=1).usage.generated_tokens == 1


def test_a_head_of_its_own_in_a_file_that_claims_to_be_tied_is_warned_of():
    folder = Path(__file__).parent / "golden" / "models" / "head_of_its_own"
    with pytest.warns(UserWarning, match="`tie_word_embeddings` is true, but"):
        rsgen.Generator(folder, num_threads=1)


def test_what_progress_raises_ends_the_loading_and_comes_out_as_it_is(make_llama):
    folder = make_llama()
    mine, calls = ValueError("mine"), []

    def progress(*told):
        calls.append(told)
        raise mine

    with pytest.raises(ValueError, match="mine") as raised:
        rsgen.Generator(folder, progress=progress)
    assert raised.value is mine
    assert len(calls) == 1
    with pytest.raises(TypeError, match="`progress` must be a callable"):
        rsgen.Generator(folder, progress=5)


def test_an_error_keeps_its_place_also_when_progress_is_told(make_llama):
    folder = make_llama()
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    name = "model.layers.1.mlp.down_proj.weight"
    begin = 8 + length + header[name]["data_offsets"][0]
    data[begin : begin + 4] = struct.pack("<f", float("nan"))
    path.write_bytes(data)
    calls = []
    with pytest.raises(rsgen.LoadError) as raised:
        rsgen.Generator(folder, progress=lambda *told: calls.append(told))
    for part in (str(folder), "model.layers.1.mlp.down_proj", "finite", "damaged"):
        assert part in str(raised.value)
    assert calls, "what was before it was fine"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose largest matrix takes seconds to convert; its file is a hole, so it costs no space."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 131_072,
        "hidden_size": 1024,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "torch_dtype": "float16",
    }
    shapes = {
        "model.embed_tokens.weight": [131_072, 1024],
        "model.norm.weight": [1024],
        "model.layers.0.input_layernorm.weight": [1024],
        "model.layers.0.self_attn.q_proj.weight": [8, 1024],
        "model.layers.0.self_attn.k_proj.weight": [8, 1024],
        "model.layers.0.self_attn.v_proj.weight": [8, 1024],
        "model.layers.0.self_attn.o_proj.weight": [1024, 8],
        "model.layers.0.post_attention_layernorm.weight": [1024],
        "model.layers.0.mlp.gate_proj.weight": [8, 1024],
        "model.layers.0.mlp.up_proj.weight": [8, 1024],
        "model.layers.0.mlp.down_proj.weight": [1024, 8],
    }
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    folder = tmp_path_factory.mktemp("large")
    (folder / "config.json").write_text(json.dumps(config))
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    return folder


@pytest.mark.skipif(sys.platform == "win32", reason="there is no signal to send")
def test_ctrl_c_ends_loading_within_a_quarter_of_a_second(large):
    sent = []

    def press():
        time.sleep(0.2)
        sent.append(Stopwatch())
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            # From float16 to bfloat16, number by number.
            rsgen.Generator(large, dtype="bfloat16", num_threads=1)
        sent[0].assert_within(0.25)
        # Nothing goes on in the background. The system takes a moment to forget a thread that has ended.
        watch = Stopwatch()
        while any(path.read_text() == "rsgen-load\n" for path in Path("/proc/self/task").glob("*/comm")):
            watch.assert_clock_within(0.1)
    finally:
        presser.join()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pipes with names")
def test_pipes_and_devices_in_the_place_of_files_are_refused_at_once(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for load in (rsgen.Generator.from_pretrained, rsgen.Tokenizer):
        with pytest.raises(rsgen.LoadError, match="must be the folder of a model"):
            load(pipe)
    with pytest.raises(rsgen.LoadError, match="must be a regular file"):
        rsgen.GenerationConfig.from_pretrained(pipe)
    pipe.rename(tmp_path / "generation_config.json")
    for use in (rsgen.GenerationConfig().save_pretrained, rsgen.GenerationConfig.from_pretrained):
        with pytest.raises(rsgen.LoadError, match="must be a regular file"):
            use(tmp_path)
    references = tmp_path / "models--org--name" / "refs"
    references.mkdir(parents=True)
    os.mkfifo(references / "main")
    (references / "endless").symlink_to("/dev/zero")
    for revision in (None, "endless"):
        for load in (rsgen.Generator, rsgen.Tokenizer):
            with pytest.raises(rsgen.LoadError, match="must be a regular file"):
                load("org/name", revision=revision, cache_dir=tmp_path)


def test_python_goes_on_while_a_model_is_loaded(large):
    # In processor time: what other processes take of the cores is no matter.
    ticks = [time.process_time()]
    done = threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.process_time())
            time.sleep(0.005)

    ticker = threading.Thread(target=tick)
    ticker.start()
    try:
        # With the end of it, which gives the memory back.
        rsgen.Generator(large, num_threads=1)
    finally:
        done.set()
        ticker.join()
    not_longer(max(b - a for a, b in itertools.pairwise(ticks)), 0.25)
