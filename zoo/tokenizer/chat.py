"""Renders a conversation by a chat template."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.errors import TokenizerError
from zoo.tokenizer.chat_forms import chat_forms
from zoo.tokenizer.chat_messages import checked_message, text_of, with_thinking
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
    variables = {
        **special_tokens,
        "tools": None,
        "documents": None,
        **kwargs,
        "add_generation_prompt": add_generation_prompt,
    }
    names = [f"chat template: message {number}" for number, _ in enumerate(messages, 1)]
    checked = [with_thinking(checked_message(*named)) for named in zip(messages, names, strict=True)]

    rendered = None
    if all(isinstance(message.get("content"), str) and not message.get("tool_calls") for message in checked):
        (rendered,) = render_all(template, [{**variables, "messages": checked}])
        if isinstance(rendered, str) and all(text_of(message).strip() in rendered for message in checked):
            return rendered  # as nearly always: the forms need not be found
    try:
        forms = chat_forms(template, variables)
    except TokenizerError:
        if isinstance(rendered, str):
            return rendered  # only the search for forms is beyond the limits
        raise
    adapted = forms.adapted(checked, names)
    if rendered is None or adapted != checked:
        (rendered,) = render_all(template, [{**variables, "messages": adapted}])
    if not isinstance(rendered, str):
        raise rendered
    for role in forms.left_out(adapted, rendered):
        warnings.warn(f"the chat template leaves out the text of the role {role}", stacklevel=2)
    return rendered
