"""What tests share: the story model, and tiny models made on the spot."""

import asyncio
import gc
import json
import logging
import signal
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rsgen
from tiny_llama import llama_config, llama_tensors, write_safetensors

# A shell that runs the tests in the background has them ignore Ctrl-C, which some of them are about.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Keeps thousands of collected tests out of the walks of Python's collector, which tests of time would count."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def gen() -> rsgen.Generator:
    """The bundled story model, on two threads."""
    return rsgen.Generator(num_threads=2)


@pytest.fixture(autouse=True)
def no_blocks_are_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test that uses the story model its KV cache is empty: whatever happened has given its blocks back."""
    yield
    if "gen" in request.fixturenames:
        stats = request.getfixturevalue("gen").stats()
        assert (stats.blocks_used, stats.blocks_reserved) == (0, 0)


MakeLlama = Callable[..., Path]


@pytest.fixture(scope="session")
def make_llama(tmp_path_factory: pytest.TempPathFactory) -> MakeLlama:
    """Writes a llama with random weights into a folder and returns it. It has no tokenizer."""

    def make(*, seed: int = 0, **fields: object) -> Path:
        config = llama_config(**fields)
        folder = tmp_path_factory.mktemp("llama")
        (folder / "config.json").write_text(json.dumps(config))
        write_safetensors(folder / "model.safetensors", llama_tensors(config, np.random.default_rng(seed)))
        return folder

    return make


@pytest.fixture
def run(caplog) -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """``asyncio.run`` that complains about whatever a loop complains of, such as a task that is still pending."""
    complaints: list[dict[str, Any]] = []

    async def main(coroutine):
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        return await coroutine

    with caplog.at_level(logging.WARNING, logger="asyncio"):
        yield lambda coroutine: asyncio.run(main(coroutine))
        gc.collect()
    assert complaints == []
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []
