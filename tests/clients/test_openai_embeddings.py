"""Vectors through the `openai` client and `langchain-openai`: those of the library, whole, cut and in base64."""

from __future__ import annotations

import base64

import numpy as np
import openai
import pytest
import rsgen
from langchain_openai import OpenAIEmbeddings
from serving import Server

TEXTS = ["Tom had a dog.", "Tom had a cat.", "It rained all day."]


def test_vectors_equal_those_of_the_library(client: openai.OpenAI, model: str, gen: rsgen.Generator) -> None:
    expected = gen.embed(TEXTS, pooling="mean")
    # The client asks for base64 where its caller names no form.
    for options in ({}, {"encoding_format": "float"}):
        answer = client.embeddings.create(model=model, input=TEXTS, **options)
        assert np.array_equal(np.array([item.embedding for item in answer.data], np.float32), expected)
        assert [item.index for item in answer.data] == [0, 1, 2]
        assert answer.usage.prompt_tokens == answer.usage.total_tokens > 10
    raw = client.embeddings.create(model=model, input=TEXTS[0], encoding_format="base64")
    numbers = np.frombuffer(base64.b64decode(raw.data[0].embedding), "<f4")
    assert np.array_equal(numbers, expected[0])


def test_fewer_dimensions_have_the_length_of_one(
    client: openai.OpenAI, model: str, gen: rsgen.Generator
) -> None:
    [cut] = client.embeddings.create(model=model, input=TEXTS[0], dimensions=7).data
    whole = gen.embed(TEXTS[:1], pooling="mean", normalize=False)[0, :7]
    assert np.allclose(cut.embedding, whole / np.linalg.norm(whole), atol=1e-6)
    with pytest.raises(openai.BadRequestError) as raised:
        client.embeddings.create(model=model, input=TEXTS[0], dimensions=100_000)
    assert raised.value.param == "dimensions"


def test_fields_beyond_openai(client: openai.OpenAI, model: str, gen: rsgen.Generator) -> None:
    [found] = client.embeddings.create(
        model=model, input=TEXTS[0], extra_body={"pooling": "last", "use_activation": False}
    ).data
    expected = gen.embed(TEXTS[:1], pooling="last", normalize=False)[0]
    assert np.array_equal(np.array(found.embedding, np.float32), expected)


def test_langchain_embeds_documents(server: Server, gen: rsgen.Generator) -> None:
    embeddings = OpenAIEmbeddings(
        base_url=f"{server.url}/v1", api_key="none", model="story-3m", check_embedding_ctx_length=False
    )
    found = embeddings.embed_documents(TEXTS * 50)
    assert np.allclose(found, np.tile(gen.embed(TEXTS, pooling="mean"), (50, 1)), atol=1e-7)
