"""`/tokenize` and `/detokenize`: texts to token ids and back, as servers of open models have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo_serve.endpoint import Endpoint
from zoo_serve.fields import FLAG, LIST, TEXT, TOKENS, WHOLE, Field, Fields, object_of
from zoo_serve.protocols import chat, openai
from zoo_serve.requests import DetokenizeRequest, RequestError, TokenizeRequest

FIELDS = Fields(
    {
        "model": openai.MODEL,
        "prompt": Field(TEXT, about="A text."),
        "content": Field(TEXT, about="Another name of `prompt`."),
        "messages": chat.FIELDS.own["messages"],
        "tools": chat.FIELDS.own["tools"],
        "chat_template_kwargs": openai.CHAT["chat_template_kwargs"],
        "add_special_tokens": Field(
            FLAG, about="Add the tokens around a text; default true. A chat template writes its own."
        ),
        "continue_final_message": openai.CHAT["continue_final_message"],
        "add_generation_prompt": Field(FLAG, only=(True,)),
        "return_token_strs": Field(FLAG, about="Return the text of each token, too."),
    }
)
DETOKENIZE_FIELDS = Fields({"model": openai.MODEL, "tokens": Field(TOKENS)}, required=("tokens",))
OF_MESSAGES = ("tools", "chat_template_kwargs")


def parse(body: Mapping[str, Any]) -> TokenizeRequest:
    """Parse the body of a request."""
    values, _ = FIELDS.checked(body)
    given = [name for name in ("prompt", "content", "messages") if name in values]
    if len(given) != 1:
        raise RequestError(400, "give one of `prompt`, `content` and `messages`", param="prompt")
    others = ("add_special_tokens",) if given == ["messages"] else OF_MESSAGES
    for name in others:
        if name in values:
            raise RequestError(400, f"`{name}` changes nothing beside `{given[0]}`", param=name)
    return TokenizeRequest(
        model=values.get("model"),
        text=values.get("prompt", values.get("content")),
        messages=chat.messages_of(values) if given == ["messages"] else None,
        tools=tuple(values.get("tools", ())),
        variables=values.get("chat_template_kwargs", {}),
        special_tokens=values.get("add_special_tokens", True),
        token_texts=values.get("return_token_strs", False),
    )


def respond(request: TokenizeRequest, result: tuple[Any, list[int], list[str] | None]) -> dict[str, Any]:
    """The response of the ids."""
    context, ids, texts = result
    values = {"count": len(ids), "max_model_len": context, "tokens": ids, "token_strs": texts}
    return {name: value for name, value in values.items() if value is not None}


def parse_detokenize(body: Mapping[str, Any]) -> DetokenizeRequest:
    """Parse the body of a request."""
    values, _ = DETOKENIZE_FIELDS.checked(body)
    return DetokenizeRequest(model=values.get("model"), tokens=tuple(values["tokens"]))


TOKENIZE = Endpoint(
    path="/tokenize",
    about="Give the token ids of a text or of a conversation.",
    fields=FIELDS,
    parse=parse,
    respond=respond,
    response=object_of(
        {"count": WHOLE, "tokens": {**TOKENS, "minItems": 0}},
        {"max_model_len": WHOLE, "token_strs": {**LIST, "items": TEXT}},
    ),
    error=openai.error,
)
DETOKENIZE = Endpoint(
    path="/detokenize",
    about="Give the text of token ids.",
    fields=DETOKENIZE_FIELDS,
    parse=parse_detokenize,
    respond=lambda request, text: {"prompt": text},
    response=object_of({"prompt": TEXT}),
    error=openai.error,
)
