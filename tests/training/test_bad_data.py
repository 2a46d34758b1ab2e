"""Bad data: each kind is one line with the file and the number of the line."""

import json
import re

import pytest

from zoo.errors import ZooError
from zoo.training.data import read_examples

USER = '{"role": "user", "content": "Hi"}'
ANSWER = '{"role": "assistant", "content": "Hello"}'
CALLING = '{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}'
NOT_TEXTS = {"a number": "3", "null": "null", "a list": '["a"]', "an object": '{"a": 1}', "true": "true"}
BLANKS = {"empty": '""', "blank": '" \\n\\t"'}


def listed(*written):
    return f"[{', '.join(written)}]"


LISTS, OPTIONAL = ("messages", "conversations"), ("negative", "input")
# The values that a good line of each kind has.
GOOD = {
    "text": {"text": '"a"'},
    "completion": {"prompt": '"a"', "completion": '"b"'},
    "conversation": {"messages": listed(USER, ANSWER)},
    "preference": {"prompt": '"a"', "chosen": '"b"', "rejected": '"c"'},
    "translation": {"source": '"a"', "target": '"b"'},
    "sentences": {"anchor": '"a"', "positive": '"b"', "negative": '"c"'},
    "sharegpt": {"conversations": '[{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]'},
    "alpaca": {"instruction": '"a"', "input": '"b"', "output": '"c"'},
}


def line(values):
    """A JSON object of values that are JSON already."""
    return "{" + ", ".join(f"{json.dumps(key)}: {value}" for key, value in values.items()) + "}"


def changed(kind, key, value):
    return line(GOOD[kind] | {key: value})


def messages(*written):
    return line({"messages": listed(*written)})


def shared(*speakers, value="a"):
    """A line of ShareGPT's form in which each of these says the same."""
    return json.dumps({"conversations": [{"from": speaker, "value": value} for speaker in speakers]})


def said(role, content='"x"', more=""):
    return f'{{"role": {json.dumps(role)}, "content": {content}{more}}}'


def tools(value):
    return line(GOOD["conversation"] | {"tools": value})


def called(function):
    return messages(USER, f'{{"role": "assistant", "tool_calls": [{function}]}}')


def chosen(value, **more):
    return line(GOOD["preference"] | {"chosen": value} | more)


# For each kind of bad line, the kind of the good line before it, the line, and words of the error.
BAD = {}
for kind, good in GOOD.items():
    for key in good:
        quoted = f'"{key}"'
        for name, value in BLANKS.items():
            if key not in (*LISTS, "input"):  # which may be empty
                BAD[f"{kind}: {name} {key}"] = kind, changed(kind, key, value), f"{quoted} is empty"
        for name, value in NOT_TEXTS.items():
            if key in OPTIONAL and name == "null":
                continue
            if key in ("prompt", "chosen", "rejected") and kind == "preference" and name == "a list":
                words = "message 1 must be an object with a role"
            else:
                words = f"{quoted} is no list" if key in LISTS else f"{quoted} is not a text"
                if key in LISTS and name == "a list":
                    words = "message 1 must be an object with a role"
            BAD[f"{kind}: {name} as {key}"] = kind, changed(kind, key, value), words
        if key not in OPTIONAL and len(good) > 1:
            without = line({other: value for other, value in good.items() if other != key})
            BAD[f"{kind}: no {key}"] = kind, without, f"has no {quoted}"
    for text, what in (('"a\\ud800"', "half a character"), ('"a\\u0000"', "a zero character")):
        key = next(iter(good))
        value = listed(said("user", text), ANSWER) if key in LISTS else text
        BAD[f"{kind}: {what}"] = kind, changed(kind, key, value), what
    other = "text" if kind != "text" else "completion"
    BAD[f"{kind}: a line of another kind"] = kind, line(GOOD[other]), "is an example of"

MALFORMED = {
    "half an object": ('{"text": ', "not JSON (Expecting value)"),
    "two objects": ('{"text": "a"} {"text": "b"}', "not JSON (Extra data)"),
    "a tab in a text": ('{"text": "a\tb"}', "not JSON (Invalid control character"),
    "CSV": ("text,label", "not JSON"),
    "NaN": ('{"text": "a", "score": NaN}', "not JSON (NaN is not JSON)"),
    "a number of many digits": ('{"text": "a", "id": ' + "9" * 5000 + "}", "a number of 5000 digits"),
    "a key twice": ('{"text": "a", "text": "b"}', "the key 'text' has two values"),
    "deep lists": ("[" * 100_000, "nested more than 64 deep"),
    "a list": ('["a"]', "no JSON object"),
    "null": ("null", "no JSON object"),
    "an empty object": ("{}", 'needs "chosen" and "rejected", or "prompt" and "completion", or "messages"'),
    "unknown keys": ('{"txt": "a"}', 'or "text"'),
    "keys in capitals": ('{"Text": "a"}', 'or "text"'),
    "a lone surrogate in a key": ('{"\\udc00": "a"}', "half a character"),
    "a lone surrogate deep inside": (
        '{"text": "a", "meta": [{"x": "\\ud83d"}]}',
        '"x" holds half a character',
    ),
    "a zero in a key": ('{"text": "a", "b\\u0000": 1}', "a zero character"),
}
BAD |= {f"JSON: {name}": ("text", *values) for name, values in MALFORMED.items()}

CHATS = {
    "no message": (messages(), '"messages" is empty'),
    "an object": (line({"messages": USER}), '"messages" is no list'),
    "a text": (line({"messages": '"Hi"'}), '"messages" is no list'),
    "a message that is a text": (messages(USER, '"Hi"'), "message 2 must be an object"),
    "an unknown role": (messages(USER, said("bot")), "message 2 must be an object with a role (system, user"),
    "no role": (messages('{"content": "Hi"}', ANSWER), "message 1 must be an object with a role"),
    "a null content": (messages(said("user", "null"), ANSWER), "message 1: content must be a string"),
    "a picture": (messages(said("user", '[{"type": "image_url"}]'), ANSWER), "is of type image_url"),
    "a late system message": (
        messages(USER, ANSWER, said("system")),
        "message 3: a system message must be the first",
    ),
    "no assistant": (messages(USER), "no message of the assistant"),
    "an answer first": (messages(ANSWER), "message 1: there is nothing to answer"),
    "an answer to the system": (messages(said("system"), ANSWER), "message 2: there is nothing to answer"),
    "an empty answer": (messages(USER, said("assistant", '""')), "message 2: the assistant says nothing"),
    "a null answer": (messages(USER, said("assistant", "null")), "message 2: the assistant says nothing"),
    "no calls": (
        messages(USER, '{"role": "assistant", "tool_calls": []}'),
        "message 2: the assistant says nothing",
    ),
    "a later empty answer": (
        messages(USER, ANSWER, USER, said("assistant", '""')),
        "message 4: the assistant says",
    ),
    "a result first": (messages(said("tool"), ANSWER), "message 1: a tool's result without a call"),
    "a result after an answer": (
        messages(USER, ANSWER, said("tool")),
        "message 3: a tool's result without a call",
    ),
    "a result that is null": (
        messages(USER, CALLING, said("tool", "null")),
        "message 3: content must be a string",
    ),
    "weights of 0 alone": (
        messages(USER, said("assistant", more=', "weight": 0')),
        "of the assistant to learn",
    ),
    "a weight of 0.5": (
        messages(USER, said("assistant", more=', "weight": 0.5')),
        '"weight" is neither 0 nor 1',
    ),
    "a call that is a text": (called('"f"'), "message 2: each of tool_calls must be an object"),
    "arguments that are no JSON": (
        called('{"function": {"name": "f", "arguments": "{x"}}'),
        "of f are not JSON",
    ),
    "tools that are a text": (tools('"f"'), '"tools" must be a list'),
    "a tool that is a text": (tools('["f"]'), '"tools": tool 1 must be'),
    "two tools of one name": (
        tools(json.dumps([{"type": "function", "function": {"name": "f"}}] * 2)),
        '"tools": two tools are called f',
    ),
}
OTHERS = {
    "no list": ("sharegpt", '{"conversations": "Hi"}', '"conversations" is no list'),
    "an unknown speaker": ("sharegpt", shared("bot"), 'message 1: "from" is none of human, user, gpt'),
    "no value": ("sharegpt", '{"conversations": [{"from": "human"}]}', 'message 1: has no "value"'),
    "a value of a number": ("sharegpt", shared("human", value=3), 'message 1: "value" is not a text'),
    "no answer": ("sharegpt", shared("human"), '"conversations" has no message of the assistant'),
    "an answer first": ("sharegpt", shared("gpt", "human"), "message 1: there is nothing to answer"),
    "a blank answer": (
        "sharegpt",
        shared("human", "gpt", value=" "),
        "message 2: the assistant says nothing",
    ),
    "an input of a number": (
        "alpaca",
        '{"instruction": "a", "input": 3, "output": "b"}',
        '"input" is not a text',
    ),
    "a blank output": ("alpaca", '{"instruction": "a", "output": ""}', '"output" is empty'),
}
BAD |= {f"other programs': {name}": values for name, values in OTHERS.items()}
BAD |= {f"chat: {name}": ("conversation", *values) for name, values in CHATS.items()}

PREFERENCES = {
    "no answers": (chosen("[]"), '"chosen" is empty'),
    "an answer of the user": (chosen(listed(USER)), '"chosen" must end with a text of the assistant'),
    "an answer that calls": (chosen(listed(CALLING)), '"chosen" must end with a text of the assistant'),
    "an answer that goes on": (
        chosen(listed(ANSWER, USER)),
        '"chosen" must end with a text of the assistant',
    ),
    "an empty answer": (chosen(listed(said("assistant", '""'))), "message 1: the assistant says nothing"),
    "a system's answer": (chosen(listed(said("system"))), '"chosen" must end with a text of the assistant'),
    "answers to two questions": (
        chosen(listed(USER, ANSWER), rejected=listed(said("user"), ANSWER)),
        '"chosen" and "rejected" answer different messages',
    ),
    "answers of which one has the question": (
        chosen(listed(USER, ANSWER), rejected=listed(ANSWER)),
        '"chosen" and "rejected" answer different messages',
    ),
    "an answer to an answer": (
        chosen(listed(USER, ANSWER, ANSWER), rejected=listed(USER, ANSWER, said("assistant"))),
        "no message of the user before the answer",
    ),
    "a prompt that ends with an answer": (
        chosen('"b"', prompt=listed(USER, ANSWER)),
        '"prompt": no message of the user before the answer',
    ),
    "a prompt of the system alone": (chosen('"b"', prompt=listed(said("system"))), "no message of the user"),
    "a prompt of no messages": (chosen('"b"', prompt="[]"), '"prompt" is empty'),
    "messages that end with an answer": (
        line({"messages": listed(USER, ANSWER), "chosen": '"b"', "rejected": '"c"'}),
        '"messages": no message of the user before the answer',
    ),
    "no prompt at all": (line({"chosen": '"b"', "rejected": '"c"'}), 'has no "prompt"'),
    "a malformed prompt": (
        chosen('"b"', prompt='[{"role": "bot"}]'),
        "message 1 must be an object with a role",
    ),
}
BAD |= {f"preference: {name}": ("preference", *values) for name, values in PREFERENCES.items()}


def error_of(path):
    with pytest.raises(ZooError) as error:
        read_examples(path)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_is_one_line_with_file_and_number(tmp_path, name):
    kind, bad, words = BAD[name]
    path = tmp_path / "data.jsonl"
    path.write_text(f"{line(GOOD[kind])}\n\n{bad}\n{line(GOOD[kind])}\n", "utf-8")
    message = error_of(path)
    assert message.startswith(f"{path}, line 3: ") and words in message


@pytest.mark.parametrize("kind", GOOD)
def test_the_good_lines_are_good(tmp_path, kind):
    path = tmp_path / "data.jsonl"
    path.write_text(f"{line(GOOD[kind])}\n" * 3, "utf-8")
    assert len(read_examples(path).train) == 2


BYTES = {
    "not UTF-8": (b'{"text": "a"}\n{"text": "\xff"}', ", line 2: not UTF-8 (byte 0xff)"),
    "Latin-1 after a byte order mark": (
        b'\xef\xbb\xbf{"text": "a"}\n\n{"text": "\xe9"}',
        ", line 3: not UTF-8",
    ),
    "UTF-16": ('{"text": "a"}'.encode("utf-16"), ", line 1: not UTF-8"),
    "a zero byte": (b'{"text": "a"}\n{"text": "b\0"}', ", line 2: has a zero byte"),
    "a lone surrogate in UTF-8": (b'{"text": "\xed\xa0\x80"}', ", line 1: not UTF-8"),
    "nothing": (b"", ": is empty"),
    "white space": (b" \n\n\t\n", ": is empty"),
    "a second mark": (b'\xef\xbb\xbf\xef\xbb\xbf{"text": "a"}', ", line 1: not JSON"),
    "line ends of old Macs": (b'{"text": "a"}\r{"text": 3}', ', line 2: "text" is not a text'),
    "line ends of Windows": (b'{"text": "a"}\r\n\r\n{"text": 3}\r\n', ', line 3: "text" is not a text'),
    "a line separator in a text": (
        '{"text": "a\u2028b"}\n{"text": 3}'.encode(),
        ', line 2: "text" is not a text',
    ),
}


@pytest.mark.parametrize("name", BYTES)
def test_bad_bytes_are_one_line_with_file_and_number(tmp_path, name):
    data, words = BYTES[name]
    path = tmp_path / "data.jsonl"
    path.write_bytes(data)
    assert error_of(path).startswith(f"{path}{words}")


ARRAYS = {
    "half": ('[{"text": "a"}', ": not JSON"),
    "an item that is none": ('[{"text": "a"}, 3]', ", item 2: no JSON object"),
    "an item of another kind": (
        '[{"text": "a"}, {"source": "a", "target": "b"}]',
        ", item 2: is an example of",
    ),
    "no item": ("[]", ": holds no example"),
    "lines of JSON": ('{"text": "a"}\n{"text": 3}', ', line 2: "text" is not a text'),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_a_bad_array_is_one_line_with_file_and_item(tmp_path, name):
    text, words = ARRAYS[name]
    path = tmp_path / "data.json"
    path.write_text(text)
    assert error_of(path).startswith(f"{path}{words}")


def test_a_line_too_long_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("zoo.training.json_lines.MAX_JSON_BYTES", 100)
    path = tmp_path / "data.jsonl"
    path.write_text('{"text": "a"}\n' + json.dumps({"text": "a" * 100}))
    assert error_of(path) == f"{path}, line 2: longer than 100 characters"


def test_an_error_quotes_no_more_than_a_line(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text(messages(USER, said(json.dumps("bot" * 10_000))))
    assert len(error_of(path)) < 500 and re.search(r"line 1: message 2", error_of(path))
