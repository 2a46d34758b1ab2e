"""Fields that programs send beside the usual ones, through the clients that send them."""

import anthropic
import openai
import pytest

from tests.clients import chat_model

FUNCTION = chat_model.TOOL["function"]


@pytest.fixture(scope="module")
def client(chatter):
    with openai.OpenAI(base_url=chatter.v1, api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def messages(chatter):
    with anthropic.Anthropic(base_url=chatter.url, api_key="none", max_retries=0) as made:
        yield made.messages


def ask(client, *messages, **more):
    return client.chat.completions.create(model="chatter", messages=list(messages), **more)


@pytest.mark.parametrize("choice", ["auto", {"name": "weather"}])
def test_a_function_is_called_and_its_result_is_answered(client, choice):
    answer = ask(client, chat_model.QUESTION, functions=[FUNCTION], function_call=choice).choices[0]
    call = answer.message.function_call
    assert (answer.finish_reason, call.name, answer.message.tool_calls) == ("function_call", "weather", None)
    said = {"role": "assistant", "content": None, "function_call": call.model_dump()}
    result = {"role": "function", "name": "weather", "content": chat_model.RESULT["content"]}
    second = ask(client, chat_model.QUESTION, said, result, functions=[FUNCTION]).choices[0]
    assert second.finish_reason == "stop" and second.message.content


def test_a_stream_has_the_function_s_call_and_its_usage_in_each_chunk(client):
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = list(
        ask(
            client,
            chat_model.QUESTION,
            functions=[FUNCTION],
            stream=True,
            extra_body={"stream_options": options},
        )
    )
    calls = [
        c.choices[0].delta.function_call for c in chunks if c.choices and c.choices[0].delta.function_call
    ]
    assert [call.name for call in calls] == ["weather"]
    counts = [chunk.usage.completion_tokens for chunk in chunks]
    assert counts == sorted(counts) and counts[-1] > 1
    assert chunks[-2].choices[0].finish_reason == "function_call"


def test_an_effort_of_none_and_enable_thinking_end_the_thinking(client):
    for more in ({"reasoning_effort": "none"}, {"extra_body": {"enable_thinking": False}}):
        message = ask(client, chat_model.RIVER, **more).choices[0].message
        assert message.content == chat_model.RIVER_ANSWER
        assert getattr(message, "reasoning_content", None) is None


def test_no_end_comes_where_it_is_ignored(client):
    answer = ask(client, chat_model.RIVER, max_tokens=40, extra_body={"ignore_eos": True})
    assert answer.usage.completion_tokens == 40 and answer.choices[0].finish_reason == "length"


def test_a_nucleus_of_nothing_is_the_likeliest_token(client):
    plain = ask(client, chat_model.RIVER, temperature=0)
    drawn = ask(client, chat_model.RIVER, temperature=2, top_p=0, seed=1)
    assert drawn.choices[0].message.content == plain.choices[0].message.content


def test_a_schema_is_obeyed_under_its_other_name(client):
    answer = ask(
        client, chat_model.RIVER, extra_body={"guided_json": {"enum": ["a"]}, "enable_thinking": False}
    )
    assert answer.choices[0].message.content == '"a"'


def test_omitted_thinking_is_a_block_without_text(messages):
    asked = {"model": "chatter", "max_tokens": 100, "messages": [chat_model.RIVER]}
    asked["thinking"] = {"type": "adaptive", "display": "omitted"}
    answer = messages.create(**asked)
    assert [block.type for block in answer.content] == ["thinking", "text"]
    with messages.stream(**asked) as stream:
        streamed = stream.get_final_message()
    for thinking, text in (answer.content, streamed.content):
        assert (thinking.thinking, text.text) == ("", chat_model.RIVER_ANSWER)


def test_a_prompt_beyond_the_context_is_said_in_the_words_of_each_interface(client, messages):
    long = {"role": "user", "content": "river " * 4000}
    with pytest.raises(openai.BadRequestError, match="maximum context length is 512 tokens") as caught:
        ask(client, long)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > 512 maximum"):
        messages.create(model="chatter", max_tokens=5, messages=[long])
