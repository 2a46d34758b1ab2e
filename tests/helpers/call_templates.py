"""Chat templates after public formats, put together from `call_templates.toml`, and what they render."""

import json
import tomllib
from functools import cache
from pathlib import Path

from jinja2.sandbox import ImmutableSandboxedEnvironment

from zoo.generation.chat.parsing import AnswerFormat
from zoo.generation.chat.parsing import answer_format as format_of
from zoo.host.registry import default_registry

OPEN, CLOSE = "<|im_start|>{{ role }}\n", "<|im_end|>\n"
CONTENT = "{{ m.content }}"
ENTRIES = {}
for _name, _entry in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items():
    ENTRIES[_name] = {**ENTRIES.get(_entry.get("like"), {}), **_entry}


class NamedTemplate:
    """What `answer_format` asks of a tokenizer: the template and no special tokens."""

    def __init__(self, name):
        entry = ENTRIES[name]
        start, end = entry.get("open", OPEN), entry.get("close", CLOSE)
        self.chat_template = (
            f"{{%- if tools %}}{{% set role = 'system' %}}{start}{entry['tools']}{end}{{% endif -%}}"
            f"{{% for m in messages %}}{{% set role = m.role %}}{start}{{% if m.tool_calls %}}"
            f"{{{{ m.content }}}}{entry['calls']}{{% elif role == 'assistant' %}}{entry.get('text', CONTENT)}"
            f"{{% else %}}{CONTENT}{{% endif %}}{end}{{% endfor -%}}"
            f"{{% if add_generation_prompt %}}{{% set role = 'assistant' %}}{start}{entry.get('prompt', '')}{{% endif %}}"
        )

    def id(self, token):
        return None


@cache
def answer_format(name) -> AnswerFormat:
    """The format of the answers of a template."""
    return format_of(NamedTemplate(name), default_registry())


@cache
def _compiled(name):
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string(NamedTemplate(name).chat_template)


def rendered(name, messages, tools, *, prompt=True):
    """Messages as the template writes them."""
    return _compiled(name).render(messages=messages, tools=tools, add_generation_prompt=prompt)
