"""Renders a conversation by a chat template."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.errors import TokenizerError
from zoo.tokenizer.chat_forms import chat_forms
from zoo.tokenizer.chat_messages import Message, checked_message, text_of, with_thinking
from zoo.tokenizer.chat_process import render_all


def render_chat(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    special_tokens: Mapping[str, str],
    add_generation_prompt: bool = True,
    **kwargs: Any,
) -> str:
    """The prompt that a chat template makes of messages.

    Messages have the form of OpenAI's interface, as `checked_message` has it, and may have more keys. They are rendered in
    the form that the template writes (`ChatForms`). The template sees the `special_tokens` by their names ("bos_token",
    ...) and the `kwargs` by theirs (such as `tools` or `enable_thinking`). `add_generation_prompt` ends the text where the
    model's answer begins. The template writes its own special tokens: encode the result with `special_tokens=False`.
    A role whose texts the template leaves out is warned of.

    TokenizerError, starting with "chat template:", for malformed messages and those that the template refuses, for tool
    calls that it would leave out, for an error in it, and for one that uses too much time or memory (`render_all`).
    """
    (rendered,) = render_chats(
        template, [(messages, add_generation_prompt)], special_tokens=special_tokens, **kwargs
    )
    if not isinstance(rendered, str):
        raise rendered
    return rendered


def render_chats(
    template: str,
    chats: Sequence[tuple[Sequence[Mapping[str, Any]], bool]],
    *,
    special_tokens: Mapping[str, str],
    **kwargs: Any,
) -> list[str | TokenizerError]:
    """What `render_chat` makes of several `chats`, each with its `add_generation_prompt`, mostly in one process.

    The error of a chat stands in its place; what concerns the template is raised.
    """
    shared = {**special_tokens, "tools": None, "documents": None, **kwargs}
    made: list[str | TokenizerError | None] = [None] * len(chats)
    checked: list[list[Message]] = []
    for messages, _ in chats:
        named = zip(messages, _names(messages), strict=True)
        checked.append([with_thinking(checked_message(message, name)) for message, name in named])
    variables = [{**shared, "add_generation_prompt": prompt} for _, prompt in chats]
    plain = [index for index, messages in enumerate(checked) if all(map(_is_plain, messages))]
    if plain:
        texts = render_all(template, [{**variables[index], "messages": checked[index]} for index in plain])
        for index, text in zip(plain, texts, strict=True):
            made[index] = text
    return [
        text
        if isinstance(text, str) and all(text_of(message).strip() in text for message in messages)
        else _in_form(
            template, messages, values, text
        )  # rare: the forms need not be found for most templates
        for text, messages, values in zip(made, checked, variables, strict=True)
    ]


def _names(messages: Sequence[Any]) -> list[str]:
    return [f"chat template: message {number}" for number, _ in enumerate(messages, 1)]


def _is_plain(message: Message) -> bool:
    return isinstance(message.get("content"), str) and not message.get("tool_calls")


def _in_form(
    template: str,
    messages: list[Message],
    variables: Mapping[str, Any],
    rendered: str | TokenizerError | None,
) -> str | TokenizerError:
    """Checked messages rendered in the form that the template writes; `rendered` is what it makes of them as they are."""
    try:
        forms = chat_forms(template, variables)
    except TokenizerError as error:
        return (
            rendered if isinstance(rendered, str) else error
        )  # only the search for forms is beyond the limits
    try:
        adapted = forms.adapted(messages, _names(messages))
        if rendered is None or adapted != messages:
            (rendered,) = render_all(template, [{**variables, "messages": adapted}])
    except TokenizerError as error:
        return error
    if isinstance(rendered, str):
        for role in forms.left_out(adapted, rendered):
            warnings.warn(f"the chat template leaves out the text of the role {role}", stacklevel=4)
    return rendered
