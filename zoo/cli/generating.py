"""A prompt to steps, by the options of `zoo run`: what the command and its conversations share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import click

from zoo.cli.plugins import served_by
from zoo.cli.progress import Progress
from zoo.cli.setting_options import with_defaults
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
    from zoo.generation.loop.prompt import has_chat_template

    return has_chat_template(loaded) and not request.raw


def prompt_ids(loaded: Any, messages: Sequence[dict[str, str]], request: Request) -> list[int]:
    """The ids of a conversation: through the chat template, or of the last message when there is none or --raw."""
    from zoo.errors import PromptError
    from zoo.generation.loop.prompt import encode_messages, encode_prompt

    if not messages[-1]["content"]:
        raise PromptError("the prompt is empty")
    if converses(loaded, request):
        system = [{"role": "system", "content": request.system}] if request.system else []
        return encode_messages(loaded, [*system, *messages])
    if request.system:
        why = "--raw leaves it out" if request.raw else f"{loaded.folder.name} has none"
        raise PromptError(f"--system needs a chat template, and {why}")
    source, target = (request.settings.get(f"{side}_language") for side in ("source", "target"))
    prompt: Any = messages[-1]["content"]
    if loaded.tokenizer is None:
        prompt = ids_in(prompt) or prompt
    return encode_prompt(loaded, prompt, source_language=source, target_language=target)


def ids_in(text: str) -> list[int] | None:
    """The token ids of a text such as "[1, 2, 3]"; None when it is no such list."""
    try:
        values = json.loads(text)
    except ValueError:
        return None
    return values if isinstance(values, list) and all(type(value) is int for value in values) else None


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


def opened_model(source: str, **how: Any) -> Any:
    """The model of a source, with a bar while it is loaded; it is said when a third party's plugin serves it."""
    from zoo.loading import load

    with Progress("loading", waits=True) as report:
        loaded = load(source, report=report, **how)
    served_by(loaded.architecture)
    return loaded


def name_of(loaded: Any) -> str:
    """What a model is called: "llama:pocket" for an embedded checkpoint, else its architecture's name."""
    name = loaded.architecture.name
    presets = (p.name for p in loaded.architecture.presets if p.embedded and p.folder == loaded.folder)
    return ":".join([name, *islice(presets, 1)])


def asked_settings(
    loaded: Any,
    given: dict[str, Any],
    strategy: str | None,
    samplers: Sequence[str],
    prompt_cache: Path | None,
) -> dict[str, Any]:
    """The settings of the options, a person's defaults for others, plugins' samplers and the prompt cache of a file."""
    settings = with_defaults(loaded, given, strategy)
    if samplers:
        settings["samplers"] = dict(sampler_asked(loaded.registry, text) for text in samplers)
    if prompt_cache is not None:
        settings["prompt_cache"] = opened_cache(prompt_cache, loaded)
    return settings


def opened_cache(path: Path, loaded: Any) -> Any:
    """The prompt cache of a file, which is written again when the command ends and a prompt was read."""
    from zoo.generation.prefix_cache import PromptCache

    held = PromptCache.load(path, loaded)

    def save() -> None:
        if held.statistics.requests:
            held.save(path)

    click.get_current_context().call_on_close(save)
    return held


INCOMPLETE = {
    "json_schema": "the JSON is incomplete",
    "regex": "the expression matches only with more",
    "grammar": "the grammar asks for more",
}


def cut_line(settings: Mapping[str, Any], change: str) -> str:
    """A line about an answer that ended because it may have no more tokens; `change` says how to allow more."""
    name = constraint_of(settings)
    return f"(cut: the answer may have no more tokens{f', {INCOMPLETE[name]}' if name else ''}; {change})"


def constraint_of(settings: Mapping[str, Any]) -> str | None:
    """The setting that constrains the whole answer, None without one."""
    return next((name for name in INCOMPLETE if settings.get(name) is not None), None)
