"""Chat templates against transformers: each gets the form that it is written for, and writes the same bytes."""

import json
import shutil
from dataclasses import replace

import pytest
from transformers import AutoTokenizer
from transformers.utils.chat_template_utils import render_jinja_template

import zoo
from tests.helpers import chat_templates
from tests.helpers.chat_templates import CONVERSATIONS, TOOLS, part
from zoo.errors import TokenizerError
from zoo.generation.loop.prompt import render_messages
from zoo.tokenizer import load_tokenizer
from zoo.tokenizer.chat import render_chat

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
FORMS = {  # the content of a call that says nothing, its arguments, and the roles whose content is parts
    "NULL": (None, str, ()),
    "OBJECT": ("", dict, ()),
    "JSON": ("", dict, ()),
    "STRING": ("", str, ()),
    "PARTS": ("", dict, ("system", "user", "assistant", "tool")),
    "FIRST_PART": ("", dict, ("system", "user", "assistant", "tool")),
    "MIXED": ("", dict, ("user", "assistant", "tool")),
    "FIRST_CALL": ("", dict, ()),
    "INSTEAD": ("", dict, ()),
    "PLAIN": ("", dict, ()),
    "ALTERNATING": ("", dict, ()),
    "EARLIER": ("", dict, ()),
}
CALLS = [
    talk for talk, messages in CONVERSATIONS.items() if any(message.get("tool_calls") for message in messages)
]
REFUSED = {  # by the zoo alone: transformers leaves the calls out
    ("NULL", "beside a text"),
    ("FIRST_CALL", "parallel"),
    ("FIRST_PART", "beside a text"),
    ("ALTERNATING", "without results"),
    ("EARLIER", "without results"),
    *((name, talk) for name in ("PLAIN", "PARTS", "MIXED") for talk in CALLS),
}


def in_form(message, empty, arguments, roles):
    """A message as the template is written for."""
    message = {key: value for key, value in message.items() if value is not None and value != []}
    content = message.get("content") or empty
    if isinstance(content, list):
        content = content[0]["text"]
    if content and message["role"] in roles:
        content = [part(content)]
    message["content"] = content
    if calls := message.get("tool_calls"):
        values = [json.loads(call["function"]["arguments"]) for call in calls]
        values = [json.dumps(value, ensure_ascii=False) if arguments is str else value for value in values]
        message["tool_calls"] = [
            call | {"function": call["function"] | {"arguments": value}}
            for call, value in zip(calls, values, strict=True)
        ]
    return message


@pytest.mark.filterwarnings("ignore:the chat template leaves out")
@pytest.mark.parametrize("talk", CONVERSATIONS)
@pytest.mark.parametrize("name", FORMS)
def test_a_conversation_is_rendered_as_transformers_renders_its_form(name, talk):
    template, messages = getattr(chat_templates, name), CONVERSATIONS[talk]
    given = [in_form(message, *FORMS[name]) for message in messages]
    try:
        (expected,), _ = render_jinja_template(
            [given], tools=TOOLS, chat_template=template, add_generation_prompt=True, **TOKENS
        )
    except Exception:
        with pytest.raises(TokenizerError, match=r"^chat template: "):
            render_chat(template, messages, special_tokens=TOKENS, variables={"tools": TOOLS})
        return
    if (name, talk) in REFUSED:
        with pytest.raises(TokenizerError, match="the template writes"):
            render_chat(template, messages, special_tokens=TOKENS, variables={"tools": TOOLS})
    else:
        assert render_chat(template, messages, special_tokens=TOKENS, variables={"tools": TOOLS}) == expected


NAMED = {"default": "D {{ messages[0].content }}", "tool_use": "T {{ tools[0].function.name }}", "rag": "R"}


@pytest.mark.parametrize("where", ["list", "files", "both"])
@pytest.mark.parametrize("tools", [None, TOOLS])
def test_the_template_is_chosen_by_its_name_as_transformers_does(tmp_path, where, tools):
    """From a list in tokenizer_config.json, from chat_template.jinja and the files beside it, or from these before that."""
    shutil.copy(zoo.load("llama").folder / "tokenizer.json", tmp_path)
    config = {"tokenizer_class": "PreTrainedTokenizerFast"}
    if where != "files":
        wrong = "not this " * (where == "both")
        config["chat_template"] = [{"name": name, "template": wrong + text} for name, text in NAMED.items()]
    if where != "list":
        (tmp_path / "chat_template.jinja").write_text(NAMED["default"])
        (tmp_path / "additional_chat_templates").mkdir()
        for name in ("tool_use", "rag"):
            (tmp_path / f"additional_chat_templates/{name}.jinja").write_text(NAMED[name])
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    messages = [{"role": "user", "content": "Hello"}]
    expected = AutoTokenizer.from_pretrained(tmp_path).apply_chat_template(
        messages, tools=tools, tokenize=False
    )
    tokenizer = load_tokenizer(tmp_path)
    loaded = replace(zoo.load("llama"), tokenizer=tokenizer)
    assert render_messages(loaded, messages, {"tools": tools} if tools else {}) == expected
    assert tokenizer.chat_templates == NAMED
