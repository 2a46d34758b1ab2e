"""LiteLLM, which other programs use to speak to servers, as a client by its routes of three interfaces."""

import json
import os

import pytest

import zoo
from tests.clients import chat_model

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # read as it is imported: else it asks the network
import litellm

RIVER, QUESTION = [chat_model.RIVER], [chat_model.QUESTION]


@pytest.fixture(params=["openai", "anthropic", "ollama_chat"])
def ask(request, chatter):
    """The function that asks by one of the routes."""
    base = chatter.v1 if request.param == "openai" else chatter.url

    def call(messages, **settings):
        return litellm.completion(
            f"{request.param}/chatter", messages, api_base=base, api_key="none", max_retries=0, **settings
        )

    return call


def test_an_answer_has_text_thinking_and_usage(ask):
    answer = ask(RIVER)
    message = answer.choices[0].message
    assert (message.content, message.reasoning_content) == (chat_model.RIVER_ANSWER, chat_model.RIVER_THOUGHT)
    assert answer.choices[0].finish_reason == "stop" and answer.usage.completion_tokens > 2


def test_a_stream_has_the_same_text(ask):
    parts = [chunk.choices[0].delta.content or "" for chunk in ask(RIVER, stream=True)]
    assert "".join(parts) == chat_model.RIVER_ANSWER and sum(map(bool, parts)) > 1


def test_a_tool_is_called_and_its_result_is_answered(ask):
    message = ask(QUESTION, tools=[chat_model.TOOL]).choices[0].message
    (call,) = message.tool_calls
    assert json.loads(call.function.arguments) == chat_model.ARGUMENTS
    result = {"role": "tool", "tool_call_id": call.id, "content": chat_model.RESULT["content"]}
    second = ask([*QUESTION, message.model_dump(), result], tools=[chat_model.TOOL])
    assert second.choices[0].message.content == chat_model.FORECAST


def test_an_error_is_the_exception_of_the_library(ask):
    with pytest.raises(litellm.BadRequestError, match="temperature"):
        ask(RIVER, temperature=-1)


def test_embeddings_are_those_of_the_encoder(pockets):
    texts = ["A river.", "The sea."]
    answer = litellm.embedding("openai/bert", input=texts, api_base=pockets.v1, api_key="none")
    expected = zoo.embed(zoo.load("bert"), texts).tolist()
    for item, vector in zip(answer.data, expected, strict=True):
        assert item["embedding"] == pytest.approx(vector, abs=1e-4)
