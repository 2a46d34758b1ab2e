"""A prefix tree of token ids with the contents of caches: columns along the edges, states at the nodes.

Axes: B batch (1), G key/value heads, S columns, K width.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx

from zoo.cache import Cache, Snapshot
from zoo.frozen import Frozen, frozen

Arrays = tuple[mx.array, ...]
ID_BYTES = array("i").itemsize


class Node:
    """The end of an edge. `ids` are those of the edge, `end` the number of tokens from the root to here.

    `columns`: for each cache held by column, its arrays (1, G, S, K) for the ids of the edge. `states`: snapshots of the
    other caches after `end` tokens, None where there are none. `used` is the time of the last use.
    """

    def __init__(self, ids: array[int], end: int, columns: Sequence[Arrays], parent: Node | None) -> None:
        self.ids, self.end, self.parent = ids, end, parent
        self.columns = list(columns)
        self.states: tuple[Snapshot, ...] | None = None
        self.children: dict[int, Node] = {}
        self.used = 0

    @property
    def start(self) -> int:
        """The number of tokens before the edge."""
        return self.end - len(self.ids)

    @property
    def nbytes(self) -> int:
        """The bytes of its ids and arrays."""
        columns = sum(part.nbytes for arrays in self.columns for part in arrays)
        return ID_BYTES * len(self.ids) + columns + self.state_bytes

    @property
    def state_bytes(self) -> int:
        """The bytes of its snapshots."""
        return sum(part.nbytes for state in self.states or () for part in state.arrays)


@frozen()
class Found(Frozen):
    """What a tree holds of a text: `agreed` tokens, of which the first `length` can be used, with the snapshots.

    `at_end`: no held text continues after the tokens that agree.
    """

    length: int = 0
    agreed: int = 0
    at_end: bool = False
    snapshots: tuple[Snapshot, ...] = ()


class Tree:
    """The texts of one cache policy. `nbytes` counts the bytes of all nodes.

    The first text decides which caches are held by column. Where some are not, a text can only be used up to a node with
    states, and every edge leads to one.
    """

    def __init__(self) -> None:
        self.forms: tuple[Snapshot, ...] = ()  # one a cache, without arrays
        self.root = Node(array("i"), 0, (), None)
        self.nbytes = 0

    @property
    def by_column(self) -> bool:
        """Whether every cache is held by column, so that a text can be used up to any of its tokens."""
        return all(form.by_column for form in self.forms)

    def nodes(self) -> Iterator[Node]:
        """All nodes but the root, parents before their children."""
        waiting = list(self.root.children.values())
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(node.children.values())

    def find(self, ids: array[int], most: int, now: int) -> Found:
        """The longest beginning of `ids`, of at most `most` tokens, that can be used; its nodes are `used` at `now`."""
        path, agreed, length = self.reach(ids, most)
        at_end = not (path[-1] if path else self.root).children and (not path or agreed == path[-1].end)
        path = [node for node in path if node.start < length]
        self._touch(path, now)
        if not length:
            return Found(0, agreed, at_end)
        columns = iter(range(len(self.forms)))
        states = iter(path[-1].states or ())
        snapshots = tuple(
            replace(form, length=length, arrays=_joined(path, next(columns), length))
            if form.by_column
            else copied(next(states))
            for form in self.forms
        )
        return Found(length, agreed, at_end, snapshots)

    def reach(self, ids: array[int], most: int) -> tuple[list[Node], int, int]:
        """The nodes on the path of a text, the tokens that agree, and how many of the first `most` can be used."""
        path, agreed = self._path(ids)
        if self.by_column:
            return path, agreed, min(agreed, most)
        usable = [node.end for node in path if node.states is not None and node.end <= min(agreed, most)]
        return path, agreed, max(usable, default=0)

    def insert(self, ids: array[int], caches: Sequence[Cache], now: int, row: int = 0) -> None:
        """Add a text and the contents of a row of `caches`; what is already held is not added again.

        ValueError for caches with another number of tokens, or of other kinds than those of the texts before.
        """
        path, agreed = self._path(ids)
        by_column = all(cache.by_column for cache in caches)
        inside = bool(path) and agreed < path[-1].end
        known = not inside and bool(path) and path[-1].states is not None
        forms: list[Snapshot] = []
        columns: list[Arrays] = []
        states: list[Snapshot] = []
        for cache in caches if agreed < len(ids) or not (by_column or known) else ():
            snapshot = cache.snapshot(row)  # one cache at a time, because it copies the whole cache
            if snapshot.length != len(ids) and not (snapshot.by_column and snapshot.length > len(ids)):
                raise ValueError(f"{len(ids)} ids for a cache that has taken in {snapshot.length} tokens")
            if snapshot.by_column:
                columns.append(_cut(snapshot.arrays, agreed, len(ids)))
                mx.eval(columns[-1])
            else:
                states.append(copied(snapshot))
                mx.eval(states[-1].arrays)
            forms.append(replace(snapshot, length=0, arrays=()))
        if not self.root.children:
            self.forms = tuple(forms)
        elif forms and [(f.kind, f.by_column) for f in forms] != [(f.kind, f.by_column) for f in self.forms]:
            raise ValueError("a prompt cache holds the caches of one model, these are of another")
        if inside and (agreed < len(ids) or not by_column):
            path[-1] = self._split(path[-1], agreed - path[-1].start)
        if agreed < len(ids):
            parent = path[-1] if path else self.root
            child = parent.children[ids[agreed]] = Node(ids[agreed:], len(ids), columns, parent)
            self.nbytes += child.nbytes
            path.append(child)
        if states:
            path[-1].states = tuple(states)
            self.nbytes += path[-1].state_bytes
        self._touch(path, now)

    def drop(self, node: Node) -> None:
        """Drop a leaf and the edges that then lead nowhere; of a node with children, its states."""
        if node.children:
            self.nbytes -= node.state_bytes
            node.states = None
            return
        while node.parent is not None:
            parent = node.parent
            del parent.children[node.ids[0]]
            self.nbytes -= node.nbytes
            node.parent = None
            if self.by_column or parent.children or parent.states is not None:
                return
            node = parent

    def shorten(self, node: Node, nbytes: int) -> None:
        """Drop the last columns of a leaf, at least `nbytes` of them, where all is held by column."""
        before = node.nbytes
        kept = len(node.ids) - -(-nbytes * len(node.ids) // before)
        if kept <= 0:
            self.drop(node)
            return
        node.end = node.start + kept
        node.ids, node.columns = node.ids[:kept], [_cut(arrays, 0, kept) for arrays in node.columns]
        mx.eval(node.columns)
        self.nbytes += node.nbytes - before

    def _path(self, ids: array[int]) -> tuple[list[Node], int]:
        """The nodes on the path of a text, the last of which may agree in part, and the number of tokens that agree."""
        path: list[Node] = []
        node, agreed = self.root, 0
        while agreed < len(ids) and (child := node.children.get(ids[agreed])) is not None:
            same = common_prefix(child.ids, ids[agreed : agreed + len(child.ids)])
            path.append(child)
            agreed += same
            if same < len(child.ids):
                break
            node = child
        return path, agreed

    def _touch(self, path: Sequence[Node], now: int) -> None:
        """Set the time of use: of all nodes on the path where columns suffice, else of the last, whose states are used."""
        for node in path if self.by_column else path[-1:]:
            node.used = now

    def _split(self, lower: Node, count: int) -> Node:
        """Split the edge of a node after `count` ids; returns the new node, which ends there."""
        assert lower.parent is not None
        upper = Node(
            lower.ids[:count],
            lower.start + count,
            [_cut(arrays, 0, count) for arrays in lower.columns],
            lower.parent,
        )
        columns = [_cut(arrays, count, len(lower.ids)) for arrays in lower.columns]
        mx.eval(upper.columns, columns)
        lower.parent.children[upper.ids[0]] = upper
        lower.ids, lower.columns, lower.parent = lower.ids[count:], columns, upper
        upper.children[lower.ids[0]] = lower
        return upper


def common_prefix(first: Sequence[Any], second: Sequence[Any]) -> int:
    """The length of the common prefix of two lists of ids, of two arrays, or of two texts."""
    low, high = 0, min(len(first), len(second))
    while low < high:  # comparing slices is fast: find the longest that are equal
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def copied(snapshot: Snapshot) -> Snapshot:
    """A copy of a snapshot: the cache may write into the arrays of the original."""
    return replace(snapshot, arrays=tuple(map(mx.contiguous, snapshot.arrays)))


def _cut(arrays: Arrays, start: int, stop: int) -> Arrays:
    """The columns from `start` to `stop` of arrays (1, G, S, K), in memory of their own."""
    return tuple(mx.contiguous(part[:, :, start:stop]) for part in arrays)


def _joined(path: Sequence[Node], cache: int, length: int) -> Arrays:
    """The first `length` columns of a cache, (1, G, length, K)."""
    pieces = [node.columns[cache] for node in path]
    return tuple(mx.concatenate(parts, axis=2)[:, :, :length] for parts in zip(*pieces, strict=True))
