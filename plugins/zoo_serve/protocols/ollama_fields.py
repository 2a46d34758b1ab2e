"""The fields of Ollama's endpoints, and the schemas of their responses.

One rule: what asks for another answer is obeyed, or refused by name; what cannot change the answer is accepted.
"""

from __future__ import annotations

from typing import Any

from zoo_serve.fields import (
    FLAG,
    LIST,
    OBJECT,
    TEXT,
    WHOLE,
    Field,
    Fields,
    Schema,
    object_of,
    open_object_of,
    or_null,
)
from zoo_serve.protocols import chat, openai

NUMBER: Schema = {"type": "number"}
MACHINE = "how the model is held and computed is the server's choice"
OPTIONS = Fields(
    {
        "num_predict": Field(
            {**WHOLE, "minimum": -2},
            about="Maximum number of tokens to generate; -1 and -2: the bound of a request that gives none.",
        ),
        "num_ctx": Field(
            {**WHOLE, "minimum": 1},
            about="Tokens that a prompt and its answer may have, at most the model's context. A longer prompt is refused, not "
            "cut.",
        ),
        "seed": Field(WHOLE, about="Random seed; below 0: a new one each time."),
        "top_k": Field({**WHOLE, "minimum": -1}, about="Sample from the k likeliest tokens (0 and -1: all)."),
        "repeat_penalty": Field(NUMBER, setting="repetition_penalty"),
        "repeat_last_n": Field(
            {**WHOLE, "minimum": -1},
            about="Number of last tokens that `repeat_penalty` looks at (64; 0: no penalty, -1: all).",
        ),
        "penalize_newline": Field(FLAG, only=(True,)),
        "tfs_z": Field(NUMBER, only=(1, 1.0)),
        "vocab_only": Field(FLAG, only=(False,)),
        "num_keep": Field(WHOLE, ignored="nothing is dropped from a prompt"),
        **dict.fromkeys(("num_batch", "num_gpu", "main_gpu", "num_thread"), Field(WHOLE, ignored=MACHINE)),
        **dict.fromkeys(
            ("use_mmap", "use_mlock", "low_vram", "numa", "f16_kv", "logits_all"),
            Field(FLAG, ignored=MACHINE),
        ),
    },
    settings=True,
    without=openai.NOT_IN_CHAT,
)
REPEAT_LAST = 64  # tokens that `repeat_penalty` looks at where `repeat_last_n` does not say


class RequestFields(Fields):
    """The fields of a request with `options`, whose schema is that of OPTIONS."""

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of such a request."""
        schema = super().schema()
        schema["properties"]["options"] = {**or_null(OPTIONS.schema()), "description": "Settings."}
        return schema


CALL = object_of(
    {"function": object_of({"name": TEXT}, {"arguments": {"anyOf": [TEXT, OBJECT]}, "index": WHOLE})},
    {"id": TEXT, "type": {"enum": ["function"]}, "index": WHOLE},
)
MESSAGE = object_of(
    {"role": {"enum": ["system", "user", "assistant", "tool"]}},
    {
        "content": TEXT,
        "thinking": TEXT,
        "images": LIST,
        "tool_calls": {**LIST, "items": CALL},
        "tool_call_id": TEXT,
        "tool_name": TEXT,
        "name": TEXT,
    },
)
IMAGES = Field(LIST, about="An empty list: no model here reads images.")
SHARED = {
    "model": Field(TEXT, about="A name of GET /api/tags, with or without `:latest`."),
    "options": Field(OBJECT),
    "keep_alive": Field(
        {"anyOf": [NUMBER, TEXT]},
        about='How long the model stays loaded after this request: seconds or "5m", 0: unload it, below 0: keep it. '
        "Without it, the server's `--unload-after` says.",
    ),
}
GENERATION = {
    **SHARED,
    "stream": Field(FLAG, about="Send the answer as lines of JSON; default true."),
    "format": Field({"anyOf": [{"enum": ["", "json"]}, OBJECT]}, about='"json", or a schema of the answer.'),
    "think": Field(
        {"anyOf": [FLAG, {"enum": ["low", "medium", "high", "max"]}]},
        about="The chat template's variable `enable_thinking`; a word is `reasoning_effort`, too.",
    ),
    "logprobs": Field(FLAG, about="Return the log-probability of each token."),
    "top_logprobs": Field({**WHOLE, "minimum": 0, "maximum": openai.MOST_ALTERNATIVES}),
    "template": Field(TEXT, only=("",), about="The model's own chat template lays a prompt out."),
    "truncate": Field(FLAG, only=(False,), about="A prompt beyond the context is refused."),
    "shift": Field(FLAG, only=(False,), about="An answer ends with the context."),
}
CHAT_FIELDS = RequestFields(
    {
        **GENERATION,
        "messages": Field({**LIST, "items": MESSAGE}, about="Without any, the model is loaded or unloaded."),
        "tools": Field({**LIST, "items": {"anyOf": [chat.TOOL]}}),
    },
    required=("model",),
)
GENERATE_FIELDS = RequestFields(
    {
        **GENERATION,
        "prompt": Field(TEXT, about="Without one, the model is loaded or unloaded."),
        "system": Field(TEXT, about="A system message before the prompt."),
        "raw": Field(FLAG, about="Continue the prompt as it is, without a chat template."),
        "images": IMAGES,
        "suffix": Field(TEXT, only=("",)),
        "context": Field(LIST, about="An empty list: /api/chat takes a conversation."),
    },
    required=("model",),
)
EMBED_FIELDS = Fields(
    {
        **SHARED,
        "input": Field(
            {"anyOf": [TEXT, {**LIST, "items": TEXT, "minItems": 1}]}, about="A text, or several of them."
        ),
        "truncate": Field(FLAG, about="Cut texts to the model's context; default true."),
        "dimensions": Field(
            {**WHOLE, "minimum": 1}, about="Return the first numbers of each vector, scaled to length 1."
        ),
    },
    required=("model", "input"),
)
EMBEDDINGS_FIELDS = Fields({**SHARED, "prompt": Field(TEXT)}, required=("model", "prompt"))
SHOW_FIELDS = Fields(
    {
        "model": SHARED["model"],
        "name": Field(TEXT, about="Another name of `model`."),
        "verbose": Field(FLAG, ignored="the tokenizer's tokens are not listed"),
    }
)

NUMBERS: dict[str, Schema] = {
    "total_duration": WHOLE,
    "load_duration": WHOLE,
    "prompt_eval_count": WHOLE,
    "prompt_eval_duration": WHOLE,
    "eval_count": WHOLE,
    "eval_duration": WHOLE,
}
HEAD: dict[str, Schema] = {
    "model": TEXT,
    "created_at": {**TEXT, "format": "date-time"},
    "done": FLAG,
    "done_reason": {"enum": ["stop", "length", "load", "unload"]},
}
LAST: dict[str, Schema] = {**NUMBERS, "logprobs": LIST}
CHAT_RESPONSE = object_of(
    {
        **HEAD,
        "message": object_of(
            {"role": {"enum": ["assistant"]}, "content": TEXT},
            {"thinking": TEXT, "tool_calls": {**LIST, "items": CALL}},
        ),
    },
    LAST,
)
GENERATE_RESPONSE = object_of({**HEAD, "response": TEXT}, {**LAST, "thinking": TEXT})
VECTOR: Schema = {**LIST, "items": NUMBER}
EMBED_RESPONSE = object_of(
    {
        "model": TEXT,
        "embeddings": {**LIST, "items": VECTOR},
        **{name: WHOLE for name in ("total_duration", "load_duration", "prompt_eval_count")},
    }
)
DETAILS = object_of(
    {"parent_model": TEXT, "format": TEXT, "family": TEXT, "families": {**LIST, "items": TEXT}},
    {"parameter_size": TEXT, "quantization_level": TEXT},
)
SHOW_RESPONSE = object_of(
    {"details": DETAILS, "model_info": OBJECT, "capabilities": {**LIST, "items": TEXT}}, {"modified_at": TEXT}
)
LISTED = open_object_of({"name": TEXT, "model": TEXT, "digest": TEXT, "details": DETAILS}, {"size": WHOLE})
LIST_RESPONSE = object_of({"models": {**LIST, "items": LISTED}})
