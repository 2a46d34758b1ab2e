"""A running server, asked over a socket."""

import base64
import http.client
import json
import shutil
import struct

import jsonschema
import pytest

from tests.helpers.serving import Serving
from tests.helpers.waiting import PATIENCE
from zoo.host.registry import default_registry
from zoo.loading import load
from zoo_serve.app import ENDPOINTS
from zoo_serve.openapi import MODELS
from zoo_serve.service import Limits

TEMPLATE = """{% for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"""
HI = [{"role": "user", "content": "Hi"}]
SHORT = {"max_tokens": 3, "temperature": 0}


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    """The port of a server of a small chat model and a small encoder."""
    folder = tmp_path_factory.mktemp("served") / "chatty"
    shutil.copytree(default_registry().architecture("llama").preset("pocket").folder, folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    sources = {"chatty": folder, "bert": "bert"}
    serving = Serving(tuple(sources), limits=Limits(4, 16, 60), most=2, load=lambda name: load(sources[name]))
    serving.start()
    yield serving.port
    serving.stop()


def send(port, method, path, body=None):
    """The status, headers and body of a response."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.getheaders(), response.read().decode()
    finally:
        connection.close()


def post(port, path, body):
    """The response of an endpoint, which is as its schema says."""
    status, _, text = send(port, "POST", path, body)
    assert status == 200, text
    response = json.loads(text)
    jsonschema.validate(response, next(one for one in ENDPOINTS if one.path == path).response)
    return response


def events(port, path, body):
    """The names and data of a stream's events."""
    status, headers, text = send(port, "POST", path, {**body, "stream": True})
    assert status == 200, text
    assert ("content-type", "text/event-stream; charset=utf-8") in headers
    lines = [event.partition("data: ") for event in text.split("\n\n") if event]
    return [(name.removeprefix("event: ").strip() or None, data) for name, _, data in lines]


def test_all_interfaces_give_the_same_answer(port):
    chat = post(port, "/v1/chat/completions", {"messages": HI, **SHORT})
    answer = chat["choices"][0]["message"]["content"]
    assert answer
    response = post(port, "/v1/responses", {"input": "Hi", **SHORT})
    assert [part["text"] for item in response["output"] for part in item["content"]] == [answer]
    assert response["status"] == "incomplete"
    message = post(port, "/v1/messages", {"messages": HI, **SHORT})
    assert [block["text"] for block in message["content"]] == [answer]
    text = post(port, "/v1/completions", {"prompt": "user: Hi\nassistant:", "special_tokens": False, **SHORT})
    assert text["choices"][0]["text"] == answer
    numbers = {chat["usage"]["prompt_tokens"], message["usage"]["input_tokens"]}
    assert {*numbers, response["usage"]["input_tokens"], text["usage"]["prompt_tokens"]} == numbers
    assert len(numbers) == 1


def test_streams_give_the_answer_of_the_response(port):
    response = post(port, "/v1/responses", {"input": "Hi", **SHORT})
    sent = [json.loads(data) for _, data in events(port, "/v1/responses", {"input": "Hi", **SHORT})]
    text = "".join(event["delta"] for event in sent if event["type"] == "response.output_text.delta")
    assert text == response["output"][0]["content"][0]["text"]
    message = post(port, "/v1/messages", {"messages": HI, **SHORT})
    sent = [json.loads(data) for _, data in events(port, "/v1/messages", {"messages": HI, **SHORT})]
    text = "".join(event["delta"]["text"] for event in sent if event["type"] == "content_block_delta")
    assert text == message["content"][0]["text"]
    assert sent[-2]["usage"]["output_tokens"] == message["usage"]["output_tokens"] == 3


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": "The capital is", "strategy": "beam", "beams": 3, "return_sequences": 2, "max_tokens": 3},
        {"model": "bert", "prompt": "The capital is [MASK]."},
    ],
)
def test_candidates_are_returned_and_streamed(port, body):
    candidates = post(port, "/v1/completions", body)["choices"][0]["candidates"]
    assert len(candidates) > 1
    sent = [json.loads(data) for _, data in events(port, "/v1/completions", body)[:-1]]
    assert [each for event in sent for each in event["choices"][0].get("candidates", ())] == candidates


def test_settings_that_leave_no_token_are_an_error_of_the_request(port):
    body = {"prompt": "Hi", "regex": "x", "banned": ["x"], "max_tokens": 3}
    status, _, text = send(port, "POST", "/v1/completions", body)
    assert status == 400
    assert "no token is left to choose: `banned`, `regex`" in text


def test_a_stop_sequence_ends_a_message_and_is_named(port):
    whole = post(port, "/v1/messages", {"messages": HI, **SHORT})["content"][0]["text"]
    stop = whole[1:3]
    message = post(port, "/v1/messages", {"messages": HI, **SHORT, "stop_sequences": [stop]})
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", stop)
    assert message["content"][0]["text"] == whole[:1]


def test_counted_tokens_are_those_of_the_prompt(port):
    count = post(port, "/v1/messages/count_tokens", {"messages": HI, "system": "Be brief."})
    message = post(port, "/v1/messages", {"messages": HI, "system": "Be brief.", **SHORT})
    assert count["input_tokens"] == message["usage"]["input_tokens"]
    tokens = post(port, "/tokenize", {"messages": [{"role": "system", "content": "Be brief."}, *HI]})
    assert tokens["count"] == len(tokens["tokens"]) == count["input_tokens"]


def test_texts_become_tokens_and_tokens_texts(port):
    body = {"prompt": "Peru is a country.", "add_special_tokens": False, "return_token_strs": True}
    tokens = post(port, "/tokenize", body)
    assert "".join(tokens["token_strs"]) == "Peru is a country."
    assert post(port, "/detokenize", {"tokens": tokens["tokens"]}) == {"prompt": "Peru is a country."}
    assert post(port, "/tokenize", {"content": "", "add_special_tokens": False})["tokens"] == []


@pytest.mark.parametrize("model", ["bert", "chatty"])
def test_embeddings_keep_their_order_and_are_the_same_in_both_encodings(port, model):
    texts = ["Peru is a country.", "Hi", "Peru is a country in South America."] * 15  # two batches
    numbers = post(port, "/v1/embeddings", {"model": model, "input": texts})
    vectors = [one["embedding"] for one in numbers["data"]]
    assert len(vectors) == len(texts)
    packed = post(port, "/v1/embeddings", {"model": model, "input": texts, "encoding_format": "base64"})
    for vector, one in zip(vectors, packed["data"], strict=True):
        data = base64.b64decode(one["embedding"])
        assert list(struct.unpack(f"<{len(data) // 4}f", data)) == pytest.approx(vector)
    for text, vector in zip(texts[:3], vectors, strict=False):
        alone = post(port, "/v1/embeddings", {"model": model, "input": text})["data"][0]["embedding"]
        assert alone == pytest.approx(vector, abs=1e-4)
    cut = post(port, "/v1/embeddings", {"model": model, "input": "Hi", "dimensions": 4})
    vector = cut["data"][0]["embedding"]
    assert (len(vector), sum(x * x for x in vector)) == (4, pytest.approx(1, abs=1e-5))


@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        ("/v1/embeddings", {"input": "Hi", "dimensions": 10**6}, "`dimensions`"),
        ("/v1/embeddings", {"input": ["Hi", ""]}, "empty"),
        ("/v1/embeddings", {"input": ["Hi"] * 2049}, "`input`"),
        ("/v1/embeddings", {"input": [10**9]}, str(10**9)),
        ("/tokenize", {"prompt": "Hi", "content": "Hi"}, "`prompt`"),
        ("/tokenize", {"prompt": "Hi", "tools": []}, "`tools`"),
        ("/detokenize", {"tokens": [10**9]}, str(10**9)),
        ("/v1/messages", {"messages": [{"role": "robot", "content": "Hi"}], "max_tokens": 3}, "messages[0]"),
        ("/v1/responses", {"input": "Hi", "store": True}, "`store`"),
    ],
)
def test_what_cannot_be_answered_is_an_error_of_the_request(port, path, body, place):
    status, _, text = send(port, "POST", path, body)
    assert status == 400, text
    assert place in json.loads(text)["error"]["message"]


def test_models_are_listed_for_clients_of_both_interfaces(port):
    status, _, text = send(port, "GET", "/v1/models")
    models = json.loads(text)
    jsonschema.validate(models, MODELS)
    assert status == 200
    assert [one["id"] for one in models["data"]] == ["chatty", "bert"]
    assert (models["first_id"], models["last_id"], models["has_more"]) == ("chatty", "bert", False)
    assert json.loads(send(port, "GET", "/v1/models/bert")[2])["display_name"] == "bert"
