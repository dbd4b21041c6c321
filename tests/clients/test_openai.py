"""The `openai` client: typed answers, streams, errors, retries, and every strategy through `extra_body`."""

from __future__ import annotations

import asyncio
import signal
import threading

import numpy as np
import openai
import pytest
import rsgen
from conftest import client_of, story_server
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from serving import Server

PROMPT = "Once upon a time"
MODEL = "story-3m"
HELLO = [{"role": "user", "content": "Tell me a story about a cat."}]

# Fields of transformers: what each strategy is selected by.
STRATEGIES = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "top_k": 20, "seed": 7},
    "beams": {"do_sample": False, "num_beams": 4},
    "beam sampling": {"do_sample": True, "num_beams": 3, "seed": 7},
    "beam groups": {"do_sample": False, "num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5},
    "contrastive": {"penalty_alpha": 0.6, "top_k": 4},
    "dola": {"dola_layers": "low"},
    "prompt lookup": {"do_sample": False, "prompt_lookup_num_tokens": 4},
}


def test_a_completion_is_typed_and_equals_the_library(
    client: openai.OpenAI, model: str, gen: rsgen.Generator
) -> None:
    completion = client.completions.create(model=model, prompt=PROMPT, max_tokens=20, temperature=0)
    expected = gen.generate(PROMPT, max_new_tokens=20, do_sample=False)
    assert isinstance(completion, Completion)
    assert completion.object == "text_completion"
    [choice] = completion.choices
    assert (choice.index, choice.text, choice.finish_reason) == (0, expected.text, "length")
    assert completion.usage is not None
    assert completion.usage.prompt_tokens == expected.usage.prompt_tokens
    assert completion.usage.completion_tokens == 20
    assert completion.usage.total_tokens == expected.usage.prompt_tokens + 20
    assert completion.model_fields_set >= {"id", "choices", "created", "model", "object", "usage"}


def test_a_list_of_prompts_has_a_choice_for_each(
    client: openai.OpenAI, model: str, gen: rsgen.Generator
) -> None:
    prompts = [PROMPT, "One day", "The dog"]
    completion = client.completions.create(model=model, prompt=prompts, max_tokens=8, temperature=0)
    texts = [gen.generate(prompt, max_new_tokens=8, do_sample=False).text for prompt in prompts]
    assert [choice.text for choice in completion.choices] == texts
    assert [choice.index for choice in completion.choices] == [0, 1, 2]


def test_a_chat_is_typed_and_equals_the_library(
    client: openai.OpenAI, model: str, gen: rsgen.Generator
) -> None:
    chat = client.chat.completions.create(model=model, messages=HELLO, max_tokens=12, temperature=0)
    assert isinstance(chat, ChatCompletion)
    [choice] = chat.choices
    assert choice.message.role == "assistant"
    assert choice.message.content == gen.chat(HELLO, max_new_tokens=12, do_sample=False).text
    assert chat.usage is not None
    assert chat.usage.completion_tokens <= 12


def test_streams_join_to_the_whole(client: openai.OpenAI, model: str) -> None:
    fields = {"model": model, "prompt": PROMPT, "max_tokens": 20, "temperature": 0}
    whole = client.completions.create(**fields)
    chunks = list(client.completions.create(**fields, stream=True, stream_options={"include_usage": True}))
    assert all(isinstance(chunk, Completion) for chunk in chunks)
    *texts, last = chunks
    assert "".join(choice.text for chunk in texts for choice in chunk.choices) == whole.choices[0].text
    assert last.choices == []
    assert last.usage is not None
    assert whole.usage is not None
    assert last.usage.total_tokens == whole.usage.total_tokens
    # The second call finds what the first has computed.
    assert last.usage.prompt_tokens_details is not None
    assert last.usage.prompt_tokens_details.cached_tokens
    assert texts[-1].choices[0].finish_reason == "length"
    assert {chunk.id for chunk in chunks} == {last.id}


def test_a_stream_of_chat_begins_with_the_role(client: openai.OpenAI, model: str) -> None:
    fields = {"model": model, "messages": HELLO, "max_tokens": 12, "temperature": 0}
    whole = client.chat.completions.create(**fields)
    chunks = list(client.chat.completions.create(**fields, stream=True))
    assert all(isinstance(chunk, ChatCompletionChunk) for chunk in chunks)
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert deltas[0].role == "assistant"
    assert "".join(delta.content or "" for delta in deltas) == whole.choices[0].message.content


def test_logprobs_of_chat_and_completions_equal_the_library(
    client: openai.OpenAI, model: str, gen: rsgen.Generator
) -> None:
    fields = {"model": model, "max_tokens": 6, "temperature": 0}
    logprobs = client.completions.create(prompt=PROMPT, logprobs=3, **fields).choices[0].logprobs
    expected = gen.generate(PROMPT, max_new_tokens=6, do_sample=False)
    assert logprobs is not None
    assert np.array_equal(np.float32(logprobs.token_logprobs), expected.logprobs[0])
    chat = client.chat.completions.create(messages=HELLO, logprobs=True, top_logprobs=2, **fields)
    answer = gen.chat(HELLO, max_new_tokens=6, do_sample=False)
    assert chat.choices[0].logprobs is not None
    content = chat.choices[0].logprobs.content
    assert content is not None
    assert np.array_equal(np.float32([token.logprob for token in content]), answer.logprobs[0])
    assert all(len(token.top_logprobs) == 2 for token in content)


def test_asynchronous_calls_and_streams_at_once_equal_each_alone(
    server: Server, model: str, gen: rsgen.Generator
) -> None:
    prompts = [PROMPT, "One day", "The dog", "Lily had a", "Tom saw", "In the park", "A bird", "Mom said"]

    async def all_of_them() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:

            async def whole(prompt: str) -> str:
                answer = await client.completions.create(
                    model=model, prompt=prompt, max_tokens=16, temperature=0
                )
                return answer.choices[0].text

            async def streamed(prompt: str) -> str:
                fields = {"model": model, "prompt": prompt, "max_tokens": 16, "temperature": 0}
                chunks = await client.completions.create(**fields, stream=True)
                return "".join([choice.text async for chunk in chunks for choice in chunk.choices])

            calls = [*map(whole, prompts[::2]), *map(streamed, prompts[1::2])]
            return list(await asyncio.gather(*calls))

    expected = [gen.generate(prompt, max_new_tokens=16, do_sample=False).text for prompt in prompts]
    assert asyncio.run(all_of_them()) == expected[::2] + expected[1::2]


@pytest.mark.parametrize("fields", STRATEGIES.values(), ids=STRATEGIES)
def test_extra_body_selects_each_strategy(
    client: openai.OpenAI, model: str, gen: rsgen.Generator, fields: dict[str, object]
) -> None:
    answer = client.completions.create(model=model, prompt=PROMPT, max_tokens=12, extra_body=fields)
    assert answer.choices[0].text == gen.generate(PROMPT, max_new_tokens=12, **fields).text
    nested = client.completions.create(
        model=model, prompt=PROMPT, max_tokens=12, extra_body={"rsgen": fields}
    )
    assert nested.choices[0].text == answer.choices[0].text


def test_beams_are_streamed(client: openai.OpenAI, model: str, gen: rsgen.Generator) -> None:
    beams = {"num_beams": 4, "do_sample": False}
    chunks = client.completions.create(
        model=model, prompt=PROMPT, max_tokens=16, stream=True, extra_body=beams
    )
    text = "".join(choice.text for chunk in chunks for choice in chunk.choices)
    assert text == gen.generate(PROMPT, max_new_tokens=16, **beams).text


def test_use_beam_search_has_as_many_beams_as_answers(
    client: openai.OpenAI, model: str, gen: rsgen.Generator
) -> None:
    answer = client.completions.create(
        model=model, prompt=PROMPT, max_tokens=10, n=3, temperature=0, extra_body={"use_beam_search": True}
    )
    fields = {"num_beams": 3, "num_return_sequences": 3, "do_sample": False}
    expected = gen.generate(PROMPT, max_new_tokens=10, **fields)
    assert [choice.text for choice in answer.choices] == expected.texts


def test_models_are_typed(client: openai.OpenAI, model: str) -> None:
    found = client.models.retrieve(model)
    assert isinstance(found, Model)
    assert (found.id, found.object) == (model, "model")
    with pytest.raises(openai.NotFoundError) as error:
        client.models.retrieve("another")
    assert error.value.code == "model_not_found"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": -5}, "max_tokens"),
        ({"n": 1000}, "n"),
        ({"extra_body": {"num_beams": 0}}, "num_beams"),
        ({"logit_bias": {"999999": 1}}, "logit_bias"),
    ],
)
def test_a_wrong_field_raises_an_error_that_names_it(
    client: openai.OpenAI, model: str, fields: dict[str, object], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        client.completions.create(**{"model": model, "prompt": PROMPT} | fields)
    assert error.value.param == param
    assert param in error.value.message


def test_a_prompt_beyond_the_context_has_its_code(client: openai.OpenAI, model: str) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        client.completions.create(model=model, prompt=[10] * 5000, max_tokens=1)
    assert error.value.code == "context_length_exceeded"


def test_another_model_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="another", prompt=PROMPT)


def test_a_server_with_a_key_refuses_clients_without_it() -> None:
    with story_server("--api-key", "correct") as server:
        with pytest.raises(openai.AuthenticationError) as error:
            client_of(server, api_key="wrong").models.list()
        assert error.value.code == "invalid_api_key"
        assert list(client_of(server, api_key="correct").models.list())


class Busy:
    """Keeps the place of a small server with one long stream, until the end of a `with`."""

    def __init__(self, server: Server) -> None:
        self.stream = client_of(server).completions.create(
            model=MODEL,
            prompt=PROMPT,
            max_tokens=400,
            stream=True,
            extra_body={"ignore_eos": True, "num_beams": 8},
        )
        next(iter(self.stream))

    def __enter__(self) -> Busy:
        return self

    def __exit__(self, *raised: object) -> None:
        self.stream.close()


def test_a_full_server_refuses_and_says_when_to_come_again(small_server: Server) -> None:
    with Busy(small_server), pytest.raises(openai.InternalServerError) as error:
        client_of(small_server).completions.create(model=MODEL, prompt=PROMPT)
    assert error.value.status_code == 503
    assert error.value.code == "server_overloaded"
    assert int(error.value.response.headers["retry-after"]) >= 1
    assert error.value.response.headers["x-should-retry"] == "true"


def test_a_client_tries_again_until_there_is_room(small_server: Server) -> None:
    statuses: list[int] = []
    http = openai.DefaultHttpxClient(
        event_hooks={"response": [lambda response: statuses.append(response.status_code)]}
    )
    patient = client_of(small_server, max_retries=5, http_client=http)
    busy = Busy(small_server)
    leaving = threading.Timer(0.5, busy.stream.close)
    leaving.start()
    answer = patient.completions.create(model=MODEL, prompt=PROMPT, max_tokens=2)
    leaving.join()
    assert answer.choices[0].text
    assert statuses[-1] == 200
    assert set(statuses[:-1]) == {503}


def test_an_error_in_a_stream_raises() -> None:
    with story_server("--grace", "0") as server:
        stream = Busy(server).stream
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises(openai.APIError, match="shutting down"):
            for _ in stream:
                pass


def test_a_client_that_leaves_a_stream_makes_room(small_server: Server) -> None:
    with Busy(small_server):
        pass
    answer = client_of(small_server, max_retries=2).completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=1
    )
    assert answer.usage is not None
