"""Anthropic's Python library as a client: messages, streams, tools, thinking, numbers of tokens, errors."""

import asyncio

import anthropic
import pytest

from tests.clients import chat_model
from zoo.generation.chat.chat_prompt import chat_prompt

RIVER, QUESTION = [chat_model.RIVER], [chat_model.QUESTION]
TOOL = {"name": "weather", "description": chat_model.ABOUT, "input_schema": chat_model.PARAMETERS}
SILENT = {"type": "disabled"}


@pytest.fixture(scope="module")
def client(chatter):
    with anthropic.Anthropic(base_url=chatter.url, api_key="none", max_retries=0) as found:
        yield found


def arguments(messages=RIVER, **settings):
    return {"model": "chatter", "max_tokens": 100, "messages": messages, **settings}


def ask(client, messages=RIVER, **settings):
    return client.messages.create(**arguments(messages, **settings))


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


def test_an_answer_has_its_thinking_its_text_and_its_numbers_of_tokens(client, loaded_chatter):
    message = ask(client)
    thinking, text = message.content
    assert (thinking.type, thinking.thinking) == ("thinking", chat_model.RIVER_THOUGHT)
    assert (text.type, text.text) == ("text", chat_model.RIVER_ANSWER)
    assert message.stop_reason == "end_turn" and message.role == "assistant" and message.model == "chatter"
    read = message.usage.input_tokens + message.usage.cache_read_input_tokens
    assert read == len(chat_prompt(loaded_chatter, RIVER).ids)


def test_thinking_can_be_left_out(client):
    (text,) = ask(client, thinking=SILENT).content
    assert text.text == chat_model.RIVER_ANSWER
    assert ask(client, thinking={"type": "enabled", "budget_tokens": 1024}).content[0].type == "thinking"


def test_a_stream_is_put_together_to_the_same_message(client):
    with client.messages.stream(**arguments()) as stream:
        text = "".join(stream.text_stream)
    final = stream.get_final_message()
    assert text == chat_model.RIVER_ANSWER
    assert [block.type for block in final.content] == ["thinking", "text"]
    assert final.content[0].thinking == chat_model.RIVER_THOUGHT and final.stop_reason == "end_turn"
    assert final.usage.output_tokens == ask(client).usage.output_tokens
    kinds = [event.type for event in ask(client, stream=True)]
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])


def test_asynchronous_requests_have_their_own_answers(chatter):
    async def asked():
        async with anthropic.AsyncAnthropic(base_url=chatter.url, api_key="none") as client:
            settings = [{"thinking": SILENT}, {"system": chat_model.SYSTEM["content"]}] * 4
            messages = await asyncio.gather(*(ask(client, **one) for one in settings))
            return [text_of(message) for message in messages]

    assert asyncio.run(asked()) == [chat_model.RIVER_ANSWER, chat_model.BRIEF_ANSWER] * 4


def test_a_system_message_may_have_blocks_and_marks_of_a_cache(client):
    block = {"type": "text", "text": chat_model.SYSTEM["content"], "cache_control": {"type": "ephemeral"}}
    assert text_of(ask(client, system=[block])) == chat_model.BRIEF_ANSWER


def test_a_tool_is_called_and_its_result_is_answered(client):
    message = ask(client, QUESTION, tools=[TOOL])
    call = message.content[-1]
    assert message.stop_reason == "tool_use" and not text_of(message)
    assert (call.type, call.name, call.input) == ("tool_use", "weather", chat_model.ARGUMENTS)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": chat_model.RESULT["content"]}
    turns = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    second = ask(client, [*QUESTION, *turns], tools=[TOOL])
    assert text_of(second) == chat_model.FORECAST and second.stop_reason == "end_turn"


def test_a_call_in_a_stream_is_put_together(client):
    with client.messages.stream(**arguments(QUESTION, tools=[TOOL])) as stream:
        final = stream.get_final_message()
    assert final.content[-1].input == chat_model.ARGUMENTS and final.stop_reason == "tool_use"


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "weather"}])
def test_a_choice_of_tools_forces_a_call(client, choice):
    message = ask(client, QUESTION, tools=[TOOL], tool_choice=choice)
    *thoughts, call = message.content
    assert [block.type for block in thoughts] == ["thinking"] and message.stop_reason == "tool_use"
    assert (call.type, call.name) == ("tool_use", "weather")
    assert call.input["city"] in chat_model.CITY["enum"] and call.input.keys() == {"city"}


def test_thinking_blocks_may_come_back_in_the_next_turn(client):
    first = ask(client, QUESTION, tools=[TOOL])
    result = {
        "type": "tool_result",
        "tool_use_id": first.content[-1].id,
        "content": [{"type": "text", "text": "Rain."}],
    }
    turns = [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    assert [block.type for block in first.content] == ["thinking", "tool_use"]
    assert text_of(ask(client, [*QUESTION, *turns], tools=[TOOL])) == chat_model.FORECAST


def test_no_choice_of_tools_hides_them(client, loaded_chatter):
    counted = client.messages.count_tokens(model="chatter", messages=QUESTION).input_tokens
    usage = ask(client, QUESTION, tools=[TOOL], tool_choice={"type": "none"}).usage
    assert usage.input_tokens + usage.cache_read_input_tokens == counted


def test_a_stop_sequence_is_named(client):
    message = ask(client, stop_sequences=[" long", " is a"], thinking=SILENT)
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", " is a")
    assert text_of(message) == "The Nile"


def test_a_limit_of_tokens_is_a_stop_reason(client):
    message = ask(client, max_tokens=2)
    assert message.stop_reason == "max_tokens" and message.usage.output_tokens == 2


def test_tokens_are_counted_as_the_template_lays_them_out(client, loaded_chatter):
    counted = client.messages.count_tokens(model="chatter", messages=QUESTION, tools=[TOOL])
    assert counted.input_tokens == len(chat_prompt(loaded_chatter, QUESTION, tools=[chat_model.TOOL]).ids)


def test_models_are_listed(client):
    assert [model.id for model in client.models.list()] == ["chatter"]
    assert client.models.retrieve("chatter").id == "chatter"


def test_errors_are_the_exceptions_of_the_library(client, locked):
    with pytest.raises(anthropic.BadRequestError, match="temperature"):
        ask(client, extra_body={"temperature": -1})
    with pytest.raises(anthropic.BadRequestError, match="top_k_p"):
        ask(client, extra_body={"top_k_p": 1})
    with pytest.raises(anthropic.NotFoundError) as caught:
        client.messages.create(**{**arguments(), "model": "other"})
    assert caught.value.body["error"]["type"] == "not_found_error"
    with pytest.raises(anthropic.AuthenticationError):
        ask(anthropic.Anthropic(base_url=locked.url, api_key="wrong", max_retries=0))
