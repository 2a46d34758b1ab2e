"""Answers of every kind: no key without a value but those that an interface's own schema has always; and at most one call."""

import asyncio
from types import SimpleNamespace

import pytest

from tests.clients.chat_model import ARGUMENTS, QUESTION, TOOL, WRITTEN_CALL
from tests.helpers.serving import chatting
from zoo.generation.chat.chat_prompt import chat_prompt
from zoo.generation.loop.step import Step, ToolCall
from zoo_serve.app import ENDPOINTS
from zoo_serve.endpoint import Endpoint
from zoo_serve.generation import Generation, Mailbox
from zoo_serve.metrics import Metrics
from zoo_serve.requests import Answer, Choice, Delta, GenerationRequest, RequestError, Token, TokenLogprobs

CALL = ToolCall("c1", "weather", {"city": "Oslo"})
SURE = TokenLogprobs(Token(1, "a", None, -0.5), (Token(2, "b", None, None),))
DELTAS = {
    "text": [Delta(index=0, text="Hi")],
    "thinking": [Delta(index=0, thinking="So."), Delta(index=0, text="Hi")],
    "call": [Delta(index=0, calls=(CALL,))],
    "logprobs": [Delta(index=0, text="a", tokens=(SURE,))],
    "nothing": [],
}
ENDS = {"stop": "stop", "length": "length", "tool_calls": "tool_calls"}
HI = [{"role": "user", "content": "Hi"}]
ASKED = {
    "/v1/chat/completions": {"messages": HI, "logprobs": True, "stream_options": {"include_usage": True}},
    "/v1/completions": {"prompt": "Hi", "logprobs": 1, "stream_options": {"include_usage": True}},
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {"messages": HI, "max_tokens": 5},
}
# What an interface's own schema has always, and may be null.
REQUIRED = {
    "/v1/chat/completions": {
        *("choices.logprobs", "choices.finish_reason", "choices.message.content", "choices.message.refusal"),
        *(
            "choices.logprobs.refusal",
            "choices.logprobs.content.bytes",
            "choices.logprobs.content.top_logprobs.bytes",
        ),
        *("choices.logprobs.content.top_logprobs.logprob", "error.param", "error.code"),
    },
    "/v1/completions": {
        "choices.logprobs",
        "choices.finish_reason",
        "choices.logprobs.top_logprobs.b",
        "error.param",
        "error.code",
    },
    "/v1/responses": {
        *(
            "error",
            "incomplete_details",
            "instructions",
            "temperature",
            "top_p",
            "code",
            "param",
            "error.param",
            "error.code",
        ),
        *(
            f"response.{name}"
            for name in ("error", "incomplete_details", "instructions", "temperature", "top_p")
        ),
    },
    "/v1/messages": {
        *(
            "stop_reason",
            "stop_sequence",
            "delta.stop_sequence",
            "message.stop_reason",
            "message.stop_sequence",
        ),
    },
}
GENERATING = [one for one in ENDPOINTS if one.path in ASKED]


def nulls(value, path=""):
    """The paths of what is null in a value, without the numbers of lists."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from nulls(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for inner in value:
            yield from nulls(inner, path)
    elif value is None:
        yield path


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", DELTAS)
@pytest.mark.parametrize("asks", [True, False], ids=["more", "least"])
@pytest.mark.parametrize("endpoint", GENERATING, ids=lambda endpoint: endpoint.path)
def test_no_key_is_without_a_value_but_those_that_the_interface_requires(endpoint: Endpoint, kind, end, asks):
    needed = {
        name: value
        for name, value in ASKED[endpoint.path].items()
        if asks or name in endpoint.fields.required
    }
    request = endpoint.parse({**needed, "stream": True})
    answer = Answer("m", [Choice()])
    stream = endpoint.stream(request, answer)
    events = [*stream.start(), *stream.failed(RequestError(500, "No."))]
    for delta in [*DELTAS[kind], Delta(index=0, finish_reason=ENDS[end])]:
        answer.add(delta)
        events += stream.add(delta)
    events += stream.end()
    made = [
        endpoint.respond(request, answer),
        endpoint.error(RequestError(400, "No.")),
        *(data for _, data in events),
    ]
    assert {path for one in made for path in nulls(one)} <= REQUIRED[endpoint.path]


def test_a_chunk_of_chat_has_log_probabilities_only_where_there_are_some():
    endpoint = GENERATING[0]
    stream = endpoint.stream(endpoint.parse({"messages": HI}), Answer("m", [Choice()]))
    [(_, chunk)] = stream.add(Delta(index=0, text="Hi"))
    assert chunk["choices"] == [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}]


def test_other_answers_have_no_key_without_a_value():
    by_path = {one.path: one for one in ENDPOINTS}
    request = by_path["/v1/embeddings"].parse({"input": "Hi"})
    made = [by_path["/v1/embeddings"].respond(request, ("m", [[1.0]], 1))]
    for context, texts in ((5, ["a"]), (None, None)):
        made.append(by_path["/tokenize"].respond(None, (context, [1], texts)))
    assert not [path for one in made for path in nulls(one)]


def answered(texts, **asked):
    """The choice that steps of these texts make, the last of them with a reason to end."""
    loaded = chatting()
    prompt = chat_prompt(loaded, [QUESTION], tools=[TOOL])
    model = SimpleNamespace(name="m", loaded=loaded)
    request = GenerationRequest(messages=(QUESTION,), tools=(TOOL,), **asked)

    async def run():
        mailbox = Mailbox(asyncio.get_running_loop())
        generation = Generation(request, model, [None], [prompt], mailbox, Metrics())
        for number, text in enumerate(texts):
            mailbox.deliver([(0, Step(5, text, finish_reason=None if number < len(texts) - 1 else "stop"))])
        while not generation.ended:
            await generation.next()
        return generation.answer

    return asyncio.run(run())


CALLS = [WRITTEN_CALL[:20], f"{WRITTEN_CALL[20:]}\n", WRITTEN_CALL, " And so on."]


@pytest.mark.parametrize("texts", [CALLS, ["".join(CALLS)]], ids=["in parts", "at once"])
def test_without_parallel_calls_an_answer_ends_after_the_first(texts):
    several, single = answered(texts), answered(texts, parallel_calls=False)
    assert [call.name for call in several.choices[0].calls] == ["weather", "weather"]
    [choice] = single.choices
    assert [call.arguments for call in choice.calls] == [ARGUMENTS]
    assert (choice.finish_reason, single.usage.completion) == ("tool_calls", min(2, len(texts)))


def test_an_answer_without_a_call_ends_as_ever():
    answer = answered(["It ", "rains."], parallel_calls=False)
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("It rains.", "stop")


def test_the_grammar_of_calls_that_have_to_be_allows_one():
    loaded = chatting()
    choices = ("required", True), ("required", False), ("weather", True)
    several, single, named = (
        chat_prompt(loaded, [QUESTION], tools=[TOOL], tool_choice=choice, parallel_calls=parallel).calls
        for choice, parallel in choices
    )
    assert single == named != several


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/v1/chat/completions", {"parallel_tool_calls": False}),
        ("/v1/responses", {"parallel_tool_calls": False}),
        ("/v1/messages", {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
        ("/v1/messages", {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}}),
    ],
)
def test_each_interface_asks_for_at_most_one_call(path, more):
    endpoint = next(one for one in GENERATING if one.path == path)
    assert endpoint.parse(ASKED[path]).parallel_calls
    assert not endpoint.parse({**ASKED[path], **more}).parallel_calls
