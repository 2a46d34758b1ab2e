"""`PromptCache`: what a model computed of the texts before, found again by the ids that a new prompt begins with."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from zoo import runtime
from zoo.cache import Cache, CachePolicy, Snapshot, flatten_caches
from zoo.errors import PromptError
from zoo.frozen import Frozen, frozen
from zoo.generation.prefix_cache import disk
from zoo.generation.prefix_cache.miss_reason import Reason, Why
from zoo.generation.prefix_cache.tree import Found, Tree
from zoo.loading import Loaded
from zoo.notices import notice

SHARE = 4  # of the machine's memory, one part is the budget
UNKNOWN = 8 * 2**30  # bytes that a machine is taken to have where it does not say


@frozen()
class Statistics(Frozen):
    """What became of the requests so far, and the bytes that are held now. `tokens` counts those of all prompts."""

    requests: int = 0
    hits: int = 0
    misses: int = 0
    tokens: int = 0
    tokens_reused: int = 0
    evictions: int = 0
    nbytes: int = 0


@frozen()
class Match(Frozen):
    """What is held of a prompt: its first `length` tokens need not be computed, and `why` says what kept it from more.

    `checkpoints`: the numbers of tokens, in order, after which to call `keep` while the rest of the prompt is computed. Where
    all caches are held by column, that is after the prompt; else a snapshot is left wherever another text may part.
    """

    length: int
    why: Why
    checkpoints: tuple[int, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()

    def restore(self, caches: Sequence[Any]) -> None:
        """Fill the fresh caches of a model, made with the policy that was asked for, as after `length` tokens.

        Later writes to these caches leave what is held as it is.
        """
        if self.length:
            for cache, snapshot in zip(flatten_caches(caches), self.snapshots, strict=True):
                cache.restore(snapshot)


class PromptCache:
    """A prefix tree of token ids for each cache policy, with what the caches of one model hold of them.

    What has one column a token is held once for all texts that begin alike, and can be used up to any token. Windows
    and recurrent states are held as snapshots at the lengths at which `keep` is called. At most `budget` bytes are held,
    a quarter of the machine's memory unless given; what was not used for longest goes first. PromptError for a budget
    that is no number of bytes, and for a model or a file that it cannot serve.

    >>> loaded = zoo.load("llama")
    >>> held = zoo.PromptCache(loaded)
    >>> for country in ("China", "France"):
    ...     answer = zoo.generate(loaded, f"The capital city of {country} is", prompt_cache=held)
    ...     print(answer.text, answer.prompt.cached_tokens, answer.prompt.miss_reason)
     Beijing. 0 first request
     Paris. 4 differs from token 4 on from all that is held
    """

    def __init__(self, loaded: Loaded, budget: int | None = None) -> None:
        if budget is None:
            budget = (runtime.total_memory() or UNKNOWN) // SHARE
        if type(budget) is not int or budget < 0:
            raise PromptError(f"`budget` must be a number of bytes of at least 0, got {budget!r:.60}")
        self.loaded, self.budget = loaded, budget
        self.trees: dict[CachePolicy, Tree] = {}
        self.unsupported = unsupported(loaded)
        self._counts = Statistics()
        self._by_column: dict[CachePolicy, bool] = {}
        self._now = 0

    @property
    def nbytes(self) -> int:
        """The bytes of all ids and arrays that are held."""
        return sum(tree.nbytes for tree in self.trees.values())

    @property
    def statistics(self) -> Statistics:
        """Requests, hits, misses, tokens, evictions since it was made; bytes now."""
        return replace(self._counts, nbytes=self.nbytes)

    def match(
        self, ids: Iterable[int], policy: CachePolicy | None = None, checkpoints: Iterable[int] = ()
    ) -> Match:
        """The longest beginning of a prompt that is held for `policy`.

        At least one token is left to compute, since the logits of the last one are needed. `checkpoints`: the
        numbers of tokens after which a later prompt may differ, see `next_turn_checkpoints`.
        """
        text = array("i", ids)
        match = self._match(text, key_of(policy), checkpoints)
        counts = self._counts
        self._counts = replace(
            counts,
            requests=counts.requests + 1,
            hits=counts.hits + (match.length > 0),
            misses=counts.misses + (match.length == 0),
            tokens=counts.tokens + len(text),
            tokens_reused=counts.tokens_reused + match.length,
        )
        return match

    def check(self, loaded: Loaded) -> None:
        """PromptError when it is the prompt cache of another model than `loaded`."""
        if loaded.model is not self.loaded.model:
            raise PromptError(
                f"`prompt_cache`: was made for {self.loaded.architecture.name} from {self.loaded.folder}, and holds "
                f"nothing of {loaded.architecture.name} from {loaded.folder}"
            )

    def keep(self, ids: Iterable[int], caches: Sequence[Any], policy: CachePolicy | None = None) -> None:
        """Hold what the caches of a model, made with `policy`, have of one text.

        `ids` are those that the caches have taken in; of caches that are held by column, a beginning will do. It may be
        called several times for a text, as it is read: each call leaves a snapshot of the caches that are not held by
        column. ValueError for caches that took in another number of tokens.
        """
        text = array("i", ids)
        if self.unsupported or not text:
            return
        tree = self.trees.setdefault(key_of(policy), Tree())
        tree.insert(text, list(flatten_caches(caches)), self._tick())
        self._shrink()

    def save(self, path: str | Path) -> None:
        """Write what is held as a file, whole or not at all.

        PromptError where nothing can be written, and for a file that is no prompt cache: it is not replaced.
        """
        disk.write(Path(path), self.trees, self.loaded)

    @classmethod
    def load(cls, path: str | Path, loaded: Loaded, budget: int | None = None) -> PromptCache:
        """A prompt cache with what the file at `path` holds, as far as it fits the budget; empty if there is no file.

        A file that is not whole is warned of, holds nothing, and is replaced when it is saved. PromptError for a file
        that another model or tokenizer wrote, or that is no prompt cache, and for a model that can have none.
        """
        cache = cls(loaded, budget)
        if cache.unsupported:
            raise PromptError(f"`prompt_cache`: {cache.unsupported}")
        try:
            cache.trees = disk.read(Path(path), loaded)
        except disk.Damaged as damage:
            notice(f"{path}: the prompt cache is not used and will be replaced: {damage}")
        cache._now = max((node.used for tree in cache.trees.values() for node in tree.nodes()), default=0)
        cache._shrink()
        return cache

    def clear(self) -> None:
        """Let go of everything."""
        self.trees.clear()

    def by_column(self, policy: CachePolicy | None = None) -> bool:
        """Whether all caches of this policy are held by column, so that a text can be used up to any token."""
        key = key_of(policy)
        if key not in self._by_column:
            caches = flatten_caches(self.loaded.model.make_cache(key))
            self._by_column[key] = all(cache.by_column for cache in caches)
        return self._by_column[key]

    def _match(self, text: array[int], policy: CachePolicy, checkpoints: Iterable[int]) -> Match:
        if self.unsupported:
            return Match(0, Why(Reason.UNSUPPORTED, why=self.unsupported))
        last = max(0, len(text) - 1)
        tree = self.trees.get(policy)
        if tree is not None and tree.root.children:
            found = tree.find(text, last, self._tick())
        else:
            found = Found()
        length, agreed = found.length, min(found.agreed, last)
        if tree is None or not tree.root.children:
            others = any(tree.root.children for tree in self.trees.values())
            reason = Reason.POLICY if others else Reason.DROPPED if self._counts.evictions else Reason.FIRST
        elif length < agreed:
            reason = Reason.SNAPSHOT
        elif found.agreed == len(text):
            reason = Reason.WHOLE
        else:
            reason = Reason.LONGER if found.ends else Reason.DIFFERS
        kept = {len(text)}
        if not self.by_column(policy):  # where texts part, a third text may do so, too
            kept = {mark for mark in (agreed, *checkpoints, last) if length < mark <= last}
        return Match(length, Why(reason, agreed, length), tuple(sorted(kept)), found.snapshots)

    def _shrink(self) -> None:
        """Drop what was not used for longest until the budget is kept; of a large part by column, the end alone."""
        if self.nbytes <= self.budget:
            return
        trees = list(self.trees.values())
        heap = [
            (node.used, number, order, node)
            for number, tree in enumerate(trees)
            for order, node in enumerate(tree.nodes())
            if tree.droppable(node)
        ]
        heapq.heapify(heap)
        while self.nbytes > self.budget:
            _, number, order, node = heapq.heappop(heap)
            parent = node.parent
            if trees[number].by_column and node.nbytes > self.budget // 2:  # its beginning is worth keeping
                trees[number].shorten(node, self.nbytes - self.budget)
            else:
                trees[number].drop(node)
            self._counts = replace(self._counts, evictions=self._counts.evictions + 1)
            if trees[number].by_column and parent is not None and parent.parent and not parent.children:
                heapq.heappush(heap, (parent.used, number, order, parent))

    def _tick(self) -> int:
        self._now += 1
        return self._now


def key_of(policy: CachePolicy | None) -> CachePolicy:
    """A policy without the room that is made for a text: it changes nothing that a cache holds."""
    return replace(policy or CachePolicy(), reserve=0)


def unsupported(loaded: Loaded) -> str:
    """Why nothing that a model computed of one text can serve another; empty when it can."""
    if not loaded.model.decodes or loaded.model.translates:
        return f"{loaded.architecture.name} does not continue a text"
    if loaded.architecture.causality != "causal":
        return "the tokens of a prompt see each other both ways, so that each new prompt changes all of them"
    caches = list(flatten_caches(loaded.model.make_cache()))
    if not caches or not all(isinstance(cache, Cache) and cache.restores for cache in caches):
        return f"the caches of {loaded.architecture.name} give no snapshots"
    return ""
