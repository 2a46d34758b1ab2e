"""Renders a conversation by a chat template."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.errors import TokenizerError
from zoo.tokenizer.chat_forms import chat_forms
from zoo.tokenizer.chat_messages import Message, checked_message, text_of, with_thinking
from zoo.tokenizer.chat_process import check_size, render_all


def render_chat(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    special_tokens: Mapping[str, str],
    variables: Mapping[str, Any] | None = None,
) -> str:
    """The prompt that a chat template makes of messages.

    Messages have the form of OpenAI's interface, as `checked_message` has it, and may have more keys. They are rendered in
    the form that the template writes (`ChatForms`). The template sees the `special_tokens` by their names ("bos_token",
    ...) and the `variables` by theirs (such as `tools` or `enable_thinking`). The text ends where the model's answer begins,
    unless the variable `add_generation_prompt` is False. With the variable `continue_final_message` it ends with the text of
    the last message, which must be an assistant's, and the model continues that text. The template writes its own special
    tokens: encode the result with `special_tokens=False`. A role whose texts the template leaves out is warned of.

    TokenizerError, starting with "chat template:", for malformed messages and those that the template refuses, for tool
    calls that it would leave out, for a last message that cannot be continued, for an error in it, for one that uses too much time or memory (`render_all`), and for more
    text than it may write.
    """
    shared = {
        **special_tokens,
        "tools": None,
        "documents": None,
        "add_generation_prompt": True,
        **(variables or {}),
    }
    continues = shared.pop("continue_final_message", False)
    if continues:
        messages = _with_end(messages)
        shared["add_generation_prompt"] = False
    rendered = _rendered(template, messages, shared)
    if not continues:
        return rendered
    if END_OF_TEXT not in rendered:
        raise TokenizerError(
            "chat template: it leaves out the text of the last message, which is to be continued"
        )
    return rendered[: rendered.rindex(END_OF_TEXT)]


END_OF_TEXT = "\ue000end\ue001"
"""Stands behind the text of a message that is continued, until it is rendered: letters that no text has."""


def _with_end(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages, END_OF_TEXT behind the text of the last; TokenizerError for one that is no assistant's text."""
    *before, last = messages
    text = text_of(last) if last.get("role") == "assistant" and not last.get("tool_calls") else ""
    if not text:
        raise TokenizerError(
            f"chat template: message {len(messages)}: only the text of an assistant's message can be continued"
        )
    return [*before, {**last, "content": text + END_OF_TEXT}]


def _rendered(template: str, messages: Sequence[Mapping[str, Any]], shared: dict[str, Any]) -> str:
    """The text that a template makes of messages and the variables that it sees."""
    check_size([messages, shared])
    names = [f"chat template: message {number}" for number in range(1, len(messages) + 1)]
    checked = [with_thinking(checked_message(*pair)) for pair in zip(messages, names, strict=True)]
    rendered: str | TokenizerError | None = None
    if _is_plain(checked):
        (rendered,) = render_all(template, [{**shared, "messages": checked}])
        if isinstance(rendered, str) and _has_all(rendered, checked):
            return rendered  # as nearly always: the forms need not be found
    try:
        forms = chat_forms(template, shared)
    except TokenizerError:
        if isinstance(rendered, str):
            return rendered  # only the search for forms is beyond the limits
        raise
    adapted = forms.adapted(checked, names)
    if rendered is None or adapted != checked:
        (rendered,) = render_all(template, [{**shared, "messages": adapted}])
    if isinstance(rendered, TokenizerError):
        raise rendered
    for role in forms.left_out(adapted, rendered):
        warnings.warn(f"the chat template leaves out the text of the role {role}", stacklevel=2)
    return rendered


def _has_all(rendered: str, messages: Sequence[Message]) -> bool:
    """Whether a text has the texts of all messages. They are looked for in their order first, so that no part is read twice."""
    at = 0
    for message in messages:
        text = text_of(message).strip()
        at = rendered.find(text, at)
        if at < 0 and (at := rendered.find(text)) < 0:
            return False
    return True


def _is_plain(messages: Sequence[Message]) -> bool:
    """Whether messages have but texts, as nearly all have."""
    return all(
        isinstance(message.get("content"), str) and not message.get("tool_calls") for message in messages
    )
