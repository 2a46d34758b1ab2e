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
    unless the variable `add_generation_prompt` is False. The template writes its own special tokens: encode the result with
    `special_tokens=False`. A role whose texts the template leaves out is warned of.

    TokenizerError, starting with "chat template:", for malformed messages and those that the template refuses, for tool
    calls that it would leave out, for an error in it, for one that uses too much time or memory (`render_all`), and for more
    text than it may write.
    """
    variables = {"add_generation_prompt": True, **(variables or {})}
    prompt = variables.pop("add_generation_prompt")
    (rendered,) = render_chats(
        template, [(messages, prompt)], special_tokens=special_tokens, variables=variables
    )
    if not isinstance(rendered, str):
        raise rendered
    return rendered


def render_chats(
    template: str,
    chats: Sequence[tuple[Sequence[Mapping[str, Any]], bool]],
    *,
    special_tokens: Mapping[str, str],
    variables: Mapping[str, Any] | None = None,
) -> list[str | TokenizerError]:
    """What `render_chat` makes of several `chats`, each with its `add_generation_prompt`, mostly in one process.

    The error of a chat stands in its place; what concerns the template is raised.
    """
    shared = {**special_tokens, "tools": None, "documents": None, **(variables or {})}
    given = []
    for messages, add_generation_prompt in chats:
        check_size([messages, shared])
        named = zip(messages, _names(messages), strict=True)
        checked = [with_thinking(checked_message(message, name)) for message, name in named]
        given.append({**shared, "add_generation_prompt": add_generation_prompt, "messages": checked})
    texts = iter(_rendered(template, [values for values in given if _is_plain(values["messages"])]))
    made: list[str | TokenizerError] = []
    for values in given:
        text = next(texts) if _is_plain(values["messages"]) else None
        if isinstance(text, str) and _has_all(text, values["messages"]):
            made.append(text)  # as nearly always: the forms need not be found
        else:
            made.append(_in_form(template, values, text))
    return made


def _rendered(template: str, renderings: Sequence[Mapping[str, Any]]) -> list[str | TokenizerError]:
    """Render as `render_all` does, in several processes where one would exceed its time or memory."""
    try:
        return render_all(template, renderings) if renderings else []
    except TokenizerError:
        half = len(renderings) // 2
        if not half:
            raise
    return [*_rendered(template, renderings[:half]), *_rendered(template, renderings[half:])]


def _has_all(rendered: str, messages: Sequence[Message]) -> bool:
    """Whether a text has the texts of all messages. They are looked for in their order first, so that no part is read twice."""
    at = 0
    for message in messages:
        text = text_of(message).strip()
        at = rendered.find(text, at)
        if at < 0 and (at := rendered.find(text)) < 0:
            return False
    return True


def _names(messages: Sequence[Any]) -> list[str]:
    return [f"chat template: message {number}" for number, _ in enumerate(messages, 1)]


def _is_plain(messages: Sequence[Message]) -> bool:
    """Whether messages have but texts, as nearly all have."""
    return all(
        isinstance(message.get("content"), str) and not message.get("tool_calls") for message in messages
    )


def _in_form(
    template: str, variables: Mapping[str, Any], rendered: str | TokenizerError | None
) -> str | TokenizerError:
    """Messages in the form that the template writes; `rendered` is what it makes of them as they are, if anything."""
    messages = variables["messages"]
    try:
        forms = chat_forms(template, {name: value for name, value in variables.items() if name != "messages"})
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
