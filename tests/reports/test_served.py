"""What people reported of other servers, asked of this one. Each test names the reports."""

import base64
import json
import struct

import pytest

import zoo
from tests.clients.chat_model import TOOL
from tests.helpers.serving import chatting, response_of, serving

reported = pytest.mark.reported
HI = [{"role": "user", "content": "Hi"}]
BRIEF = {"enable_thinking": False}  # the untrained model could think for as long as it may
CHAT, COMPLETIONS, RESPONSES, MESSAGES = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
)
BODIES = {CHAT: {"messages": HI}, COMPLETIONS: {"prompt": "Hi"}, RESPONSES: {"input": "Hi"}}
BODIES[MESSAGES] = {"messages": HI, "max_tokens": 3}
LIMITS = {
    CHAT: "max_tokens",
    COMPLETIONS: "max_tokens",
    RESPONSES: "max_output_tokens",
    MESSAGES: "max_tokens",
}
CITY = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}
CITY |= {"additionalProperties": False}


def load(name):
    return chatting(name) if name == "llama" else zoo.load(name)


@pytest.fixture(scope="module")
def served():
    with serving(("llama", "bert"), load=load, most=2, prompt_cache=2**24) as made:
        yield made


def events(served, body, path=CHAT):
    """What a stream sends, parsed, without the mark of its end."""
    status, _, text = served.ask({**body, "stream": True}, path)
    assert status == 200, text
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(one) for one in data if one != "[DONE]"]


def ask(served, body, path=CHAT):
    status, _, answer = served.ask(body, path)
    return status, answer


def written(served, **asked):
    """The text that a chat request gets."""
    status, answer = ask(served, {"messages": HI, **asked})
    assert status == 200, answer
    return answer["choices"][0]["message"]["content"]


def reason(answer, path):
    if path == RESPONSES:
        return (answer.get("incomplete_details") or {}).get("reason")
    return answer["stop_reason"] if path == MESSAGES else answer["choices"][0]["finish_reason"]


@reported("Blaizzy/mlx-vlm 1215")
@pytest.mark.parametrize("path", BODIES)
def test_an_answer_that_was_cut_says_so_in_each_interface(served, path):
    status, answer = ask(served, {**BODIES[path], LIMITS[path]: 2, "min_tokens": 2}, path)
    assert status == 200, answer
    expected = {RESPONSES: "max_output_tokens", MESSAGES: "max_tokens"}.get(path, "length")
    assert reason(answer, path) == expected


@reported("waybarrios/vllm-mlx 628", "ollama/ollama 4357", "mudler/LocalAI 1744", "anomalyco/opencode 43379")
@pytest.mark.parametrize(("more", "expected"), [({"regex": "Yes"}, "stop"), ({"max_tokens": 2}, "length")])
def test_each_part_has_a_reason_of_its_end_which_is_null_until_the_last(served, more, expected):
    choices = [choice for event in events(served, {"messages": HI, **more}) for choice in event["choices"]]
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + [expected]


@reported("lablup/mlxcel 1466", "Blaizzy/mlx-vlm 1069")
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, MESSAGES])
def test_a_stop_text_ends_an_answer_and_is_no_part_of_it(served, path):
    body = {**BODIES[path], LIMITS[path]: 30}
    whole = text_of(ask(served, body, path)[1], path)
    stop = whole[5:8]
    status, answer = ask(served, {**body, "stop_sequences" if path == MESSAGES else "stop": [stop]}, path)
    assert status == 200, answer
    expected = "stop_sequence" if path == MESSAGES else "stop"
    assert (text_of(answer, path), reason(answer, path)) == (whole[: whole.index(stop)], expected)


def text_of(answer, path):
    if path == MESSAGES:
        return "".join(part["text"] for part in answer["content"])
    [choice] = answer["choices"]
    return choice["text"] if path == COMPLETIONS else choice["message"]["content"]


@reported(
    "ml-explore/mlx-lm 1630",
    "kekzl/imp 1588",
    "abetlen/llama-cpp-python 197",
    "modular/modular 5085",
    "BerriAI/litellm 10686",
)
def test_a_stream_has_the_log_probabilities_and_the_reason_of_the_whole_answer(served):
    body = {"messages": HI, "logprobs": True, "top_logprobs": 3, "max_tokens": 6, "min_tokens": 6}
    parts = [choice for event in events(served, body) for choice in event["choices"]]
    whole = ask(served, body)[1]["choices"][0]
    streamed = [one for part in parts for one in (part.get("logprobs") or {}).get("content") or ()]
    assert [one["token"] for one in streamed] == [one["token"] for one in whole["logprobs"]["content"]]
    assert all(len(one["top_logprobs"]) == 3 for one in streamed)
    assert parts[-1]["finish_reason"] == "length"


@reported("vllm-project/tpu-inference 3572", "InternLM/lmdeploy 2802")
def test_log_probabilities_without_alternatives_are_those_of_the_tokens_as_text(served):
    status, answer = ask(served, {"messages": HI, "logprobs": True, "max_tokens": 8, "min_tokens": 8})
    assert status == 200
    tokens = answer["choices"][0]["logprobs"]["content"]
    assert len(tokens) == 8 and not any(one["top_logprobs"] for one in tokens)
    assert b"".join(bytes(one["bytes"]) for one in tokens).decode() == text_of(answer, CHAT)


@reported("ggml-org/llama.cpp 28478")
def test_tools_and_log_probabilities_go_together_in_a_stream(served):
    body = {"messages": HI, "tools": [TOOL], "logprobs": True, "top_logprobs": 2, "max_tokens": 4}
    assert any(part.get("logprobs") for event in events(served, body) for part in event["choices"])


CALLED = [
    {"role": "user", "content": "The weather?"},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}]},
    {"role": "tool", "tool_call_id": "a", "content": "Rain."},
]  # fmt: skip


@reported(
    "lmstudio-ai/lmstudio-bug-tracker 261",
    "cubist38/mlx-openai-server 205",
    "openai/openai-agents-python 2238",
    "vercel/ai 13479",
)
def test_a_message_of_calls_needs_no_content(served):
    without = [{key: value for key, value in one.items() if value is not None} for one in CALLED]
    empty = [{**one, "content": one["content"] or ""} for one in CALLED]
    texts = {written(served, messages=each, max_tokens=5) for each in (CALLED, without, empty)}
    assert len(texts) == 1


@reported("CommandCodeAI/command-code 820", "epam/ai-dial-adapter-openai 511", "BerriAI/litellm 22977")
def test_an_answer_given_in_parts_is_the_same_as_one_text(served):
    def messages(content):
        return [*HI, {"role": "assistant", "content": content}, *HI]

    parts = [
        {"type": "text", "text": "A river"},
        {"type": "text", "text": " of old."},
        {"type": "text", "text": ""},
    ]
    assert written(served, messages=messages(parts)) == written(served, messages=messages("A river of old."))


@reported(
    "ggml-org/llama.cpp 10887",
    "mudler/LocalAI 9135",
    "sgl-project/sglang 30434",
    "huggingface/text-embeddings-inference 288",
)
def test_vectors_come_as_text_of_bytes_where_a_request_asks_for_it(served):
    body = {"model": "bert", "input": ["A river.", "The sea."]}
    plain = ask(served, body, "/v1/embeddings")[1]["data"]
    encoded = ask(served, {**body, "encoding_format": "base64"}, "/v1/embeddings")[1]["data"]
    for one, other in zip(plain, encoded, strict=True):
        data = base64.b64decode(other["embedding"])
        assert list(struct.unpack(f"<{len(data) // 4}f", data)) == pytest.approx(one["embedding"], abs=1e-6)
    status, answer = ask(served, {**body, "encoding_format": "hex"}, "/v1/embeddings")
    assert status == 400 and "encoding_format" in answer["error"]["message"]


@reported("murtaza-nasir/speakr 352")
def test_shorter_vectors_of_a_model_that_was_not_trained_for_them_are_refused_or_cut(served):
    body = {"model": "bert", "input": "A river.", "dimensions": 8}
    status, answer = ask(served, body, "/v1/embeddings")
    assert status == 200 and len(answer["data"][0]["embedding"]) == 8


@reported("ggml-org/llama.cpp 11988", "ollama/ollama 10001", "callstackincubator/fabrice-ai 118")
def test_a_schema_is_obeyed_wherever_a_request_has_it(served):
    schema = {"name": "city", "schema": CITY}
    for more in (
        {"response_format": {"type": "json_schema", "json_schema": schema}},
        {"response_format": {"type": "json_schema", "schema": CITY}},
        {"json_schema": CITY},
        {"guided_json": CITY},
    ):
        status, answer = ask(served, {"messages": HI, **more, **BRIEF, "max_tokens": 60})
        if status == 200:
            assert json.loads(text_of(answer, CHAT))["city"] in ("Rome", "Oslo"), more
        else:
            assert set(more) & {answer["error"]["param"]}, answer


@reported("ollama/ollama 2844", "jundot/omlx 3321", "Pushkinist/rMLX 183")
def test_a_model_cannot_write_white_space_for_ever_where_json_is_asked_for(served):
    more = {"logit_bias": {str(id): 100 for id in white_space(served)}, "max_tokens": 120, **BRIEF}
    text = written(
        served, response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": CITY}}, **more
    )
    assert json.loads(text)


def white_space(served):
    tokenizer = served.table.served["llama"].loaded.tokenizer
    return [id for id in range(tokenizer.vocab_size) if tokenizer.decode([id]) in (" ", "\n", "\t", "  ")]


@reported("mlc-ai/xgrammar 639", "mlc-ai/xgrammar 774", "ohdearquant/lattice 310")
@pytest.mark.parametrize(
    "schema",
    [{"enum": []}, {"$ref": "other.json"}, {"$ref": "/$defs/City"}, {"$ref": "#/$defs/none"}],
    ids=["no values", "another file", "not a pointer", "no definition"],
)
def test_a_schema_that_cannot_be_followed_is_refused(served, schema):
    schema = {
        "type": "object",
        "properties": {"x": schema},
        "required": ["x"],
        "$defs": {"City": {"enum": ["Rome"]}},
    }
    asked = {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}
    status, answer = ask(served, {"messages": HI, **asked})
    assert status == 400 and len(answer["error"]["message"]) < 300, answer


@reported("ggml-org/llama.cpp 8073")
def test_values_behind_a_reference_are_the_only_ones(served):
    schema = {
        "$defs": {"City": {"enum": ["Rome"]}},
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/City"}},
    }
    schema |= {"required": ["x"], "additionalProperties": False}
    asked = {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}
    assert json.loads(written(served, **asked, **BRIEF, max_tokens=60)) == {"x": "Rome"}


@reported(
    "EricLBuehler/mistral.rs 1507",
    "openai/codex 7517",
    "cubist38/mlx-openai-server 216",
    "jjang-ai/vmlx 219",
    "ollama/ollama 7881",
    "continuedev/continue 13225",
)
def test_the_parts_of_a_call_have_its_place_and_the_first_its_name(served):
    body = {"messages": HI, "tools": [TOOL], "tool_choice": "required", "max_tokens": 200, **BRIEF}
    made = events(served, body)
    parts = [
        call for event in made for one in event["choices"] for call in one["delta"].get("tool_calls", ())
    ]
    assert parts[0]["id"] and parts[0]["type"] == "function" and parts[0]["function"]["name"] == "weather"
    assert {call["index"] for call in parts} == {0}
    assert {call.get("id", parts[0]["id"]) for call in parts} == {parts[0]["id"]}
    assert json.loads("".join(call["function"].get("arguments", "") for call in parts))["city"] in (
        "Rome",
        "Oslo",
    )
    assert made[-1]["choices"][0]["finish_reason"] == "tool_calls"


@reported("sgl-project/sglang 37833")
def test_nothing_is_generated_for_a_client_that_has_gone(served):
    connection = served.send({"prompt": "Hi", "min_tokens": 100, "max_tokens": 100, "stream": True})
    connection.recv(64)
    connection.close()
    served.rest()


@reported("ml-explore/mlx-lm 1035")
def test_prompts_of_other_lengths_follow_a_remembered_one(served):
    first = [{"role": "system", "content": "You answer at length, in whole sentences, and politely."}, *HI]
    alone = [written(served, messages=each, max_tokens=5, cache_prompt=False) for each in (first, HI)]
    assert [written(served, messages=each, max_tokens=5) for each in (first, HI)] == alone


@reported("lmstudio-ai/lmstudio-bug-tracker 1319")
def test_the_next_turn_of_a_conversation_reads_only_what_is_new(served):
    start = [{"role": "user", "content": "Tell me of the river, and of the sea into which it flows."}]
    _, first = ask(served, {"messages": start, "max_tokens": 4})
    answer = first["choices"][0]["message"]
    following = [*start, {"role": "assistant", "content": answer["content"]}, *HI]
    usage = ask(served, {"messages": following, "max_tokens": 4})[1]["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= first["usage"]["prompt_tokens"] - 1


@reported(
    "waybarrios/vllm-mlx 109",
    "Blaizzy/mlx-vlm 1771",
    "Blaizzy/mlx-vlm 1076",
    "nath1295/MLX-Textgen 5",
    "exo-explore/exo 1691",
    "jundot/omlx 2011",
)
def test_letters_of_several_tokens_come_whole_also_to_two_readers_at_once(served):
    text = "ďábel 🔥🙂 中文"
    opened = [
        served.send(
            {"messages": HI, "guided_regex": text, "stream": True, "max_tokens": 90}, CHAT, Connection="close"
        )
        for _ in range(2)
    ]
    for connection in opened:
        line, rest = response_of(connection)
        assert "200" in line
        data = [one.removeprefix("data: ") for one in rest.splitlines() if one.startswith("data: {")]
        parts = [json.loads(one)["choices"][0]["delta"].get("content") or "" for one in data]
        assert "".join(parts) == text and not any("\ufffd" in part for part in parts)


@reported("antirez/ds4 897", "ggml-org/llama.cpp 21889")
@pytest.mark.parametrize("path", [CHAT, MESSAGES, "/api/chat"])
def test_an_answer_that_the_request_began_after_its_thinking_goes_on_as_text(served, path):
    """Of the model's own continuation, no part is thinking."""
    begun = "<think>One in Africa.</think>The capital city of China is"
    body = {"model": "llama", "messages": [*HI, {"role": "assistant", "content": begun}], "stream": False}
    limit = {"options": {"num_predict": 4}} if path == "/api/chat" else {"max_tokens": 4}
    more = {"continue_final_message": True} if path == CHAT else {}
    status, answer = ask(served, {**body, **limit, **more}, path)
    assert status == 200, answer
    prompt = f"<|user|>Hi<|endoftext|>\n<|assistant|>{begun}"
    loaded = served.table.served["llama"].loaded
    ids = loaded.tokenizer.encode(prompt, special_tokens=False)
    expected = zoo.generate(loaded, ids, max_tokens=4).text
    assert (answer["message"]["content"] if path == "/api/chat" else text_of(answer, path)) == expected


@reported("ggml-org/llama.cpp 20733")
def test_what_a_template_refuses_is_an_error_of_the_request_in_its_words(served):
    loaded = served.table.served["llama"].loaded
    before, loaded.tokenizer.chat_template = (
        loaded.tokenizer.chat_template,
        (
            "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
            "{{ raise_exception('The system message comes first.') }}{% endif %}{{ m.content }}{% endfor %}"
        ),
    )
    try:
        status, answer = ask(served, {"messages": [*HI, {"role": "system", "content": "Be brief."}]})
    finally:
        loaded.tokenizer.chat_template = before
    assert status == 400 and "The system message comes first." in answer["error"]["message"]
