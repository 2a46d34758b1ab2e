"""What drafts tokens: the interface that the verification asks. Axes: T tokens, k drafts, D width, V vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import mlx.core as mx

from zoo.frozen import Frozen, frozen


@frozen()
class Draft(Frozen):
    """Tokens that may come next. `laws` (k, V) are the probabilities that each was drawn from.

    None: they were not drawn; each token is certain, given what the drafter has read.
    """

    tokens: tuple[int, ...] = ()
    laws: mx.array | None = None


class Drafter(Protocol):
    """A source of drafts for one text. It is told the text as it becomes certain, and may be wrong about the rest.

    `needs_hidden`: it needs the target's hidden states after the final norm, and is given them by `add_hidden`.
    """

    needs_hidden: bool

    def add_tokens(self, tokens: Sequence[int]) -> None:
        """Take in the next tokens of the text, the prompt's first."""

    def add_hidden(self, position: int, hidden: mx.array) -> None:
        """Take in the states (1, T, D) of the text's tokens from `place` on, those before having been shown or not."""

    def propose(self, count: int) -> Draft:
        """At most `count` tokens that may follow the text; none where nothing is known."""
