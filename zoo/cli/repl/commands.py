"""The commands of a conversation, such as `/set temperature 0.5`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from zoo.cli.progress import say
from zoo.cli.repl.repl import Repl, plain
from zoo.cli.table import wrapped
from zoo.cli.terminal import columns
from zoo.errors import PromptError, ZooError
from zoo.frozen import Frozen, frozen

EXIT_WORDS = ("/exit", "/quit", "/bye", "exit", "quit")

KEYS = (
    ("Ctrl-C", "stop an answer, or clear the line; twice on an empty line: end"),
    ("Ctrl-D", "end"),
    ('"""', "begins and ends a question of several lines"),
    ("Alt-Enter", "a new line; pasted lines are one question"),
    ("a space before a /", "send a line that begins with one"),
)


@frozen()
class ChatCommand(Frozen):
    """A command: its `name`, the `argument` that it takes, a line of help, and the function that runs it."""

    name: str
    argument: str
    help: str
    act: Callable[[Repl, str], None]


def run_command(repl: Repl, line: str) -> None:
    """Run the command of a line that begins with a slash; print its error, if any."""
    name, _, argument = line.strip().partition(" ")
    command = COMMANDS.get(name)
    try:
        if command is None:
            raise PromptError(f"{name} is no command and was not sent; /help lists them")
        if argument.strip() and not command.argument:
            raise PromptError(f"{name} takes nothing after it")
        command.act(repl, argument.strip())
    except ZooError as error:
        repl.refuse(error)


def _system(repl: Repl, text: str) -> None:
    conversation = repl.session.conversation
    if not repl.session.multi_turn:
        raise PromptError("a system message needs a chat template")
    if text:
        conversation.system = text
        say("the system message is changed, from the next answer on")
    else:
        say(conversation.system or "there is no system message")


def _set(repl: Repl, text: str) -> None:
    session = repl.session
    name, _, value = text.partition(" ")
    name = name.replace("-", "_")
    if not name:
        for key, kept in session.settings.items():
            say(f"{key} {_shown(kept)}")
        others = ", ".join(key for key in session.available_settings() if key not in session.settings)
        say(wrapped(f"not set, the checkpoint decides: {others}", columns(sys.stderr)))
    elif not value.strip():
        declared = session.available_settings().get(name)
        if declared is None:
            session.set(name, "")  # says why
        else:
            kept = f"{_shown(session.settings[name])}" if name in session.settings else "not set"
            say(plain(f"{name} is {kept}: {declared.expected}. {declared.help}"))
    else:
        say(f"{name} {_shown(session.set(name, value.strip()))}")


def _unset(repl: Repl, text: str) -> None:
    name = text.replace("-", "_")
    if not name:
        raise PromptError("/unset needs the name of a setting")
    repl.session.unset(name)
    say(f"{name} is not set: the checkpoint decides")


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _save(repl: Repl, text: str) -> None:
    path = _path("/save", text)
    repl.session.conversation.save(path, repl.session.settings)
    count = len(repl.session.conversation.messages)
    say(f"{count} message{'s' * (count != 1)} in {path}")


def _load(repl: Repl, text: str) -> None:
    from zoo.generation.chat.conversation import load_conversation

    path = _path("/load", text)
    conversation, settings = load_conversation(path)
    try:
        repl.session.resume(conversation, settings)
    except ZooError as error:
        raise PromptError(f"{path}: {error}") from error
    count = len(conversation.messages)
    say(f"{count} message{'s' * (count != 1)} from {path}; /retry answers the last question again")


def _path(name: str, text: str) -> Path:
    if not text:
        raise PromptError(f"{name} needs the name of a file")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # no such user
        raise PromptError(f"{text}: {error}") from error


def _undo(repl: Repl, _: str) -> None:
    question = repl.session.conversation.undo()
    say(f"taken back: {' '.join(question.split())[:60]}")


def _retry(repl: Repl, _: str) -> None:
    if not repl.session.conversation.turns:
        raise PromptError("there is no question to answer again")
    repl.answer(None)


def _tokens(repl: Repl, _: str) -> None:
    session = repl.session
    read, context = session.last_prompt, session.context
    if session.multi_turn:
        count = session.tokens()
        left = "" if context is None else f", {max(context - count, 0):,} of {context:,} left"
        say(f"the conversation has {count:,} token{'s' * (count != 1)}{left}")
        if session.conversation.dropped:
            say(f"{session.conversation.dropped} of its turns are left out")
    if read is not None:
        miss_reason = f" ({read.miss_reason})" if read.miss_reason else ""
        say(
            f"the last prompt had {read.tokens:,} tokens, {read.cached_tokens:,} of them from the prompt cache{miss_reason}"
        )


def _help(repl: Repl, _: str) -> None:
    rows = [(f"{c.name} {c.argument}".strip(), c.help) for c in COMMANDS.values()] + list(KEYS)
    width = max(len(usage) for usage, _ in rows) + 2
    for usage, meaning in rows:
        say(f"{usage:{width}}{meaning}")


def _exit(repl: Repl, _: str) -> None:
    repl.over = True


COMMANDS = {
    command.name: command
    for command in (
        ChatCommand("/system", "[TEXT]", "change the system message, or show it", _system),
        ChatCommand("/set", "[NAME [VALUE]]", "change a setting, or show what is set", _set),
        ChatCommand("/unset", "NAME", "leave a setting to the checkpoint again", _unset),
        ChatCommand("/undo", "", "take the last question and its answer back", _undo),
        ChatCommand("/retry", "", "answer the last question again", _retry),
        ChatCommand("/tokens", "", "the conversation's tokens, and what was read anew", _tokens),
        ChatCommand("/save", "FILE", "write messages and settings, as JSON", _save),
        ChatCommand("/load", "FILE", "go on with what /save wrote", _load),
        ChatCommand("/help", "", "this", _help),
        ChatCommand("/exit", "", "end; so do /bye, /quit, exit, quit", _exit),
    )
}
