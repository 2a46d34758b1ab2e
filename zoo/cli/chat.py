"""`zoo chat`: a conversation with a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from zoo.cli.complete import sources
from zoo.cli.generating import Request, asked_settings, opened_model
from zoo.cli.setting_options import SettingsCommand
from zoo.cli.source_options import model_options


@click.command(
    cls=SettingsCommand,
    usual=("system", "path", "adapter", "revision", "yes"),
    epilog="Example: zoo chat HuggingFaceTB/SmolLM2-135M-Instruct",
)
@click.argument("source", shell_complete=sources)
@model_options
@click.option("--system", metavar="TEXT", help="A system message, for models with a chat template.")
@click.option("--raw", is_flag=True, help="Give each line as it is, without the chat template.")
@click.option(
    "--load",
    "path",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Go on with a conversation that /save wrote.",
)
def chat(
    source: str,
    architecture: str | None,
    revision: str | None,
    dtype: str | None,
    adapter: Path | None,
    repack: int | None,
    unpack: bool | None,
    force: bool,
    system: str | None,
    raw: bool,
    path: Path | None,
    prompt_cache: Path | None,
    strategy: str | None,
    samplers: tuple[str, ...],
    settings: dict[str, Any],
) -> None:
    """Talk with SOURCE (an architecture, a folder, a GGUF file or a hub id).

    Each line that is typed is answered, and so is each line of a pipe. /help says what else can be typed: change settings,
    take turns back, save the conversation and go on with it. Ctrl-C stops an answer, Ctrl-D ends.
    """
    from zoo.cli.chatting import converse

    how: dict[str, Any] = dict(architecture=architecture, revision=revision, dtype=dtype, adapter=adapter)
    loaded = opened_model(source, force=force, repack=repack, unpack=unpack, **how)
    settings = asked_settings(loaded, settings, strategy, samplers, prompt_cache)
    talk = talk_of(loaded, Request(settings | {"strategy": strategy}, system, raw))
    if path is not None:
        from zoo.generation.chat.conversation import load_conversation

        conversation, kept = load_conversation(path)
        if system is not None:
            conversation.system = system
        talk.go_on(conversation, {**kept, **talk.settings})
    converse(talk)


def talk_of(loaded: Any, request: Request) -> Any:
    """The conversation that a command's options ask for; what was computed of it is kept until it ends."""
    from zoo.errors import PromptError
    from zoo.generation.chat.conversation import Conversation
    from zoo.generation.chat.session import Talk
    from zoo.generation.prefix_cache import PromptCache

    settings = {name: value for name, value in request.settings.items() if name != "strategy"}
    held = settings.pop("prompt_cache", None)
    talk = Talk(
        loaded,
        Conversation(system=request.system),
        settings,
        strategy=request.settings.get("strategy"),
        raw=request.raw,
        prompt_cache=PromptCache(loaded) if held is None else held,
    )
    if held is not None and not talk.keeps:
        raise PromptError(
            f"`prompt_cache`: {loaded.architecture.name} is run by a strategy that keeps nothing"
        )
    return talk
