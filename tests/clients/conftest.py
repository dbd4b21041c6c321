"""Servers of the story model for clients that others wrote, and the same model in this process."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
import rsgen
from serving import Server

# Of the servers and of the library. Results do not depend on it.
THREADS = 2


def story_server(*options: str) -> Server:
    """`rsgen serve` with the story model."""
    return Server(["--num-threads", str(THREADS), *options])


def client_of(server: Server, **options: object) -> openai.OpenAI:
    """A client that does not try again, unless it is told to."""
    return openai.OpenAI(**{"base_url": f"{server.url}/v1", "api_key": "none", "max_retries": 0} | options)


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


@pytest.fixture
def small_server() -> Iterator[Server]:
    """A server that runs one request at a time and lets none wait."""
    with story_server("--max-requests", "1", "--max-queue", "0") as server:
        yield server
