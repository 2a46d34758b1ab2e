"""`PromptCache`: the KV caches of earlier prompts, found again by the ids that a new prompt begins with."""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from zoo import runtime
from zoo.cache import Cache, CachePolicy, Snapshot, flatten_caches
from zoo.errors import PromptError, warn
from zoo.frozen import Frozen, frozen
from zoo.generation.prefix_cache import disk
from zoo.generation.prefix_cache.tree import Found, Tree
from zoo.loading import Loaded

MEMORY_SHARE = 4  # the budget is this part of the machine's memory
DEFAULT_MEMORY = 8 * 2**30  # bytes, where the machine does not say


@frozen()
class CacheStatistics(Frozen):
    """Counts of the requests so far, and the bytes that are held now. `tokens` are those of all prompts."""

    requests: int = 0
    hits: int = 0
    misses: int = 0
    tokens: int = 0
    tokens_reused: int = 0
    evictions: int = 0
    nbytes: int = 0


@frozen()
class Match(Frozen):
    """What is held of a prompt: its first `length` tokens need not be computed. `miss_reason` says why no more.

    `checkpoints`: the numbers of tokens, in order, after which to call `keep` while the rest of the prompt is computed.
    Where all caches are held by column, that is after the prompt; else a snapshot is taken wherever another text may
    diverge.
    """

    length: int
    miss_reason: str
    checkpoints: tuple[int, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()

    def restore(self, caches: Sequence[Any]) -> None:
        """Restore new caches of the model, made with the policy of the request, to the state after `length` tokens.

        They share no memory with what is held.
        """
        if self.length:
            for cache, snapshot in zip(flatten_caches(caches), self.snapshots, strict=True):
                cache.restore(snapshot)


def default_budget() -> int:
    """The bytes of a prompt cache where nothing else is asked for."""
    return (runtime.usable_memory() or DEFAULT_MEMORY) // MEMORY_SHARE


class PromptCache:
    """A prefix tree of token ids for each cache policy, with the contents of one model's caches for them.

    Caches with one column a token are held once for all texts with a common beginning, and can be used up to any token.
    Windows and recurrent states are held as snapshots at the lengths at which `keep` is called. At most `budget` bytes
    are held, by default a quarter of the machine's memory; the least recently used goes first. PromptError for an
    invalid budget, and for a model or a file that it cannot serve.

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
            budget = default_budget()
        if type(budget) is not int or budget < 0:
            raise PromptError(f"`budget` must be a number of bytes of at least 0, got {budget!r:.60}")
        self.loaded, self.budget = loaded, loaded.agreed(budget)
        self.trees: dict[CachePolicy, Tree] = {}
        self.unsupported = unsupported(loaded)
        self._by_column: dict[CachePolicy, bool] = {}
        self._counts = Counter[str]()
        self._now = 0

    def __repr__(self) -> str:
        name, held, most = self.loaded.architecture.name, self.nbytes / 1e6, self.budget / 1e6
        return f"<PromptCache of {name}, {held:,.1f} MB held of at most {most:,.1f} MB>"

    @property
    def nbytes(self) -> int:
        """The bytes of all ids and arrays that are held."""
        return sum(tree.nbytes for tree in self.trees.values())

    @property
    def statistics(self) -> CacheStatistics:
        """Counts since the cache was made, and its bytes now."""
        return CacheStatistics(**self._counts, nbytes=self.nbytes)

    def match(
        self,
        ids: Iterable[int],
        policy: CachePolicy | None = None,
        checkpoints: Iterable[int] = (),
        most: int | None = None,
    ) -> Match:
        """The longest beginning of a prompt that is held for `policy`, but at most all tokens except the last.

        The last token is always computed, for its logits. `checkpoints`: the numbers of tokens after which a later prompt
        may diverge, see `next_turn_checkpoints`. `most`: how many tokens will be reused at most.
        """
        text = array("i", ids)
        match = self._match(text, policy, checkpoints, most)
        outcome = "hits" if match.length else "misses"
        self._counts.update({"requests": 1, outcome: 1, "tokens": len(text), "tokens_reused": match.length})
        return match

    def held(self, ids: Iterable[int], policy: CachePolicy | None = None) -> int:
        """The length of what `match` would find. It counts no request and uses nothing."""
        text = array("i", ids)
        key = self._key(policy, len(text))
        tree = None if key is None else self.trees.get(key)
        return tree.reach(text, len(text) - 1)[2] if tree else 0

    def check(self, loaded: Loaded) -> None:
        """PromptError when this is the prompt cache of another model."""
        if loaded.model is not self.loaded.model:
            raise PromptError(
                f"`prompt_cache`: was made for {self.loaded.architecture.name} from {self.loaded.folder}, and holds "
                f"nothing of {loaded.architecture.name} from {loaded.folder}"
            )

    def keep(
        self, ids: Iterable[int], caches: Sequence[Any], policy: CachePolicy | None = None, row: int = 0
    ) -> None:
        """Add a text with what a row of `caches`, made with `policy`, has of it.

        `ids` are the tokens in the caches, or the first of them where the caches are held by column. Each call for a text
        adds a snapshot of the caches that are not held by column. ValueError for caches with another number of tokens.
        """
        text, plain = array("i", ids), list(flatten_caches(caches))
        if self.unsupported or not text:
            return
        key = self._key(policy, max(len(text), plain[0].least_length))
        if key is None:
            return
        self.trees.setdefault(key, Tree()).insert(text, plain, self._tick(), row)
        self._shrink()

    def save(self, path: str | Path) -> None:
        """Write the contents as a file, atomically.

        PromptError where nothing can be written, for an existing file that is no prompt cache, and for a divided model.
        """
        _check_whole(self.loaded)
        disk.write(Path(path), self.trees, self.loaded)

    @classmethod
    def load(cls, path: str | Path, loaded: Loaded, budget: int | None = None) -> PromptCache:
        """A prompt cache with the contents of a file, as far as they fit the budget; empty if there is no file.

        A damaged file is warned of and loads as empty; `save` replaces it. PromptError for the file of another model or
        tokenizer, for one that is no prompt cache, and for a model that can have none.
        """
        _check_whole(loaded)
        cache = cls(loaded, budget)
        if cache.unsupported:
            raise PromptError(f"`prompt_cache`: {cache.unsupported}")
        try:
            cache.trees = disk.read(Path(path), loaded)
        except disk.Damaged as damage:
            warn(f"{path}: the prompt cache is not used and will be replaced: {damage}")
        cache._now = max((node.used for tree in cache.trees.values() for node in tree.nodes()), default=0)
        cache._shrink()
        return cache

    def clear(self) -> None:
        """Drop everything."""
        self.trees.clear()

    def by_column(self, policy: CachePolicy | None = None) -> bool:
        """Whether all caches of this policy are held by column, so that a text can be used up to any of its tokens."""
        key = policy_key(policy)
        if key not in self._by_column:
            self._by_column[key] = all(
                cache.by_column for cache in flatten_caches(self.loaded.model.make_cache(key))
            )
        return self._by_column[key]

    def _key(self, policy: CachePolicy | None, length: int) -> CachePolicy | None:
        """The policy whose tree holds texts of `length` tokens; None where rotary angles change with every token."""
        index = self.loaded.model.angles.index(length)
        return None if index is None else replace(policy_key(policy), angle_range=index)

    def _match(
        self, text: array[int], given: CachePolicy | None, checkpoints: Iterable[int], most: int | None
    ) -> Match:
        if self.unsupported:
            return Match(0, self.unsupported)
        policy = self._key(given, len(text))
        if policy is None:
            return Match(0, "the rotary angles of so long a text change with every token")
        last = max(0, len(text) - 1)
        most = last if most is None else min(most, last)
        tree = self.trees.get(policy)
        found = tree.find(text, most, self._tick()) if tree and tree.root.children else Found()
        length, agreed = found.length, min(found.agreed, last)
        if tree is None or not tree.root.children:
            if any(tree.root.children for tree in self.trees.values()):
                reason = "another cache policy: what is held was kept with other settings"
            elif self._counts["evictions"]:
                reason = "all texts before were dropped to stay within the budget"
            else:
                reason = "first request"
        elif length < min(agreed, most):
            reason = f"no snapshot at token {agreed}, up to which it is held: the last one is at {length}"
        elif found.agreed == len(text):
            reason = "the whole prompt is held; its last token is computed for the logits"
        elif found.at_end:
            reason = f"new from token {agreed} on, where what is held of it ends"
        else:
            reason = f"differs from token {agreed} on from all that is held"
        ends = {len(text)}
        if not self.by_column(policy):  # a third text may diverge where two did
            ends = {end for end in (agreed, *checkpoints, last) if length < end <= last}
        return Match(length, reason, tuple(sorted(ends)), found.snapshots)

    def _shrink(self) -> None:
        """Drop the least recently used until the budget is kept; of a long text held by column, only the end."""
        if not self._is_over():
            return
        trees = list(self.trees.values())
        heap = [
            (node.used, number, order, node)
            for number, tree in enumerate(trees)
            for order, node in enumerate(tree.nodes())
            # What frees something: a node with states, or a leaf where all is held by column.
            if (not node.children if tree.by_column else node.states is not None)
        ]
        heapq.heapify(heap)
        # The ranks of a divided model drop the same nodes, whose bytes may differ between them.
        whole = self.loaded.division is None
        while self._is_over():
            _, number, order, node = heapq.heappop(heap)
            parent = node.parent
            # The beginning of a long text is worth keeping.
            if whole and trees[number].by_column and node.nbytes > self.budget // 2:
                trees[number].shorten(node, self.nbytes - self.budget)
            else:
                trees[number].drop(node)
            self._counts["evictions"] += 1
            if trees[number].by_column and parent is not None and parent.parent and not parent.children:
                heapq.heappush(heap, (parent.used, number, order, parent))

    def _is_over(self) -> bool:
        return self.loaded.agreed(self.nbytes > self.budget)

    def _tick(self) -> int:
        self._now += 1
        return self._now


def _check_whole(loaded: Loaded) -> None:
    if loaded.division is not None:
        raise PromptError(
            "`prompt_cache`: a file would hold one rank's part of a model that is divided among ranks"
        )


def policy_key(policy: CachePolicy | None) -> CachePolicy:
    """A policy without `reserve`, which does not change what a cache holds."""
    return replace(policy or CachePolicy(), reserve=0)


def unsupported(loaded: Loaded) -> str:
    """Why the caches of a model cannot be reused for another text; empty when they can."""
    if not loaded.model.decodes or loaded.model.translates:
        return f"{loaded.architecture.name} does not continue a text"
    if loaded.architecture.causality != "causal":
        return "the tokens of a prompt see each other both ways, so that each new prompt changes all of them"
    caches = list(flatten_caches(loaded.model.make_cache()))
    if not caches or not all(isinstance(cache, Cache) and cache.restores for cache in caches):
        return f"the caches of {loaded.architecture.name} give no snapshots"
    return ""
