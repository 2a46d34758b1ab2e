"""The loop of a conversation on this process's input and output: reads a line, then answers a question or runs a command
such as `/set temperature 0.5`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.cli.generation import model_hint, model_name, prompt_hint, truncation_notice
from zoo.cli.progress import Progress, say
from zoo.cli.ranks import until_interrupted
from zoo.cli.repl.reader import LineCleared, PipeReader, RankReader, TerminalReader, reader, unquoted
from zoo.cli.screen import AnswerScreen
from zoo.cli.terminal import columns, wrapped
from zoo.errors import PromptError, ZooError, pluralize
from zoo.frozen import Frozen, frozen

if TYPE_CHECKING:
    from zoo.generation.chat.session import ChatSession, DroppedTurns

AGAIN = "(Ctrl-C again or /exit ends)"
EXIT_WORDS = ("/exit", "/quit", "/bye", "exit", "quit")

KEYS = (
    ("Ctrl-C", "stop an answer, or clear the line; twice on an empty line: end"),
    ("Ctrl-D", "end"),
    ('"""', "begins and ends a question of several lines"),
    ("Alt-Enter", "a new line; pasted lines are one question"),
    ("a space before a /", "send a line that begins with one"),
)


class Repl:
    """A chat session whose answers and errors are printed; `over` ends it."""

    def __init__(self, session: ChatSession) -> None:
        self.session = session
        self.over = False

    def answer(self, question: str | None) -> None:
        """Print the answer to a question, or to the last one again for None. Ctrl-C stops it; the text so far stays."""
        reason = None
        try:
            with AnswerScreen() as screen, Progress("reading the prompt") as reading:
                steps = self.session.answer(question, report=reading, dropped=self.dropped)
                with closing(steps):  # type: ignore[type-var]
                    for step in until_interrupted(steps):
                        reading.close()
                        screen.show(step)
                        reason = step.finish_reason
        except KeyboardInterrupt:
            say("(stopped)")
        except ZooError as error:
            self.refuse(error)
        if reason == "length":
            say(truncation_notice(self.session.settings, "/set max_tokens changes that, /tokens counts"))
        asked = question if reason is not None and sys.stderr.isatty() else None
        if asked and (line := prompt_hint(self.session.loaded, asked)):
            say(line)

    def dropped(self, what: DroppedTurns) -> None:
        """Print that the context was full and which turns were left out."""
        turns = "the oldest turn is" if what.turns == 1 else f"the {what.turns} oldest turns are"
        say(
            f"(the context of {what.context:,} tokens is full: {turns} left out, "
            f"{what.before:,} tokens become {what.after:,})"
        )

    def refuse(self, error: ZooError) -> None:
        """Print an error. Settings have their own names here, not those of the command's options."""
        say(f"zoo: {plain(str(error))}")


def plain(message: str) -> str:
    """A message of the library without the backquotes around the names of settings."""
    return message.replace("`", "")


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
            raise PromptError(f"{name} is not a command, so nothing was sent; /help lists the commands")
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
    repl.answer(None)


def _tokens(repl: Repl, _: str) -> None:
    session = repl.session
    read, context = session.last_prompt, session.context
    if session.multi_turn:
        count = session.tokens()
        left = "" if context is None else f", {max(context - count, 0):,} of {context:,} left"
        say(f"the conversation has {pluralize(count, 'token')}{left}")
        if session.conversation.dropped:
            say(f"{session.conversation.dropped} of its turns are left out")
    if read is not None:
        miss_reason = f" ({read.miss_reason})" if read.miss_reason else ""
        say(
            f"the last prompt had {pluralize(read.tokens, 'token')}, {read.cached_tokens:,} of them from the prompt cache{miss_reason}"
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


def converse(session: ChatSession) -> None:
    """Answer each question of the input until one of `EXIT_WORDS`, the end of the input, or Ctrl-C twice."""
    repl = Repl(session)
    what = (
        ": a conversation"
        if session.multi_turn
        else f" {'leaves the chat template out' if session.raw else 'has no chat template'}: each line is a prompt of its "
        "own, and earlier lines are not remembered"
    )
    say(f"{model_name(session.loaded)}{what}.")
    if line := model_hint(session.loaded):
        say(line)
    say("/help says what can be typed, /exit or Ctrl-D ends.")
    run(repl, reader(partial(completions, repl)))


def run(repl: Repl, reader: TerminalReader | PipeReader | RankReader) -> None:
    """Read lines and act on them until the conversation ends."""
    interrupted = False
    while not repl.over:
        try:
            line = reader.read()
        except EOFError:
            return
        except (LineCleared, KeyboardInterrupt) as pressed:
            if interrupted and isinstance(pressed, KeyboardInterrupt):
                return
            say(AGAIN)
            interrupted = True
            continue
        except PromptError as error:
            repl.refuse(error)
            continue
        interrupted = False
        question = unquoted(line)
        if question is not None:
            if question.strip():
                repl.answer(question)
        elif line.strip() in EXIT_WORDS:
            return
        elif line.startswith("/"):
            run_command(repl, line)
        elif line.strip():
            repl.answer(line)


def completions(repl: Repl, line: str) -> Iterator[str]:
    """Completions of the last word of a line that begins with a slash."""
    if not line.startswith("/") or "\n" in line:
        return
    *before, word = line.split(" ")
    found: Any = ()
    if not before:
        found = (f"{name} " if command.argument else name for name, command in COMMANDS.items())
    elif before == ["/set"]:
        found = (f"{name} " for name in repl.session.available_settings())
    elif before == ["/unset"]:
        found = repl.session.settings
    elif before in (["/load"], ["/save"]):
        found = _files(word)
    yield from (name for name in found if name.startswith(word))


def _files(word: str) -> Iterator[str]:
    """The files and folders beside the path that is being typed."""
    folder = word[: word.rfind("/") + 1]
    try:
        for path in sorted(Path(folder or ".").expanduser().iterdir()):
            yield f"{folder}{path.name}{'/' if path.is_dir() else ''}"
    except (OSError, RuntimeError):
        return
