"""Ollama's Python library as a client: chat, texts, vectors, models, errors."""

import asyncio
import json

import mlx.core as mx
import ollama
import pytest

import zoo
from tests.clients import chat_model

RIVER, QUESTION, TOOL = [chat_model.RIVER], [chat_model.QUESTION], chat_model.TOOL
PROMPT = "The capital city of China is"


@pytest.fixture(scope="module")
def chat(chatter):
    return ollama.Client(chatter.url)


@pytest.fixture(scope="module")
def text(pockets):
    return ollama.Client(pockets.url)


def test_an_answer_has_text_thinking_and_numbers(chat, loaded_chatter):
    answer = chat.chat("chatter", RIVER)
    steps = list(zoo.chat(loaded_chatter, RIVER))
    assert answer.message.content == chat_model.RIVER_ANSWER
    assert answer.message.thinking == chat_model.RIVER_THOUGHT
    assert answer.done and answer.done_reason == "stop"
    assert answer.eval_count == sum(step.token is not None for step in steps)
    assert 0 < answer.prompt_eval_duration + answer.eval_duration <= answer.total_duration


def test_a_stream_has_the_same_text_and_the_numbers_last(chat):
    *parts, last = chat.chat("chatter:latest", RIVER, stream=True)
    assert "".join(part.message.content for part in parts) == chat_model.RIVER_ANSWER
    assert "".join(part.message.thinking or "" for part in parts) == chat_model.RIVER_THOUGHT
    assert last.done and last.eval_count and not any(part.done for part in parts)


def test_an_asynchronous_stream_has_the_same_text(chatter):
    async def parts():
        stream = await ollama.AsyncClient(chatter.url).chat("chatter", RIVER, stream=True)
        return [part.message.content async for part in stream]

    assert "".join(asyncio.run(parts())) == chat_model.RIVER_ANSWER


def test_a_tool_is_called_and_its_result_is_answered(chat):
    def weather(city: str) -> str:
        """What the weather will be.

        Args:
            city: a city.
        """

    for tool in (TOOL, weather):
        message = chat.chat("chatter", QUESTION, tools=[tool]).message
        (call,) = message.tool_calls
        assert (call.function.name, dict(call.function.arguments)) == ("weather", chat_model.ARGUMENTS)
        result = {"role": "tool", "tool_name": "weather", "content": chat_model.RESULT["content"]}
        second = chat.chat("chatter", [*QUESTION, message, result], tools=[tool])
        assert second.message.content == chat_model.FORECAST


def test_a_call_is_streamed_whole(chat):
    calls = [
        call
        for part in chat.chat("chatter", QUESTION, tools=[TOOL], stream=True)
        for call in part.message.tool_calls or ()
    ]
    assert [dict(call.function.arguments) for call in calls] == [chat_model.ARGUMENTS]


def test_thinking_is_switched_off(chat):
    message = chat.chat("chatter", RIVER, think=False).message
    assert message.content == chat_model.RIVER_ANSWER and not message.thinking


def test_a_format_constrains_the_answer(chat):
    content = chat.chat("chatter", RIVER, format=chat_model.PARAMETERS, think=False).message.content
    assert json.loads(content)["city"] in chat_model.CITY["enum"]


def test_options_are_obeyed(text, loaded_llama):
    def complete(**options):
        return text.generate("llama", PROMPT, options=options)

    assert complete(num_predict=12).response == zoo.generate(loaded_llama, PROMPT, max_tokens=12).text
    cut = complete(num_predict=2)
    assert (cut.done_reason, cut.eval_count) == ("length", 2)
    assert complete(stop=["jing"]).response == complete().response.partition("jing")[0]
    first, again, other = (complete(seed=seed, temperature=1.5).response for seed in (5, 5, 6))
    assert first == again != other


def test_log_probabilities_are_those_of_the_engine(text, loaded_llama):
    steps = list(zoo.stream(loaded_llama, PROMPT, max_tokens=3, logprobs=2))
    answer = text.generate("llama", PROMPT, logprobs=True, top_logprobs=2, options={"num_predict": 3})
    assert [one.logprob for one in answer.logprobs] == pytest.approx([s.logprob for s in steps], abs=1e-4)
    assert all(len(one.top_logprobs) == 2 for one in answer.logprobs)


def test_a_prompt_of_a_model_that_chats_is_answered(chat):
    assert chat.generate("chatter", RIVER[0]["content"]).response == chat_model.RIVER_ANSWER
    brief = chat.generate("chatter", RIVER[0]["content"], system=chat_model.SYSTEM["content"])
    assert brief.response == chat_model.BRIEF_ANSWER


def test_vectors_are_those_of_the_encoder_and_long_texts_are_cut(text):
    texts = ["A river.", "The sea."]
    expected = zoo.embed(zoo.load("bert"), texts)
    unit = expected / mx.linalg.norm(expected, axis=-1, keepdims=True)
    answer = text.embed("bert", texts)
    for vector, known in zip(answer.embeddings, unit.tolist(), strict=True):
        assert vector == pytest.approx(known, abs=1e-4)
    older = text.embeddings("bert", texts[0]).embedding
    assert list(older) == pytest.approx(expected[0].tolist(), abs=1e-4)
    assert text.embed("bert", "river " * 1000).embeddings[0]
    with pytest.raises(ollama.ResponseError, match="128"):
        text.embed("bert", "river " * 1000, truncate=False)


def test_models_are_listed_shown_loaded_and_unloaded(text):
    assert [model.model for model in text.list().models] == ["llama", "transformer", "bert"]
    assert text.show("llama").modelinfo["llama.context_length"] == 128
    text.generate("llama", keep_alive=-1)
    assert "llama" in [model.model for model in text.ps().models]
    text.generate("llama", keep_alive=0)
    while "llama" in [model.model for model in text.ps().models]:
        pass
    assert text.generate("llama", PROMPT).response


def test_errors_have_ollamas_statuses(chat):
    for ask, status, words in (
        (lambda: chat.chat("other", RIVER), 404, "model 'other' not found"),
        (lambda: chat.chat("chatter", RIVER, options={"temperature": -1}), 400, "temperature"),
        (lambda: list(chat.chat("chatter", RIVER, options={"x": 1}, stream=True)), 400, "`options.x`"),
        (lambda: chat.pull("other"), 400, "zoo serve"),
        (lambda: chat.delete("chatter"), 400, "zoo serve"),
    ):
        with pytest.raises(ollama.ResponseError, match=words) as caught:
            ask()
        assert caught.value.status_code == status
