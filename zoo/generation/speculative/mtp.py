"""The checkpoint's own next-token-prediction layer as a drafter (DeepSeek-V3, 2024, section 2.2).

Axes: T tokens, k drafts, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from zoo.cache import evaluate_caches, flatten_caches
from zoo.errors import PromptError, ZooError
from zoo.generation.speculative.draft_model import Draws, gathered
from zoo.generation.speculative.drafter import Draft
from zoo.generation.speculative.rollback import Rollback
from zoo.loading import Loaded, load

LONG = 64  # states that are not kept until the next draft
OWN = ""  # of a loaded model's drafters, which have sources, the one that is its own
DTYPES = {mx.float32: "float32", mx.float16: "float16", mx.bfloat16: "bfloat16"}


class MTPDrafter:
    """Drafts by one layer that reads the target's last hidden state beside the token that this predicted.

    `layer(vectors, hidden, caches)`, (1, T, D) twice -> (1, T, D), gives states of which `layer.norm` and the target's
    own head make the logits of the token after. It was trained for one token ahead; further ones are drafted by
    giving it its own state, as if it were the target's. It reads the text from where the hidden states begin: a prompt
    whose beginning came from a prompt cache is known to it from there on.
    """

    needs_hidden = True

    def __init__(self, target: Any, layer: Any, draws: Draws) -> None:
        self.target, self.layer, self.draws = target, layer, draws
        self.caches = layer.make_cache()
        self.text: list[int] = []
        self.states: list[mx.array] = []  # of the target, (1, T, D) each, that the layer has not read
        self.position = 0  # of the first of these in the text
        self.beyond = 0  # drafts that the caches hold
        self._rollback = Rollback(list(flatten_caches(self.caches)))

    def add_tokens(self, tokens: Sequence[int]) -> None:
        """Take in the next tokens of the text."""
        self.text += tokens

    def add_hidden(self, position: int, hidden: mx.array) -> None:
        """Take in the states (1, T, D) of the text's tokens from `position` on; many are read at once."""
        if not self.states:
            self.position = position
        if position != self.position + self._unread:
            raise ValueError(
                f"states are shown in order: expected {self.position + self._unread}, got {position}"
            )
        self.states.append(hidden)
        if self._unread > LONG:
            mx.eval(hidden)  # or it would hold all that it was computed from
            self._take(self._unread - 1)  # the last one's state makes the first draft
            evaluate_caches(self.caches, 1)

    def propose(self, count: int) -> Draft:
        """The next `count` tokens, one pass over the layer each."""
        if not self._unread:
            return Draft()
        state = self._take(self._unread)[:, -1:]  # (1, 1, D)
        self._rollback.mark()
        token, law = self.draws(self._logits(state))
        tokens, laws = [token], [law]
        for _ in range(count - 1):
            state = self._pass(token[:, None], state)
            token, law = self.draws(self._logits(state))
            tokens.append(token)
            laws.append(law)
        self.beyond = count - 1
        return gathered(tokens, laws)

    @property
    def _unread(self) -> int:
        """How many states the layer has not read."""
        return sum(states.shape[1] for states in self.states)

    def _take(self, count: int) -> mx.array:
        """Read the next `count` states in the place of the last drafts: what the layer makes of them, (1, T, D)."""
        self._rollback.back(self.beyond, 0)
        self.beyond = 0
        states = mx.concatenate(self.states, axis=1)
        following = self.text[self.position + 1 : self.position + 1 + count]
        made = self._pass(mx.array([following]), states[:, :count])
        self.states = [states[:, count:]] if states.shape[1] > count else []
        self.position += count
        return made

    def _pass(self, tokens: mx.array, hidden: mx.array) -> mx.array:  # (1, T), (1, T, D) -> (1, T, D)
        return self.layer(self.target.embedding.vectors(tokens), hidden, self.caches)

    def _logits(self, state: mx.array) -> mx.array:  # (1, 1, D) -> (1, V)
        return self.target.head(self.layer.norm(state))[:, 0]


def mtp_layer(loaded: Loaded) -> Any:
    """The next-token-prediction layer of a loaded checkpoint, read from its files the first time it is asked for.

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
