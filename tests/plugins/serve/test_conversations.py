"""Responses and Messages without a socket: requests to records, answers to JSON and to events."""

import json

import jsonschema
import pytest

from zoo.generation.loop.step import ToolCall
from zoo_serve.protocols import anthropic, responses
from zoo_serve.requests import Answer, Choice, Delta, RequestError

CALL = ToolCall("c1", "weather", {"city": "Osló"})
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "Rain."}
DELTAS = (
    Delta(index=0, thinking="Let "),
    Delta(index=0, thinking="me see.", text="The "),
    Delta(index=0, text="weather"),
    Delta(index=0, calls=(CALL,)),
    Delta(index=0, text="?", calls=(CALL, CALL)),
    Delta(index=0, text="So."),
)
ENDS = {
    "stop": Delta(index=0, finish_reason="stop"),
    "length": Delta(index=0, finish_reason="length"),
    "tool_calls": Delta(index=0, finish_reason="tool_calls"),
    "stop string": Delta(index=0, finish_reason="stop", stop="###"),
}


def refusal(endpoint, body):
    with pytest.raises(RequestError) as caught:
        endpoint.parse(body)
    assert caught.value.status == 400
    return str(caught.value)


def ask(**more):
    return {"input": "Hi", **more}


def say(*blocks, role="user", **more):
    return {"max_tokens": 5, "messages": [{"role": role, "content": list(blocks)}], **more}


def streamed(endpoint, request, deltas):
    """The events of an answer of these deltas, and its response."""
    answer = Answer("m", [Choice()])
    stream = endpoint.stream(request, answer)
    events = list(stream.start())
    for delta in deltas:
        answer.add(delta)
        events += stream.add(delta)
    events += stream.end()
    assert all(name == data["type"] for name, data in events)
    return [data for _, data in events], endpoint.respond(request, answer)


def of_responses(events):
    """The output that the events of Responses build, and the last response."""
    items = {}
    for event in events:
        kind = event["type"].removeprefix("response.")
        number = event.get("output_index")
        if kind == "output_item.added":
            items[number] = {"item": event["item"], "text": ""}
        elif kind.endswith(".delta"):
            items[number]["text"] += event["delta"]
        elif kind in ("output_text.done", "reasoning_text.done", "function_call_arguments.done"):
            assert items[number]["text"] == event.get("text", event.get("arguments"))
        elif kind == "output_item.done":
            assert {**event["item"], "status": 0}.keys() == items[number]["item"].keys()
            items[number] = event["item"]
    return list(items.values()), events[-1]["response"]


def of_messages(events):
    """The message that the events of Messages build."""
    message = events[0]["message"]
    for event in events[1:]:
        kind, delta = event["type"], event.get("delta", {})
        if kind == "content_block_start":
            assert event["index"] == len(message["content"])
            message["content"].append(event["content_block"] | {"json": ""})
        elif kind == "content_block_delta":
            block = message["content"][event["index"]]
            key = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
            where = key.get(delta["type"], "json")
            block[where] += delta["partial_json" if where == "json" else where]
        elif kind == "content_block_stop":
            block = message["content"][event["index"]]
            text = block.pop("json")
            if block["type"] == "tool_use":
                block["input"] = json.loads(text)
        elif kind == "message_delta":
            message |= delta | {"usage": event["usage"]}
    return message


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("cut", range(len(DELTAS) + 1))
def test_the_events_of_responses_build_its_response(end, cut):
    request = responses.parse(ask(temperature=0.5, stream=True))
    events, response = streamed(responses.ENDPOINT, request, [*DELTAS[:cut], ENDS[end]])
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    output, last = of_responses(events)
    assert (output, last) == (response["output"], response)
    assert events[-1]["type"] == f"response.{'incomplete' if end == 'length' else 'completed'}"
    jsonschema.validate(response, responses.ENDPOINT.response)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("cut", range(len(DELTAS) + 1))
def test_the_events_of_messages_build_its_message(end, cut):
    request = anthropic.parse(say({"type": "text", "text": "Hi"}, stream=True))
    events, response = streamed(anthropic.ENDPOINT, request, [*DELTAS[:cut], ENDS[end]])
    assert of_messages(events) == response
    assert events[-1] == {"type": "message_stop"}
    jsonschema.validate(response, anthropic.ENDPOINT.response)


def test_parts_keep_the_order_in_which_they_were_generated():
    request = responses.parse(ask())
    _, response = streamed(responses.ENDPOINT, request, [*DELTAS, ENDS["length"]])
    assert [item["type"] for item in response["output"]] == [
        *("reasoning", "message", "function_call", "message", "function_call", "function_call", "message")
    ]
    assert [item["status"] for item in response["output"]] == ["completed"] * 6 + ["incomplete"]


@pytest.mark.parametrize(
    ("end", "reason"),
    {
        "stop": ("end_turn", None),
        "length": ("max_tokens", None),
        "tool_calls": ("tool_use", None),
        "stop string": ("stop_sequence", "###"),
    }.items(),
)
def test_a_message_says_why_it_ended(end, reason):
    request = anthropic.parse(say({"type": "text", "text": "Hi"}, stop_sequences=["###"]))
    _, message = streamed(anthropic.ENDPOINT, request, [ENDS[end]])
    assert (message["stop_reason"], message["stop_sequence"]) == reason


def test_usage_counts_cached_and_thinking_tokens():
    answer = Answer("m", [Choice(finish_reason="stop")])
    answer.usage.prompt, answer.usage.cached, answer.usage.completion, answer.usage.thinking = 10, 7, 5, 2
    usage = responses.respond(responses.parse(ask()), answer)["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (10, 5, 15)
    assert usage["input_tokens_details"]["cached_tokens"] == 7
    assert usage["output_tokens_details"]["reasoning_tokens"] == 2
    usage = anthropic.usage(answer)
    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (3, 7, 5)


def test_output_items_sent_back_become_one_message_of_the_assistant():
    request = responses.parse(ask())
    deltas = [DELTAS[0], Delta(index=0, text="Wait.", calls=(CALL,)), ENDS["tool_calls"]]
    _, response = streamed(responses.ENDPOINT, request, deltas)
    output = {"type": "function_call_output", "call_id": "c1", "output": "Rain."}
    question = {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
    again = responses.parse({"input": [question, *response["output"], output], "instructions": "Be brief."})
    assert list(again.messages) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "reasoning_content": "Let ",
            "content": "Wait.",
            "tool_calls": [CALL.to_json()],
        },
        RESULT,
    ]


def test_blocks_sent_back_become_the_messages_of_a_chat():
    request = anthropic.parse(say({"type": "text", "text": "Hi"}))
    deltas = [DELTAS[0], Delta(index=0, text="Wait.", calls=(CALL,)), ENDS["tool_calls"]]
    _, message = streamed(anthropic.ENDPOINT, request, deltas)
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "Rain.", "is_error": True}
    sealed = {"type": "redacted_thinking", "data": "x"}
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [sealed, *message["content"]]},
        {"role": "user", "content": [result, {"type": "text", "text": "Well?"}]},
    ]
    system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    again = anthropic.parse({"max_tokens": 5, "messages": messages, "system": system})
    assert list(again.messages) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "reasoning_content": "Let ",
            "content": "Wait.",
            "tool_calls": [CALL.to_json()],
        },
        {**RESULT, "name": "weather", "content": "Error: Rain."},
        {"role": "user", "content": "Well?"},
    ]


PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION = {"name": "weather", "description": "Look.", "parameters": PARAMETERS}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("required", "required"),
        ("none", "none"),
        (
            {"type": "function", "name": "weather"},
            {"type": "function", "function": {"name": "weather"}},
        ),
    ],
)
def test_responses_tools_become_those_of_a_chat(choice, expected):
    request = responses.parse(ask(tools=[{"type": "function", **FUNCTION}], tool_choice=choice))
    assert request.tools == ({"type": "function", "function": FUNCTION},)
    assert request.tool_choice == expected


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "weather"}, {"type": "function", "function": {"name": "weather"}}),
    ],
)
def test_anthropic_tools_become_those_of_a_chat(choice, expected):
    tool = {"name": "weather", "description": "Look.", "input_schema": PARAMETERS}
    request = anthropic.parse(say({"type": "text", "text": "Hi"}, tools=[tool], tool_choice=choice))
    assert request.tools == ({"type": "function", "function": FUNCTION},)
    assert request.tool_choice == expected


def test_formats_and_efforts_are_obeyed():
    format = {"type": "json_schema", "name": "x", "schema": PARAMETERS}
    request = responses.parse(ask(text={"format": format}, reasoning={"effort": "low"}, max_output_tokens=9))
    assert request.settings == {"json_schema": PARAMETERS, "max_tokens": 9}
    assert request.variables == {"reasoning_effort": "low"}
    assert responses.parse(ask(reasoning={"effort": "none"})).variables == {"enable_thinking": False}
    asked = say(
        {"type": "text", "text": "Hi"},
        thinking={"type": "enabled", "budget_tokens": 1024},
        output_config={"effort": "high", "format": {"type": "json_schema", "schema": PARAMETERS}},
    )
    request = anthropic.parse(asked)
    assert request.settings == {"json_schema": PARAMETERS, "max_tokens": 5}
    assert request.variables == {"enable_thinking": True, "reasoning_effort": "high"}


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (ask(store=True), "`store`: this server keeps no state"),
        (ask(previous_response_id="resp_1"), "`previous_response_id`: this server keeps no state"),
        (ask(conversation={"id": "c"}), "`conversation`: this server keeps no state"),
        (ask(background=True), "`background`: this server keeps no state"),
        (ask(tools=[{"type": "file_search"}]), "`tools[0].type`"),
        (ask(tools=[{"type": "mcp", "server_url": "x"}]), "`tools[0].type`"),
        (ask(input=[{"role": "user", "content": [{"type": "input_image"}]}]), "`input[0].content[0].type`"),
        (ask(input=[{"type": "item_reference", "id": "x"}]), "`input[0].type`"),
        (
            ask(input=[{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"}]),
            "`input[0].arguments`",
        ),
        (ask(input=[{"role": "user", "content": "Hi", "colour": 1}]), "`input[0].colour`"),
        (ask(reasoning={"summary": "detailed"}), "`reasoning.summary`"),
        (ask(max_output_tokens=3, max_tokens=4), "`max_tokens`: another field"),
        (ask(text={"format": {"type": "json_object"}}, json_schema={}), "`text.format`"),
        ({}, "`input`"),
    ],
)
def test_what_responses_cannot_serve_is_refused_by_its_place(body, place):
    assert place in refusal(responses.ENDPOINT, body)


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (say({"type": "image", "source": {}}), "`messages[0].content[0].type`"),
        (say({"type": "document", "source": {}}), "`messages[0].content[0].type`"),
        (say({"type": "tool_use", "id": "c", "name": "f", "input": {}}), "`messages[0].content[0].type`"),
        (say({"type": "text", "text": 3}), "`messages[0].content[0].text`"),
        (say({"type": "tool_result", "tool_use_id": "c9"}), "`messages[0].content[0].tool_use_id`"),
        (
            say({"type": "tool_result", "tool_use_id": "c", "content": [{"type": "image"}]}),
            "`messages[0].content[0].content[0].type`",
        ),
        (say({"type": "text", "text": "Hi"}, tools=[{"type": "web_search_20250305"}]), "`tools[0].type`"),
        (
            say(
                {"type": "text", "text": "Hi"},
                tool_choice={"type": "auto", "disable_parallel_tool_use": 1},
            ),
            "`tool_choice.disable_parallel_tool_use`",
        ),
        ({"messages": [{"role": "user", "content": "Hi"}]}, "`max_tokens`"),
    ],
)
def test_what_messages_cannot_serve_is_refused_by_its_place(body, place):
    assert place in refusal(anthropic.ENDPOINT, body)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (500, "api_error"),
        (503, "overloaded_error"),
    ],
)
def test_anthropic_errors_have_the_type_of_their_status(status, kind):
    made = anthropic.error(RequestError(status, "No."))
    assert made == {"type": "error", "error": {"type": kind, "message": "No."}}


def test_a_failure_ends_a_stream_with_its_message():
    problem = RequestError(500, "It broke.")
    answer = Answer("m", [Choice()])
    stream = responses.ENDPOINT.stream(responses.parse(ask()), answer)
    assert [name for name, _ in stream.failed(problem)] == ["error"]
    list(stream.start())
    ((name, event),) = stream.failed(problem)
    assert (name, event["response"]["status"]) == ("response.failed", "failed")
    assert event["response"]["error"]["message"] == "It broke."
    stream = anthropic.ENDPOINT.stream(anthropic.parse(say({"type": "text", "text": "Hi"})), answer)
    assert list(stream.failed(problem)) == [("error", anthropic.error(problem))]
