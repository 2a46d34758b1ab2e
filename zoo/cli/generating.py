"""A prompt to steps, by the options of `zoo run`: what the command and its conversations share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def prompt_ids(loaded: Any, messages: list[dict[str, str]], given: dict[str, Any]) -> list[int]:
    """The ids of a conversation: through the chat template, or of the last message when there is none or --raw."""
    from zoo.errors import PromptError
    from zoo.generation.prompt import encode_prompt

    template = loaded.tokenizer.chat_template if loaded.tokenizer and not given["raw"] else None
    if not messages[-1]["content"]:
        raise PromptError("the prompt is empty")
    if template is None:
        if given["system"]:
            why = "--raw leaves it out" if given["raw"] else f"{loaded.folder.name} has none"
            raise PromptError(f"--system needs a chat template, and {why}")
        languages = {name: given[name] for name in ("source_language", "target_language")}
        return encode_prompt(loaded, messages[-1]["content"], **languages)
    from zoo.tokenizer.chat import render_chat

    if given["system"]:
        messages = [{"role": "system", "content": given["system"]}, *messages]
    text = render_chat(template, messages, special_tokens=loaded.tokenizer.special_tokens)
    return encode_prompt(loaded, text, special_tokens=False)


def steps(
    loaded: Any, ids: list[int], given: dict[str, Any], report: Callable[[int, int], None] | None = None
) -> Iterator[Any]:
    """The generation that the command's options ask for."""
    from zoo.generation import stream

    names = (
        *("max_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "stop", "steps", "block_length"),
        *("beams", "length_penalty", "min_tokens", "target_language", "strategy"),
    )
    samplers = dict(sampler_asked(loaded.registry, text) for text in given["samplers"]) or None
    return stream(loaded, ids, report=report, samplers=samplers, **{name: given[name] for name in names})


def sampler_asked(registry: Any, text: str) -> tuple[str, dict[str, Any]]:
    """The name and the settings of "typical:mass=0.9"; PromptError or PluginError when there is no such thing."""
    from zoo.checkpoint.source import split_preset
    from zoo.errors import PromptError

    name, rest = split_preset(text)
    settings = {setting.name: setting for setting in registry.sampler(name).settings}
    values = {}
    for part in filter(None, (rest or "").split(",")):
        key, equals, value = part.partition("=")
        if not equals or key not in settings:
            raise PromptError(f"--sampler {name}: {part!r} is not one of {', '.join(settings)} and its value")
        values[key] = settings[key].parsed(value)
    return name, values
