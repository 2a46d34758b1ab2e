"""Drafters: what they propose, how they sample it, and which of them the settings ask for, checked before the first token.

- Prompt look-up drafts what followed the same tokens earlier in the text (Saxena, 2023). It needs no second model.
- A smaller model of the same vocabulary drafts for a larger one (Leviathan et al., 2023; Chen et al., 2023).
- A checkpoint's own multi-token-prediction (MTP) layer drafts for it (DeepSeek-V3, 2024, section 2.2).

Axes: T tokens, k drafts, D width, V vocabulary, which a draft model may pad to another size than the target's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx

from zoo import runtime
from zoo.blocks.model import Model
from zoo.cache import evaluate_caches, flatten_caches
from zoo.errors import PromptError, ZooError
from zoo.frozen import Frozen, frozen
from zoo.generation.prefix_cache.tree import common_prefix
from zoo.generation.sampling.draw import draw_processors
from zoo.generation.sampling.logits import LogitsProcessor, stages_of
from zoo.generation.settings import Settings
from zoo.generation.speculative.verification import Rollback, can_roll_back
from zoo.generation.vocabulary import load_same_vocabulary
from zoo.loading import Loaded, load
from zoo.recipe import learned_context
from zoo.runtime import ranks

DRAFT_SEED = 0x9E3779B97F4A7C15  # seed offset: draft sampling must not reuse the target's random keys


@frozen()
class Draft(Frozen):
    """Tokens that may come next. `probs` (k, V) are the distributions that they were sampled from, None if they were not."""

    tokens: tuple[int, ...] = ()
    probs: mx.array | None = None


class Drafter:
    """Base class of drafters: proposes the next tokens of one `text`, of which it is given each token.

    A drafter that `needs_hidden` is given the target's hidden states after the final norm, too.
    """

    needs_hidden = False

    def __init__(self) -> None:
        self.text: list[int] = []

    def add_tokens(self, tokens: Sequence[int]) -> None:
        """Append the next tokens of the text, the prompt's first."""
        self.text += tokens

    def add_hidden(self, position: int, hidden: mx.array) -> None:
        """Take the states (1, T, D) of the text's tokens from `position` on. Earlier states may be missing."""

    def propose(self, count: int) -> Draft:
        """At most `count` tokens that may follow the text."""
        raise NotImplementedError


class DraftSampler:
    """Samples drafts by `processors`, the target's temperature and filters; without any, drafts are greedy.

    More drafts are accepted the nearer their distribution is to the target's. The text has the target's distribution in
    any case. `seed` None: other drafts in each run.
    """

    def __init__(
        self, vocab: int, processors: Sequence[LogitsProcessor] = (), *, seed: int | None = None
    ) -> None:
        self.vocab, self.processors = vocab, processors
        self._key = mx.random.key(ranks.random_seed() if seed is None else seed ^ DRAFT_SEED)

    def draft(self, count: int, logits: mx.array, following: Callable[[mx.array], mx.array]) -> Draft:
        """`count` tokens: the first one by `logits` (1, V'), each later one by those `following` the one before it."""
        drawn = [self.sample(logits)]
        while len(drawn) < count:
            drawn.append(self.sample(following(drawn[-1][0])))
        ids = mx.concatenate([token for token, _ in drawn])  # (k,)
        probs = [each for _, each in drawn if each is not None]
        stacked = mx.concatenate(probs) if probs else None  # (k, V)
        mx.eval(ids, stacked)
        return Draft(tuple(ids.tolist()), stacked)  # type: ignore[arg-type]

    def sample(self, logits: mx.array) -> tuple[mx.array, mx.array | None]:  # (1, V') -> (1,), (1, V) or None
        """A token and its distribution, which is None for a greedy choice. Nothing is evaluated."""
        logits = match_vocab(logits.astype(mx.float32), self.vocab)
        if not self.processors:
            return mx.argmax(logits, axis=-1), None
        *_, (_, logits) = stages_of(logits, self.processors)
        self._key, use = mx.random.split(self._key)
        return mx.random.categorical(logits, key=use), mx.softmax(logits, axis=-1)


def match_vocab(logits: mx.array, vocab: int) -> mx.array:  # (1, V') -> (1, V)
    """The logits cut to a vocabulary, or padded with tokens that are never sampled."""
    missing = vocab - logits.shape[-1]
    if missing <= 0:
        return logits[:, :vocab]
    return mx.concatenate([logits, mx.full((1, missing), -float("inf"))], axis=-1)


MAX_NGRAM = 3  # tokens of the text's end that are looked up, before fewer are


class PromptLookup(Drafter):
    """Finds the end of the text earlier in it, and drafts what followed: of the longest n-gram, the last occurrence.

    A token costs one dictionary entry for each length of n-gram, a proposal one look-up for each, however long the text.

    >>> from zoo.generation.speculative.drafters import PromptLookup
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
                draft = self.text[start : start + count]
                period = len(self.text) - start
                while len(draft) < count:
                    draft.append(draft[len(draft) - period])
                return Draft(tuple(draft))
        return Draft()


class DraftModel(Drafter):
    """Drafts with a decoder and caches of its own, which are rolled back as the target's are.

    `model` may be any decoder of the zoo; `context` is the most tokens that it can take, None without a limit.
    """

    def __init__(self, model: Model, context: int | None, sampler: DraftSampler) -> None:
        super().__init__()
        self.model, self.sampler, self.context = model, sampler, context
        self.caches = model.make_cache()
        self.cached = 0  # tokens of the text in the caches, before the drafts
        self.cached_drafts: list[int] = []  # in the caches after them
        self._rollback = Rollback(model.plain_caches(self.caches))

    def propose(self, count: int) -> Draft:
        """The next `count` tokens, one pass each; none where the positions would run out."""
        if self.context is not None and len(self.text) + count > self.context:
            return Draft()
        # Rejected drafts leave the caches, but not the end of the text: its logits are needed.
        accepted = common_prefix(self.cached_drafts, self.text[self.cached : -1])
        self.cached += self._rollback.keep(accepted, len(self.cached_drafts))
        self.cached_drafts = []
        new = self.text[self.cached :]
        chunk = runtime.prefill_chunk()
        while len(new) > chunk:
            self.model.backbone(mx.array([new[:chunk]]), self.caches)
            evaluate_caches(self.caches, chunk)
            self.cached, new = self.cached + chunk, new[chunk:]
        logits = self._logits(mx.array([new]))
        self.cached = len(self.text)
        self._rollback.checkpoint()
        draft = self.sampler.draft(count, logits, lambda token: self._logits(token[:, None]))
        self.cached_drafts = list(draft.tokens[:-1])
        return draft

    def _logits(self, tokens: mx.array) -> mx.array:  # (1, T) -> (1, V)
        return self.model.head(self.model.backbone(tokens, self.caches)[:, -1:])[:, -1]


MAX_UNREAD = 64  # hidden states that are kept until the next draft
OWN = ""  # the key of the MTP layer in `Loaded.drafters`, whose other keys are sources
DTYPES = {mx.float32: "float32", mx.float16: "float16", mx.bfloat16: "bfloat16"}


class MTPDrafter(Drafter):
    """Drafts with one layer that reads the target's last hidden states and the embeddings of the tokens after them.

    `layer(vectors, hidden, caches)`, (1, T, D) twice -> (1, T, D), gives states; `layer.norm` and the target's head make
    logits of them. It was trained to predict one token more; further ones are drafted by giving it its own normalised
    state in place of the target's, as SGLang does. Where the beginning of a prompt comes from a prompt cache, the layer
    reads only the rest.
    """

    needs_hidden = True

    def __init__(self, target: Model, layer: Any, sampler: DraftSampler) -> None:
        super().__init__()
        self.target, self.layer, self.sampler = target, layer, sampler
        self.caches = layer.make_cache()
        self.unread: mx.array | None = None  # the target's hidden states (1, T, D), not yet read by the layer
        self.position = 0  # of the first of these in the text
        self.cached_drafts = 0
        self._rollback = Rollback(list(flatten_caches(self.caches)))

    def add_hidden(self, position: int, hidden: mx.array) -> None:
        """Take the states (1, T, D) of the text's tokens from `position` on; once there are many, read them."""
        if self.unread is None:
            self.position, self.unread = position, hidden
        elif position == (expected := self.position + self.unread.shape[1]):
            self.unread = mx.concatenate([self.unread, hidden], axis=1)
        else:
            raise ValueError(f"expected states of position {expected}, got {position}")
        if self.unread.shape[1] > MAX_UNREAD:
            mx.eval(self.unread)  # or it would hold all that it was computed from
            self._read(self.unread.shape[1] - 1)  # the last state makes the first draft
            evaluate_caches(self.caches, 1)

    def propose(self, count: int) -> Draft:
        """The next `count` tokens, one pass over the layer each."""
        if self.unread is None:
            return Draft()
        state = self._read(self.unread.shape[1])[:, -1:]  # (1, 1, D)
        self._rollback.checkpoint()

        def following(token: mx.array) -> mx.array:  # (1,) -> (1, V)
            nonlocal state
            state = self._pass(token[:, None], state)
            return self._logits(state)

        self.cached_drafts = count - 1
        return self.sampler.draft(count, self._logits(state), following)

    def _read(self, count: int) -> mx.array:
        """Drop the last drafts and read the next `count` states; returns the layer's normalised states (1, T, D)."""
        assert self.unread is not None
        states = self.unread
        self._rollback.keep(0, self.cached_drafts)
        self.cached_drafts = 0
        following = self.text[self.position + 1 : self.position + 1 + count]
        layer_states = self._pass(mx.array([following]), states[:, :count])
        self.unread = states[:, count:] if states.shape[1] > count else None
        self.position += count
        return layer_states

    def _pass(self, tokens: mx.array, hidden: mx.array) -> mx.array:  # (1, T), (1, T, D) -> (1, T, D)
        return self.layer.norm(self.layer(self.target.embedding.vectors(tokens), hidden, self.caches))

    def _logits(self, state: mx.array) -> mx.array:  # (1, 1, D) -> (1, V)
        return self.target.head(state)[:, 0]


def mtp_layer(loaded: Loaded) -> Any:
    """The MTP layer of a loaded checkpoint, read from its files at the first call.

    PromptError where the architecture has none, or where the files leave it out, as most conversions do.
    """
    record = loaded.architecture.prediction
    if record is None:
        raise PromptError(f"`own_draft`: {loaded.architecture.name} has no next-token-prediction layer")
    if OWN not in loaded.drafters:
        dtype = DTYPES.get(loaded.model.norm.weight.dtype)
        try:
            opened = load(loaded.folder, architecture=record, dtype=dtype, registry=loaded.registry)
        except ZooError as error:
            raise PromptError(f"`own_draft`: {error}") from error
        loaded.drafters[OWN] = opened.model
    return loaded.drafters[OWN]


DRAFT_TOKENS = 4  # of a draft model
METHODS = ("prompt_lookup", "draft_model", "own_draft")


@frozen()
class DraftConfig(Frozen):
    """How texts are drafted: at most `count` tokens a pass, by a drafter that `create` makes for each text.

    `samples`: drafts are sampled, so that a seed gives the same text only if the same passes have drafts.
    """

    count: int
    create: Callable[[], Drafter]
    samples: bool


def draft_config(loaded: Loaded, settings: Settings) -> DraftConfig | None:
    """The drafting that the settings ask for, or None.

    PromptError, naming the setting, for two methods at once, for a draft model of another vocabulary, and for a checkpoint
    without an MTP layer.
    """
    asked = [name for name in METHODS if getattr(settings, name) not in (None, False, 0)]
    if len(asked) > 1:
        raise PromptError(f"`{asked[0]}` and `{asked[1]}` cannot be given together: each drafts the text")
    if settings.draft_tokens is not None and asked in ([], ["prompt_lookup"]):
        raise PromptError("`draft_tokens` goes with `draft_model` or `own_draft`, and neither is given")
    if not asked:
        return None
    model = loaded.model
    if not model.decodes or model.translates or loaded.architecture.causality == "full":
        raise PromptError(f"`{asked[0]}`: {loaded.architecture.name} does not continue a text token by token")
    if not can_roll_back(model.plain_caches(model.make_cache(settings.policy()))):
        raise PromptError(
            f"`{asked[0]}`: the caches of {loaded.architecture.name} cannot drop tokens that were rejected"
        )
    if settings.prompt_lookup:
        return DraftConfig(settings.prompt_lookup, PromptLookup, False)
    drafter: Callable[[DraftSampler], Drafter]
    if settings.own_draft:
        count, drafter = 1, partial(MTPDrafter, model, mtp_layer(loaded))
    else:
        draft = load_draft_model(loaded, settings.draft_model)
        count, drafter = DRAFT_TOKENS, partial(DraftModel, draft.model, learned_context(draft.recipe))
    vocab = loaded.recipe.head.vocab or loaded.recipe.embedding.vocab

    def create() -> Drafter:
        return drafter(DraftSampler(vocab, draw_processors(settings), seed=settings.seed))

    return DraftConfig(settings.draft_tokens or count, create, not settings.greedy)


def load_draft_model(loaded: Loaded, source: Loaded | str | Path) -> Loaded:
    """The draft model, loaded at the first call if `source` is not; PromptError where it cannot draft for `loaded`."""
    if not isinstance(source, Loaded) and str(source) in loaded.drafters:
        return loaded.drafters[str(source)]
    draft = load_same_vocabulary(loaded, source, "draft_model")
    model = draft.model
    if not can_roll_back(model.plain_caches(model.make_cache())):
        raise PromptError(
            f"`draft_model` {draft.folder}: the caches of {draft.architecture.name} cannot drop tokens that were rejected"
        )
    if not isinstance(source, Loaded):
        loaded.drafters[str(source)] = draft
    return draft
