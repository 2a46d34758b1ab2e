"""The interface of an engine that runs a checkpoint, and the job that its process is given.

An engine loads a folder; then it reads ids and writes the likeliest token each time, without an end token.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from zoo.errors import PromptError, SourceError, ZooError
from zoo.runtime import peak_memory


@dataclass(frozen=True)
class Lengths:
    """Tokens of the prompt and of the text after it, texts of a batch, and tokens of long texts.

    `context` are those of a long prompt, `chat` those of a chat's first message.
    """

    prompt: int = 512
    new: int = 64
    rows: int = 8
    context: int = 8192
    chat: int = 2000

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            least = 2 if name == "new" else 1
            if type(value) is not int or value < least:
                raise PromptError(f"`{name}` must be a number of at least {least}, got {value!r:.60}")

    def longest(self, works: Collection[str]) -> int:
        """The most tokens of a text in these works."""
        texts = {"context": self.context, "turn": self.chat + 4 * self.new}
        return max(self.prompt, self.new, *(texts[work] for work in works if work in texts)) + 2 * self.new


# What `pip install` takes to have an engine, by the module that is then there.
PACKAGES = {
    "mlx": {"mlx": "mlx"},
    "mlx-lm": {"mlx_lm": "mlx-lm"},
    "transformers": {"transformers": "transformers", "torch": "torch"},
    "llama.cpp": {"llama_cpp": "llama-cpp-python"},
    "ctranslate2": {"ctranslate2": "ctranslate2", "transformers": "transformers", "torch": "torch"},
}


def check_installed(name: str) -> None:
    """ZooError for an engine that is not known, SourceError for one that is not installed."""
    if name not in PACKAGES:
        raise ZooError(f"no engine is called {name!r}; there is {', '.join(PACKAGES)}")
    for module, package in PACKAGES[name].items():
        if not find_spec(module):
            raise SourceError(f"{name}: {module} is not installed here: `pip install {package}`")


@dataclass(frozen=True)
class Job:
    """The works that an engine's process does on a folder or file; it travels as JSON on the command line.

    The dtype is the engine's own choice unless given. `architecture` and `unpack` are for the zoo alone.
    """

    folder: str
    works: list[str]
    lengths: Lengths
    dtype: str | None = None
    architecture: str | None = None
    unpack: bool | None = None

    def to_json(self) -> str:
        """The job as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The job of a JSON text."""
        values = json.loads(text)
        return cls(**values | {"lengths": Lengths(**values["lengths"])})

    @property
    def path(self) -> Path:
        """The folder or file."""
        return Path(self.folder)


class BenchmarkEngine:
    """An engine that has loaded a folder. It lacks the attributes of works that it cannot do."""

    vocab: int
    context: int | None = None  # the most tokens of a text, where there is a bound
    refused: str | None = None  # why there is no text to write
    converting: float = 0.0  # seconds in which a copy for this engine was made first
    on_mlx = True
    encode: Callable[[str], list[int]]  # a text's ids, where there is a tokenizer
    # ids, new tokens -> an iterator over the tokens, as they come
    tokens: Callable[[list[int], int], Iterator[Any]]
    drafted_tokens: Callable[[list[int], int], Iterator[Any]]
    # rows of ids, new tokens -> seconds of the tokens after the first of texts side by side
    write_rows: Callable[[list[list[int]], int], float]
    # texts' ids, new tokens, rows -> seconds of reading and writing all of them, so many side by side
    write_texts: Callable[[list[list[int]], int, int], float]
    # rows of ids, new tokens -> seconds of all tokens of the translations
    translate: Callable[[list[list[int]], int], float]
    # ids, tokens of the answer, ids -> seconds to the first token of a chat's answer, and of its next one
    turns: Callable[[list[int], int, list[int]], tuple[float, float]]
    # what builds one step, and what must be evaluated with it
    step: Callable[[], tuple[Callable[[Any], Any], Callable[[Any], list[Any]]]]

    def needs(self, lengths: Lengths) -> dict[str, float]:
        """By metric, what a token takes of the machine's limit that bounds it, where that is known."""
        return {}

    def peak(self) -> int:
        """The most bytes that MLX has held, or the process of an engine that does not run on it."""
        import resource

        if self.on_mlx:
            return peak_memory()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
