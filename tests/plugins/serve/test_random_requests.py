"""Random changes of requests, of every interface: each is answered or refused as a client's. ZOO_FUZZ=5000 tries so many."""

import copy
import os
import random

import pytest

from tests.helpers.full_requests import FULL
from tests.helpers.serving import chatting, serving
from zoo.host.registry import default_registry
from zoo_serve.fields import request_settings

COUNT = int(os.environ.get("ZOO_FUZZ", 25))
BOUNDED = {
    "/v1/chat/completions": "max_tokens",
    "/v1/completions": "max_tokens",
    "/v1/messages": "max_tokens",
}
BOUNDED |= {"/v1/responses": "max_output_tokens"}
JUNK = [
    *(None, True, False, 0, 1, -1, 2, 17, 0.5, -0.5, 1e308, 2**31, 2**63, -(2**63), 10**19),
    *(
        "",
        " ",
        "x",
        "auto",
        "none",
        "required",
        "json_object",
        "system",
        "tool",
        "{}",
        "[",
        "\n",
        "\x00",
        "\u2028",
    ),
    *(
        "é" * 300,
        "{{ x",
        "<|endoftext|>",
        "</s>",
        "../..",
        "beam",
        "contrastive",
        "start: ",
        "(",
        "[a-",
        "a{999999}",
    ),
    *(
        [],
        [[]],
        [None],
        [""],
        ["x", 1],
        [0],
        [-1],
        [10**9],
        {},
        {"": 0},
        {"type": None},
        {"type": "text"},
        {"x": {"y": []}},
    ),
    *(
        {"type": "object", "properties": 1},
        {"$ref": "#"},
        {"enum": []},
        {"not": {}},
        {"type": "function", "function": {}},
    ),
    *(
        {"1": 1e9},
        {"x": 1},
        {"role": "user"},
        {"role": "user", "content": []},
        [{"role": "user", "content": "Hi"}],
    ),
]


@pytest.fixture(scope="module")
def server():
    with serving(("llama", "transformer"), load=chatting, most=2) as made:
        yield made


def nodes(value, path=()):
    """The path of every value in a value."""
    yield path
    for key, inner in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from nodes(inner, (*path, key))


def changed(body, draw, names):
    """A copy of a body with one to three changes: another value somewhere, a field more, one less, one twice."""
    kept = ("messages", "prompt", "input", "tokens", "max_tokens", "model")
    body = {name: value for name, value in copy.deepcopy(body).items() if name in kept or draw.random() < 0.5}
    for _ in range(draw.randrange(1, 4)):
        if draw.random() < 0.3:
            body[draw.choice(names)] = copy.deepcopy(draw.choice(JUNK))
            continue
        path = draw.choice([path for path in nodes(body) if path] or [("model",)])
        outer = body
        for key in path[:-1]:
            outer = outer[key]
        how = draw.random()
        if how < 0.7:
            outer[path[-1]] = copy.deepcopy(draw.choice(JUNK))
        elif isinstance(outer, dict):
            outer.pop(path[-1], None)
        else:
            outer.insert(draw.randrange(len(outer) + 1), outer[path[-1]])
    return body


@pytest.mark.slow
@pytest.mark.parametrize("path", FULL)
def test_no_request_makes_the_server_fail(server, path):
    draw = random.Random(path)
    endpoint = [
        *request_settings(default_registry()),
        *FULL[path],
        "model",
        "strategy",
        "n",
        "stream",
        "echo",
        "dimensions",
    ]
    statuses = set()
    for number in range(COUNT):
        body = changed(
            FULL[path] | draw.choice([{}, {"stream": True}, {"model": "transformer"}]), draw, endpoint
        )
        for name in ("max_tokens", "max_completion_tokens", "max_output_tokens"):
            if isinstance(body.get(name), int) and body[name] > 2:
                body[name] = 2
        body.setdefault(BOUNDED.get(path, "model"), 2 if path in BOUNDED else "llama")
        status, headers, answer = server.ask(body, path)
        assert status in (200, 400, 404), (number, body, status, answer)
        if status == 200 and headers["content-type"].startswith("text/event-stream"):
            assert "internal_error" not in answer and "server_error" not in answer, (number, body, answer)
        statuses.add(status)
    assert 400 in statuses
    assert server.text({"prompt": "Hi", "max_tokens": 1}) is not None
    server.rest()


def test_an_unknown_strategy_is_a_mistake_of_the_request(server):
    status, _, answer = server.ask({"prompt": "Hi", "strategy": "x"})
    assert (status, answer["error"]["param"]) == (400, "strategy")


def test_any_name_may_be_a_variable_of_the_template(server):
    names = (
        "template",
        "special_tokens",
        "self",
        "add_generation_prompt",
        "variables",
        "environment",
        "bos_token",
    )
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    status, _, answer = server.ask(
        {**body, "chat_template_kwargs": dict.fromkeys(names, "x")}, "/v1/chat/completions"
    )
    assert status == 200, answer
