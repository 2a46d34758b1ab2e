"""Which tokens would go on with a repetition, and how long it is: a suffix automaton of the text so far.

Blumer et al., 1985, "The smallest automaton recognizing the subwords of a text". A state stands for those runs of tokens
that end at the same places; `link` leads to the state of the longest of their suffixes that also ends elsewhere.
"""

from __future__ import annotations

ROOT = 0


class SuffixAutomaton:
    """The repetitions at the end of a text that grows by tokens. Runs of more than `most` tokens count as `most`.

    A token takes constant time on average and at most two states; a question takes time in proportion to `most` and to
    the tokens in its answer, however long the text is.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.next: list[dict[int, int]] = [{}]  # the state after one more token
        self.link = [-1]
        self.length = [0]  # of the longest run of a state
        self._whole = ROOT  # the state of the whole text since the last break
        self._repeated = ROOT  # of its longest suffix that was there before
        self._limited: int | None = None  # of the last `most` tokens, where more than those are repeated

    def cut(self) -> None:
        """No run goes on across this place."""
        self._whole = self._repeated = ROOT
        self._limited = None

    def add(self, token: int) -> None:
        """One more token of the text."""
        before, limited = self._repeated, self._limited
        cloned = self._extended(token)
        if self.length[self._repeated] <= self.most:
            self._limited = None
            return
        # The last `most` tokens before this one were repeated as well: their state leads to the new one.
        if limited is None:
            limited = before
        if cloned is not None and limited == cloned[0] and self.most <= self.length[cloned[1]]:
            limited = cloned[1]
        state = self.next[limited][token]
        while self.length[self.link[state]] >= self.most:
            state = self.link[state]
        self._limited = state

    def continuations(self, least: int) -> dict[int, int]:
        """The tokens that followed an earlier copy of the text's end, and the longest such copy of at least `least`."""
        found: dict[int, int] = {}
        state = self._repeated if self._limited is None else self._limited
        while self.length[state] >= least:
            length = min(self.length[state], self.most)
            for token in self.next[state]:
                found.setdefault(token, length)
            state = self.link[state]
        return found

    def _extended(self, token: int) -> tuple[int, int] | None:
        """Extend the automaton by a token; the state that was split, and its clone, if one was."""
        last = self._whole
        if token in self.next[last]:  # the text since the break begins as an earlier one did
            state = self.next[last][token]
            if self.length[state] == self.length[last] + 1:
                self._whole = self._repeated = state
                return None
            clone = self._cloned(state, last, token)
            self._whole = self._repeated = clone
            return state, clone
        new = self._state(self.length[last] + 1, {}, ROOT)
        self._whole = new
        state = last
        while state != -1 and token not in self.next[state]:
            self.next[state][token] = new
            state = self.link[state]
        split = None
        if state != -1:
            follower = self.next[state][token]
            if self.length[follower] != self.length[state] + 1:
                split = follower, self._cloned(follower, state, token)
            self.link[new] = self.next[state][token]
        self._repeated = self.link[new]
        return split

    def _cloned(self, state: int, shorter: int, token: int) -> int:
        """The state of those runs of `state` that are no longer than `shorter` and one token; `state` keeps the others."""
        clone = self._state(self.length[shorter] + 1, dict(self.next[state]), self.link[state])
        self.link[state] = clone
        while shorter != -1 and self.next[shorter].get(token) == state:
            self.next[shorter][token] = clone
            shorter = self.link[shorter]
        return clone

    def _state(self, length: int, following: dict[int, int], link: int) -> int:
        self.next.append(following)
        self.link.append(link)
        self.length.append(length)
        return len(self.length) - 1
