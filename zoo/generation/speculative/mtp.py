"""The checkpoint's own multi-token-prediction (MTP) layer as a drafter (DeepSeek-V3, 2024, section 2.2).

Axes: T tokens, D width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from zoo.cache import evaluate_caches, flatten_caches
from zoo.errors import PromptError, ZooError
from zoo.generation.speculative.drafter import Draft, Drafter, DraftSampler
from zoo.generation.speculative.rollback import Rollback
from zoo.loading import Loaded, load

MAX_UNREAD = 64  # hidden states that are kept until the next draft
OWN = ""  # the key of the MTP layer in `Loaded.drafters`, whose other keys are sources
DTYPES = {mx.float32: "float32", mx.float16: "float16", mx.bfloat16: "bfloat16"}


class MTPDrafter(Drafter):
    """Drafts with one layer that reads the target's last hidden states and the embeddings of the tokens after them.

    `layer(vectors, hidden, caches)`, (1, T, D) twice -> (1, T, D), gives states; `layer.norm` and the target's head make
    logits of them. It was trained to predict one token more; further ones are drafted by giving it its own state in
    place of the target's. Where the beginning of a prompt comes from a prompt cache, the layer reads only the rest.
    """

    needs_hidden = True

    def __init__(self, target: Any, layer: Any, sampler: DraftSampler) -> None:
        super().__init__()
        self.target, self.layer, self.sampler = target, layer, sampler
        self.caches = layer.make_cache()
        self.unread: list[
            mx.array
        ] = []  # hidden states of the target, (1, T, D), that the layer has not read
        self.position = 0  # of the first of these in the text
        self.cached_drafts = 0
        self._rollback = Rollback(list(flatten_caches(self.caches)))

    def add_hidden(self, position: int, hidden: mx.array) -> None:
        """Take the states (1, T, D) of the text's tokens from `position` on; once there are many, read them."""
        if not self.unread:
            self.position = position
        if position != self.position + self._unread_count:
            raise ValueError(
                f"expected states of position {self.position + self._unread_count}, got {position}"
            )
        self.unread.append(hidden)
        if self._unread_count > MAX_UNREAD:
            mx.eval(hidden)  # or it would hold all that it was computed from
            self._read(self._unread_count - 1)  # the last state makes the first draft
            evaluate_caches(self.caches, 1)

    def propose(self, count: int) -> Draft:
        """The next `count` tokens, one pass over the layer each."""
        if not self._unread_count:
            return Draft()
        state = self._read(self._unread_count)[:, -1:]  # (1, 1, D)
        self._rollback.checkpoint()

        def following(token: mx.array) -> mx.array:  # (1,) -> (1, V)
            nonlocal state
            state = self._pass(token[:, None], state)
            return self._logits(state)

        self.cached_drafts = count - 1
        return self.sampler.draft(count, self._logits(state), following)

    @property
    def _unread_count(self) -> int:
        return sum(states.shape[1] for states in self.unread)

    def _read(self, count: int) -> mx.array:
        """Drop the last drafts and read the next `count` states; returns the layer's states (1, T, D)."""
        self._rollback.keep(0, self.cached_drafts)
        self.cached_drafts = 0
        states = mx.concatenate(self.unread, axis=1)
        following = self.text[self.position + 1 : self.position + 1 + count]
        made = self._pass(mx.array([following]), states[:, :count])
        self.unread = [states[:, count:]] if states.shape[1] > count else []
        self.position += count
        return made

    def _pass(self, tokens: mx.array, hidden: mx.array) -> mx.array:  # (1, T), (1, T, D) -> (1, T, D)
        return self.layer(self.target.embedding.vectors(tokens), hidden, self.caches)

    def _logits(self, state: mx.array) -> mx.array:  # (1, 1, D) -> (1, V)
        return self.target.head(self.layer.norm(state))[:, 0]


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
