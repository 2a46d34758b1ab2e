"""Random texts kept and found again, under a budget too, are those that a plain dictionary holds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.fake_caches import Columns, State, fake_loaded, folded, read
from zoo.generation.prefix_cache import PromptCache

TEXTS = st.lists(st.integers(0, 2), min_size=1, max_size=9).map(tuple)
COLUMN, STATE = 4, 16  # bytes of an id, of a column of `Columns`, and of a `State`


class Dictionary:
    """What a prompt cache is to hold: when each node was used, by the ids that lead to it, with or without states."""

    def __init__(self, kinds, budget):
        self.columns, self.state = kinds.count(Columns), State in kinds
        self.budget, self.now = budget, 0
        self.used, self.states = {}, set()

    def parent(self, node):
        return max((end for end in self.used if end != node and node[: len(end)] == end), key=len, default=())

    def leaves(self):
        return [node for node in self.used if node not in map(self.parent, self.used)]

    def agreed(self, ids):
        same = (n for n in range(len(ids), 0, -1) if any(node[:n] == ids[:n] for node in self.used))
        return next(same, 0)

    def nbytes(self):
        edges = sum(len(node) - len(self.parent(node)) for node in self.used)
        return edges * COLUMN * (1 + self.columns) + len(self.states) * STATE * self.state

    def match(self, ids):
        self.now += 1
        most = min(self.agreed(ids), len(ids) - 1)
        if not self.used:
            self.now -= 1
        if self.state:
            length = max(
                (len(node) for node in self.states if node == ids[: len(node)] and len(node) <= most),
                default=0,
            )
            if length:
                self.used[ids[:length]] = self.now
            return length
        for node in self.used:
            if (
                len(self.parent(node)) < most
                and node[: len(self.parent(node)) + 1] == ids[: len(self.parent(node)) + 1]
            ):
                self.used[node] = self.now
        return most

    def keep(self, ids):
        self.now += 1
        agreed = self.agreed(ids)
        inside = [
            node
            for node in self.used
            if node[:agreed] == ids[:agreed] and len(self.parent(node)) < agreed < len(node)
        ]
        if inside and (agreed < len(ids) or self.state):
            self.used[ids[:agreed]] = self.used[min(inside, key=len)]
        if agreed < len(ids) or self.state:
            self.used.setdefault(ids, 0)
        if self.state:
            self.states.add(ids)
            self.used[ids] = self.now
        else:
            for node in self.used:
                if node[: len(self.parent(node)) + 1] == ids[: len(self.parent(node)) + 1]:
                    self.used[node] = self.now
        while self.nbytes() > self.budget:
            self.drop()

    def drop(self):
        if not self.state:
            oldest = min(self.leaves(), key=lambda node: (self.used[node], -len(node)))
            size = (len(oldest) - len(self.parent(oldest))) * COLUMN * (1 + self.columns)
            used = self.used.pop(oldest)
            if size > self.budget // 2:
                excess = self.nbytes() + size - self.budget
                kept = oldest[: len(oldest) + -excess // (COLUMN * (1 + self.columns))]
                if len(kept) > len(self.parent(oldest)):
                    self.used[kept] = used
            return
        oldest = min(self.states, key=self.used.get)
        self.states.remove(oldest)
        while lost := [node for node in self.leaves() if node not in self.states]:
            del self.used[lost[0]]


@pytest.mark.parametrize("kinds", [(Columns,), (Columns, State, Columns), (State,)])
@given(texts=st.lists(TEXTS, max_size=14), budget=st.integers(0, 400) | st.just(10**6))
@settings(max_examples=80)
def test_random_texts_are_held_as_in_a_dictionary(kinds, texts, budget):
    cache = PromptCache(fake_loaded(*kinds), budget)
    model = Dictionary(kinds, budget)
    for ids in texts:
        match = cache.match(ids)
        assert match.length == model.match(ids)
        caches = cache.loaded.model.make_cache()
        match.restore(caches)
        for held in caches if match.length else ():
            assert (held.restored if isinstance(held, State) else held.ids) in (
                folded(ids[: match.length]),
                list(ids[: match.length]),
            )
        for held in caches:
            held.ids = list(ids)
        cache.keep(ids, caches)
        model.keep(ids)
        assert cache.nbytes == model.nbytes() <= budget
        assert cache.nbytes == sum(n.nbytes for tree in cache.trees.values() for n in tree.nodes())
    assert cache.statistics.requests == len(texts)
    assert cache.statistics.tokens == sum(map(len, texts))


@given(texts=st.lists(TEXTS, max_size=10), budget=st.integers(0, 400))
@settings(max_examples=40)
def test_marks_only_add_to_what_is_reused(texts, budget):
    marked, plain = PromptCache(fake_loaded(State), 10**6), PromptCache(fake_loaded(State), 10**6)
    for ids in texts:
        caches = plain.loaded.model.make_cache()
        for held in caches:
            held.ids = list(ids)
        least = plain.match(ids).length
        plain.keep(ids, caches)
        assert read(marked, ids).length >= least
    again = [read(marked, ids).length for ids in texts]
    assert again == [len(ids) - 1 for ids in texts]
