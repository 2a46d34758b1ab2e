"""The exceptions of the zoo, one type for each kind of error, and warnings that are shown only after success.

Every message is one line that a person can act on.
"""

from __future__ import annotations

import functools
import signal
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any

MOST = 2000  # characters of a message, which may quote a damaged file
MOST_NAME = 200  # characters of a name that may resemble another


class ZooError(Exception):
    """The base of every error the zoo raises on purpose; the command line prints its message alone.

    >>> try:
    ...     zoo.load("no-such-folder")
    ... except zoo.ZooError as error:
    ...     print(type(error).__name__)
    SourceError
    """

    def __str__(self) -> str:
        text = " ".join(super().__str__().splitlines())
        return text if len(text) <= MOST else f"{text[: MOST - 2]} …"


class SourceError(ZooError):
    """A model source (architecture, folder, file or hub id) that cannot be found."""


class DoesNotFit(SourceError):
    """A model whose weights and cache need more memory than there is, or more than other models in this process leave."""


class ConfigError(ZooError):
    """A `config.json` with a missing, malformed or unsupported value; the message names its key.

    `key` has the key of a value that is there and is refused, "rope_parameters.factor"; otherwise it is "".
    """

    key = ""


class RecipeError(ZooError):
    """A recipe that cannot be built; the message starts with the path of the offending field."""


class CheckpointError(ZooError):
    """A weight file that is damaged, unsafe, or does not fit the model."""


class TokenizerError(ZooError):
    """A tokenizer or chat template that is missing, damaged or refuses its input."""


class PromptError(ZooError):
    """A prompt or sampling setting that the model cannot take."""


class NothingToPredict(PromptError):
    """A prompt in which an encoder has no token to predict: it has no mask, or the model no head or no mask token."""


class RankError(ZooError):
    """A rank of a run on several that did not come, ended, or differs from the others."""


class PluginError(ZooError):
    """A plugin, or a record it gave, that breaks the contract."""


def in_words(error: BaseException, most: int = 300) -> str:
    """An error in one line of at most `most` characters: its message, after its type unless it is the zoo's."""
    message = " ".join(message_of(error).split())
    kind = type.__dict__["__name__"].__get__(
        type(error)
    )  # which the class of a class may give in another way
    line = message if isinstance(error, ZooError) and message else f"{kind}: {message}" if message else kind
    return line if len(line) <= most else line[: most - 1] + "…"


def message_of(error: BaseException) -> str:
    """The message of an error; "" where the class of the error, which may be a plugin's, fails to give it."""
    try:
        return str(error)
    except BaseException:
        return ""


def similar_names(name: str, known: Iterable[str], most: int = 1, alike: float = 0.6) -> list[str]:
    """At most `most` known names that are similar to `name`, the most similar first. Long names are not compared."""
    from difflib import get_close_matches

    shorter = [candidate for candidate in known if len(candidate) <= MOST_NAME]
    return get_close_matches(name, shorter, most, alike) if len(name) <= MOST_NAME else []


def did_you_mean(
    name: str, known: Iterable[str], otherwise: str = "", most: int = 1, alike: float = 0.6
) -> str:
    """The end of a message about an unknown name: "; did you mean top_k?", or `otherwise` when no name resembles it."""
    near = similar_names(name, known, most, alike)
    return f"; did you mean {' or '.join(near)}?" if near else otherwise


def pluralize(count: int, noun: str) -> str:
    """ "1 token", "2,048 tokens"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


@contextmanager
def contained() -> Iterator[None]:
    """Turns a SystemExit, KeyboardInterrupt or other BaseException of a plugin's code into a PluginError.

    A Ctrl-C meanwhile is a KeyboardInterrupt, whatever the plugin makes of it. The previous handler is called, too.
    """
    interrupts: list[int] = []
    before: Any = signal.getsignal(signal.SIGINT)
    # Python interrupts the main thread alone.
    watched = threading.current_thread() is threading.main_thread() and callable(before)

    @functools.wraps(before)
    def note(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        before(number, frame)

    if watched:
        signal.signal(signal.SIGINT, note)
    try:
        yield
    except BaseException as error:
        if interrupts:
            raise KeyboardInterrupt from error
        if isinstance(error, Exception):
            raise
        raise PluginError(in_words(error)) from error
    finally:
        if watched and signal.getsignal(signal.SIGINT) is note:  # a plugin may have put its own there
            signal.signal(signal.SIGINT, before)


_deferred: ContextVar[list[str] | None] = ContextVar("_deferred", default=None)


def warn(message: str) -> None:
    """Warn in one line: at once, or after the work whose warnings are deferred."""
    waiting = _deferred.get()
    if waiting is None:
        warnings.warn(message, stacklevel=3)
    else:
        waiting.append(message)


@contextmanager
def deferred_warnings() -> Iterator[None]:
    """Hold back the warnings of the block until it has succeeded; drop them when it fails."""
    if _deferred.get() is not None:  # an outer one defers them
        yield
        return
    waiting: list[str] = []
    token = _deferred.set(waiting)
    try:
        yield
    finally:
        _deferred.reset(token)
    for message in dict.fromkeys(waiting):
        warnings.warn(message, stacklevel=4)
