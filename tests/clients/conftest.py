"""Servers of the story model for clients that others wrote, and the same model in this process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import openai
import pytest
import rsgen
from serving import Server

if TYPE_CHECKING:
    import anthropic

# Of the servers and of the library. Results do not depend on it.
THREADS = 2


def story_server(*options: str) -> Server:
    """`rsgen serve` with the story model."""
    return Server(["--num-threads", str(THREADS), *options])


def story_server_of(folder: Path) -> Server:
    """`rsgen serve` with the model of a folder."""
    return Server([str(folder), "--num-threads", str(THREADS)])


def client_of(server: Server, **options: object) -> openai.OpenAI:
    """A client that does not try again, unless it is told to."""
    return openai.OpenAI(**{"base_url": f"{server.url}/v1", "api_key": "none", "max_retries": 0} | options)


def anthropic_client_of(server: Server, **options: object) -> anthropic.Anthropic:
    """A client of Anthropic's API that does not try again."""
    import anthropic  # LlamaIndex's environment has none

    return anthropic.Anthropic(**{"base_url": server.url, "api_key": "none", "max_retries": 0} | options)


@pytest.fixture(scope="session")
def gen() -> rsgen.Generator:
    """The story model in this process."""
    return rsgen.Generator(num_threads=THREADS)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server with its defaults."""
    with story_server() as server:
        yield server


@pytest.fixture(scope="session")
def client(server: Server) -> openai.OpenAI:
    """A client of that server."""
    return client_of(server)


@pytest.fixture(scope="session")
def model(client: openai.OpenAI) -> str:
    """The name of the model."""
    return next(iter(client.models.list())).id


def server_with_template(tmp_path_factory: pytest.TempPathFactory, template: str) -> Iterator[Server]:
    """A server of the story model with a chat template."""
    folder = tmp_path_factory.mktemp("story") / "story-3m"
    shutil.copytree(Path(rsgen.__file__).parent / "models" / "story-3m", folder)
    (folder / "chat_template.jinja").write_text(template)
    with story_server_of(folder) as server:
        yield server


#: Shows tools by their names, calls and results; the model has few tokens. Its form is that of Hermes.
TEMPLATE = """{{ bos_token }}{% for t in tools or [] %}{{ t.function.name }} {% endfor %}{# <tool_call> #}{% for m in messages -%}
{{ '<|assistant|>' if m.role == 'assistant' else '<|user|>' }}{{ m.content or '' }}
{%- for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{% endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""


@pytest.fixture(scope="session")
def tool_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the story model with a template that shows tools."""
    yield from server_with_template(tmp_path_factory, TEMPLATE)


#: Begins the thinking unless it is told not to, and shows tools by their names; the model has few tokens.
THINKING_TEMPLATE = """{{ bos_token }}{% for t in tools or [] %}{{ t.function.name }} {% endfor %}{# <tool_call> #}{% for m in messages -%}
{{ m.role }}: {% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content or '' }}
{%- for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{% endfor %}{{ reasoning_effort }}
{%- if add_generation_prompt %}<|assistant|><think>
{% if enable_thinking is false %}</think>{% endif %}{% endif %}"""


@pytest.fixture(scope="session")
def thinking_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the story model with a template that thinks."""
    yield from server_with_template(tmp_path_factory, THINKING_TEMPLATE)


@pytest.fixture
def small_server() -> Iterator[Server]:
    """A server that runs one request at a time and lets none wait."""
    with story_server("--max-requests", "1", "--max-queue", "0") as server:
        yield server
