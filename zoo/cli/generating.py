"""A prompt to steps, by the options of `zoo run`: what the command and its conversations share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from zoo.frozen import Frozen, frozen


@frozen()
class Request(Frozen):
    """What the options of `zoo run` ask for: `settings` for `zoo.stream`, and how the prompt is laid out.

    `system` is a message before the conversation; `raw` leaves the chat template out.
    """

    settings: dict[str, Any]
    system: str | None = None
    raw: bool = False


def converses(loaded: Any, request: Request) -> bool:
    """Whether messages go through a chat template; otherwise each is a prompt of its own."""
    from zoo.generation.prompt import has_chat_template

    return has_chat_template(loaded) and not request.raw


def prompt_ids(loaded: Any, messages: Sequence[dict[str, str]], request: Request) -> list[int]:
    """The ids of a conversation: through the chat template, or of the last message when there is none or --raw."""
    from zoo.errors import PromptError
    from zoo.generation.prompt import encode_messages, encode_prompt

    if not messages[-1]["content"]:
        raise PromptError("the prompt is empty")
    if converses(loaded, request):
        system = [{"role": "system", "content": request.system}] if request.system else []
        return encode_messages(loaded, [*system, *messages])
    if request.system:
        why = "--raw leaves it out" if request.raw else f"{loaded.folder.name} has none"
        raise PromptError(f"--system needs a chat template, and {why}")
    source, target = (request.settings.get(f"{side}_language") for side in ("source", "target"))
    return encode_prompt(loaded, messages[-1]["content"], source_language=source, target_language=target)


def steps(
    loaded: Any, ids: list[int], request: Request, report: Callable[[int, int], None] | None = None
) -> Iterator[Any]:
    """The generation that the command's options ask for."""
    from zoo.generation import stream

    return stream(loaded, ids, report=report, **request.settings)


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


def opened_cache(path: Path, loaded: Any) -> Any:
    """The prompt cache of a file, which is written again when the command ends and a prompt was read."""
    from zoo.generation.prompt_cache import PromptCache

    held = PromptCache.load(path, loaded)

    def save() -> None:
        if held.statistics.requests:
            held.save(path)

    click.get_current_context().call_on_close(save)
    return held
