"""`zoo chat`: a conversation with a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from zoo.cli.setting_options import CommandSettings, SettingsCommand
from zoo.cli.source_options import EXISTING_FILE, MODEL_OPTIONS, ModelOptions, complete_source, model_options

if TYPE_CHECKING:
    from zoo.generation.chat.session import ChatSession
    from zoo.loading import Loaded


@click.command(
    cls=SettingsCommand,
    usual=("system", "path", "adapter", "revision", "yes"),
    epilog='Example: zoo chat smollm2. For one answer: zoo run smollm2 "Hello"',
)
@click.argument("source", shell_complete=complete_source)
@model_options(*MODEL_OPTIONS)
@click.option("--system", metavar="TEXT", help="A system message, for models with a chat template.")
@click.option("--raw", is_flag=True, help="Give each line as it is, without the chat template.")
@click.option("--load", "path", type=EXISTING_FILE, help="Go on with a conversation that /save wrote.")
def chat(
    source: str,
    options: ModelOptions,
    system: str | None,
    raw: bool,
    path: Path | None,
    settings: CommandSettings,
) -> None:
    """Talk with SOURCE (an architecture, a folder, a GGUF file or a hub id).

    It answers each line that you type, or each line of a pipe. /help lists commands that change settings, take turns
    back, and save or load the conversation. Ctrl-C stops an answer, Ctrl-D ends.
    """
    from zoo.cli.repl.loop import converse

    loaded = options.load(source)
    session = chat_session(loaded, options.settings(loaded, settings), system, raw)
    if path is not None:
        from zoo.generation.chat.conversation import load_conversation

        conversation, kept = load_conversation(path)
        if system is not None:
            conversation.system = system
        session.resume(conversation, {**kept, **session.settings})
    converse(session)


def chat_session(loaded: Loaded, settings: CommandSettings, system: str | None, raw: bool) -> ChatSession:
    """The conversation that a command's options ask for. Its KV caches are kept until it ends."""
    from zoo.errors import PromptError
    from zoo.generation.chat.conversation import Conversation
    from zoo.generation.chat.session import ChatSession
    from zoo.generation.prefix_cache import PromptCache

    own = dict(settings)
    strategy, cache = own.pop("strategy", None), own.pop("prompt_cache", None)
    session = ChatSession(
        loaded,
        Conversation(system=system),
        own,
        strategy=strategy,
        raw=raw,
        prompt_cache=PromptCache(loaded) if cache is None else cache,
    )
    if cache is not None and not session.uses_prompt_cache:
        raise PromptError(
            f"`prompt_cache`: {loaded.architecture.name} is run by a strategy without a KV cache to keep"
        )
    return session
