"""What programs send: recorded requests, other names of settings, harmless values. A program's version is a file of `recorded`."""

import json
from pathlib import Path

import pytest

from zoo_serve.app import ENDPOINTS
from zoo_serve.field_table import markdown_table
from zoo_serve.requests import RequestError

BY_NAME = {endpoint.path: endpoint for endpoint in ENDPOINTS}
CHAT, RESPONSES = BY_NAME["/v1/chat/completions"], BY_NAME["/v1/responses"]
MESSAGES, COMPLETIONS = BY_NAME["/v1/messages"], BY_NAME["/v1/completions"]
HI = [{"role": "user", "content": "Hi"}]
RECORDED = sorted(Path(__file__).with_name("recorded").glob("*.json"))


def chat(**more):
    return CHAT.parse({"messages": HI, **more})


def recorded(program):
    (path,) = [path for path in RECORDED if path.name.startswith(program)]
    return json.loads(path.read_text(encoding="utf-8"))["body"]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_recorded_request_is_accepted_with_all_of_its_functions(path):
    asked = json.loads(path.read_text(encoding="utf-8"))
    request = BY_NAME[asked["path"]].parse(asked["body"])
    tools = asked["body"]["tools"]
    tools = [inner for tool in tools for inner in tool.get("tools", [tool])]
    functions = [tool["name"] for tool in tools if tool.get("type", "function") == "function"]
    assert [tool["function"]["name"] for tool in request.tools] == functions
    assert request.messages and request.stream


def test_tools_of_codex_that_no_program_here_runs_are_left_out_with_a_line_in_the_log():
    request = RESPONSES.parse(recorded("codex"))
    assert request.notes == ("tools of the type web_search are left out: nothing here runs them",)
    assert set(request.namespaces.values()) == {"multi_agent_v1"}


def test_a_block_of_claude_code_that_changes_between_requests_is_no_part_of_the_prompt():
    body = recorded("claude")
    first = MESSAGES.parse(body)
    assert "billing" not in json.dumps(first.messages)
    system = [{"type": "text", "text": "x-anthropic-billing-header: cc_version=9;"}, *body["system"][1:]]
    assert MESSAGES.parse({**body, "system": system}).messages == first.messages


def test_a_tool_choice_that_nothing_offers_is_refused():
    allowed = {"mode": "auto", "tools": [{"type": "function", "name": "g"}]}
    with pytest.raises(RequestError, match="there is no tool 'g'"):
        RESPONSES.parse({"input": "Hi", "tool_choice": {"type": "allowed_tools", **allowed}})


def test_allowed_tools_are_the_only_ones_that_are_offered():
    tools = [{"type": "function", "function": {"name": name}} for name in "fg"]
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "g"}}]}
    request = chat(tools=tools, tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
    assert (request.tools, request.tool_choice) == ((tools[1],), "required")
    inner = {"mode": "auto", "tools": [{"type": "function", "name": "f"}]}
    functions = [{"type": "function", "name": name} for name in "fg"]
    asked = {"input": "Hi", "tools": functions, "tool_choice": {"type": "allowed_tools", **inner}}
    request = RESPONSES.parse(asked)
    assert ([tool["function"]["name"] for tool in request.tools], request.tool_choice) == (["f"], "auto")


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        ({"max_tokens": -1, "seed": -1, "top_k": -1}, {}),
        ({"top_p": 0}, {"top_p": 1e-9}),
        ({"stop": list(map(str, range(17)))}, {"stop": tuple(map(str, range(17)))}),
        ({"repeat_penalty": 1.2}, {"repetition_penalty": 1.2}),
        ({"guided_json": {"type": "object"}}, {"json_schema": {"type": "object"}}),
        ({"guided_regex": "a+"}, {"regex": "a+"}),
        ({"ignore_eos": True, "max_tokens": 9}, {"max_tokens": 9, "min_tokens": 9}),
        ({"skip_special_tokens": True, "cache_prompt": True, "keep_alive": "5m"}, {}),
        ({"frobnicate": None}, {}),
    ],
    ids=lambda value: ",".join(value),
)
def test_other_names_of_settings_and_harmless_values_are_obeyed(given, settings):
    assert chat(**given).settings == settings
    assert COMPLETIONS.parse({"prompt": "Hi", **given}).settings == settings


@pytest.mark.parametrize(
    ("given", "variables"),
    [
        ({"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
        ({"reasoning_effort": "none"}, {"enable_thinking": False}),
        ({"verbosity": "low"}, {"verbosity": "low"}),
        ({"enable_thinking": False}, {"enable_thinking": False}),
        ({"enable_thinking": False, "chat_template_kwargs": {"a": 1}}, {"enable_thinking": False, "a": 1}),
    ],
)
def test_what_a_chat_template_may_know_is_its_variable(given, variables):
    assert chat(**given).variables == variables


def test_values_that_change_nothing_are_accepted_and_others_of_the_same_fields_are_not():
    assert chat(top_logprobs=0, logprobs=False) == chat()
    RESPONSES.parse({"input": "Hi", "truncation": "auto", "client_metadata": {"a": "b"}})
    MESSAGES.parse({"messages": HI, "max_tokens": 5, "thread": {"type": "create"}})
    for given in (
        {"top_logprobs": 2},
        {"skip_special_tokens": False},
        {"ignore_eos": True},
        {"max_tokens": -2},
    ):
        with pytest.raises(RequestError) as caught:
            chat(**given)
        assert caught.value.param == next(iter(given))


def test_functions_are_tools_of_which_one_is_called():
    function = {"name": "f", "parameters": {"type": "object"}}
    messages = [
        *HI,
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "3"},
    ]
    request = CHAT.parse({"messages": messages, "functions": [function], "function_call": {"name": "f"}})
    assert request.tools == ({"type": "function", "function": function},)
    assert (
        request.tool_choice == {"type": "function", "function": {"name": "f"}} and not request.parallel_calls
    )
    _, call, result = request.messages
    assert call["tool_calls"][0]["id"] == result["tool_call_id"] and result["role"] == "tool"
    with pytest.raises(RequestError, match="`tools` and `functions`"):
        chat(functions=[function], tools=[{"type": "function", "function": function}])


def test_a_list_of_a_wrong_length_is_not_called_a_text():
    with pytest.raises(RequestError, match="`stop` must be a list of at least 0 and at most 256"):
        chat(stop=["x"] * 257)
    with pytest.raises(RequestError, match="`input` must be a list of at least 1"):
        BY_NAME["/v1/embeddings"].parse({"input": []})


def test_the_guide_s_table_has_each_field_that_is_not_simply_obeyed():
    table = markdown_table(ENDPOINTS)
    for endpoint in ENDPOINTS:
        for name, field in endpoint.fields.own.items():
            stated = field.ignored or field.only or field.variable or field.setting not in (None, name)
            assert (f"\n| `{name}` |" in table) or not stated, name
    assert "| `repeat_penalty` | the setting `repetition_penalty` |" in table
    assert "| `seed` | `-1` is none given | /chat/completions, /completions, /responses |" in table
