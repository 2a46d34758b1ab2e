"""OpenAI's Python library as a client of Responses."""

import json

import openai
import pydantic
import pytest

from tests.clients import chat_model

RIVER = chat_model.RIVER["content"]
FUNCTION = chat_model.TOOL["function"]
TOOL = {"type": "function", "strict": None, **FUNCTION}


class City(pydantic.BaseModel):
    name: str
    large: bool


@pytest.fixture(scope="module")
def responses(chatter):
    with openai.OpenAI(base_url=chatter.v1, api_key="none", max_retries=0) as client:
        yield client.responses


def ask(responses, input=RIVER, **settings):
    return responses.create(model="chatter", input=input, store=False, **settings)


def test_an_answer_has_a_reasoning_item_and_a_message(responses):
    answer = ask(responses)
    reasoning, message = answer.output
    assert (reasoning.type, reasoning.content[0].text) == ("reasoning", chat_model.RIVER_THOUGHT)
    assert message.type == "message" and answer.output_text == chat_model.RIVER_ANSWER
    assert answer.status == "completed" and answer.usage.output_tokens > 2
    assert ask(responses, max_output_tokens=2).status == "incomplete"


def test_instructions_and_effort_are_followed(responses):
    brief = ask(responses, instructions=chat_model.SYSTEM["content"])
    assert brief.output_text == chat_model.BRIEF_ANSWER
    (message,) = ask(responses, reasoning={"effort": "none"}).output
    assert message.content[0].text == chat_model.RIVER_ANSWER


def test_a_stream_is_put_together_to_the_same_response(responses):
    with responses.stream(model="chatter", input=RIVER, store=False) as stream:
        events = list(stream)
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == stream.get_final_response().output_text == chat_model.RIVER_ANSWER
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    assert [event.sequence_number for event in events] == sorted({e.sequence_number for e in events})


def test_an_answer_is_parsed_as_a_pydantic_model(responses):
    answer = responses.parse(
        model="chatter", input=RIVER, text_format=City, max_output_tokens=300, reasoning={"effort": "none"}
    )
    assert isinstance(answer.output_parsed, City)


def test_a_tool_is_called_and_its_result_is_answered(responses):
    question = [chat_model.QUESTION]
    answer = ask(responses, question, tools=[TOOL])
    _, call = answer.output
    assert (call.name, json.loads(call.arguments)) == ("weather", chat_model.ARGUMENTS)
    result = {"type": "function_call_output", "call_id": call.call_id, "output": chat_model.RESULT["content"]}
    second = ask(responses, [*question, *answer.output, result], tools=[TOOL])
    assert second.output_text == chat_model.FORECAST


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "weather"}])
def test_a_forced_answer_is_calls_and_nothing_else(responses, choice):
    answer = ask(responses, [chat_model.QUESTION], tools=[TOOL], tool_choice=choice)
    _, *calls = answer.output
    assert answer.output_text == "" and calls
    for call in calls:
        assert (call.type, call.name) == ("function_call", "weather")
        assert json.loads(call.arguments)["city"] in chat_model.CITY["enum"]


def test_stored_state_is_refused_by_name(responses):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(responses, previous_response_id="resp_1")
    assert caught.value.param == "previous_response_id"
