"""Frameworks as clients: LangChain, instructor, OpenAI's agents, Pydantic AI. Each asks for what programs ask by it."""

import asyncio
from typing import Literal

import agents
import instructor
import mlx.core as mx
import openai
import pydantic
import pydantic_ai
import pytest
from langchain_core.tools import tool
from langchain_ollama import ChatOllama, OllamaEmbeddings
from langchain_openai import ChatOpenAI
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import zoo
from tests.clients import chat_model

RIVER, QUESTION = chat_model.RIVER["content"], chat_model.QUESTION["content"]
agents.set_tracing_disabled(True)


class City(pydantic.BaseModel):
    city: Literal["Rome", "Oslo"]


def weather(city: Literal["Rome", "Oslo"]) -> str:
    """What the weather will be."""
    return chat_model.RESULT["content"]


@pytest.fixture(params=["ollama", "openai"])
def langchain(request, chatter):
    """LangChain's model of either interface."""
    if request.param == "ollama":
        return ChatOllama(model="chatter", base_url=chatter.url, validate_model_on_init=True)
    return ChatOpenAI(model="chatter", base_url=chatter.v1, api_key="none", max_retries=0)


def test_langchain_has_the_answer_whole_and_in_parts(langchain):
    assert langchain.invoke(RIVER).content == chat_model.RIVER_ANSWER
    parts = [part.content for part in langchain.stream(RIVER)]
    assert "".join(parts) == chat_model.RIVER_ANSWER and sum(map(bool, parts)) > 1


def test_langchain_calls_a_tool_and_reads_its_result(langchain):
    able = langchain.bind_tools([tool(weather)])
    message = able.invoke(QUESTION)
    assert [call["args"] for call in message.tool_calls] == [chat_model.ARGUMENTS]
    result = tool(weather).invoke(message.tool_calls[0])
    assert able.invoke([("user", QUESTION), message, result]).content == chat_model.FORECAST


def test_langchain_has_structured_output(langchain):
    assert isinstance(langchain.with_structured_output(City, method="json_schema").invoke(RIVER), City)


def test_langchain_forces_a_tool_by_openais_interface(chatter):
    model = ChatOpenAI(model="chatter", base_url=chatter.v1, api_key="none", max_retries=0)
    assert isinstance(model.with_structured_output(City, method="function_calling").invoke(RIVER), City)
    forced = model.bind_tools([tool(weather)], tool_choice="weather").invoke(RIVER)
    assert forced.tool_calls[0]["name"] == "weather"


def test_langchain_has_the_vectors_of_the_encoder(pockets):
    vectors = OllamaEmbeddings(model="bert", base_url=pockets.url).embed_documents(["A river."])
    expected = zoo.embed(zoo.load("bert"), ["A river."])[0]
    assert vectors[0] == pytest.approx((expected / mx.linalg.norm(expected)).tolist(), abs=1e-4)


@pytest.mark.parametrize("mode", ["TOOLS", "JSON_SCHEMA", "FUNCTIONS"])
def test_instructor_has_structured_output(chatter, mode):
    client = instructor.from_openai(
        openai.OpenAI(base_url=chatter.v1, api_key="none", max_retries=0), mode=instructor.Mode[mode]
    )
    made = client.chat.completions.create(
        model="chatter", messages=[chat_model.RIVER], response_model=City, max_retries=0
    )
    assert isinstance(made, City)


@pytest.mark.parametrize("kind", [agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel])
def test_an_agent_of_openais_library_answers_calls_and_streams(chatter, kind):
    async def run():
        async with openai.AsyncOpenAI(base_url=chatter.v1, api_key="none", max_retries=0) as client:
            how = {"name": "agent", "model": kind(model="chatter", openai_client=client)}
            able = agents.Agent(**how, tools=[agents.function_tool(weather)])
            forced = agents.Agent(
                **how, tools=able.tools, model_settings=agents.ModelSettings(tool_choice="weather")
            )
            stream = agents.Runner.run_streamed(agents.Agent(**how), RIVER)
            kinds = {event.type async for event in stream.stream_events()}
            runs = [
                await agents.Runner.run(agent, asked)
                for agent, asked in (
                    (agents.Agent(**how), RIVER),
                    (able, QUESTION),
                    (forced, QUESTION),
                    (agents.Agent(**how, output_type=City), RIVER),
                )
            ]
            return kinds, stream.final_output, [each.final_output for each in runs]

    kinds, streamed, (text, called, forced, made) = asyncio.run(run())
    assert streamed == text == chat_model.RIVER_ANSWER and "raw_response_event" in kinds
    assert called == forced == chat_model.FORECAST
    assert isinstance(made, City)


def test_an_agent_of_pydantic_ai_answers_calls_and_streams(chatter):
    model = OpenAIChatModel("chatter", provider=OpenAIProvider(base_url=chatter.v1, api_key="none"))

    async def run():
        agent = pydantic_ai.Agent(model)
        async with agent.run_stream(RIVER) as stream:
            parts = [part async for part in stream.stream_text(delta=True)]
        able = pydantic_ai.Agent(model, tools=[weather])
        texts = [(await each.run(asked)).output for each, asked in ((agent, RIVER), (able, QUESTION))]
        forms = (pydantic_ai.NativeOutput(City), pydantic_ai.ToolOutput(City))
        return (
            parts,
            texts,
            [(await pydantic_ai.Agent(model, output_type=form).run(RIVER)).output for form in forms],
        )

    parts, texts, made = asyncio.run(run())
    assert "".join(parts) == chat_model.RIVER_ANSWER
    assert texts == [chat_model.RIVER_ANSWER, chat_model.FORECAST]
    assert all(isinstance(one, City) for one in made)
