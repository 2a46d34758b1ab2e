"""The queue of prompts: which is read next, which are read together, and what a prompt cache has of them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING

from zoo import runtime
from zoo.cache import CachePolicy, merged_caches
from zoo.errors import PromptError
from zoo.generation.loop.batch import Prefilled, Sequence, sample
from zoo.generation.loop.prompt import MOST_RESERVED, Prefill, ShortPrefill
from zoo.generation.prefix_cache.tree import common_prefix
from zoo.loading import Loaded

if TYPE_CHECKING:
    from zoo.generation.prefix_cache import Match, PromptCache

LONGEST_SHORT = 256  # tokens to read of a prompt that is read together with others
LEAST_REUSED = 8  # tokens: prompts that share fewer are read together rather than one after the other
LOOKAHEAD = 64  # waiting prompts among which a short one is looked for
MOST_DEBT = 1.0  # seconds


class PrefillShare:
    """Limits reading to a `share` of the time while other sequences run.

    The time of a chunk is a debt in seconds, which running reduces by share / (1 − share) of its own time. A long prompt
    waits until the debt is 0. A short one does not wait; it adds to the debt, up to MOST_DEBT. PromptError for a share
    that is not above 0 and at most 1.
    """

    def __init__(self, share: float) -> None:
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise PromptError(f"`prefill_share` must be a number above 0 and at most 1, got {share!r:.60}")
        self.share, self.debt = share, 0.0

    def add_prefill(self, seconds: float) -> None:
        """Count the time of a chunk."""
        self.debt = min(self.debt + seconds, max(self.debt, seconds, MOST_DEBT))

    def add_decode(self, seconds: float) -> None:
        """Count the time of running sequences."""
        paid = self.debt if self.share == 1 else seconds * self.share / (1 - self.share)
        self.debt = max(0.0, self.debt - paid)


class Prefilling:
    """Sequences whose prompts are being read, a row each: one in chunks, or several in one pass.

    The last `tokens` of each are read; the prompt cache has what comes before.
    """

    def __init__(
        self, loaded: Loaded, sequences: list[Sequence], tokens: int, prompt_cache: PromptCache | None
    ) -> None:
        self.loaded, self.sequences, self.tokens = loaded, sequences, tokens
        self.prompt_cache = prompt_cache
        self.prompt: Prefill | ShortPrefill | None = None

    def advance(self, chunk: int) -> tuple[int, Prefilled | None]:
        """Read one more chunk, of `chunk` tokens unless the settings say how many; sample after the last.

        Returns the number of tokens that were read, and, when none is left, the sequences with their caches.
        """
        prompt = self.prompt = self.prompt or self._begin()
        sequence, before = self.sequences[0], prompt.read
        if isinstance(prompt, Prefill):
            logits = prompt.advance(sequence.settings.prefill_chunk or chunk)
            if self.prompt_cache is not None and prompt.at_checkpoint:
                self.prompt_cache.keep(sequence.text[: prompt.read], prompt.cache, sequence.settings.policy())
            if logits is not None and prompt.prompt_logprobs:
                sequence.prompt = replace(
                    sequence.prompt,
                    logprobs=tuple(prompt.logprobs),
                    alternatives=tuple(prompt.alternatives) or None,
                )
        else:
            logits = prompt.advance()
        if logits is None:
            return prompt.read - before, None
        sampled = None if sequence.drafting is not None else sample(logits, self.sequences)
        return prompt.read - before, Prefilled(self.sequences, prompt.cache, logits, sampled)

    def _begin(self) -> Prefill | ShortPrefill:
        """Make the caches, with what the prompt cache has of the prompts, and what fills them."""
        for each in self.sequences:
            if each.settings.max_time is not None and each.deadline is None:
                each.deadline = time.monotonic() + each.settings.max_time
        sequence, model = self.sequences[0], self.loaded.model
        ids = [each.text for each in self.sequences]
        policy = sequence.settings.policy(
            max(
                len(each.ids) * (each.start is None) + min(each.limit, MOST_RESERVED)
                for each in self.sequences
            )
        )
        if sequence.start is not None:
            return ShortPrefill(model, ids, model.make_cache(policy), sequence.start)
        if len(ids) == 1:
            return self._begin_alone(sequence, policy)
        caches = []
        for each in self.sequences:
            match = self._match(each, policy, max(0, len(each.ids) - self.tokens))
            if match is not None and match.length:
                caches.append(model.make_cache(policy))
                match.restore(caches[-1])
        if not caches:
            return ShortPrefill(model, ids, model.make_cache(policy))
        return ShortPrefill(model, [each[-self.tokens :] for each in ids], merged_caches(caches))

    def _begin_alone(self, sequence: Sequence, policy: CachePolicy) -> Prefill:
        """Make the caches of one prompt, and what reads it in chunks."""
        settings, model = sequence.settings, self.loaded.model
        new = not sequence.tokens  # else its text is read anew, after its prompt was read and reported
        prompt = Prefill(
            model,
            sequence.text,
            model.make_cache(policy),
            prefix=self.loaded.architecture.causality == "prefix",
            report=sequence.report if new else None,
            prompt_logprobs=new and settings.prompt_logprobs,
        )
        if sequence.drafting is not None:
            sequence.drafter = sequence.drafting.create()
            sequence.drafter.add_tokens(sequence.text)
            prompt.on_hidden = sequence.drafter.add_hidden if sequence.drafter.needs_hidden else None
        # Log-probabilities of the prompt need all of it computed.
        if not prompt.prompt_logprobs and (match := self._match(sequence, policy)) is not None:
            match.restore(prompt.cache)
            prompt.read, prompt.checkpoints = match.length, match.checkpoints
        return prompt

    def _match(self, sequence: Sequence, policy: CachePolicy, most: int | None = None) -> Match | None:
        """At most `most` tokens that the prompt cache has of a prompt, noted for its first step; None without a cache."""
        if self.prompt_cache is None:
            return None
        match = self.prompt_cache.match(sequence.text, policy, sequence.checkpoints, most)
        sequence.prompt = replace(sequence.prompt, cached_tokens=match.length, miss_reason=match.miss_reason)
        return match


class PrefillQueue:
    """The prompts that wait and those that are being read.

    A short prompt, of which at most a chunk is to be read, goes before longer ones; after a chunk's tokens of short
    prompts a longer one has its turn. Else the order is that of arrival.
    """

    def __init__(self, loaded: Loaded, prompt_cache: PromptCache | None = None) -> None:
        self.loaded, self.prompt_cache = loaded, prompt_cache
        self.waiting: deque[Sequence] = deque()
        self.prefilling: list[Prefilling] = []
        self._ahead = 0  # tokens of short prompts since a longer one had its turn

    @property
    def rows(self) -> int:
        """How many sequences are being read."""
        return sum(len(each.sequences) for each in self.prefilling)

    def remove(self, sequence: Sequence) -> None:
        """Let go of a sequence that waits or is being read."""
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        self.prefilling = [each for each in self.prefilling if sequence not in each.sequences]

    def add_again(self, sequences: list[Sequence]) -> None:
        """Queue sequences whose common pass failed, or whose text must be read anew: each is read alone, before others."""
        for sequence in reversed(sequences):
            sequence.alone = True
            self.waiting.appendleft(sequence)

    def next(self, rows: int, chunk: int, longer: bool = True) -> Prefilling | None:
        """What to read a chunk of `chunk` tokens of; None where nothing may be read.

        At most `rows` more sequences may begin. Without `longer`, only short prompts may be read.
        """
        first: dict[bool, Prefilling | Sequence] = {}
        line: Iterator[Prefilling | Sequence] = chain(
            self.prefilling, islice(self.waiting, LOOKAHEAD if rows > 0 else 0)
        )
        for each in line:
            first.setdefault(self._is_short(each), each)
            if len(first) == 2:
                break
        short = False not in first or (True in first and self._ahead < runtime.prefill_chunk())
        if short not in first or not (short or longer):
            return None
        turn = first[short]
        if isinstance(turn, Sequence):
            sequences, tokens = self._together(turn, rows, chunk)
            turn = Prefilling(self.loaded, sequences, tokens, self.prompt_cache)
            for sequence in sequences:
                self.waiting.remove(sequence)
            self.prefilling.append(turn)
        self._ahead = (
            self._ahead + min(len(turn.sequences) * turn.tokens, chunk) if short and False in first else 0
        )
        return turn

    def _is_short(self, each: Prefilling | Sequence) -> bool:
        """Whether what is to be read of a prompt, when it begins, fits in one chunk."""
        sequence = each if isinstance(each, Sequence) else each.sequences[0]
        chunk = runtime.prefill_chunk()
        chunk = min(sequence.settings.prefill_chunk or chunk, chunk)
        if len(sequence.text) <= chunk:
            return True
        return (each.tokens if isinstance(each, Prefilling) else self._unread(each)) <= chunk

    def _unread(self, sequence: Sequence) -> int:
        """How many tokens of a prompt are to be read. A prompt cache that has fewer than `LEAST_REUSED` of them is not used."""
        if self.prompt_cache is None or sequence.settings.prompt_logprobs:
            return len(sequence.text)
        held = self.prompt_cache.held(sequence.text, sequence.settings.policy())
        return len(sequence.text) - (held if held >= LEAST_REUSED else 0)

    def _together(self, first: Sequence, rows: int, chunk: int) -> tuple[list[Sequence], int]:
        """`first` and the next sequences, at most `rows`, whose prompts can be read in one pass of `chunk` tokens.

        Returns them and how many tokens of each the pass reads. An encoder-decoder reads its sources together, other models
        short prompts. Where a prompt cache has the beginnings of all, each prompt is read from as many tokens before its
        end, so that rows are padded only on the left.
        """
        sequences, longest, least = [first], self._unread(first), self._unread(first)
        translates, held = first.start is not None, longest < len(first.ids)
        pads = ("right" if translates else "left") in self.loaded.model.padding
        alone = not translates and (not self._reads_together(first) or self._begins_others(first, rows))
        if alone or first.alone:
            return sequences, longest
        for following in islice(self.waiting, self.waiting.index(first) + 1, LOOKAHEAD):
            if not self._is_short(following):
                continue
            unread = self._unread(following)
            length, least = max(longest, unread), min(least, unread)
            fits = len(sequences) < rows and not following.alone and (len(sequences) + 1) * length <= chunk
            if not translates:
                fits = fits and self._reads_together(following) and length <= 2 * least
                fits = fits and (unread < len(following.ids)) == held
                fits = fits and not (
                    held and min(len(each.ids) for each in (*sequences, following)) <= length
                )
            aligned = pads or len(following.ids) == len(first.ids)
            if not (fits and aligned and following.settings.policy() == first.settings.policy()):
                break
            longest = length
            sequences.append(following)
        return sequences, longest

    def _reads_together(self, sequence: Sequence) -> bool:
        """Whether this prompt can be read in one pass with others."""
        settings, model, cache = sequence.settings, self.loaded.model, self.prompt_cache
        short = self._unread(sequence) <= min(model.last_chunk or LONGEST_SHORT, LONGEST_SHORT)
        asks = settings.prompt_logprobs or settings.prefill_chunk or sequence.drafting or sequence.report
        if not short or asks or self.loaded.architecture.causality != "causal":
            return False
        # What has no column for each token needs snapshots within the prompt.
        return cache is None or bool(cache.unsupported) or cache.by_column(settings.policy())

    def _begins_others(self, first: Sequence, rows: int) -> bool:
        """Whether a prompt cache will have the beginnings of other waiting prompts once it has this one."""
        if self.prompt_cache is None or self.prompt_cache.unsupported:
            return False
        held = self.prompt_cache.held(first.ids, first.settings.policy())
        return any(
            other is not first
            and other.settings.policy() == first.settings.policy()
            and common_prefix(first.ids, other.ids) >= held + LEAST_REUSED
            for other in islice(self.waiting, rows)
        )
