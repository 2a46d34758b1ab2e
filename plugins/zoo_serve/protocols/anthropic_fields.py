"""The fields of `/v1/messages` and `/v1/messages/count_tokens`, and the schema of a message."""

from __future__ import annotations

from zoo_serve.fields import FLAG, OBJECT, TEXT, WHOLE, Field, Fields, Schema, object_of, or_null, tagged
from zoo_serve.protocols import openai

ANY: Schema = {}
CACHED = {"cache_control": OBJECT}
CALLER = {"caller": object_of({"type": {"enum": ["direct"]}})}
TEXT_BLOCK = tagged("text", {"text": TEXT}, {**CACHED, "citations": ANY})
TEXTS: Schema = {"anyOf": [TEXT, {"type": "array", "items": {"anyOf": [TEXT_BLOCK]}}]}
USER_BLOCKS = [
    TEXT_BLOCK,
    tagged(
        "tool_result",
        {"tool_use_id": TEXT},
        {"content": TEXTS, "is_error": FLAG, **CACHED},
    ),
]
ANSWER_BLOCKS = [
    TEXT_BLOCK,
    tagged("tool_use", {"id": TEXT, "name": TEXT, "input": OBJECT}, {**CACHED, **CALLER}),
    tagged("thinking", {"thinking": TEXT}, {"signature": TEXT, **CACHED}),
    {
        **tagged("redacted_thinking", {"data": TEXT}),
        "description": "Left out: no model but the one that wrote it can read it.",
    },
]
BLOCKS = {"user": USER_BLOCKS, "assistant": ANSWER_BLOCKS, "system": [TEXT_BLOCK]}
MESSAGE: Schema = {
    "anyOf": [
        object_of(
            {
                "role": {"enum": [role]},
                "content": {"anyOf": [TEXT, {"type": "array", "items": {"anyOf": blocks}, "minItems": 1}]},
            }
        )
        for role, blocks in BLOCKS.items()
    ]
}
TOOL = tagged(
    "custom",
    {"name": TEXT, "input_schema": OBJECT},
    {
        "description": TEXT,
        **CACHED,
        "strict": FLAG,
        "eager_input_streaming": FLAG,
        "defer_loading": {"enum": [False]},
        "allowed_callers": {"type": "array", "items": {"enum": ["direct"]}},
    },
    default=True,
)
PARALLEL = {"disable_parallel_tool_use": FLAG}
TOOL_CHOICE: Schema = {
    "anyOf": [
        tagged("auto", {}, PARALLEL),
        tagged("any", {}, PARALLEL),
        tagged("tool", {"name": TEXT}, PARALLEL),
        tagged("none", {}),
    ]
}
DISPLAY = {"display": {"enum": ["summarized", "omitted"]}}
THINKING: Schema = {
    "anyOf": [
        tagged("enabled", {"budget_tokens": {**WHOLE, "minimum": 1}}, DISPLAY),
        tagged("adaptive", {}, DISPLAY),
        tagged("disabled", {}),
    ]
}
KEEPS_ALL = tagged("clear_thinking_20251015", {}, {"keep": {"enum": ["all"]}})

PROMPT = {
    "model": openai.MODEL,
    "messages": Field({"type": "array", "items": MESSAGE, "minItems": 1}),
    "system": Field(TEXTS),
    "tools": Field({"type": "array", "items": {"anyOf": [TOOL]}}),
    "thinking": Field(
        THINKING,
        about="The chat template's variable `enable_thinking`. How long the model thinks is its choice, whatever "
        '`budget_tokens` is; `max_tokens` bounds both. The thinking is returned whole, or with the `display` "omitted" left empty.',
    ),
    "output_config": Field(
        object_of(
            {},
            {
                "effort": {"enum": ["low", "medium", "high", "xhigh", "max"]},
                "format": tagged("json_schema", {"schema": OBJECT}),
            },
        ),
        about="`effort` is the chat template's variable `reasoning_effort`; `format` a schema of the answer.",
    ),
    "chat_template_kwargs": openai.CHAT["chat_template_kwargs"],
    "cache_control": Field(OBJECT, ignored="the prompt cache needs no marks"),
    "context_management": Field(
        object_of({}, {"edits": {"type": "array", "items": {"anyOf": [KEEPS_ALL]}}}),
        ignored="nothing is cleared",
    ),
    "speed": Field(TEXT, only=("standard",)),
    "thread": Field(object_of({"type": {"enum": ["create"]}}), ignored="nothing is stored"),
}
FIELDS = Fields(
    {
        **PROMPT,
        "tool_choice": Field(TOOL_CHOICE),
        "max_tokens": openai.SETTINGS["max_tokens"],
        "stop_sequences": Field(
            {"type": "array", "items": TEXT, "maxItems": openai.MOST_STOPS}, setting="stop"
        ),
        "temperature": openai.SETTINGS["temperature"],
        "top_p": openai.SETTINGS["top_p"],
        "top_k": openai.SETTINGS["top_k"],
        "stream": openai.STREAM["stream"],
        "strategy": openai.CHAT["strategy"],
        "metadata": openai.IGNORED["metadata"],
        "service_tier": openai.IGNORED["service_tier"],
        "logprobs": Field(FLAG, only=(False,)),
    },
    required=("messages", "max_tokens"),
    settings=True,
    without=openai.NOT_IN_CHAT,
)
COUNT_FIELDS = Fields(
    {**PROMPT, "tool_choice": Field(TOOL_CHOICE, ignored="it adds no token")}, required=("messages",)
)


RESPONSE = tagged(
    "message",
    {
        "id": TEXT,
        "role": {"enum": ["assistant"]},
        "model": TEXT,
        "content": {
            "type": "array",
            "items": {
                "anyOf": [
                    tagged("thinking", {"thinking": TEXT, "signature": TEXT}),
                    tagged("text", {"text": TEXT}),
                    tagged("tool_use", {"id": TEXT, "name": TEXT, "input": OBJECT}),
                ]
            },
        },
        "stop_reason": {"enum": ["end_turn", "max_tokens", "stop_sequence", "tool_use"]},
        "stop_sequence": or_null(TEXT),
        "usage": object_of(
            {
                "input_tokens": WHOLE,
                "cache_read_input_tokens": WHOLE,
                "cache_creation_input_tokens": WHOLE,
                "output_tokens": WHOLE,
                "output_tokens_details": object_of({"thinking_tokens": WHOLE}),
            }
        ),
    },
)
