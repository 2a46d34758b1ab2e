"""Ollama's interface: requests and answers as its reference has them, and a server asked over a socket."""

import json
import time

import jsonschema
import pytest

import zoo
from tests.helpers.serving import chatting, serving
from tests.helpers.waiting import wait_until
from zoo.generation.loop.step import ToolCall
from zoo_serve.protocols import ollama, ollama_answers
from zoo_serve.protocols.ollama_fields import OPTIONS
from zoo_serve.requests import (
    Answer,
    Choice,
    Delta,
    EmbeddingRequest,
    ModelRequest,
    RequestError,
    Times,
    Usage,
)

HI = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
CALL = {"function": {"name": "weather", "arguments": {"city": "Rome"}}}


def chat(**more):
    return ollama.parse({"model": "m", "messages": HI, **more})


def generate(**more):
    return ollama.parse_generate({"model": "m", "prompt": "Hi", **more})


def options(**given):
    return chat(options=given).settings


def test_an_answer_is_streamed_unless_the_request_says_otherwise():
    assert chat().stream and generate().stream and not chat(stream=False).stream


@pytest.mark.parametrize(
    "given, settings",
    [
        ({"num_predict": 7}, {"max_tokens": 7}),
        ({"num_predict": -1}, {}),
        ({"seed": 3, "temperature": 0.5, "top_p": 0.9}, {"seed": 3, "temperature": 0.5, "top_p": 0.9}),
        ({"seed": -1, "top_k": -1, "min_p": 0.1}, {"top_k": 0, "min_p": 0.1}),
        ({"repeat_penalty": 1.2}, {"repetition_penalty": 1.2, "repetition_context_size": 64}),
        ({"repeat_penalty": 1.2, "repeat_last_n": -1}, {"repetition_penalty": 1.2}),
        ({"repeat_penalty": 1.2, "repeat_last_n": 0}, {}),
        (
            {"presence_penalty": 1.0, "frequency_penalty": 0.5},
            {"presence_penalty": 1.0, "frequency_penalty": 0.5},
        ),
        ({"num_gpu": 99, "num_thread": 8, "use_mmap": False, "num_batch": 512}, {}),
    ],
)
def test_an_option_is_the_setting_that_it_means(given, settings):
    assert options(**given) == settings


def test_stops_are_a_text_or_several():
    assert list(options(stop="x")["stop"]) == ["x"] and list(options(stop=["x", "y"])["stop"]) == ["x", "y"]


@pytest.mark.parametrize(
    "given",
    [{"rope_frequency_base": 1e6}, {"mirostat": 1}, {"num_predict": 0}, {"tfs_z": 0.5}, {"adapter": 3}],
)
def test_an_option_that_would_change_the_answer_and_is_not_served_is_refused_by_name(given):
    with pytest.raises(RequestError, match=f"`options.{next(iter(given))}`") as caught:
        options(**given)
    assert caught.value.status == 400


def test_each_option_is_a_setting_or_accepted_or_refused():
    for name, field in OPTIONS.own.items():
        assert field.setting or field.ignored or field.only or field.about, name


def test_a_smaller_context_bounds_the_request():
    assert chat(options={"num_ctx": 2048}).context == 2048 and chat().context is None


@pytest.mark.parametrize(
    "given, seconds",
    [
        (300, 300),
        ("5m", 300),
        ("1h30m", 5400),
        ("-1m", -1),
        (-1, -1),
        ("0", 0),
        (0, 0),
        ("1.5s", 1.5),
        (1e300, -1),
        (None, None),
    ],
)
def test_keep_alive_is_seconds_or_a_duration(given, seconds):
    assert chat(keep_alive=given).keep_alive == seconds


@pytest.mark.parametrize("text", ["", "soon", "5 m", "m", "5mm", "1e5"])
def test_a_keep_alive_that_is_no_duration_is_refused_by_name(text):
    with pytest.raises(RequestError, match="`keep_alive` must be"):
        chat(keep_alive=text)


def test_a_format_is_any_object_or_a_schema():
    assert chat(format="json").settings == {"json_schema": {"type": "object"}}
    assert chat(format={"type": "array"}).settings == {"json_schema": {"type": "array"}}
    assert chat(format="").settings == {}


def test_thinking_is_a_variable_of_the_template():
    assert chat(think=False).variables == {"enable_thinking": False}
    assert chat(think="low").variables == {"enable_thinking": True, "reasoning_effort": "low"}
    assert chat().variables == {}


def test_a_request_without_messages_or_a_prompt_loads_or_unloads_the_model():
    assert chat(messages=[], keep_alive=0) == ModelRequest(model="m", load=True, keep_alive=0.0)
    assert generate(prompt=None) == ModelRequest(model="m", load=True)
    for respond in (ollama_answers.respond, ollama_answers.respond_generate):
        assert respond(generate(prompt=""), ("m", {}))["done_reason"] == "load"
        assert respond(generate(prompt="", keep_alive="0s"), ("m", {}))["done_reason"] == "unload"


def test_results_of_tools_answer_the_calls_before_them():
    calls = [CALL, {"function": {"name": "clock", "arguments": {}}}, CALL]
    results = [
        {"role": "tool", "tool_name": "clock", "content": "9"},
        {"role": "tool", "tool_name": "weather", "content": "Rain"},
        {"role": "tool", "content": "Sun"},
    ]
    answer = {"role": "assistant", "content": "", "tool_calls": calls, "thinking": "Hm."}
    _, told, *rest = chat(messages=[*HI, answer, *results]).messages
    ids = [call["id"] for call in told["tool_calls"]]
    assert len(set(ids)) == 3 and told["reasoning_content"] == "Hm."
    assert [message["tool_call_id"] for message in rest] == [ids[1], ids[0], ids[2]]
    assert [message["name"] for message in rest] == ["clock", "weather", "weather"]


def test_a_result_with_an_id_answers_the_call_of_that_id():
    calls = [{"id": "a", **CALL}, {"id": "b", **CALL}]
    result = {"role": "tool", "tool_call_id": "b", "content": "Rain"}
    messages = chat(messages=[*HI, {"role": "assistant", "tool_calls": calls}, result]).messages
    assert messages[-1] == {"role": "tool", "content": "Rain", "tool_call_id": "b", "name": "weather"}


def test_a_prompt_is_a_conversation_where_the_model_chats_and_else_a_text():
    request = generate()
    assert request.for_model(True).messages == tuple(HI) and request.for_model(True).prompts == ()
    assert request.for_model(False).messages is None and request.for_model(False).prompts == ("Hi",)
    raw = generate(raw=True)
    assert raw.prompts == ("Hi",) and raw.for_model(True).messages is None
    brief = generate(system="Be brief.")
    assert brief.messages == ({"role": "system", "content": "Be brief."}, *HI) and not brief.prompts


@pytest.mark.parametrize(
    "given, name",
    [
        ({"images": ["aGk="]}, "images"),
        ({"context": [1, 2]}, "context"),
        ({"suffix": "x"}, "suffix"),
        ({"template": "{{ .Prompt }}"}, "template"),
        ({"raw": True, "system": "Be brief."}, "system"),
        ({"truncate": True}, "truncate"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"tool_choice": "auto"}, "tool_choice"),
    ],
)
def test_what_is_not_served_is_refused_by_name(given, name):
    with pytest.raises(RequestError, match=f"`{name}`") as caught:
        generate(**given)
    assert caught.value.status == 400
    assert ollama_answers.error(caught.value) == {"error": str(caught.value)}


def test_values_that_ask_for_nothing_are_accepted():
    assert generate(images=[], context=[], suffix="", template="", truncate=False, think=None) == generate()


def test_images_of_a_message_are_refused_with_their_place():
    with pytest.raises(RequestError, match=r"`messages\[1\].images`: no model here reads images"):
        chat(messages=[*HI, {**HI[0], "images": ["aGk="]}])


def test_vectors_have_length_one():
    request = ollama.parse_embed({"model": "m", "input": ["a", "b"]})
    made = ollama_answers.respond_embed(request, ("m", [[3.0, 4.0], [0.0, 0.0]], 2, Times(0.0, 0.0)))
    assert made["embeddings"] == [[0.6, 0.8], [0.0, 0.0]]


def test_an_embedding_is_cut_unless_the_request_says_otherwise():
    body = {"model": "m", "input": ["a", "b"], "options": {"num_ctx": 8}}
    expected = EmbeddingRequest(model="m", texts=("a", "b"), truncate=True, context=8)
    assert ollama.parse_embed(body) == expected
    assert not ollama.parse_embed({**body, "truncate": False}).truncate
    assert ollama.parse_embeddings({"model": "m", "prompt": "a"}).texts == ("a",)


def answered():
    """A finished answer: its parts, and what it then is."""
    call = ToolCall("call1", "weather", {"city": "Rome"})
    deltas = [Delta(index=0, thinking="Hm."), Delta(index=0, text="Rain"), Delta(index=0, calls=(call,))]
    now = time.monotonic()
    times = Times(asked=now - 4, loaded=now - 3, first_token=now - 2, last_token=now - 1)
    answer = Answer("m", [Choice()], Usage(prompt=5, completion=7), times)
    for delta in deltas:
        answer.add(delta)
    answer.choices[0].finish_reason = "tool_calls"
    return deltas, answer


def test_an_answer_has_arguments_as_an_object_and_times_in_nanoseconds():
    _, answer = answered()
    response = ollama_answers.respond(chat(), answer)
    arguments = {"index": 0, "name": "weather", "arguments": {"city": "Rome"}}
    calls = [{"id": "call1", "function": arguments}]
    expected = {"role": "assistant", "content": "Rain", "thinking": "Hm.", "tool_calls": calls}
    assert response["message"] == expected
    assert (response["done"], response["done_reason"]) == (True, "stop")
    assert (response["prompt_eval_count"], response["eval_count"]) == (5, 7)
    parts = ("load_duration", "prompt_eval_duration", "eval_duration")
    assert [response[name] for name in parts] == pytest.approx([10**9] * 3)
    assert response["total_duration"] >= 4 * 10**9
    jsonschema.validate(response, ollama.ENDPOINTS[0].response)


def test_a_stream_has_the_parts_and_at_the_end_the_numbers():
    deltas, answer = answered()
    stream = ollama_answers.LineStream(chat(), answer)
    lines = [data for delta in deltas for _, data in stream.add(delta)]
    assert [line["message"] for line in lines[:2]] == [
        {"role": "assistant", "content": "", "thinking": "Hm."},
        {"role": "assistant", "content": "Rain"},
    ]
    assert lines[2]["message"]["tool_calls"][0]["function"]["arguments"] == {"city": "Rome"}
    assert not any(line["done"] for line in lines)
    [(_, last)] = stream.end()
    assert last["done"] and last["eval_count"] == 7 and last["message"]["content"] == ""


def test_an_answer_that_was_cut_says_so():
    _, answer = answered()
    answer.choices[0].finish_reason = "length"
    assert ollama_answers.respond_generate(generate(), answer)["done_reason"] == "length"


@pytest.mark.parametrize(
    "about, expected",
    [
        ({"task": "generate", "tools": True, "thinking": False}, ["completion", "tools"]),
        ({"task": "generate", "tools": True, "thinking": True}, ["completion", "tools", "thinking"]),
        ({"task": "fill-mask"}, ["embedding"]),
    ],
)
def test_what_a_model_can_do_is_told(about, expected):
    assert ollama_answers.capabilities(about) == expected


@pytest.fixture(scope="module")
def served():
    """A server of a small chat model and of one that only continues texts."""
    with serving(
        ("chatty", "llama"), load=lambda name: chatting() if name == "chatty" else zoo.load(name), most=2
    ) as made:
        yield made


SHORT = {"num_predict": 3, "temperature": 0}


def ask(served, path, body, status=200):
    got, _, answer = served.ask(body, path)
    assert got == status, answer
    return answer


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_a_stream_is_lines_of_json_with_the_text_of_the_whole_answer(served):
    body = {"model": "chatty", "messages": HI, "options": SHORT}
    whole = ask(served, "/api/chat", {**body, "stream": False})
    assert whole["done_reason"] == "length" and whole["eval_count"] == 3
    _, headers, text = served.ask(body, "/api/chat")
    assert headers["content-type"] == "application/x-ndjson"
    *parts, last = lines(text)
    assert "".join(part["message"]["content"] for part in parts) == whole["message"]["content"] != ""
    assert last["done"] and last["eval_count"] == 3


def test_a_model_without_a_template_continues_the_prompt(served):
    prompt = "The capital city of China is"
    body = {"model": "llama:latest", "prompt": prompt, "stream": False}
    assert ask(served, "/api/generate", body)["response"] == " Beijing."
    assert ask(served, "/api/generate", {**body, "raw": True})["response"] == " Beijing."


def test_a_stream_of_json_is_kept_open_by_space_that_json_allows(served, monkeypatch):
    monkeypatch.setattr("zoo_serve.http.HEARTBEAT_SECONDS", 0.01)
    served.hold()  # after the first step
    connection = served.send({"model": "chatty", "messages": HI, "options": {"num_predict": 2}}, "/api/chat")
    time.sleep(0.1)
    served.go_on()
    received = b""
    while b'"done":true' not in received:
        received += connection.recv(2**16)
    connection.close()
    body = received.partition(b"\r\n\r\n")[2].decode()
    chunks = body.split("\r\n")[1::2]  # without their sizes
    assert " " in chunks and lines("".join(chunks))[-1]["done"]


def test_a_prompt_beyond_the_asked_context_is_refused_and_an_answer_ends_with_it(served):
    body = {"model": "llama", "prompt": "The capital city of China is", "stream": False}
    answer = ask(served, "/api/generate", {**body, "options": {"num_ctx": 8}})
    assert answer["prompt_eval_count"] + answer["eval_count"] == 8 and answer["done_reason"] == "length"
    assert "context" in ask(served, "/api/generate", {**body, "options": {"num_ctx": 4}}, 400)["error"]


def test_a_model_is_unloaded_by_keep_alive_and_loaded_again(served):
    ask(served, "/api/generate", {"model": "llama", "keep_alive": -1})
    assert loaded(served) >= {"llama"}
    answer = {"model": "llama", "prompt": "Hi", "options": SHORT, "stream": False}
    ask(served, "/api/generate", {**answer, "keep_alive": 0})
    wait_until(lambda: "llama" not in loaded(served))
    ask(served, "/api/generate", answer)
    ask(served, "/api/generate", {"model": "llama", "keep_alive": "0s"})
    wait_until(lambda: "llama" not in loaded(served))
    ask(served, "/api/generate", {"model": "llama", "keep_alive": 0})  # nothing is loaded for it
    assert "llama" not in loaded(served)


def test_a_keep_alive_of_seconds_ends_and_the_next_request_renews_it(served):
    ask(served, "/api/generate", {"model": "llama", "keep_alive": 1000})
    [model] = [
        each for each in served.ask(path="/api/ps", method="GET")[2]["models"] if each["name"] == "llama"
    ]
    assert model["expires_at"] > model_time(900)
    ask(served, "/api/generate", {"model": "llama", "keep_alive": "50ms"})
    wait_until(lambda: "llama" not in loaded(served))


def model_time(seconds):
    return ollama_answers.moment(time.time() + seconds)


def loaded(served):
    """The names of the models that are loaded."""
    return {model["name"] for model in served.ask(path="/api/ps", method="GET")[2]["models"]}


def test_models_are_listed_and_shown(served):
    _, _, tags = served.ask(path="/api/tags", method="GET")
    assert [model["name"] for model in tags["models"]] == ["chatty", "llama"]
    assert len({model["digest"] for model in tags["models"]}) == 2
    assert ask(served, "/api/show", {"model": "chatty"})["capabilities"] == ["completion"]
    assert served.ask(path="/api/version", method="GET")[2]["version"].count(".") == 2


def test_an_unknown_model_is_not_found(served):
    for path in ("/api/chat", "/api/show"):
        body = {"model": "nope", **({"messages": HI} if path == "/api/chat" else {})}
        assert "model 'nope' not found" in ask(served, path, body, 404)["error"]


def test_a_body_is_json_whatever_its_header_says_but_not_of_another_sites_page(served):
    body = json.dumps({"model": "llama", "prompt": "Hi", "options": SHORT, "stream": False})
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    assert served.ask(body, "/api/generate", **form)[0] == 200
    for page in ({"Origin": "https://other.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"}):
        assert served.ask(body, "/api/generate", **form, **page)[0] == 403


@pytest.mark.parametrize(
    "method, path", [("POST", "/api/pull"), ("DELETE", "/api/delete"), ("POST", "/api/blobs/sha256:1")]
)
def test_a_path_that_changes_models_is_refused_and_says_what_to_do(served, method, path):
    status, _, answer = served.ask({"model": "x"}, path, method)
    assert status == 400 and "`zoo serve NAME`" in answer["error"]


def test_an_error_anywhere_below_api_has_ollamas_form(served):
    assert list(served.ask(path="/api/me", method="GET")[2]) == ["error"]
    assert list(served.ask(path="/api/chat", method="GET")[2]) == ["error"]
