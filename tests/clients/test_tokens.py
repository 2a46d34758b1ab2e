"""The paths of tokens, by plain HTTP."""

import httpx

from tests.clients import chat_model
from zoo.generation.chat.chat_prompt import chat_prompt


def post(server, path, **body):
    return httpx.post(f"{server.url}{path}", json=body)


def test_a_text_becomes_ids_and_a_text_again(chatter, loaded_chatter):
    tokenizer, text = loaded_chatter.tokenizer, chat_model.RIVER_ANSWER
    for special in (True, False):
        found = post(chatter, "/tokenize", prompt=text, add_special_tokens=special).json()
        assert found["tokens"] == tokenizer.encode(text, special_tokens=special)
        assert found["count"] == len(found["tokens"]) and found["max_model_len"] == 512
    assert post(chatter, "/detokenize", tokens=found["tokens"]).json() == {"prompt": text}


def test_the_texts_of_tokens_add_up_to_the_text(chatter):
    text = chat_model.RIVER_ANSWER
    found = post(chatter, "/tokenize", prompt=text, add_special_tokens=False, return_token_strs=True).json()
    assert len(found["token_strs"]) == found["count"] and "".join(found["token_strs"]) == text


def test_a_conversation_becomes_the_ids_of_its_prompt(chatter, loaded_chatter):
    messages = [chat_model.QUESTION]
    found = post(chatter, "/tokenize", messages=messages, tools=[chat_model.TOOL]).json()
    assert found["tokens"] == chat_prompt(loaded_chatter, messages, tools=[chat_model.TOOL]).ids


def test_an_id_outside_the_vocabulary_is_a_bad_request(chatter):
    answer = post(chatter, "/detokenize", tokens=[10**6])
    assert answer.status_code == 400 and answer.json()["error"]["message"]
