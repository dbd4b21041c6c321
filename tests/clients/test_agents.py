"""A task of two tools, ended through the libraries that people build agents with: openai-agents, pydantic-ai, LangGraph, smolagents
and litellm. The model follows a script (`scripted_model`) that goes on when it has read what a tool gave; where a library asks for
a call, the grammar holds the story model to one.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import openai
import pytest
import scripted_model
from page import run
from pydantic import BaseModel, ConfigDict
from scripted_model import ANSWER, FAR, SUN
from serving import Server

os.environ |= {"OPENAI_AGENTS_DISABLE_TRACING": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

PLAN = "How do I travel to Rome?"
#: Asks the scripted model for both calls in one answer.
PLAN_BOTH = f"{PLAN} Use both tools."
City = Literal["Bern", "Rome"]


class Trip(BaseModel):
    """A trip."""

    model_config = ConfigDict(extra="forbid")
    to: City
    days: Literal[1, 2]


class Diary:
    """The tools, and what was called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def weather(self, city: str, days: int = 1) -> str:
        """Says what the weather will be.

        Args:
            city: The city.
            days: For how many days.
        """
        self.calls.append(f"weather {city} {days}")
        return SUN

    def distance(self, to: str) -> str:
        """Says how far it is.

        Args:
            to: Where one goes.
        """
        self.calls.append(f"distance {to}")
        return FAR

    def assert_both(self) -> None:
        assert self.calls == ["weather Rome 2", "distance Rome"]


@pytest.fixture
def diary() -> Diary:
    return Diary()


@pytest.fixture(scope="session")
def agent_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the model that follows the script."""
    folder = scripted_model.write(tmp_path_factory.mktemp("scripted") / "agent")
    with Server([str(folder), "--num-threads", "2"]) as server:
        yield server


def url_of(server: Server) -> str:
    return f"{server.url}/v1"


class TestOpenAIAgents:
    """openai-agents, with `/v1/responses`, which is its default, and with `/v1/chat/completions`."""

    @staticmethod
    def agent(server: Server, diary: Diary, route: str, name: str = "agent", **options: Any) -> Any:
        import agents

        client = openai.AsyncOpenAI(base_url=url_of(server), api_key="none", max_retries=0)
        kind = {"responses": agents.OpenAIResponsesModel, "chat": agents.OpenAIChatCompletionsModel}[route]
        tools = [agents.function_tool(diary.weather), agents.function_tool(diary.distance)]
        model = kind(model=name, openai_client=client)
        return agents.Agent(name="Guide", instructions="You plan trips.", tools=tools, model=model, **options)

    @pytest.mark.parametrize("route", ["responses", "chat"])
    @pytest.mark.parametrize("plan", [PLAN, PLAN_BOTH])
    def test_it_ends_the_task(self, agent_server: Server, diary: Diary, route: str, plan: str) -> None:
        import agents

        result = agents.Runner.run_sync(self.agent(agent_server, diary, route), plan)
        assert result.final_output == ANSWER
        diary.assert_both()
        usage = result.context_wrapper.usage
        assert usage.requests == (3 if plan == PLAN else 2)
        assert usage.input_tokens > usage.output_tokens > 0

    @pytest.mark.parametrize("route", ["responses", "chat"])
    def test_it_ends_the_task_in_streams(self, agent_server: Server, diary: Diary, route: str) -> None:
        import agents
        from openai.types.responses import ResponseTextDeltaEvent

        async def streamed() -> tuple[str, list[str], Any]:
            stream = agents.Runner.run_streamed(self.agent(agent_server, diary, route), PLAN)
            text, items = "", []
            async for event in stream.stream_events():
                if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
                    text += event.data.delta
                if event.type == "run_item_stream_event":
                    items.append(event.item.type)
            return text, items, stream

        text, items, stream = asyncio.run(streamed())
        assert text.endswith(ANSWER)
        assert stream.final_output == ANSWER
        assert items.count("tool_call_item") == items.count("tool_call_output_item") == 2
        diary.assert_both()

    def test_a_response_goes_on_with_the_one_before(self, agent_server: Server, diary: Diary) -> None:
        import agents

        agent = self.agent(agent_server, diary, "responses")
        result = agents.Runner.run_sync(agent, PLAN, auto_previous_response_id=True)
        assert result.final_output == ANSWER
        diary.assert_both()
        again = agents.Runner.run_sync(agent, "Really?", previous_response_id=result.last_response_id)
        assert again.final_output == ANSWER

    @pytest.mark.parametrize("route", ["responses", "chat"])
    def test_a_session_has_the_conversation(self, agent_server: Server, diary: Diary, route: str) -> None:
        import agents

        agent, session = self.agent(agent_server, diary, route), agents.SQLiteSession("trip")
        for question in (PLAN, "Really?"):
            assert agents.Runner.run_sync(agent, question, session=session).final_output == ANSWER
        diary.assert_both()

    @pytest.mark.parametrize("route", ["responses", "chat"])
    def test_an_agent_hands_off_to_another_one(self, agent_server: Server, diary: Diary, route: str) -> None:
        import agents

        guide = self.agent(agent_server, diary, route)
        settings = agents.ModelSettings(tool_choice="transfer_to_guide")
        desk = agents.Agent(name="Desk", handoffs=[guide], model=guide.model, model_settings=settings)
        result = agents.Runner.run_sync(desk, PLAN)
        assert result.last_agent is guide
        assert result.final_output == ANSWER
        diary.assert_both()

    @pytest.mark.parametrize("route", ["responses", "chat"])
    @pytest.mark.parametrize("choice", ["required", "book"])
    def test_the_grammar_holds_calls(self, tool_server: Server, route: str, choice: str) -> None:
        import agents

        booked = []

        @agents.function_tool
        def book(to: City, days: Literal[1, 2]) -> str:
            """Books a trip."""
            booked.append((to, days))
            return "booked"

        settings = agents.ModelSettings(
            tool_choice=choice, parallel_tool_calls=False, temperature=0, max_tokens=100
        )
        agent = self.agent(tool_server, Diary(), route, "story-3m", model_settings=settings)
        agent.tools, agent.tool_use_behavior = [book], "stop_on_first_tool"
        assert agents.Runner.run_sync(agent, PLAN).final_output == "booked"
        [(to, days)] = booked
        Trip(to=to, days=days)

    @pytest.mark.parametrize("route", ["responses", "chat"])
    def test_an_answer_has_a_type(self, tool_server: Server, route: str) -> None:
        import agents

        agent = self.agent(tool_server, Diary(), route, "story-3m", output_type=Trip)
        agent.tools = []
        agent.model_settings = agents.ModelSettings(temperature=0, max_tokens=100)
        assert isinstance(agents.Runner.run_sync(agent, PLAN).final_output, Trip)


class TestPydanticAI:
    """pydantic-ai, with both of OpenAI's routes."""

    @staticmethod
    def model(server: Server, route: str, name: str = "agent") -> Any:
        from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
        from pydantic_ai.providers.openai import OpenAIProvider

        client = openai.AsyncOpenAI(base_url=url_of(server), api_key="none", max_retries=0)
        kind = {"responses": OpenAIResponsesModel, "chat": OpenAIChatModel}[route]
        return kind(name, provider=OpenAIProvider(openai_client=client))

    @pytest.mark.parametrize("route", ["responses", "chat"])
    @pytest.mark.parametrize("plan", [PLAN, PLAN_BOTH])
    def test_it_ends_the_task(self, agent_server: Server, diary: Diary, route: str, plan: str) -> None:
        from pydantic_ai import Agent

        tools = [diary.weather, diary.distance]
        agent = Agent(self.model(agent_server, route), tools=tools, instructions="You plan trips.")
        result = agent.run_sync(plan)
        assert result.output == ANSWER
        assert sorted(diary.calls) == ["distance Rome", "weather Rome 2"]
        again = agent.run_sync("Really?", message_history=result.all_messages())
        assert again.output == ANSWER

    @pytest.mark.parametrize("route", ["responses", "chat"])
    def test_it_ends_the_task_in_streams(self, agent_server: Server, diary: Diary, route: str) -> None:
        from pydantic_ai import Agent

        agent = Agent(self.model(agent_server, route), tools=[diary.weather, diary.distance])

        async def streamed() -> list[str]:
            parts = []
            async with agent.run_stream_events(PLAN) as events:
                async for event in events:
                    parts.append(event.event_kind)
            assert event.result.output == ANSWER
            return parts

        parts = asyncio.run(streamed())
        assert parts.count("function_tool_call") == parts.count("function_tool_result") == 2
        diary.assert_both()

    @pytest.mark.parametrize("route", ["responses", "chat"])
    @pytest.mark.parametrize("kind", ["ToolOutput", "NativeOutput"])
    def test_the_grammar_holds_an_answer_to_its_type(
        self, tool_server: Server, route: str, kind: str
    ) -> None:
        import pydantic_ai
        from pydantic_ai import Agent

        agent = Agent(
            self.model(tool_server, route, "story-3m"),
            output_type=getattr(pydantic_ai, kind)(Trip),
            model_settings={"temperature": 0, "max_tokens": 100, "parallel_tool_calls": False},
        )
        assert isinstance(agent.run_sync(PLAN).output, Trip)


class TestLangGraph:
    """The agent of LangChain, which is a graph of LangGraph."""

    @staticmethod
    def model(server: Server, name: str = "agent", **options: Any) -> Any:
        from langchain_openai import ChatOpenAI

        return ChatOpenAI(base_url=url_of(server), api_key="none", model=name, max_retries=0, **options)

    @pytest.mark.parametrize("uses_responses", [False, True], ids=["chat", "responses"])
    @pytest.mark.parametrize("plan", [PLAN, PLAN_BOTH])
    def test_it_ends_the_task(
        self, agent_server: Server, diary: Diary, uses_responses: bool, plan: str
    ) -> None:
        from langchain.agents import create_agent

        model = self.model(agent_server, use_responses_api=uses_responses)
        agent = create_agent(model, [diary.weather, diary.distance], system_prompt="You plan trips.")
        messages = agent.invoke({"messages": [("user", plan)]})["messages"]
        assert messages[-1].text == ANSWER
        assert sorted(diary.calls) == ["distance Rome", "weather Rome 2"]
        again = agent.invoke({"messages": [*messages, ("user", "Really?")]})
        assert again["messages"][-1].text == ANSWER

    @pytest.mark.parametrize("uses_responses", [False, True], ids=["chat", "responses"])
    def test_it_ends_the_task_in_streams(
        self, agent_server: Server, diary: Diary, uses_responses: bool
    ) -> None:
        from langchain.agents import create_agent

        model = self.model(agent_server, use_responses_api=uses_responses, stream_usage=True)
        agent = create_agent(model, [diary.weather, diary.distance])
        stream = agent.stream({"messages": [("user", PLAN)]}, stream_mode="messages")
        texts = [chunk.text for chunk, _ in stream if chunk.type == "AIMessageChunk"]
        assert len(texts) > 8
        assert "".join(texts).endswith(ANSWER)
        diary.assert_both()

    @pytest.mark.parametrize("strategy", ["ToolStrategy", "ProviderStrategy"])
    def test_the_grammar_holds_an_answer_to_its_type(self, tool_server: Server, strategy: str) -> None:
        from langchain.agents import create_agent, structured_output

        model = self.model(tool_server, "story-3m", temperature=0, max_tokens=100)
        if strategy == "ToolStrategy":
            model = model.model_copy(update={"model_kwargs": {"parallel_tool_calls": False}})
        agent = create_agent(model, [], response_format=getattr(structured_output, strategy)(Trip))
        state = agent.invoke({"messages": [("user", PLAN)]})
        assert isinstance(state["structured_response"], Trip)

    def test_the_nodes_of_a_graph_of_ones_own_call_tools(self, agent_server: Server, diary: Diary) -> None:
        from langchain_core.tools import tool
        from langgraph.graph import START, MessagesState, StateGraph
        from langgraph.prebuilt import ToolNode, tools_condition

        tools = [tool(diary.weather), tool(diary.distance)]
        model = self.model(agent_server).bind_tools(tools, strict=True, parallel_tool_calls=True)
        graph = StateGraph(MessagesState)
        graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
        graph.add_node("tools", ToolNode(tools))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        messages = graph.compile().invoke({"messages": [("user", PLAN)]})["messages"]
        assert messages[-1].text == ANSWER
        diary.assert_both()


class TestSmolagents:
    """smolagents, whose agents end with a call of the tool `final_answer`, and hand results back as texts of the user."""

    @pytest.mark.parametrize("streams", [False, True])
    def test_it_ends_the_task(self, agent_server: Server, diary: Diary, streams: bool) -> None:
        import smolagents

        model = smolagents.OpenAIModel("agent", api_base=url_of(agent_server), api_key="none")
        tools = [smolagents.tool(typed(diary)[name]) for name in ("weather", "distance")]
        agent = smolagents.ToolCallingAgent(
            tools=tools, model=model, max_steps=4, stream_outputs=streams, verbosity_level=-1
        )
        assert agent.run(PLAN) == ANSWER
        diary.assert_both()


def typed(diary: Diary) -> dict[str, Any]:
    """The tools as functions: smolagents reads the source of a tool."""

    def weather(city: str, days: int) -> str:
        """Says what the weather will be.

        Args:
            city: The city.
            days: For how many days.
        """
        return diary.weather(city, days)

    def distance(to: str) -> str:
        """Says how far it is.

        Args:
            to: Where one goes.
        """
        return diary.distance(to)

    return {"weather": weather, "distance": distance}


#: The tools as litellm takes them, and the names of the protocols.
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Says what the weather will be.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city", "days"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "distance",
            "description": "Says how far it is.",
            "parameters": {
                "type": "object",
                "properties": {"to": {"type": "string"}},
                "required": ["to"],
            },
        },
    },
]
PROVIDERS = ("openai", "hosted_vllm", "anthropic", "ollama_chat")


class TestLiteLLM:
    """litellm, with each of the protocols that the server speaks."""

    @staticmethod
    def options(server: Server, provider: str, name: str = "agent") -> dict[str, Any]:
        base = url_of(server) if provider in ("openai", "hosted_vllm") else server.url
        return {"model": f"{provider}/{name}", "api_base": base, "api_key": "none", "num_retries": 0}

    @pytest.mark.parametrize("provider", PROVIDERS)
    @pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
    def test_it_ends_the_task(self, agent_server: Server, diary: Diary, provider: str, streams: bool) -> None:
        import litellm

        messages: list[Any] = [{"role": "user", "content": PLAN}]
        for _ in range(3):
            options = self.options(agent_server, provider) | {"tools": TOOLS, "max_tokens": 200}
            if streams:
                chunks = litellm.completion(
                    messages=messages, stream=True, stream_options={"include_usage": True}, **options
                )
                answer = litellm.stream_chunk_builder(list(chunks), messages=messages)
            else:
                answer = litellm.completion(messages=messages, **options)
            assert answer.usage.completion_tokens > 0
            [choice] = answer.choices
            messages.append(choice.message)
            for call in choice.message.tool_calls or []:
                result = getattr(diary, call.function.name)(**json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        assert choice.message.content == ANSWER
        assert choice.finish_reason == "stop"
        diary.assert_both()

    @pytest.mark.parametrize("provider", ["openai", "anthropic"])
    def test_the_grammar_holds_a_call(self, tool_server: Server, provider: str) -> None:
        import litellm

        book = {"type": "function", "function": {"name": "book", "parameters": Trip.model_json_schema()}}
        answer = litellm.completion(
            messages=[{"role": "user", "content": PLAN}],
            tools=[book],
            tool_choice={"type": "function", "function": {"name": "book"}},
            temperature=0,
            max_tokens=100,
            **self.options(tool_server, provider, "story-3m"),
        )
        [call] = answer.choices[0].message.tool_calls
        Trip.model_validate_json(call.function.arguments)

    def test_its_responses_are_those_of_the_server(self, agent_server: Server) -> None:
        import litellm

        options = self.options(agent_server, "openai")
        flat = [{"type": "function", **tool["function"]} for tool in TOOLS]
        response = litellm.responses(input=PLAN, tools=flat, **options)
        [call] = [item for item in response.output if item.type == "function_call"]
        assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Rome", "days": 2})


def test_litellm_ranks_and_embeds(server: Server) -> None:
    import litellm

    documents = ["Tom had a cat.", "It rained all day."]
    options: dict[str, Any] = {"api_key": "none"}
    for provider, base in (("hosted_vllm", url_of(server)), ("jina_ai", url_of(server))):
        found = litellm.rerank(
            model=f"{provider}/story-3m", query="a cat", documents=documents, api_base=base, **options
        )
        scores = [result["relevance_score"] for result in found.results]
        assert scores == sorted(scores, reverse=True)
        assert sorted(result["index"] for result in found.results) == [0, 1]
    found = litellm.embedding("openai/story-3m", input=documents, api_base=url_of(server), **options)
    assert [len(row["embedding"]) for row in found.data] == [192, 192]


@pytest.mark.parametrize("section", ["openai-agents", "pydantic-ai", "LangGraph", "smolagents", "litellm"])
def test_the_program_of_the_page_ends_the_task(section: str, agent_server: Server, tmp_path: Path) -> None:
    assert run(section, agent_server.url, tmp_path) == f"{ANSWER}\n"
