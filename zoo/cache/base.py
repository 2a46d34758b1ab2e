"""The base of caches: length, position of the next token, operations on rows and columns.

Axes: B batch, S cached columns. The batch is the first axis of every array that a cache holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import mlx.core as mx
from mlx.utils import tree_map

from zoo.cache.columns import Columns
from zoo.cache.packed import PackedColumns
from zoo.frozen import Frozen, frozen
from zoo.recipe.policy import CachePolicy


@frozen()
class Snapshot(Frozen):
    """A copy of one row of a cache after `length` tokens, which nothing that the cache does later changes.

    `kind` names the class of the cache and what its policy changes in the arrays. `arrays` have one row, and, when it is
    `by_column`, one column a token on axis 2: the first n columns are then the snapshot after n tokens.
    """

    kind: str
    length: int
    arrays: tuple[mx.array, ...]
    by_column: bool = False

    @property
    def nbytes(self) -> int:
        """The bytes that its arrays take."""
        return sum(array.nbytes for array in self.arrays)


class Cache:
    """The base of every cache: its length, and each row's left padding (B,), which the model sets.

    What a cache can do is declared. `by_column`: it keeps one column a token, cut on axis 2. `trims`: `trim` can drop the
    last columns. `restores`: it has `snapshot` and `restore`. `mergeable`: `merge` can put its rows in a batch with
    others'; never so while it is empty. `obeys`: the parts of a policy that it follows, "max_size" and "bits"; one whose
    `constant` is true keeps the same for any text, and there is nothing in it to bound. `attends_packed`: it has `attend`, by
    which one token reads packed keys and values as they are.
    """

    by_column: bool = False
    trims: bool = False
    constant: bool = False
    attends_packed: bool = False
    obeys: frozenset[str] = frozenset()
    # The attributes that hold what `snapshot`, `restore` and `joined` take.
    handled: frozenset[str] = frozenset({"_padding"})
    # A bounded cache's (keep, recent): a query sees the first `keep` tokens of its row, and the newest `recent`.
    bound: tuple[int, int] | None = None

    # The length of the text that is being read in chunks, where rotary angles depend on it; 0 once it is read.
    least_length: int = 0

    length: int
    policy: CachePolicy
    state: Any  # the arrays to evaluate
    _padding: mx.array | None = None
    _most_padding: int | None = None

    def __init__(self, policy: CachePolicy | None = None) -> None:
        self.length = 0
        self.policy = policy or CachePolicy()

    @property
    def padding(self) -> mx.array | None:
        """The columns on the left of each row that are no tokens, (B,); None when no row has any."""
        return self._padding

    @padding.setter
    def padding(self, padding: mx.array | None) -> None:
        self._padding, self._most_padding = padding, None

    @property
    def most_padding(self) -> int:
        """The padding of the row that has most."""
        if self._most_padding is None:
            self._most_padding = 0 if self.padding is None else int(self.padding.max().item())
        return self._most_padding

    @property
    def offset(self) -> int | mx.array:
        """The position of the next token."""
        return self.length if self.padding is None else self.length - self.padding

    def start(self, queries: int) -> int:
        """The column of the oldest key that `queries` new tokens will be given, first tokens that are kept aside."""
        return 0

    def key_positions(self, queries: int) -> int | mx.array:
        """The positions of the keys that `queries` new tokens will be given: the first one's, a number or (B,)."""
        return self.start(queries) if self.padding is None else self.start(queries) - self.padding

    @property
    def kind(self) -> str:
        """The kind that its snapshots record."""
        return type(self).__name__

    @property
    def restores(self) -> bool:
        """Whether it has `snapshot` and `restore`, and these take everything that it keeps."""
        return type(self).snapshot is not Cache.snapshot and not self.keeps_more

    @property
    def keeps_more(self) -> bool:
        """Whether it keeps arrays beside those in `handled`, as a subclass may that inherits its methods."""
        return any(numbers(value) for name, value in vars(self).items() if name not in self.handled)

    @property
    def mergeable(self) -> bool:
        """Whether `merge` can put its rows in a batch with those of others of its kind and policy, as it is now."""
        return False

    def counterpart(self) -> Any:
        """mlx-lm's cache, empty, that blocks can be given in the place of this one. Each class has to say its own."""
        raise NotImplementedError

    @property
    def rows(self) -> int:
        """How many rows it has; 0 when it is empty."""
        return self.state[0].shape[0] if self.state else 0

    @property
    def held(self) -> int:
        """How many numbers it keeps of one row of the batch, without those of `spare`: what `Spec.kv_cache_size` counts.

        Of packed numbers, words, scales and biases are counted.
        """
        arrays = {name: value for name, value in vars(self).items() if name not in ("padding", "_padding")}
        return numbers(arrays) - self.spare

    @property
    def spare(self) -> int:
        """How many numbers of a row its arrays have in reserve, or keep though nothing reaches them any more."""
        return 0

    @property
    def nbytes(self) -> int:
        """The bytes that its arrays take, those in reserve included."""
        return sum(array.nbytes for array in self.state)

    def select(self, rows: mx.array) -> None:
        """Keep these rows of the batch in this order, (B,), any of them repeated: the steps of a beam search.

        Every array that a cache holds has the batch first.
        """
        for name, value in vars(self).items():
            if name != "_most_padding":
                chosen = tree_map(lambda leaf: leaf[rows] if isinstance(leaf, mx.array) else leaf, value)
                setattr(self, name, chosen)
        self._most_padding = None

    def snapshot(self, row: int = 0) -> Snapshot:
        """A snapshot of one row, without the row's padding; where it `restores`."""
        raise NotImplementedError

    def restore(self, snapshot: Snapshot) -> None:
        """Become the cache, of one row, that the snapshot was taken of, which stays as it is."""
        raise NotImplementedError

    def trim(self, count: int) -> None:
        """Forget the last `count` columns, as if their tokens had never come; where it `trims`."""
        raise NotImplementedError

    def takes_back(self, tokens: int) -> bool:
        """Whether `trim` can drop any of the columns of a pass over so many tokens, right after it."""
        return self.trims

    @classmethod
    def merge(cls, caches: Sequence[Self]) -> Self:
        """The rows of several caches of this class and one policy in one, padded on the left to the longest."""
        made, longest = cls.joined(caches), max(cache.length for cache in caches)
        made.length = longest
        if any(cache.length < longest or cache.padding is not None for cache in caches):
            none = (mx.zeros((cache.rows,), dtype=mx.int32) for cache in caches)
            own = [zero if c.padding is None else c.padding for c, zero in zip(caches, none, strict=True)]
            made.padding = mx.concatenate([longest - c.length + p for c, p in zip(caches, own, strict=True)])
        return made

    @classmethod
    def joined(cls, caches: Sequence[Self]) -> Self:
        """A cache with the arrays of several in one batch, columns aligned on the right; where it is `mergeable`."""
        raise NotImplementedError

    def drop_columns(self, count: int) -> None:
        """Forget the first `count` columns, which are padding in every row; the arrays alone."""

    def compact(self) -> None:
        """Drop the columns on the left that are padding in every row, as when the longest text has left the batch."""
        padding = self.padding
        if padding is None:
            return
        count = int(padding.min().item())
        if count:
            self.drop_columns(count)
            self.length -= count
        self.padding = padding - count if self.most_padding > count else None


def numbers(value: object) -> int:
    """The numbers of one row in an array, columns, a cache, or what holds several."""
    if isinstance(value, mx.array):
        return value.size // value.shape[0] if value.ndim and value.size else 0
    if isinstance(value, dict):
        return sum(map(numbers, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(numbers, value))
    if isinstance(value, Columns | PackedColumns):
        return numbers(value.state)
    return value.held if isinstance(value, Cache) else 0
