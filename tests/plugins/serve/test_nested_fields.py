"""A key that nothing serves is named, wherever in a request it stands."""

import re
from collections.abc import Iterator

import pytest

from tests.helpers.full_requests import CHAT, FULL, SCHEMA
from zoo_serve.app import ENDPOINTS
from zoo_serve.requests import RequestError

# What is below these is a person's own: JSON schemas, arguments, a template's variables, marks without a meaning here. The
# tokens of `logit_bias` are known once the model is.
FREE = (
    "parameters",
    "schema",
    "input_schema",
    "x",
    "chat_template_kwargs",
    "metadata",
    "cache_control",
    "logit_bias",
)
FREE_PATHS = ("messages[1].content[2].input",)
# A chat template gets all keys of a message.
OPEN = re.compile(r"messages\[\d\](\.tool_calls\[\d\](\.function)?)?")
BY_PATH = pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)


def places(value, path="") -> Iterator[str]:
    """The path of each object in a value."""
    if isinstance(value, dict):
        yield path
        for name, inner in value.items():
            yield from places(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from places(inner, f"{path}[{number}]")


def with_key(value, place, key, given, path=""):
    """A value with one more key in the object at a place."""
    if isinstance(value, dict):
        found = {
            name: with_key(inner, place, key, given, f"{path}.{name}" if path else name)
            for name, inner in value.items()
        }
        return {**found, key: given} if path == place else found
    if isinstance(value, list):
        return [with_key(inner, place, key, given, f"{path}[{n}]") for n, inner in enumerate(value)]
    return value


@BY_PATH
@pytest.mark.parametrize("key", ["x", "frobnicate", "temprature"])
def test_an_unknown_key_is_named_at_every_level_of_a_full_request(endpoint, key):
    full = FULL[endpoint.path]
    endpoint.parse(full)
    for place in places(full):
        steps = {step.partition("[")[0] for step in place.split(".")}
        is_open = endpoint.path in ("/v1/chat/completions", "/tokenize") and OPEN.fullmatch(place)
        if steps & {*FREE} or place in FREE_PATHS or is_open:
            endpoint.parse(with_key(full, place, key, 1))
            continue
        with pytest.raises(RequestError) as caught:
            endpoint.parse(with_key(full, place, key, 1))
        named = f"{place}.{key}" if place else key
        assert str(caught.value).startswith(f"`{named}`: nothing here serves this field"), caught.value
        assert (caught.value.status, caught.value.param) == (400, named.partition(".")[0].partition("[")[0])


@BY_PATH
def test_an_unknown_key_of_no_value_within_a_field_is_one_that_is_left_out(endpoint):
    full = FULL[endpoint.path]
    for place in places(full):
        if place:
            endpoint.parse(with_key(full, place, "frobnicate", None))


def test_other_keys_of_a_message_and_its_calls_reach_the_template():
    endpoint = next(one for one in ENDPOINTS if one.path == "/v1/chat/completions")
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}, "extra": {"a": 1}}
    answer = {"role": "assistant", "content": "x", "tool_plan": "first", "tool_calls": [call]}
    parsed = endpoint.parse({**CHAT, "messages": [{"role": "user", "content": "Hi"}, answer]})
    assert parsed.messages[1] == answer


@pytest.mark.parametrize("name", ["messages", "tools"])
def test_a_template_variable_is_no_field_of_the_conversation(name):
    endpoint = next(one for one in ENDPOINTS if one.path == "/v1/chat/completions")
    with pytest.raises(RequestError, match=f"`chat_template_kwargs.{name}`"):
        endpoint.parse({**CHAT, "chat_template_kwargs": {name: []}})


def test_the_schema_of_any_json_object_is_obeyed():
    endpoint = next(one for one in ENDPOINTS if one.path == "/v1/chat/completions")
    for given, schema in (
        ({"schema": SCHEMA}, SCHEMA),
        ({}, {"type": "object"}),
        ({"schema": None}, {"type": "object"}),
    ):
        asked = {**CHAT, "response_format": {"type": "json_object", **given}}
        assert endpoint.parse(asked).settings["json_schema"] == schema
