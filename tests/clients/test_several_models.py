"""Two models in one server, through the `openai`, `ollama` and `anthropic` clients: which one answers, and which is loaded."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anthropic
import ollama
import openai
import pytest
import rsgen
from conftest import THREADS, anthropic_client_of, client_of
from serving import Server

PROMPT = "Once upon a time"
HELLO: list[Any] = [{"role": "user", "content": "Tell me a story."}]
MODELS = Path(rsgen.__file__).parent / "models"
FOLDERS = {"small": MODELS / "story-draft", "big": MODELS / "story-3m"}
GREEDY = {"temperature": 0, "num_predict": 60}


def named(*options: str) -> Server:
    """A server of both models."""
    models = [f"{name}={folder}" for name, folder in FOLDERS.items()]
    return Server([*models, "--num-threads", str(THREADS), *options])


@pytest.fixture(scope="module")
def both() -> Iterator[Server]:
    with named() as server:
        yield server


@pytest.fixture
def one_at_a_time() -> Iterator[Server]:
    with named("--models-max", "1", "--load-on-startup", "none") as server:
        yield server


@pytest.fixture(scope="module")
def expected() -> dict[str, str]:
    """What the library writes with each model."""
    texts = {}
    for name, folder in FOLDERS.items():
        with rsgen.Generator(str(folder), num_threads=THREADS) as gen:
            texts[name] = gen.generate(PROMPT, max_new_tokens=24, do_sample=False).text
    assert texts["small"] != texts["big"]
    return texts


def complete(client: openai.OpenAI, model: str) -> str:
    return client.completions.create(model=model, prompt=PROMPT, max_tokens=24, temperature=0).choices[0].text


def loaded(client: openai.OpenAI) -> list[str]:
    """The models that `/v1/models` says are loaded."""
    models = [model.model_dump() for model in client.models.list()]
    return [model["id"] for model in models if model["status"]["value"] == "loaded"]


def test_openai_chooses_a_model_by_its_name(both: Server, expected: dict[str, str]) -> None:
    client = client_of(both)
    assert [model.id for model in client.models.list()] == ["small", "big"]
    assert client.models.retrieve("big").id == "big"
    for name, text in expected.items():
        assert complete(client, name) == text
        stream = client.completions.create(
            model=name, prompt=PROMPT, max_tokens=24, temperature=0, stream=True
        )
        chunks = list(stream)
        assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == text
        assert {chunk.model for chunk in chunks} == {name}
        assert client.embeddings.create(model=name, input="a fox").model == name
    assert loaded(client) == ["small", "big"]
    with pytest.raises(openai.NotFoundError, match='"small", "big"'):
        complete(client, "none")


def test_ollama_chooses_loads_and_unloads(both: Server) -> None:
    client = ollama.Client(host=both.url)
    assert [model.model for model in client.list().models] == ["small", "big"]
    replies = {}
    for name in FOLDERS:
        whole = client.chat(model=name, messages=HELLO, options=GREEDY)
        assert whole.model == name
        replies[name] = whole.message.content
        stream = client.chat(model=f"{name}:latest", messages=HELLO, options=GREEDY, stream=True)
        assert "".join(part.message.content or "" for part in stream) == replies[name]
    assert replies["small"] != replies["big"]
    assert {model.model for model in client.ps().models} == {"small", "big"}
    assert client.generate(model="big", keep_alive=0).done_reason == "unload"
    until = time.monotonic() + 20
    while [model.model for model in client.ps().models] != ["small"]:
        assert time.monotonic() < until, client.ps()
        time.sleep(0.02)
    assert client.generate(model="big", prompt=PROMPT, options=GREEDY).model == "big"
    assert client.show("small").modelinfo != client.show("big").modelinfo
    with pytest.raises(ollama.ResponseError, match='"small", "big"') as error:
        client.chat(model="none", messages=HELLO)
    assert error.value.status_code == 404


def test_anthropic_chooses_a_model_by_its_name(both: Server) -> None:
    client = anthropic_client_of(both)
    for name in FOLDERS:
        message = client.messages.create(model=name, max_tokens=8, messages=HELLO)
        assert message.model == name
    with pytest.raises(anthropic.NotFoundError, match="is not served here"):
        client.messages.create(model="none", max_tokens=8, messages=HELLO)


def test_requests_for_both_share_room_for_one(one_at_a_time: Server, expected: dict[str, str]) -> None:
    client = client_of(one_at_a_time, timeout=60)
    assert loaded(client) == []
    names = list(FOLDERS) * 8
    with ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda name: complete(client, name), names))
    assert texts == [expected[name] for name in names]
    assert len(loaded(client)) == 1
