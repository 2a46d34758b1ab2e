"""The checkpoint's own next-token-prediction layer as a drafter (DeepSeek-V3, 2024, section 2.2).

Axes: T tokens, k drafts, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from zoo import runtime
from zoo.cache import settle
from zoo.errors import PromptError, ZooError
from zoo.generation.drafting.drafter import Draft
from zoo.generation.drafting.model import Draws, gathered
from zoo.generation.drafting.rollback import Rollback
from zoo.loading import Loaded, load

DTYPES = {mx.float32: "float32", mx.float16: "float16", mx.bfloat16: "bfloat16"}


class OwnDraft:
    """Drafts by one layer that reads the target's last hidden state beside the token that this predicted.

    `layer(vectors, hidden, caches)`, (1, T, D) twice -> (1, T, D), gives states of which `layer.norm` and the target's
    own head make the logits of the token after. It was trained for one token ahead; further ones are drafted by
    giving it its own state, as if it were the target's. It reads the text from where the hidden states begin: a prompt
    whose beginning came from a prompt cache is known to it from there on.
    """

    reads_hidden = True

    def __init__(self, target: Any, layer: Any, draws: Draws) -> None:
        self.target, self.layer, self.draws = target, layer, draws
        self.caches = layer.make_cache()
        self.tokens: list[int] = []  # of the text, that the layer has not read
        self.hidden: list[mx.array] = []  # the states that predicted them, (1, T, D) each
        self.beyond = 0  # drafts that the caches hold
        self._rollback = Rollback(self.caches)

    def read(self, tokens: Sequence[int], hidden: mx.array | None = None) -> None:
        """Take in the next tokens of the text and the states (1, T, D) that predicted them; many are read at once."""
        if hidden is None or hidden.shape[1] != len(tokens):
            raise ValueError("each token needs the hidden state that predicted it")
        self.tokens += tokens
        self.hidden.append(hidden)
        if len(self.tokens) > runtime.prefill_chunk():
            self._read_pending(len(self.tokens) - 1)  # the last one's state makes the first draft
            settle(self.caches, 1)

    def propose(self, count: int) -> Draft:
        """The next `count` tokens, one pass over the layer each."""
        if not self.tokens:
            return Draft()
        state = self._read_pending(len(self.tokens))[:, -1:]  # (1, 1, D)
        self._rollback.mark()
        token, law = self.draws(self._logits(state))
        tokens, laws = [token], [law]
        for _ in range(count - 1):
            state = self._states(token[:, None], state)
            token, law = self.draws(self._logits(state))
            tokens.append(token)
            laws.append(law)
        self.beyond = count - 1
        return gathered(tokens, laws)

    def _read_pending(self, count: int) -> mx.array:
        """Read the first `count` new tokens of the text in the place of the last drafts: their states, (1, T, D)."""
        self._rollback.back(self.beyond, 0)
        self.beyond = 0
        hidden = mx.concatenate(self.hidden, axis=1)
        states = self._states(mx.array([self.tokens[:count]]), hidden[:, :count])
        self.tokens, self.hidden = self.tokens[count:], [hidden[:, count:]]
        return states

    def _states(self, tokens: mx.array, hidden: mx.array) -> mx.array:  # (1, T), (1, T, D) -> (1, T, D)
        return self.layer(self.target.embedding.vectors(tokens), hidden, self.caches)

    def _logits(self, state: mx.array) -> mx.array:  # (1, 1, D) -> (1, V)
        return self.target.head(self.layer.norm(state))[:, 0]


def own_layer(loaded: Loaded) -> Any:
    """The next-token-prediction layer of a loaded checkpoint, read from its files the first time it is asked for.

    PromptError where the architecture has none, or where the files leave it out, as most conversions do.
    """
    record = loaded.architecture.prediction
    if record is None:
        raise PromptError(f"`own_draft`: {loaded.architecture.name} has no next-token-prediction layer")
    if loaded.prediction is None:
        dtype = DTYPES.get(loaded.model.norm.weight.dtype)
        try:
            opened = load(loaded.folder, architecture=record, dtype=dtype, registry=loaded.registry)
        except ZooError as error:
            raise PromptError(f"`own_draft`: {error}") from error
        loaded.prediction = opened.model
    return loaded.prediction
