"""Chat templates: what they write, and that a hostile one costs a bounded time and memory."""

import datetime
import os

import pytest

from zoo.errors import TokenizerError
from zoo.tokenizer import chat
from zoo.tokenizer.chat import render_chat

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
    return render_chat(template, messages, special_tokens=TOKENS, **options)


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


@pytest.mark.slow
@pytest.mark.parametrize(
    "template",
    [
        "{{ 'a' * 10**9 }}",
        "{{ '%1000000000s' % 'x' }}",
        "{{ 'x' | center(10**9) }}",
        "{% set n = namespace(a='aaaaaaaa') %}"
        "{% for i in range(60) %}{% set n.a = n.a ~ n.a %}{% endfor %}{{ n.a | length }}",
    ],
    ids=["product", "format", "filter", "doubling"],
)
def test_giant_strings_end_the_renderer_alone(template):
    assert refusal(template) in (
        "ran out of memory",
        "wrote more than 4 MiB",
        "took more than 5 s of processor time",
    )


def test_memory_is_watched_where_the_system_sets_no_limit(monkeypatch):
    assert chat._resident_bytes(os.getpid()) > 2**20
    render = chat._render_in_process
    limit = f'"memory_bytes": {chat.MEMORY}'.encode()
    monkeypatch.setattr(
        chat, "_render_in_process", lambda text: render(text.replace(limit, b'"memory_bytes": 1099511627776'))
    )
    grow = "{% set n = namespace(a=[]) %}"
    grow += "{% for i in range(90) %}{% set n.a = n.a + ['x' * (10**7 + i)] %}{% endfor %}"
    grow += "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    assert refusal(grow) == "ran out of memory"


def test_a_loop_without_end_is_stopped(monkeypatch):
    monkeypatch.setattr(chat, "CPU_SECONDS", 1)
    forever = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    assert refusal(forever) == "took more than 1 s of processor time"


def test_waiting_for_the_processor_does_not_count_as_using_it(monkeypatch, tmp_path):
    (tmp_path / "chat_worker.py").write_text('import time; time.sleep(0.5); print(\'{"text": "x"}\')')
    monkeypatch.setattr(chat, "__file__", str(tmp_path / "chat.py"))
    monkeypatch.setattr(chat, "CPU_SECONDS", 0.1)
    assert render("x") == "x"


def test_the_clock_counts_too(monkeypatch, tmp_path):
    (tmp_path / "chat_worker.py").write_text("import time; time.sleep(60)")
    monkeypatch.setattr(chat, "__file__", str(tmp_path / "chat.py"))
    monkeypatch.setattr(chat, "CLOCK_SECONDS", 0.3)
    assert refusal("x") == "took longer than 0.3 s"


def test_endless_output_is_stopped_early():
    endless = "{% for i in range(99999) %}{% for j in range(99999) %}" + "x" * 99 + "{% endfor %}{% endfor %}"
    assert refusal(endless) == "wrote more than 4 MiB"
    assert len(render("{{ 'x' * (4 * 2**20) }}")) == 4 * 2**20
    assert refusal("{{ '你' * (2 * 2**20) }}") == "wrote more than 4 MiB"  # bytes, not characters


def test_the_reader_stops_a_process_that_writes_too_much(monkeypatch):
    monkeypatch.setattr(chat, "OUTPUT", 0)  # the renderer is told 4 MiB all the same
    render = chat._render_in_process
    told = str(4 * 2**20).encode()
    monkeypatch.setattr(
        chat,
        "_render_in_process",
        lambda text: render(text.replace(b'"output_bytes": 0', b'"output_bytes": ' + told)),
    )
    assert refusal("{{ 'x' * 10**6 }}") == "wrote more than 0 MiB"


def test_a_renderer_that_dies_is_reported(monkeypatch, tmp_path):
    (tmp_path / "chat_worker.py").write_text("raise SystemExit(3)")
    monkeypatch.setattr(chat, "__file__", str(tmp_path / "chat.py"))
    assert "status 3" in refusal("x")


def test_the_renderer_sees_no_secret_of_the_environment(monkeypatch, tmp_path):
    spy = "import os, json; print(json.dumps({'text': str('HF_TOKEN' in os.environ)}))"
    (tmp_path / "chat_worker.py").write_text(spy)
    monkeypatch.setattr(chat, "__file__", str(tmp_path / "chat.py"))
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert render("x") == "False"


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([{"role": "user"}], "message 1: content must be a string, it is missing"),
        ([TALK[0], {"role": "user", "content": [{"type": "text"}]}], "message 2: content must be a string"),
        ([{"role": 1, "content": "x"}], "message 1: role must be a string"),
        (["hi"], "message 1 must be an object"),
        ([{"role": "user", "content": "x", "extra": object()}], "not plain data"),
    ],
)
def test_messages_are_checked(messages, reason):
    assert reason in refusal(CHATML, messages)


def test_half_a_character_gets_through_unharmed():
    assert render("{{ messages[0].content }}", [{"role": "user", "content": "a\ud83d"}]) == "a\ud83d"
