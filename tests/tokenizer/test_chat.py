"""Chat templates: what they write of a conversation."""

import datetime

import pytest

from zoo.errors import TokenizerError
from zoo.tokenizer import chat
from zoo.tokenizer.chat import render_chat

pytestmark = pytest.mark.filterwarnings("ignore:the chat template leaves out")

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi <b>你好</b> 😀"},
]

CHATML = """
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""


def render(template, messages=TALK, **options):
    return render_chat(template, messages, special_tokens=TOKENS, variables=options)


def refusal(template, messages=TALK, **options):
    with pytest.raises(TokenizerError, match=r"^chat template: ") as caught:
        render(template, messages, **options)
    text = str(caught.value)
    assert "\n" not in text
    return text.removeprefix("chat template: ")


def test_a_conversation_is_laid_out():
    said = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi <b>你好</b> 😀<|im_end|>\n"
    assert render(CHATML) == said + "<|im_start|>assistant\n"
    assert render(CHATML, add_generation_prompt=False) == said
    assert render(CHATML, enable_thinking=False).endswith("assistant\n<think>\n\n</think>\n\n")


def test_special_tokens_and_absent_tools_are_visible():
    template = "{{ bos_token }}{{ eos_token }}{{ tools is none }}{{ unk_token }}"
    assert render(template) == "<s></s>True"


def test_a_block_takes_its_line_with_it():
    assert render("{% if true %}\n  {% if true %}\nx\n  {% endif %}\n{% endif %}\ny\n") == "x\ny"


def test_loops_can_be_left_and_training_marks_are_no_text():
    template = "{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %}{% break %}{% endfor %}"
    assert render(template) == "system"


def test_json_is_written_as_it_is_read():
    tools = [{"name": "find", "text": "<é> & 你"}]
    assert render("{{ tools | tojson }}", tools=tools) == '[{"name": "find", "text": "<é> & 你"}]'
    assert render("{{ {'a': 1} | tojson(indent=2) }}") == '{\n  "a": 1\n}'


def test_the_date_can_be_asked_for():
    before = datetime.datetime.now().strftime("%Y")
    assert before <= render("{{ strftime_now('%Y') }}") <= datetime.datetime.now().strftime("%Y")


def test_a_template_can_refuse():
    assert refusal("{{ raise_exception('roles\nmust alternate') }}") == "roles must alternate"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("a\n{% if %}", "line 2: "),
        ("{{ messages[0].tools.name }}", "no attribute 'tools'"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ cycler.__init__.__globals__ }}", "unsafe"),
        ("{% set n = namespace() %}{% set n.__class__ = 1 %}", "'__class__'"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "calls itself too deeply"),
        ("{% include 'x' %}", "no loader"),
    ],
)
def test_an_error_in_a_template_is_one_line(template, reason):
    assert reason in refusal(template)


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([{"role": "user"}], "message 1: content must be a string or a list of text parts, it is missing"),
        (
            [TALK[0], {"role": "user", "content": [{"type": "text"}]}],
            "message 2: part 1 of its content must be",
        ),
        ([{"role": 1, "content": "x"}], "message 1: role must be a string"),
        (["hi"], "message 1 must be an object"),
        ([{"role": "user", "content": "x", "extra": object()}], "not plain data"),
    ],
)
def test_messages_are_checked(messages, reason):
    assert reason in refusal(CHATML, messages)


def test_half_a_character_gets_through_unharmed():
    assert render("{{ messages[0].content }}", [{"role": "user", "content": "a\ud83d"}]) == "a\ud83d"


def test_each_text_of_a_conversation_is_looked_for_from_the_one_before():
    messages = [{"role": "user", "content": str(number)} for number in range(1000)]
    assert render("{% for message in messages %}{{ message.content }} {% endfor %}", messages).endswith(
        "999 "
    )
    moved = [*messages[1:], messages[0]]
    assert chat._has_all(" ".join(m["content"] for m in messages), moved)
    assert not chat._has_all("0 1", [{"role": "user", "content": "2"}])


BEGUN = {"role": "assistant", "content": "The Nile "}
SHORTENED = CHATML.replace("message['content']", "(message['content'] | trim)")


@pytest.mark.parametrize("template", [CHATML, SHORTENED], ids=["as it is", "shortened"])
def test_a_last_message_that_is_continued_ends_the_prompt(template):
    rendered = render(template, [*TALK, BEGUN], continue_final_message=True)
    assert rendered.endswith("<|im_start|>assistant\nThe Nile ")
    assert rendered.count("<|im_start|>assistant") == 1
    assert render(template, [*TALK, BEGUN], continue_final_message=False) == render(template, [*TALK, BEGUN])


@pytest.mark.parametrize(
    "message",
    [
        TALK[1],
        {"role": "assistant", "content": ""},
        {
            "role": "assistant",
            "content": "So",
            "tool_calls": [{"function": {"name": "f", "arguments": {}}}],
        },
    ],
    ids=["a user's", "empty", "with calls"],
)
def test_only_the_text_of_an_answer_is_continued(message):
    assert "message 3" in refusal(CHATML, [*TALK, message], continue_final_message=True)


def test_a_template_that_leaves_the_last_message_out_cannot_continue_it():
    template = CHATML.replace("messages %}", "messages[:1] %}")
    assert "to be continued" in refusal(template, [*TALK, BEGUN], continue_final_message=True)
