"""A model of no layers whose caches hold the very ids that they took in: by column, and as a state."""

from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx

from zoo.blocks.model import Model
from zoo.cache import Cache, Snapshot


class Columns(Cache):
    """The ids, a column each, (1, 1, S, 1)."""

    by_column = restores = True
    kind = "columns"

    def __init__(self, policy=None):
        super().__init__(policy)
        self.ids = []

    @property
    def length(self):
        return len(self.ids)

    @length.setter
    def length(self, length):
        assert length == 0

    def take(self, ids):
        self.ids = [*self.ids, *ids]

    def snapshot(self, row=0):
        arrays = (mx.array(self.ids, dtype=mx.int32)[None, None, :, None],)
        return Snapshot(kind=self.kind, length=len(self.ids), arrays=arrays, by_column=self.by_column)

    def restore(self, snapshot):
        assert snapshot.arrays[0].shape[2] == snapshot.length
        self.ids = snapshot.arrays[0].reshape(-1).tolist()


class State(Columns):
    """The number of ids and their sum weighted by position, (1, 2): what only the whole text before gives."""

    by_column = False
    kind = "state"

    def snapshot(self, row=0):
        arrays = (mx.array([folded(self.ids)], dtype=mx.int64),)
        return Snapshot(kind=self.kind, length=len(self.ids), arrays=arrays, by_column=self.by_column)

    def restore(self, snapshot):
        self.restored = snapshot.arrays[0][0].tolist()


def folded(ids):
    return [len(ids), sum((place + 1) * (id + 1) for place, id in enumerate(ids))]


class FakeModel(Model):
    """Makes the caches of these classes."""

    def __init__(self, *kinds):
        self.kinds = kinds

    def make_cache(self, policy=None):
        return [kind(policy) for kind in self.kinds]

    def backbone(self, tokens, cache):
        for each in cache:
            each.take(tokens[0].tolist())

    def parameters(self):
        return {"weight": mx.arange(6).reshape(2, 3), "layers": [{"bias": mx.ones(3, dtype=mx.bfloat16)}]}


def fake_loaded(*kinds, name="fake", causality="causal"):
    """What `zoo.load` would give for a model of these caches, without a tokenizer."""
    return SimpleNamespace(
        division=None,
        agreed=lambda value: value,
        model=FakeModel(*kinds),
        architecture=SimpleNamespace(name=name, causality=causality),
        recipe=SimpleNamespace(to_json=lambda: {"name": name}),
        tokenizer=None,
        folder=Path("somewhere"),
    )


def read(cache, ids, policy=None):
    """Read a prompt as an engine does: match, restore, keep at each mark and at the end; gives the match."""
    match = cache.match(ids, policy)
    caches = cache.loaded.model.make_cache(policy)
    match.restore(caches)
    for kept in caches:
        if match.length and isinstance(kept, State):
            assert kept.restored == folded(ids[: match.length])
            kept.ids = list(ids[: match.length])
        assert kept.ids == list(ids[: match.length])
    done = match.length
    for mark in [*match.checkpoints, len(ids)]:
        for kept in caches:
            kept.take(ids[done:mark])
        cache.keep(ids[:mark], caches, policy)
        done = mark
    return match
