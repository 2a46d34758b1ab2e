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

    `reads_hidden`: it needs the target's hidden states, after the final norm, with the tokens that they predicted.
    """

    reads_hidden: bool

    def read(self, tokens: Sequence[int], hidden: mx.array | None = None) -> None:
        """Take in the next tokens of the text, the prompt's first.

        `hidden` (1, T, D), for a drafter that reads them, are the target's states that predicted each of the tokens. The
        first token of a text is predicted by none: it is not among the tokens of such a drafter.
        """

    def propose(self, count: int) -> Draft:
        """At most `count` tokens that may follow the text; none where nothing is known."""
