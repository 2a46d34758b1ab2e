"""The tables of all endpoints: every field is read, or says why a value changes nothing."""

import json

import jsonschema
import pytest

from zoo_serve.app import ENDPOINTS, openapi_document
from zoo_serve.fields import Field, Fields
from zoo_serve.requests import RequestError

HI = [{"role": "user", "content": "Hi"}]
BYE = [{"role": "user", "content": "Bye"}]
FUNCTION = {"type": "function", "function": {"name": "f"}}
BASES = {
    "/v1/chat/completions": {"messages": HI},
    "/v1/completions": {"prompt": "Hi"},
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {"messages": HI, "max_tokens": 5},
    "/v1/messages/count_tokens": {"messages": HI},
    "/v1/embeddings": {"input": "Hi"},
    "/v1/rerank": {"query": "Hi", "documents": ["Ho"]},
    "/v2/rerank": {"query": "Hi", "documents": ["Ho"]},
    "/rerank": {"query": "Hi", "documents": ["Ho"]},
    "/score": {"text_1": "Hi", "text_2": "Ho"},
    "/v1/score": {"text_1": "Hi", "text_2": "Ho"},
    "/classify": {"input": "Hi"},
    "/tokenize": {"prompt": "Hi"},
    "/detokenize": {"tokens": [1]},
    "/api/chat": {"model": "m", "messages": HI},
    "/api/generate": {"model": "m", "prompt": "Hi"},
    "/api/embed": {"model": "m", "input": "Hi"},
    "/api/embeddings": {"model": "m", "prompt": "Hi"},
    "/api/show": {"model": "m"},
}
# A value for each field, which is not its default: those that are alike everywhere, then those of one endpoint.
VALUES = {
    **{"model": "other", "n": 2, "stream": True, "stream_options": {"include_usage": True}, "echo": True},
    **{"max_tokens": 7, "temperature": 0.3, "top_p": 0.4, "seed": 3, "stop": ["x"], "logit_bias": {"1": 2}},
    **{"messages": BYE, "input": "Bye", "prompt": "Bye", "instructions": "Be brief.", "system": "Be brief."},
    **{"tools": [FUNCTION], "tool_choice": "none", "strategy": "beam", "chat_template_kwargs": {"x": 1}},
    **{"max_completion_tokens": 7, "max_output_tokens": 7, "stop_sequences": ["x"]},
    **{"response_format": {"type": "json_object"}, "text": {"format": {"type": "json_object"}}},
    **{"logprobs": 2, "reasoning": {"effort": "low"}, "thinking": {"type": "adaptive"}},
    **{"output_config": {"effort": "low"}, "encoding_format": "base64", "dimensions": 2, "tokens": [2]},
    **{"query": "Bye", "documents": [{"text": "Bye"}], "top_n": 1, "return_documents": False},
    **{"text_1": "Bye", "text_2": ["Bye"], "instruction": "Find it."},
    **{"top_k": 4, "repeat_penalty": 1.3, "guided_json": {"type": "object"}, "guided_regex": "a"},
    **{
        "guided_grammar": "start: /a/",
        "enable_thinking": False,
        "continue_final_message": True,
        "reasoning_effort": "low",
        "verbosity": "low",
    },
    **{"functions": [{"name": "f"}], "function_call": "none"},
    **{"add_special_tokens": False, "return_token_strs": True, "parallel_tool_calls": False},
    **{"format": "json", "think": True, "keep_alive": "5m", "options": {"num_ctx": 9}, "raw": True},
}
ENDLESS = {"max_tokens": 7, "ignore_eos": True}
OWN = {
    ("/v1/chat/completions", "ignore_eos"): ENDLESS,
    ("/v1/completions", "ignore_eos"): ENDLESS,
    ("/v1/responses", "ignore_eos"): ENDLESS,
    ("/v1/chat/completions", "logprobs"): {"logprobs": True},
    ("/v1/chat/completions", "top_logprobs"): {"logprobs": True, "top_logprobs": 2},
    ("/v1/responses", "tools"): {"tools": [{"type": "function", "name": "f"}]},
    ("/v1/messages", "tools"): {"tools": [{"name": "f", "input_schema": {}}]},
    ("/v1/messages", "tool_choice"): {"tool_choice": {"type": "none"}},
    ("/v1/messages/count_tokens", "tools"): {"tools": [{"name": "f", "input_schema": {}}]},
    **{(f"/api/{name}", "stream"): {"stream": False} for name in ("chat", "generate")},
    **{(f"/api/{name}", "logprobs"): {"logprobs": True} for name in ("chat", "generate")},
    **{
        (f"/api/{name}", "top_logprobs"): {"logprobs": True, "top_logprobs": 2}
        for name in ("chat", "generate")
    },
    ("/api/embed", "truncate"): {"truncate": False},
    ("/api/show", "name"): {"model": None, "name": "other"},
    ("/tokenize", "content"): {"prompt": None, "content": "Bye"},
    ("/tokenize", "messages"): {"prompt": None, "messages": BYE},
    ("/tokenize", "tools"): {"prompt": None, "messages": BYE, "tools": [FUNCTION]},
    ("/tokenize", "chat_template_kwargs"): {
        "prompt": None,
        "messages": BYE,
        "chat_template_kwargs": {"x": 1},
    },
    ("/tokenize", "continue_final_message"): {
        "prompt": None,
        "messages": [*HI, {"role": "assistant", "content": "Ho"}],
        "continue_final_message": True,
    },
}
REFUSED = [("/api/generate", "images"), ("/api/generate", "context")]  # unless they are empty
BY_PATH = pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)


@BY_PATH
def test_each_field_changes_the_request_or_says_why_not(endpoint):
    base = BASES[endpoint.path]
    before = endpoint.parse(base)
    for name, field in endpoint.fields.own.items():
        if (
            field.only
            or field.ignored
            or field.schema == {"type": "null"}
            or (endpoint.path, name) in REFUSED
        ):
            continue
        given = OWN.get((endpoint.path, name)) or {name: VALUES[name]}
        assert endpoint.parse({**base, **given}) != before, name


@pytest.mark.parametrize("name", ["prompt_logprobs", "return_sequences"])
@BY_PATH
def test_a_setting_whose_result_is_not_returned_is_refused_by_name(endpoint, name):
    if (endpoint.path, name) == ("/v1/completions", "return_sequences"):
        assert endpoint.parse({"prompt": "Hi", name: 2}).settings == {name: 2}
        return
    with pytest.raises(RequestError, match=f"`{name}`") as caught:
        endpoint.parse({**BASES[endpoint.path], name: 2})
    assert caught.value.param == name


@BY_PATH
def test_a_required_field_that_is_missing_is_named(endpoint):
    for name in endpoint.fields.required:
        body = {key: value for key, value in BASES[endpoint.path].items() if key != name}
        with pytest.raises(RequestError, match=f"`{name}` is missing"):
            endpoint.parse(body)


@pytest.mark.slow
@BY_PATH
def test_the_schema_of_requests_accepts_what_is_served(endpoint):
    schema = endpoint.fields.schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator.check_schema(endpoint.response)
    jsonschema.validate(BASES[endpoint.path], schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**BASES[endpoint.path], "frobnicate": 1}, schema)


def test_two_names_of_one_setting_may_agree_and_may_not_differ():
    fields = Fields({"a": Field({}, setting="seed"), "b": Field({}, setting="seed")})
    assert fields.checked({"a": 1, "b": 1}) == ({}, {"seed": 1})
    with pytest.raises(RequestError, match="`b`: another field"):
        fields.checked({"a": 1, "b": 2})


def test_the_openapi_document_has_every_endpoint():
    paths = json.loads(json.dumps(openapi_document()))["paths"]
    assert set(BASES) | {"/v1/models"} <= set(paths)


def test_each_setting_of_a_request_has_a_help_and_the_title_of_its_group():
    chat = openapi_document()["paths"]["/v1/chat/completions"]["post"]["requestBody"]
    fields = chat["content"]["application/json"]["schema"]["properties"]
    assert fields["top_k"]["x-group"] == fields["top_p"]["x-group"] == "Sampling"
    assert fields["max_completion_tokens"]["x-group"] == "Length and stops"
    assert fields["early_stopping"]["x-strategy"] == "beam"
    assert "x-group" not in fields["tools"]
    assert all("description" in field for field in fields.values() if {"x-group", "x-strategy"} & {*field})
