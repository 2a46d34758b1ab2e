"""OpenAI's Python library as a client: chat and text completions, models, errors."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pydantic
import pytest

import zoo
from tests.clients import chat_model
from zoo.generation.chat.chat_prompt import chat_prompt

RIVER, QUESTION, TOOL = [chat_model.RIVER], [chat_model.QUESTION], chat_model.TOOL
ENDLESS = {"max_tokens": 2000, "logit_bias": {"0": -100, "2": -100}}  # SmolLM2's tokens that end a text
CITIES = chat_model.CITY["enum"]
PROMPT = "The capital city of China is"


class City(pydantic.BaseModel):
    name: str
    large: bool


@pytest.fixture(scope="module")
def chat(chatter):
    with openai.OpenAI(base_url=chatter.v1, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def text(pockets):
    with openai.OpenAI(base_url=pockets.v1, api_key="none", max_retries=0) as client:
        yield client


def ask(client, messages=RIVER, **settings):
    return client.chat.completions.create(model="chatter", messages=messages, **settings)


def complete(client, prompt=PROMPT, *, model="llama", **settings):
    return client.completions.create(model=model, prompt=prompt, **settings)


def test_an_answer_is_that_of_zoo_chat_with_its_numbers_of_tokens(chat, loaded_chatter):
    answer = ask(chat)
    steps = list(zoo.chat(loaded_chatter, RIVER))
    (choice,) = answer.choices
    assert choice.message.content == "".join(step.text for step in steps) == chat_model.RIVER_ANSWER
    assert choice.message.reasoning_content == "".join(s.thinking for s in steps) == chat_model.RIVER_THOUGHT
    assert choice.finish_reason == "stop" and answer.model == "chatter"
    assert answer.usage.prompt_tokens == len(chat_prompt(loaded_chatter, RIVER).ids)
    assert answer.usage.completion_tokens == sum(step.token is not None for step in steps)
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert 0 < answer.usage.completion_tokens_details.reasoning_tokens < answer.usage.completion_tokens


def test_a_stream_has_the_parts_of_the_same_answer_and_the_usage_last(chat):
    whole = ask(chat)
    *chunks, last = ask(chat, stream=True, stream_options={"include_usage": True})
    parts = [chunk.choices[0].delta for chunk in chunks]
    assert "".join(part.content or "" for part in parts) == whole.choices[0].message.content
    thinking = "".join(getattr(part, "reasoning_content", None) or "" for part in parts)
    assert thinking == whole.choices[0].message.reasoning_content
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert last.choices == [] and last.usage.completion_tokens == whole.usage.completion_tokens
    assert all(chunk.usage is None for chunk in ask(chat, stream=True))


def test_the_streaming_helper_gives_the_final_completion(chat):
    with chat.chat.completions.stream(model="chatter", messages=RIVER) as stream:
        kinds = {event.type for event in stream}
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert stream.get_final_completion().choices[0].message.content == chat_model.RIVER_ANSWER


def test_many_asynchronous_requests_have_the_answers_that_each_has_by_itself(chatter):
    conversations = [RIVER, [chat_model.SYSTEM, chat_model.RIVER], chat_model.SECOND] * 3
    expected = [chat_model.RIVER_ANSWER, chat_model.BRIEF_ANSWER, chat_model.SECOND_ANSWER] * 3

    async def streamed(client, messages):
        stream = await ask(client, messages, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def whole(client, messages):
        return (await ask(client, messages)).choices[0].message.content

    async def asked():
        async with openai.AsyncOpenAI(base_url=chatter.v1, api_key="none", max_retries=0) as client:
            every = [how(client, messages) for messages in conversations for how in (streamed, whole)]
            return await asyncio.gather(*every)

    assert asyncio.run(asked()) == [answer for answer in expected for _ in range(2)]


def test_a_tool_is_called_and_its_result_is_answered(chat):
    answer = ask(chat, QUESTION, tools=[TOOL])
    (call,) = answer.choices[0].message.tool_calls
    assert answer.choices[0].finish_reason == "tool_calls"
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", chat_model.ARGUMENTS)
    assert answer.choices[0].message.content is None
    result = {"role": "tool", "tool_call_id": call.id, "content": chat_model.RESULT["content"]}
    second = ask(chat, [*QUESTION, answer.choices[0].message, result], tools=[TOOL])
    assert second.choices[0].message.content == chat_model.FORECAST
    assert second.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
@pytest.mark.parametrize("thinks", [True, False])
def test_a_forced_answer_is_a_call_and_nothing_else(chat, choice, thinks):
    how = {} if thinks else {"chat_template_kwargs": {"enable_thinking": False}}
    answer = ask(chat, QUESTION, tools=[TOOL], tool_choice=choice, extra_body=how).choices[0]
    (call,) = answer.message.tool_calls
    assert answer.message.content is None and answer.finish_reason == "tool_calls"
    assert call.function.name == "weather" and json.loads(call.function.arguments)["city"] in CITIES
    stream = ask(chat, QUESTION, tools=[TOOL], tool_choice=choice, extra_body=how, stream=True)
    assert not any(chunk.choices[0].delta.content for chunk in stream)


def test_a_named_tool_is_called_whatever_is_asked(chat):
    choice = {"type": "function", "function": {"name": "weather"}}
    answer = ask(chat, RIVER, tools=[TOOL], tool_choice=choice, max_tokens=400).choices[0]
    (call,) = answer.message.tool_calls
    assert answer.message.content is None and json.loads(call.function.arguments)["city"] in CITIES


def test_the_same_seed_gives_the_same_choices_of_a_chat(chat):
    how = {"n": 3, "temperature": 2.0, "max_tokens": 12}
    first, again, other = ([text_of(c) for c in ask(chat, seed=s, **how).choices] for s in (5, 5, 6))
    assert len(first) == 3 and len(set(first)) > 1
    assert first == again != other


def text_of(choice):
    """The thinking and the text of a choice."""
    return (getattr(choice.message, "reasoning_content", None) or "") + "|" + (choice.message.content or "")


def test_calls_in_a_stream_are_put_together_by_the_helper(chat):
    with chat.chat.completions.stream(model="chatter", messages=QUESTION, tools=[TOOL]) as stream:
        seen = "".join(event.delta for event in stream if event.type == "content.delta")
    (call,) = stream.get_final_completion().choices[0].message.tool_calls
    assert seen == "" and json.loads(call.function.arguments) == chat_model.ARGUMENTS


def test_the_template_is_given_its_variables(chat):
    message = ask(chat, extra_body={"chat_template_kwargs": {"enable_thinking": False}}).choices[0].message
    assert message.content == chat_model.RIVER_ANSWER and not hasattr(message, "reasoning_content")


def test_messages_in_parts_and_a_developer_are_understood(chat):
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": chat_model.SYSTEM["content"]}]},
        {"role": "user", "content": [{"type": "text", "text": chat_model.RIVER["content"]}]},
    ]
    assert ask(chat, messages).choices[0].message.content == chat_model.BRIEF_ANSWER


def test_an_answer_is_parsed_as_a_pydantic_model(chat):
    no_thinking = {"chat_template_kwargs": {"enable_thinking": False}, "max_tokens": 200}
    answer = chat.chat.completions.parse(
        model="chatter", messages=RIVER, response_format=City, extra_body=no_thinking, temperature=0
    )
    assert isinstance(answer.choices[0].message.parsed, City)


def test_a_text_is_continued_as_zoo_generate_does(text, loaded_llama):
    answer = complete(text, max_tokens=12)
    assert answer.choices[0].text == zoo.generate(loaded_llama, PROMPT, max_tokens=12).text
    assert answer.usage.prompt_tokens == len(loaded_llama.tokenizer.encode(PROMPT))
    streamed = "".join(chunk.choices[0].text for chunk in complete(text, max_tokens=12, stream=True))
    assert streamed == answer.choices[0].text


def test_several_prompts_as_texts_and_as_tokens_have_several_answers(text, loaded_llama):
    prompts = [PROMPT, "The largest river of Europe"]
    expected = [zoo.generate(loaded_llama, prompt, max_tokens=8).text for prompt in prompts]
    ids = [loaded_llama.tokenizer.encode(prompt) for prompt in prompts]
    for given in (prompts, ids):
        assert [choice.text for choice in complete(text, given, max_tokens=8).choices] == expected


def test_the_same_seed_gives_the_same_texts_and_each_of_n_is_its_own(text):
    how = {"n": 4, "temperature": 1.5, "max_tokens": 10}
    first, again, other = ([c.text for c in complete(text, seed=s, **how).choices] for s in (5, 5, 6))
    assert first == again != other
    assert len(set(first)) > 1


def test_log_probabilities_are_those_of_the_engine(text, loaded_llama):
    steps = list(zoo.stream(loaded_llama, PROMPT, max_tokens=5, logprobs=2))
    answer = complete(text, max_tokens=5, logprobs=2).choices[0].logprobs
    assert answer.token_logprobs == pytest.approx([step.logprob for step in steps], abs=1e-4)
    assert all(len(alternatives) == 2 for alternatives in answer.top_logprobs)


def test_a_chat_has_log_probabilities_with_their_alternatives(chat):
    content = ask(chat, logprobs=True, top_logprobs=3).choices[0].logprobs.content
    assert all(entry.top_logprobs[0].logprob >= entry.logprob for entry in content)
    assert all(len(entry.top_logprobs) == 3 for entry in content)
    assert all(bytes(entry.bytes).decode(errors="replace") == entry.token for entry in content)


def test_an_echo_has_the_prompt_and_its_log_probabilities(text):
    answer = complete(text, max_tokens=1, echo=True, logprobs=1).choices[0]
    assert answer.text.startswith(PROMPT) and answer.logprobs.token_logprobs[0] is None
    assert "".join(answer.logprobs.tokens).startswith(PROMPT)
    assert answer.logprobs.text_offset[1] == len(answer.logprobs.tokens[0])


def test_a_stop_string_ends_the_answer_before_it(chat):
    answer = ask(chat, stop=[" is a"])
    assert answer.choices[0].message.content == chat_model.RIVER_ANSWER.partition(" is a")[0]
    assert answer.choices[0].finish_reason == "stop"


def test_a_bias_forbids_the_likeliest_token(text, loaded_llama):
    first = next(iter(zoo.stream(loaded_llama, PROMPT))).token
    assert complete(text, max_tokens=1).choices[0].text == loaded_llama.tokenizer.decode([first])
    biased = complete(text, max_tokens=1, logit_bias={str(first): -100}).choices[0].text
    assert biased != loaded_llama.tokenizer.decode([first])


def test_a_limit_of_tokens_is_a_finish_reason(chat):
    for name in ("max_tokens", "max_completion_tokens"):
        answer = ask(chat, **{name: 3})
        assert answer.choices[0].finish_reason == "length" and answer.usage.completion_tokens == 3


def test_settings_of_the_zoo_are_fields_of_the_body(text, loaded_llama):
    how = {"strategy": "beam", "beams": 3, "max_tokens": 6}
    expected = zoo.generate(loaded_llama, PROMPT, **how).text
    assert complete(text, extra_body=how).choices[0].text == expected


def test_a_translation_model_and_an_encoder_answer_completions(text):
    source = "The old man reads a book."
    expected = zoo.generate(zoo.load("transformer"), source).text
    assert complete(text, source, model="transformer").choices[0].text == expected
    filled = complete(text, "The capital of France is [MASK].", model="bert").choices[0]
    assert filled.candidates


def test_models_are_listed_and_found(text):
    assert [model.id for model in text.models.list()] == ["llama", "transformer", "bert"]
    assert text.models.retrieve("bert").owned_by == "zoo"
    with pytest.raises(openai.NotFoundError) as caught:
        text.models.retrieve("gpt-9")
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize(
    "field, value", [("temperature", -1), ("top_p", 2), ("n", 0), ("stop", 3), ("messages", [])]
)
def test_a_bad_field_is_a_bad_request_that_names_it(chat, field, value):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(chat, **{"messages": RIVER, field: value})
    assert caught.value.param == field and field in caught.value.message


def test_what_is_not_served_is_refused_by_name(chat):
    for field, value in (("web_search_options", {}), ("prediction", {"type": "content", "content": "x"})):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(chat, **{field: value})
        assert caught.value.param == field


def test_a_prompt_beyond_the_context_is_a_bad_request(text):
    with pytest.raises(openai.BadRequestError) as caught:
        complete(text, "river " * 200)
    assert caught.value.code == "context_length_exceeded" and caught.value.param == "prompt"


def test_a_model_without_a_chat_template_refuses_a_conversation(text):
    with pytest.raises(openai.BadRequestError, match="chat template"):
        text.chat.completions.create(model="llama", messages=RIVER)


def test_an_unknown_model_is_not_found(chat):
    with pytest.raises(openai.NotFoundError) as caught:
        chat.chat.completions.create(model="other", messages=RIVER)
    assert caught.value.code == "model_not_found" and caught.value.param == "model"


def test_a_key_is_asked_for(locked):
    with pytest.raises(openai.AuthenticationError) as caught:
        complete(openai.OpenAI(base_url=locked.v1, api_key="wrong", max_retries=0))
    assert caught.value.code == "invalid_api_key"
    assert openai.OpenAI(base_url=locked.v1, api_key="secret").models.list().data


def test_a_request_that_runs_out_of_time_is_cancelled_and_the_next_is_served(smollm2):
    client = openai.OpenAI(base_url=smollm2.v1, api_key="none", max_retries=0)
    name = client.models.list().data[0].id
    with pytest.raises(openai.APITimeoutError):
        complete(client, model=name, timeout=1.5, **ENDLESS)
    until_idle(smollm2)
    assert complete(client, model=name, max_tokens=2).usage.completion_tokens == 2


def test_a_stream_that_is_closed_early_frees_its_row(smollm2):
    client = openai.OpenAI(base_url=smollm2.v1, api_key="none", max_retries=0)
    name = client.models.list().data[0].id
    with complete(client, model=name, stream=True, **ENDLESS) as stream:
        next(iter(stream))
        assert metric(smollm2, "zoo_running") == 1
    until_idle(smollm2)


def metric(server, name):
    """The value of a metric of a server."""
    lines = httpx.get(f"{server.url}/metrics", headers={"x-api-key": "secret"}).text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def until_idle(server):
    """Wait until no sequence runs."""
    while metric(server, "zoo_running"):
        pass


def test_a_request_that_a_full_server_refuses_is_sent_again(locked):
    client = openai.OpenAI(base_url=locked.v1, api_key="secret", max_retries=5)
    name = client.models.list().data[0].id
    with ThreadPoolExecutor() as pool:
        with complete(client, model=name, stream=True, **ENDLESS) as stream:
            next(iter(stream))
            with pytest.raises(openai.InternalServerError) as caught:
                complete(client.with_options(max_retries=0), model=name, max_tokens=1)
            later = pool.submit(complete, client, model=name, max_tokens=1)
            while metric(locked, 'zoo_refused_total{reason="queue"}') < 2:
                pass
        assert later.result().choices
    assert caught.value.status_code == 503 and caught.value.code == "overloaded"
