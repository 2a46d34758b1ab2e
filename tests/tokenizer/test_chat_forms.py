"""A chat template gets messages in the form that it writes, and loses no call."""

import json

import pytest

from tests.helpers import chat_templates
from tests.helpers.chat_templates import ASKED, CALLING, CONVERSATIONS, TOOLS, call, part, result
from zoo.errors import TokenizerError
from zoo.tokenizer import chat, chat_forms
from zoo.tokenizer.chat import render_chat


def render(template, talk, **options):
    messages = CONVERSATIONS[talk] if isinstance(talk, str) else talk
    return render_chat(template, messages, special_tokens={"bos_token": "<s>"}, variables=options)


ARGUMENTS = '{"city": "Rome", "days": 2}'
CALL = f'<call>{{"name": "weather", "arguments": {ARGUMENTS}}}'


@pytest.mark.parametrize("content", ["null", "empty", "absent"])
@pytest.mark.parametrize(
    ("template", "written"),
    [
        (chat_templates.NULL, f"<call>weather {ARGUMENTS}</call></s>"),
        (chat_templates.OBJECT, "<assistant><call>weather city=Rome days=2</call>"),
        (chat_templates.JSON, f"<assistant>{CALL}"),
        (chat_templates.STRING, f"<assistant><call>weather{ARGUMENTS}"),
        (chat_templates.INSTEAD, f'<assistant>[{{"name": "weather", "arguments": {ARGUMENTS}}}]'),
    ],
    ids=["null", "object", "json", "string", "instead"],
)
def test_a_call_is_written_however_its_content_says_nothing(template, written, content):
    text = render(template, content)
    assert text.count(written) == 1 and text.index(written) < text.index("<tool>Rain.")


def test_arguments_may_be_an_object_or_its_text():
    for template in (chat_templates.NULL, chat_templates.OBJECT, chat_templates.STRING):
        texts = []
        for arguments in (ARGUMENTS, json.loads(ARGUMENTS)):
            made = call(1, "")
            made["function"]["arguments"] = arguments
            texts.append(render(template, [ASKED, CALLING | {"tool_calls": [made]}, result(1, "Rain.")]))
        assert texts[0] == texts[1]


def test_text_of_arguments_stays_as_it_is_where_the_template_wants_text():
    written = call(1, "Osló", '{"city":"%s"}')
    text = render(chat_templates.NULL, [ASKED, CALLING | {"tool_calls": [written]}, result(1, "Snow.")])
    assert '<call>weather {"city":"Osló"}</call>' in text


def test_every_one_of_several_calls_is_written():
    text = render(chat_templates.JSON, "parallel")
    assert text.count("<call>") == 2 and '{"city": "Osló", "days": 2}' in text


@pytest.mark.parametrize(
    ("template", "talk", "reason"),
    [
        (chat_templates.PLAIN, "null", "message 2: the template writes no tool calls"),
        (chat_templates.ALTERNATING, "without results", "message 2: the template writes no tool calls"),
        (
            chat_templates.EARLIER,
            "without results",
            "message 2: the template writes no tool calls without results after them",
        ),
        (
            chat_templates.FIRST_CALL,
            "parallel",
            "message 2: the template writes only one tool call of a message",
        ),
        (
            chat_templates.NULL,
            "beside a text",
            "message 2: the template writes no tool calls of a message with a text",
        ),
    ],
)
def test_a_call_that_a_template_leaves_out_is_refused(template, talk, reason):
    with pytest.raises(TokenizerError) as caught:
        render(template, talk)
    assert str(caught.value) == f"chat template: {reason}"


def test_a_template_that_refuses_every_form_gives_its_own_reason():
    template = "{% if tools %}{{ raise_exception('it has no tools') }}{% endif %}" + chat_templates.JSON
    with pytest.raises(TokenizerError, match="chat template: it has no tools"):
        render(template, "null", tools=TOOLS)
    assert CALL in render(template, "null"), "the forms are those for a conversation without tools"


@pytest.mark.parametrize(
    ("template", "written"),
    [
        (chat_templates.OBJECT, "<system>Be brief.<user>One?<assistant>Two.<user>Three?<assistant>"),
        (chat_templates.JSON, "<system>Be brief.<user>One?<assistant>Two.<user>Three?<assistant>"),
        (chat_templates.PARTS, "<system>Be brief.<user>One?<assistant>Two.<user>Three?<assistant>"),
        (chat_templates.FIRST_PART, "<system>Be brief.<user>One?<assistant>Two.<user>Three?"),
        (chat_templates.MIXED, "Be brief..<user>One?<assistant>Two.<user>Three?<assistant>"),
    ],
    ids=["text", "both", "parts", "first part", "mixed"],
)
@pytest.mark.parametrize("talk", ["turns", "parts"])
def test_a_content_may_be_a_text_or_parts(template, written, talk):
    assert render(template, talk) == written


def test_parts_are_lines_where_the_template_takes_a_text():
    talk = [{"role": "user", "content": [part("One"), part("two?")]}]
    assert render(chat_templates.OBJECT, talk) == "<user>One\ntwo?<assistant>"
    assert render(chat_templates.JSON, talk) == "<user>Onetwo?<assistant>", "as the template joins them"


def test_a_role_of_ones_own_gets_the_form_of_a_user():
    talk = [{"role": "critic", "content": "No."}, {"role": "user", "content": "Why?"}]
    assert render(chat_templates.PARTS, talk) == "<critic>No.<user>Why?<assistant>"


@pytest.mark.parametrize(
    ("template", "talk", "role"),
    [
        (chat_templates.PLAIN, "turns", "system"),
        (chat_templates.INSTEAD, "beside a text", "assistant beside tool calls"),
    ],
)
def test_a_text_that_a_template_leaves_out_is_warned_of(template, talk, role):
    with pytest.warns(UserWarning, match=f"the chat template leaves out the text of the role {role}"):
        render(template, talk)


@pytest.mark.filterwarnings("error")
def test_a_text_that_a_template_changes_is_not_left_out():
    shouted = "{% for message in messages %}{{ message.content.replace(' ', '_') }}{% endfor %}"
    assert render(shouted, [{"role": "user", "content": "one two"}]) == "one_two"


def test_the_forms_are_looked_for_once_and_only_where_they_matter(monkeypatch):
    chat_forms._find_forms.cache_clear()
    processes = []
    for module in (chat, chat_forms):
        monkeypatch.setattr(
            module,
            "render_all",
            lambda *call, f=module.render_all: processes.append(len(call[1])) or f(*call),
        )
    render(chat_templates.JSON, "turns")
    assert processes == [1], "an ordinary conversation"
    render(chat_templates.JSON, "null")
    probing, rendering = processes[1:]
    assert probing > 10 and rendering == 1
    render(chat_templates.JSON, "parts")
    render(chat_templates.JSON, "parallel")
    assert processes[3:] == [1, 1]


def test_a_template_too_large_to_look_for_its_forms_is_rendered_as_it_is():
    large = "{{ 'x' * 2**20 }}"
    assert len(render(large, "question")) == 2**20
    with pytest.raises(TokenizerError, match="wrote more than 4 MiB"):
        render(large, "null")
