"""The programs and commands of docs/clients.md run as they stand there. `test_llama_index.py` has that of LlamaIndex."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import page
import pytest
from harness import HERE, offline
from serving import Server

STORY = "Once upon a time"


def test_the_page_has_a_section_for_each_client() -> None:
    sections = re.findall(r"^## (.*)$", page.PAGE, re.MULTILINE)
    listed = re.findall(r"^\| \[.*\]\(#(.*)\)", page.PAGE, re.MULTILINE)
    assert [section.lower() for section in sections] == listed
    assert len(sections) == 14


@pytest.mark.parametrize("section", ["openai", "LangChain", "huggingface_hub", "anthropic", "ollama"])
def test_a_program_tells_a_story(section: str, server: Server, tmp_path: Path) -> None:
    assert len(page.run(section, server.url, tmp_path).split()) > 15


def test_the_program_of_outlines_prints_an_animal(server: Server, tmp_path: Path) -> None:
    assert re.fullmatch(r"kind='(cat|dog|fox)' legs=-?\d+\n", page.run("outlines", server.url, tmp_path))


def test_the_program_of_lm_eval_prints_an_accuracy(server: Server, tmp_path: Path) -> None:
    with offline():
        assert 0.5 < float(page.run("lm-eval", server.url, tmp_path)) <= 1


def test_the_commands_of_llm_run(server: Server, tmp_path: Path) -> None:
    [models] = page.blocks("llm", "yaml")
    (tmp_path / "extra-openai-models.yaml").write_text(models.replace(page.URL, server.url))
    [commands] = page.blocks("llm", "sh")
    for command in commands.splitlines():
        assert len(shell(command, {"LLM_USER_PATH": str(tmp_path)}).split()) > 5


@pytest.mark.parametrize("index", [0, 1], ids=["in the process", "through the server"])
def test_the_commands_of_lm_eval_run(index: int, server: Server) -> None:
    command = page.blocks("lm-eval", "sh")[index].replace(page.URL, server.url)
    with offline():
        said = shell(command.replace("pretrained=path/to/llama", "num_threads=2").strip() + " --limit 6", {})
    assert re.search(r"story_choices.*acc\s*\|", said), said


def shell(command: str, env: dict[str, str]) -> str:
    """What a command prints, with the programs of this environment."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=HERE,
        env={**os.environ, "PATH": path, **env},
        input="Tell me a story.\nexit\n",
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
