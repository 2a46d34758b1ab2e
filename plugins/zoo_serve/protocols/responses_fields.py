"""The fields of `/v1/responses` and the schema of its response."""

from __future__ import annotations

from typing import Any

from zoo_serve.fields import FLAG, OBJECT, TEXT, WHOLE, Field, Fields, Schema, object_of, or_null, tagged
from zoo_serve.protocols import openai

ANY: Schema = {}
PLACE: dict[str, Schema] = {"id": TEXT, "status": {"enum": ["in_progress", "completed", "incomplete"]}}
DIRECT: dict[str, Schema] = {
    "caller": object_of({"type": {"enum": ["direct"]}}),
    "async": {"enum": [False]},
}
INPUT_TEXT = tagged("input_text", {"text": TEXT})
CONTENT: Schema = {
    "anyOf": [
        INPUT_TEXT,
        tagged("output_text", {"text": TEXT}, {"annotations": ANY, "logprobs": ANY}),
        tagged("refusal", {"refusal": TEXT}),
    ]
}
ITEM: Schema = {
    "anyOf": [
        tagged(
            "message",
            {
                "role": {"enum": ["user", "assistant", "system", "developer"]},
                "content": {"anyOf": [TEXT, {"type": "array", "items": CONTENT, "minItems": 1}]},
            },
            {**PLACE, "phase": TEXT},
            default=True,
        ),
        tagged(
            "function_call",
            {"call_id": TEXT, "name": TEXT, "arguments": TEXT},
            {**PLACE, **DIRECT, "namespace": TEXT},
        ),
        tagged(
            "function_call_output",
            {
                "call_id": TEXT,
                "output": {
                    "anyOf": [TEXT, {"type": "array", "items": {"anyOf": [INPUT_TEXT]}, "minItems": 1}]
                },
            },
            {**PLACE, **DIRECT, "name": TEXT},
        ),
        tagged(
            "reasoning",
            {},
            {
                **PLACE,
                "summary": {
                    "type": "array",
                    "items": {"anyOf": [tagged("summary_text", {"text": TEXT})]},
                },
                "content": {
                    "type": "array",
                    "items": {"anyOf": [tagged("reasoning_text", {"text": TEXT})]},
                },
                "encrypted_content": {"type": "null"},
            },
        ),
    ]
}
TOOL = tagged(
    "function",
    {"name": TEXT},
    {"description": TEXT, "parameters": OBJECT, "strict": FLAG, "defer_loading": {"enum": [False]}},
)
NAMESPACE = tagged(
    "namespace",
    {"name": TEXT, "tools": {"type": "array", "items": {"type": "object", "required": ["type"]}}},
    {"description": TEXT},
)
# Tools that programs offer unasked, and that OpenAI's servers run or whose calls are no JSON. Others are refused.
LEFT_OUT = (
    *("web_search", "web_search_preview", "image_generation", "tool_search"),
    *("custom", "local_shell", "shell", "apply_patch"),
)
SERVER_TOOL: Schema = {
    "type": "object",
    "required": ["type"],
    "properties": {"type": {"enum": list(LEFT_OUT)}},
    "description": "Left out, with a line in the log: nothing here runs such a tool.",
}
NAMED = tagged("function", {"name": TEXT})
FORMAT: Schema = {
    "anyOf": [
        tagged("text", {}),
        tagged("json_object", {}),
        tagged("json_schema", {"name": TEXT, "schema": OBJECT}, {"description": TEXT, "strict": FLAG}),
    ]
}
FIELDS = Fields(
    {
        "model": openai.MODEL,
        "input": Field(
            {"anyOf": [TEXT, {"type": "array", "items": ITEM, "minItems": 1}]},
            about="A text, or messages, calls, their outputs and reasoning.",
        ),
        "instructions": Field(TEXT, about="A system message before the input."),
        "stream": openai.STREAM["stream"],
        "stream_options": Field(
            object_of({}, {"include_obfuscation": {"enum": [False]}}), ignored="no event is obfuscated"
        ),
        **openai.SETTINGS,
        "max_output_tokens": Field({**WHOLE, "minimum": 1}, setting="max_tokens"),
        "text": Field(
            object_of({}, {"format": FORMAT, "verbosity": openai.VERBOSITY}),
            about="`format`: text, any JSON object, or JSON that matches a schema; `verbosity` is a variable of the chat template.",
        ),
        "tools": Field(
            {"type": "array", "items": {"anyOf": [TOOL, NAMESPACE, SERVER_TOOL]}},
            about="Functions, also those of a namespace. Those that programs offer unasked and nothing here runs are left out, with a line in the log.",
        ),
        "tool_choice": Field(
            {
                "anyOf": [
                    {"enum": ["none", "auto", "required"]},
                    NAMED,
                    tagged(
                        "allowed_tools",
                        {
                            "mode": {"enum": ["auto", "required"]},
                            "tools": {"type": "array", "items": NAMED, "minItems": 1},
                        },
                    ),
                ]
            }
        ),
        **openai.CHAT,
        "reasoning": Field(
            object_of(
                {},
                {
                    "effort": {"enum": list(openai.EFFORTS)},
                    "summary": {"enum": ["auto"]},
                    "generate_summary": {"enum": ["auto"]},
                },
            ),
            about='`effort` is the chat template\'s variable `reasoning_effort`; with "none", `enable_thinking` is false. '
            "The reasoning is returned whole, and not summarised.",
        ),
        "include": Field(
            {"type": "array", "items": {"enum": ["reasoning.encrypted_content"]}},
            ignored="reasoning is always returned, and not encrypted",
        ),
        "top_logprobs": Field(WHOLE, only=(0,), about="/v1/chat/completions has log-probabilities."),
        "logprobs": Field(FLAG, only=(False,)),
        "truncation": Field(
            {"enum": ["auto", "disabled"]},
            ignored="an input that fits is not cut, and one that does not is an error",
        ),
        "client_metadata": Field(OBJECT, ignored="nothing is stored"),
        "previous_response_id": Field({"type": "null"}, about="Nothing is stored."),
        "conversation": Field({"type": "null"}, about="Nothing is stored."),
        "background": Field(FLAG, only=(False,), about="Nothing is stored."),
        **openai.IGNORED,
    },
    required=("input",),
    settings=True,
    without=openai.NOT_IN_CHAT,
)

# Request fields that the response repeats, and default values of those that every response has.
REPEATABLE = (
    *("instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "reasoning", "temperature"),
    *("text", "tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user"),
)
REPEATED: dict[str, Any] = {
    "instructions": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": None,
    "truncation": "disabled",
}


OUTPUT_TEXT = tagged(
    "output_text", {"text": TEXT, "annotations": {"type": "array"}, "logprobs": {"type": "array"}}
)
STATUS: Schema = {"enum": ["completed", "incomplete"]}


def _list(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


OUTPUT: Schema = {
    "anyOf": [
        tagged(
            "reasoning",
            {
                "id": TEXT,
                "status": STATUS,
                "summary": {"type": "array", "maxItems": 0},
                "content": _list(tagged("reasoning_text", {"text": TEXT})),
            },
        ),
        tagged(
            "message",
            {"id": TEXT, "status": STATUS, "role": {"enum": ["assistant"]}, "content": _list(OUTPUT_TEXT)},
        ),
        tagged(
            "function_call",
            {"id": TEXT, "status": STATUS, "call_id": TEXT, "name": TEXT, "arguments": TEXT},
            {"namespace": TEXT},
        ),
    ]
}
RESPONSE = object_of(
    {
        "id": TEXT,
        "object": {"enum": ["response"]},
        "created_at": WHOLE,
        "model": TEXT,
        **{name: {} for name in REPEATED},
        "status": STATUS,
        "error": {"type": "null"},
        "incomplete_details": or_null(object_of({"reason": {"enum": ["max_output_tokens"]}})),
        "output": _list(OUTPUT),
        "usage": object_of(
            {
                "input_tokens": WHOLE,
                "input_tokens_details": object_of({"cached_tokens": WHOLE, "cache_write_tokens": WHOLE}),
                "output_tokens": WHOLE,
                "output_tokens_details": object_of({"reasoning_tokens": WHOLE}),
                "total_tokens": WHOLE,
            }
        ),
        "background": {"enum": [False]},
        "store": {"enum": [False]},
    },
    {name: {} for name in REPEATABLE if name not in REPEATED},
)
