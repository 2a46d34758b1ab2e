"""Greedy answers of SmolLM2 through the server, and those of the same file in this process."""

import openai
import pytest

import zoo

QUESTIONS = ["Name a river.", "What is the capital of France?", "Write one sentence about the sea."]


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_greedy_answer_is_that_of_zoo_chat_at_once_and_in_a_stream(smollm2, loaded_smollm2, question):
    messages, how = [{"role": "user", "content": question}], {"temperature": 0, "max_tokens": 24}
    expected = "".join(step.text for step in zoo.chat(loaded_smollm2, messages, **how))
    with openai.OpenAI(base_url=smollm2.v1, api_key="none", max_retries=0) as client:
        ask = {"model": client.models.list().data[0].id, "messages": messages, **how}
        assert client.chat.completions.create(**ask).choices[0].message.content == expected
        stream = client.chat.completions.create(**ask, stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == expected
