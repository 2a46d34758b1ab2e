"""Prompt look-up: what followed the same tokens earlier in the text (Saxena, 2023). Needs no second model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zoo.generation.speculative.drafter import Draft

LONGEST = 3  # tokens of the text's end that are looked up, before fewer are


class PromptLookup:
    """Finds the end of the text earlier in it, and drafts what came after: the longest n-gram, the latest place.

    A token costs one entry in a dict for each length of n-gram, a proposal one look-up for each, whatever the length of
    the text.

    >>> from zoo.generation.speculative.prompt_lookup import PromptLookup
    >>> drafter = PromptLookup()
    >>> drafter.add_tokens([5, 6, 7, 8, 5, 6])
    >>> drafter.propose(3).tokens
    (7, 8, 5)
    """

    needs_hidden = False

    def __init__(self, longest: int = LONGEST) -> None:
        self.text: list[int] = []
        # For each n: the n-gram -> the place of the token after its latest occurrence that has one.
        self.after: list[dict[tuple[int, ...], int]] = [{} for _ in range(longest)]

    def add_tokens(self, tokens: Sequence[int]) -> None:
        """Take in the next tokens of the text."""
        for token in tokens:
            place = len(self.text)
            for size, places in enumerate(self.after, 1):
                if size <= place:
                    places[tuple(self.text[place - size :])] = place
            self.text.append(token)

    def add_hidden(self, position: int, hidden: Any) -> None:
        """Nothing is made of hidden states."""

    def propose(self, count: int) -> Draft:
        """What followed the longest n-gram at the end of the text; a copy that reaches the end goes on with itself."""
        for size in range(min(len(self.after), len(self.text)), 0, -1):
            place = self.after[size - 1].get(tuple(self.text[-size:]))
            if place is not None:
                found = self.text[place : place + count]
                period = len(self.text) - place
                while len(found) < count:
                    found.append(found[len(found) - period])
                return Draft(tuple(found))
        return Draft()
