"""Chat templates that take messages in different forms, as public ones do, and conversations in OpenAI's form."""

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "What the weather will be.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]


def call(number, city, arguments='{"city": "%s", "days": 2}'):
    function = {"name": "weather", "arguments": arguments % city}
    return {"id": f"abcdefgh{number}", "type": "function", "function": function}


def result(number, text):
    return {"role": "tool", "tool_call_id": f"abcdefgh{number}", "name": "weather", "content": text}


def part(text):
    return {"type": "text", "text": text}


ASKED = {"role": "user", "content": "What will the weather be?"}
CALLING = {"role": "assistant", "content": None, "tool_calls": [call(1, "Rome")]}

CONVERSATIONS = {
    "question": [{"role": "user", "content": "Hi <b>你好</b> 😀 it's"}],
    "turns": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "Two.", "refusal": None, "tool_calls": []},
        {"role": "user", "content": "Three?", "name": "Ann"},
    ],
    "null": [ASKED, CALLING, result(1, "Rain.")],
    "empty": [ASKED, CALLING | {"content": ""}, result(1, "Rain.")],
    "absent": [ASKED, {"role": "assistant", "tool_calls": [call(1, "Rome")]}, result(1, "Rain.")],
    "beside a text": [ASKED, CALLING | {"content": "Let me look."}, result(1, "Rain.")],
    "parallel": [
        ASKED,
        CALLING | {"tool_calls": [call(1, "Rome"), call(2, "Osló")]},
        result(1, "Rain."),
        result(2, "Snow."),
    ],
    "after a call": [
        ASKED,
        CALLING,
        result(1, "Rain."),
        {"role": "assistant", "content": "It will rain."},
        {"role": "user", "content": "Thanks."},
    ],
    "parts": [
        {"role": "system", "content": [part("Be brief.")]},
        {"role": "user", "content": [part("One?")]},
        {"role": "assistant", "content": [part("Two.")]},
        {"role": "user", "content": [part("Three?")]},
    ],
    "a result in parts": [ASKED, CALLING, result(1, [part("Rain.")])],
    "without results": [ASKED, CALLING],
    "thinking": [
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "Two.", "reasoning": "Hm."},
        {"role": "user", "content": "Three?"},
    ],
}

ENDING = "{%- if add_generation_prompt %}<assistant>{% endif %}"
# Calls where the content is null, with arguments as text; nothing of them elsewhere.
NULL = (
    """{{ bos_token }}
{%- for message in messages %}
    {%- if message.role == 'assistant' and message.content is none %}
        {%- for call in message.tool_calls %}
            {{- '<call>' + call.function.name + ' ' + call.function.arguments + '</call>' }}
        {%- endfor %}
    {%- else %}
        {{- '<' + message.role + '>' + message.content }}
    {%- endif %}
    {{- '</s>' }}
{%- endfor %}"""
    + ENDING
)
# Arguments as an object, name by name; a content that must be a text.
OBJECT = (
    """{%- for tool in tools or [] %}{{ tool | tojson }}{% endfor %}
{%- for message in messages %}
    {{- '<' + message.role + '>' + message.content }}
    {%- if message.reasoning_content %}{{ '<think>' + message.reasoning_content + '</think>' }}{% endif %}
    {%- for call in message.tool_calls or [] %}
        {{- '<call>' + call.function.name }}
        {%- for name, value in call.function.arguments.items() %}{{ ' ' ~ name ~ '=' ~ value }}{% endfor %}
        {{- '</call>' }}
    {%- endfor %}
{%- endfor %}"""
    + ENDING
)
# Arguments as text or an object, of which only the object is not quoted twice; contents as text or parts.
JSON = (
    """{%- macro written(content) %}
    {%- if content is string %}{{ content | trim }}
    {%- else %}{% for part in content or [] %}{{ part.text | trim }}{% endfor %}{% endif %}
{%- endmacro %}
{%- for message in messages %}
    {{- '<' + message.role + '>' + written(message.content) }}
    {%- for call in message.tool_calls or [] %}
        {{- '<call>' }}{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}
    {%- endfor %}
{%- endfor %}"""
    + ENDING
)
# Arguments as text, or the template refuses.
STRING = (
    """{%- for message in messages %}
    {{- '<' + message.role + '>' + (message.content or '') }}
    {%- for call in message.tool_calls or [] %}
        {%- if call.function.arguments is not string %}{{ raise_exception('arguments must be a string') }}{% endif %}
        {{- '<call>' + call.function.name + call.function.arguments }}
    {%- endfor %}
{%- endfor %}"""
    + ENDING
)
# Parts alone: of a text it writes nothing.
PARTS = (
    """{%- for message in messages %}
    {{- '<' + message.role + '>' }}
    {%- for part in message.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}
{%- endfor %}"""
    + ENDING
)
# Parts alone: a text is an error.
FIRST_PART = (
    "{% for message in messages %}{{ '<' + message.role + '>' + message.content[0].text }}{% endfor %}"
)
# A system message as text, the others as parts.
MIXED = (
    """{%- for message in messages %}
    {%- if message.role == 'system' %}{{ message.content + '.' }}
    {%- else %}{% for part in message.content %}{{ '<' + message.role + '>' + part.text }}{% endfor %}{% endif %}
{%- endfor %}"""
    + ENDING
)
# The first call of a message alone.
FIRST_CALL = (
    """{%- for message in messages %}
    {{- '<' + message.role + '>' + (message.content or '') }}
    {%- if message.tool_calls %}{{ message.tool_calls[0].function | tojson }}{% endif %}
{%- endfor %}"""
    + ENDING
)
# A call instead of the text beside it.
INSTEAD = (
    """{%- for message in messages %}
    {{- '<' + message.role + '>' }}
    {%- if message.tool_calls %}{{ message.tool_calls | map(attribute='function') | list | tojson }}
    {%- else %}{{ message.content }}{% endif %}
{%- endfor %}"""
    + ENDING
)
# No calls, nothing of the system.
PLAIN = (
    "{% for message in messages if message.role != 'system' %}"
    "{{ '<' + message.role + '>' + (message.content or '') }}{% endfor %}" + ENDING
)
# No calls, and no results.
ALTERNATING = (
    "{% for message in messages %}{% if message.role == 'tool' %}{{ raise_exception('it takes no results') }}{% endif %}"
    "{{ '<' + message.role + '>' + (message.content or '') }}{% endfor %}" + ENDING
)
# No calls in the last message.
EARLIER = (
    """{%- for message in messages %}
    {{- '<' + message.role + '>' + (message.content or '') }}
    {%- if message.tool_calls and not loop.last %}{{ message.tool_calls | tojson }}{% endif %}
{%- endfor %}"""
    + ENDING
)
