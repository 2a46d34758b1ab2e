"""Prompt look-up: drafts what followed the same tokens earlier in the text (Saxena, 2023). Needs no second model."""

from __future__ import annotations

from collections.abc import Sequence

from zoo.generation.speculative.drafter import Draft, Drafter

MAX_NGRAM = 3  # tokens of the text's end that are looked up, before fewer are


class PromptLookup(Drafter):
    """Finds the end of the text earlier in it, and drafts what followed: of the longest n-gram, the last occurrence.

    A token costs one dictionary entry for each length of n-gram, a proposal one look-up for each, however long the text.

    >>> from zoo.generation.speculative.prompt_lookup import PromptLookup
    >>> drafter = PromptLookup()
    >>> drafter.add_tokens([5, 6, 7, 8, 5, 6])
    >>> drafter.propose(3).tokens
    (7, 8, 5)
    """

    def __init__(self) -> None:
        super().__init__()
        # For each n: the n-gram -> the position after its last occurrence that a token follows.
        self.following: list[dict[tuple[int, ...], int]] = [{} for _ in range(MAX_NGRAM)]

    def add_tokens(self, tokens: Sequence[int]) -> None:
        """Append the next tokens of the text."""
        for token in tokens:
            end = len(self.text)
            for size, positions in enumerate(self.following, 1):
                if size <= end:
                    positions[tuple(self.text[end - size :])] = end
            self.text.append(token)

    def propose(self, count: int) -> Draft:
        """What followed the longest n-gram at the end of the text; a copy that reaches the end repeats itself."""
        for size in range(min(MAX_NGRAM, len(self.text)), 0, -1):
            start = self.following[size - 1].get(tuple(self.text[-size:]))
            if start is not None:
                found = self.text[start : start + count]
                period = len(self.text) - start
                while len(found) < count:
                    found.append(found[len(found) - period])
                return Draft(tuple(found))
        return Draft()
