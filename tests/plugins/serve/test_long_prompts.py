"""What can never fit is refused before it is encoded, rendered or compiled, whichever interface it comes by."""

import json

import pytest

import zoo
from tests.clients.chat_model import TOOL
from tests.helpers.serving import chatting, serving
from zoo.generation.strategies.embedding import cut_text
from zoo.tokenizer import chat_process
from zoo.tokenizer.tokenizer import PIECE
from zoo_serve import prepare

LONG = "word " * 500_000
CHAT = {"messages": [{"role": "user", "content": LONG}], "max_tokens": 2}
OVER = "context_length_exceeded"


@pytest.fixture(scope="module")
def server():
    with serving(load=chatting) as made:
        yield made


@pytest.fixture
def encoded(server, monkeypatch):
    """The lengths of the texts that the tokenizer encodes from now on."""
    backend = server.table.served["llama"].loaded.tokenizer._backend
    lengths, encode = [], backend.encode

    def recorded(text, special_tokens):
        lengths.append(len(text))
        return encode(text, special_tokens)

    monkeypatch.setattr(backend, "encode", recorded)
    return lengths


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": LONG}),
        ("/v1/completions", {"prompt": ["Hi", LONG]}),
        ("/v1/chat/completions", CHAT),
        ("/v1/messages", CHAT),
        ("/v1/responses", {"input": LONG}),
        ("/v1/embeddings", {"input": LONG}),
    ],
)
def test_a_prompt_that_surely_exceeds_the_context_is_never_encoded(server, encoded, path, body):
    status, _, answer = server.ask({"model": "llama", **body}, path)
    words = (
        "prompt is too long: 129 tokens > 128 maximum"
        if path == "/v1/messages"
        else "This model's maximum context length is 128 tokens. However, the prompt has at least 129 tokens."
    )
    assert status == 400 and words in answer["error"]["message"]
    assert path == "/v1/messages" or answer["error"]["code"] == OVER
    assert sum(encoded) <= PIECE


def test_of_a_text_that_is_cut_only_a_beginning_is_encoded(server, monkeypatch):
    tokenizer = zoo.load("bert").tokenizer
    expected, _ = cut_text(tokenizer, LONG[:5000], 10)
    lengths, encode = [], tokenizer.encode
    monkeypatch.setattr(
        tokenizer,
        "encode",
        lambda text, *more, **named: lengths.append(len(text)) or encode(text, *more, **named),
    )
    ids, cut = cut_text(tokenizer, LONG[:400_000], 10)
    assert (ids, len(ids)) == (expected, 10) and cut > 0 and max(lengths) <= 2 * PIECE


@pytest.mark.parametrize("path", ["/tokenize", "/v1/messages/count_tokens"])
def test_the_tokens_of_a_text_are_told_up_to_a_bound(server, monkeypatch, path):
    monkeypatch.setattr(prepare, "MOST_TOKENS", 1000)
    for text, status in ("word " * 20, 200), ("word " * 900, 400), (LONG, 400):
        body = {"prompt": text} if path == "/tokenize" else {"messages": [{"role": "user", "content": text}]}
        assert server.ask({"model": "llama", **body}, path)[0] == status


@pytest.mark.parametrize(
    "more",
    [
        {"messages": [{"role": "user", "content": "a" * chat_process.OUTPUT}]},
        {"messages": [{"role": "user", "content": "é" * (chat_process.OUTPUT // 4)}] * 3},
        {"chat_template_kwargs": {"x": ["y" * chat_process.OUTPUT]}},
    ],
)
def test_more_text_than_a_template_may_write_is_not_rendered(server, monkeypatch, more):
    monkeypatch.setattr(chat_process.Worker, "answer", lambda *request: pytest.fail("it was rendered"))
    body = json.dumps({**CHAT, **more}, ensure_ascii=False).encode()
    status, _, answer = server.ask(body, "/v1/chat/completions")
    assert status == 400 and "more than 4 MiB of text" in answer["error"]["message"]


def test_tools_with_too_large_schemas_are_refused_before_anything_is_rendered(server, monkeypatch):
    monkeypatch.setattr(chat_process.Worker, "answer", lambda *request: pytest.fail("it was rendered"))
    many = [{"type": "function", "function": {"name": f"f{number}"}} for number in range(10_001)]
    large = {**TOOL["function"], "parameters": {"enum": ["x" * 300_000]}}
    for tools, what in (many, "values"), ([{"type": "function", "function": large}], "characters"):
        body = {"messages": [{"role": "user", "content": "Hi"}], "tools": tools, "tool_choice": "required"}
        status, _, answer = server.ask(body, "/v1/chat/completions")
        assert status == 400 and answer["error"]["message"].endswith(what), answer


def test_the_beginnings_of_a_conversation_are_looked_up_in_one_reading(server, monkeypatch):
    from zoo_serve import conversations

    read = []
    monkeypatch.setattr(conversations, "text_of", lambda message: read.append(message) or message["content"])
    messages = [{"role": ("user", "assistant")[n % 2], "content": "Hi"} for n in range(201)]
    conversations.Conversations(server.table.served["llama"].loaded.tokenizer).encode(messages, "Hi")
    assert len(read) == 200
