"""The command `llm`, with the server as a model of its `extra-openai-models.yaml`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import rsgen
from serving import Server

PROMPT = "Tell me a story about a cat."
GREEDY = ["-o", "temperature", "0", "-o", "max_tokens", "16"]
MODELS = """\
- model_id: story
  model_name: story-3m
  api_base: {url}/v1
  supports_schema: true
- model_id: story-text
  model_name: story-3m
  api_base: {url}/v1
  completion: true
- model_id: other
  model_name: another
  api_base: {url}/v1
"""


class Command:
    """The command with a folder of its own."""

    def __init__(self, folder: Path, server: Server) -> None:
        (folder / "extra-openai-models.yaml").write_text(MODELS.format(url=server.url))
        self.env = {**os.environ, "LLM_USER_PATH": str(folder), "NO_COLOR": "1"}

    def run(self, *arguments: str, status: int = 0, given: str = "") -> str:
        """What the command prints, or with another status, says on stderr."""
        run = subprocess.run(
            [sys.executable, "-m", "llm", *arguments],
            env=self.env,
            input=given,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert run.returncode == status, run.stderr
        return run.stderr if status else run.stdout


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Command:
    """The command, connected as docs/clients.md says."""
    return Command(tmp_path_factory.mktemp("llm"), server)


def told(gen: rsgen.Generator, *texts: str) -> str:
    """The reply to a conversation whose texts are by turns the user's and the model's."""
    messages = [{"role": ("user", "assistant")[turn % 2], "content": text} for turn, text in enumerate(texts)]
    return gen.chat(messages, max_new_tokens=16, do_sample=False).text


def test_the_models_are_listed(llm: Command) -> None:
    assert "OpenAI Chat: story" in llm.run("models")


@pytest.mark.parametrize("stream", [[], ["--no-stream"]], ids=["streamed", "whole"])
def test_a_prompt_is_answered_as_by_the_library(
    llm: Command, gen: rsgen.Generator, stream: list[str]
) -> None:
    assert llm.run("-m", "story", *GREEDY, *stream, PROMPT) == told(gen, PROMPT) + "\n"


def test_a_prompt_from_standard_input_is_answered(llm: Command, gen: rsgen.Generator) -> None:
    assert llm.run("-m", "story", *GREEDY, given=PROMPT) == told(gen, PROMPT) + "\n"


def test_a_follow_up_continues_the_conversation(llm: Command, gen: rsgen.Generator) -> None:
    first = llm.run("-m", "story", *GREEDY, PROMPT).removesuffix("\n")
    assert llm.run("-c", *GREEDY, "And then?") == told(gen, PROMPT, first, "And then?") + "\n"


def test_a_chat_takes_turns(llm: Command, gen: rsgen.Generator) -> None:
    said = llm.run("chat", "-m", "story", *GREEDY, given=f"{PROMPT}\nAnd then?\nexit\n")
    first = told(gen, PROMPT)
    assert first in said
    assert told(gen, PROMPT, first, "And then?") in said


def test_completions_continue_the_text(llm: Command, gen: rsgen.Generator) -> None:
    expected = gen.generate("Once upon a time", max_new_tokens=16, do_sample=False).text
    assert llm.run("-m", "story-text", *GREEDY, "Once upon a time") == expected + "\n"


def test_a_schema_gives_a_valid_object(llm: Command) -> None:
    schema = json.dumps(
        {
            "type": "object",
            "properties": {"legs": {"type": "integer", "minimum": 0, "maximum": 8}},
            "required": ["legs"],
            "additionalProperties": False,
        }
    )
    found = json.loads(llm.run("-m", "story", "-o", "max_tokens", "100", "--schema", schema, "A cat"))
    assert 0 <= found["legs"] <= 8


def test_the_log_has_the_tokens(llm: Command) -> None:
    llm.run("-m", "story", *GREEDY, PROMPT)
    [entry] = json.loads(llm.run("logs", "-n", "1", "--json"))
    assert entry["output_tokens"] == 16
    assert entry["input_tokens"] > 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-m", "other", PROMPT], "story-3m"),
        (["-m", "story", "-o", "frequency_penalty", "-2", "-o", "top_p", "0.5", "a cat " * 1000], "512"),
        (["-m", "story", "-o", "max_tokens", "100000", PROMPT], "max_tokens"),
    ],
    ids=["another model", "a prompt beyond the context", "a wrong value"],
)
def test_an_error_says_what_is_wrong(llm: Command, arguments: list[str], message: str) -> None:
    said = llm.run(*arguments, status=1)
    assert said.startswith("Error: ")
    assert message in said
    assert "Traceback" not in said
