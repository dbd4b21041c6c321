"""The commands in the README and in docs/ run as they stand there, in a folder with the files that they name."""

import functools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import rsgen
from test_translation import folder_of

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
#: How a line begins that is not run here, and why.
NOT_RUN = {
    "cargo run": "it builds the crate: .ci/run does so on a fresh clone",
    "cargo test": "it builds the crate",
    "make ": "it builds the crate",
    "rustup ": "it downloads a toolchain",
    "pip install": "it downloads packages",
    "hf download": "it downloads a model",
    "rsgen generate --model Qwen3-": "it needs a GGUF file that is downloaded",
    "rsgen generate --model gpt-oss-": "it needs a GGUF file that is downloaded",
    "cd tools/golden": "it needs torch",
    "python tools/golden": "it needs torch",
    "RSGEN_PARITY_CASES=": "it needs torch",
    ".venv/bin/python -m pytest": "these are the tests themselves",
    "rsgen translate": "it needs a translation model: tests/test_encoder_decoder.py makes one and runs it",
    "llm ": "a client that tests/clients installs and runs",
    "lm_eval ": "tests/clients runs it",
    "python -m rsgen.integrations.lm_eval": "tests/clients runs it",
}
#: What an answer of the server has, one of them.
ANSWERS = ("choices", "translatedText", "rows", "data", "results", "content", "message", "response")
MODEL = Path(rsgen.__file__).parent / "models" / "story-3m"
BIN = Path(sys.executable).parent


def lines(block):
    joined = block.replace("\\\n", " ").splitlines()
    return [line for line in joined if line.strip() and not line.startswith("#")]


BLOCKS = [
    pytest.param(lines(block), id=f"{page.relative_to(ROOT)}-{index}")
    for page in PAGES
    for index, block in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")))
]
LINES = [line for block in BLOCKS for line in block.values[0]]


def write_tensors(path, tensors):
    """Writes float32 tensors in safetensors format."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        part = np.asarray(tensor, "<f4").tobytes()
        header[name] = {
            "dtype": "F32",
            "shape": tensor.shape,
            "data_offsets": [len(data), len(data) + len(part)],
        }
        data += part
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write_adapters(to):
    """Writes those that the pages name, for the bundled model."""
    (to / "adapter").mkdir()
    hidden = json.loads((MODEL / "config.json").read_text())["hidden_size"]
    prefix = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
    write_tensors(
        to / "adapter" / "adapter_model.safetensors",
        {f"{prefix}A.weight": np.full((2, hidden), 0.01), f"{prefix}B.weight": np.full((hidden, 2), 0.01)},
    )
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}
    (to / "adapter" / "adapter_config.json").write_text(json.dumps(config))
    for name in ("support", "sales"):
        shutil.copytree(to / "adapter", to / name)


@pytest.fixture
def folder(tmp_path):
    """What the commands name."""
    folder = tmp_path
    to = folder / "path" / "to"
    to.mkdir(parents=True)
    for name in ("llama", "base", "chat-model"):
        (to / name).symlink_to(MODEL)
    shutil.copytree(
        ROOT / "tests" / "golden" / "torch" / "model",
        to / "opt",
        ignore=shutil.ignore_patterns("*.safetensors*"),
    )
    special = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    folder_of(to / "nllb-200-distilled-600M", "m2m_100", "nllb", **special, max_new_tokens=7)
    bart = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    folder_of(to / "bart-large-cnn", "bart", "bart", **bart, max_length=12, num_beams=2)
    pair = {"pad_token_id": 587, "eos_token_id": 0, "decoder_start_token_id": 587}
    folder_of(to / "opus-mt-en-de", "marian", "marian", **pair, max_new_tokens=7)
    write_adapters(to)
    (folder / "prompts.txt").write_text("One day\nNear the lake\n")
    (folder / "sentences.txt").write_text("One day, a fox ran.\nOnce upon a time.\n")
    rsgen.TokenTrie([" red kite", " old boat"], tokenizer=rsgen.Tokenizer()).save(folder / "names.trie")
    (folder / "key.txt").write_text("a-key-of-some-length\n")
    body = {"prompt": "One day", "max_tokens": 4}
    request = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": body}
    (folder / "requests.jsonl").write_text(json.dumps(request) + "\n")
    trace = "rsgen generate --num-beams 2 --max-new-tokens 4 --output-events --json 'One day' > trace.json"
    run(trace, folder, {})
    return folder


def environment(more):
    return {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **more}


def run(line, folder, more):
    command = ["bash", "-e", "-o", "pipefail", "-c", line]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(more),
        input="Hi there\n",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    assert "error" not in done.stderr, done.stderr
    return done.stdout


class Server:
    """A command that runs until it is told to stop."""

    def __init__(self, line, folder, more):
        self.process = subprocess.Popen(
            ["bash", "-c", f"exec {line}"],
            cwd=folder,
            env=environment(more),
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address = self.process.stdout.readline()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        with self.process:
            return self.process.wait(timeout=60)


@pytest.mark.parametrize("block", BLOCKS)
def test_the_commands_of_a_block_run(block, folder):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    more = {"RSGEN_PORT": str(port)}
    server = None
    try:
        for line in block:
            if line.startswith(tuple(NOT_RUN)):
                continue
            if line.startswith("rsgen serve"):
                assert server is None or server.stop() == 0
                server = Server(line, folder, more)
                assert f":{port}" in server.address, line
            elif line.startswith("curl "):
                if shutil.which("curl"):
                    output = run(
                        line.replace("curl", "curl -fsS", 1).replace(":8000", f":{port}"), folder, more
                    )
                    assert any(f'"{name}"' in output for name in ANSWERS), output
            else:
                output = run(line, folder, more)
                assert output or ">" in line or line.startswith("source"), line
    finally:
        if server is not None:
            assert server.stop() == 0


def test_what_is_not_run_is_still_there():
    assert len(BLOCKS) >= 20
    for start in NOT_RUN:
        assert any(line.startswith(start) for line in LINES), start


@functools.cache
def help_of(subcommand):
    done = subprocess.run([BIN / "rsgen", subcommand, "--help"], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def test_commands_within_sentences_have_their_options():
    found = 0
    for page in [*PAGES, ROOT / "SECURITY.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]:
        for code in INLINE.findall(page.read_text(encoding="utf-8")):
            subcommand, *options = re.findall(r"^rsgen ([a-z-]+)|(?<=\s)(--[a-z][a-z0-9-]*)", code) or [
                ("", "")
            ]
            if not subcommand[0]:
                continue
            found += 1
            text = help_of(subcommand[0])
            assert text, f"{page.name}: {code}"
            for _, option in options:
                assert re.search(rf"{option}\b", text), f"{page.name}: {code}"
    assert found >= 30


def test_the_ways_to_install_it_name_what_there_is():
    features = set(re.findall(r"^([a-z]+) = \[", (ROOT / "Cargo.toml").read_text(), re.MULTILINE))
    extras = set(re.findall(r'^([a-z-]+) = \["', (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    named = 0
    for page in PAGES:
        for code in INLINE.findall(page.read_text(encoding="utf-8")):
            if code.startswith("cargo install"):
                # The command that `pip install .` brings has a server.
                assert code == "cargo install --path . --features serve", page
                assert "serve" in features
                named += 1
            for extra in re.findall(r"^pip install '\.\[([a-z-]+)\]'", code):
                assert extra in extras, f"{page}: {code}"
                named += 1
    assert named >= 4
