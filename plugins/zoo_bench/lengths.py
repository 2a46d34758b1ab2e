"""The sizes of what is run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass

from zoo.errors import PromptError


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
            if type(value) is not int or value < (2 if name == "new" else 1):
                raise PromptError(
                    f"`{name}` must be a number of at least {2 if name == 'new' else 1}, got {value!r:.60}"
                )

    def longest(self, works: Collection[str]) -> int:
        """The most tokens of a text in these works."""
        texts = {"context": self.context, "turn": self.chat + 4 * self.new}
        return max(self.prompt, self.new, *(texts[work] for work in works if work in texts)) + 2 * self.new
