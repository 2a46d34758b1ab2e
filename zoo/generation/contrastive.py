"""Contrastive search: the likely token whose hidden state is least like those before (Su et al., 2022, section 5.1).

Axes: K candidates (rows), T tokens of the text so far, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx

from zoo.generation.choosing.forced import Constraints
from zoo.generation.choosing.logits import check_numbers
from zoo.generation.choosing.logits import logprobs as log_probabilities
from zoo.generation.prepared import prepared, reader_of
from zoo.generation.prompt import settings_of
from zoo.generation.reader import MOST_RESERVED, Reader, Report
from zoo.generation.settings import settings_for
from zoo.generation.step import Step
from zoo.generation.text import Decoded, TextStream
from zoo.loading import Loaded

ALPHA, CANDIDATES = 0.6, 4  # those of the paper's experiments with GPT-2


def stream(
    loaded: Loaded,
    prompt: str | Sequence[int],
    *,
    penalty_alpha: float | None = None,
    top_k: int | None = None,
    report: Report | None = None,
    **given: Any,
) -> Iterator[Step]:
    """Continue `prompt`, text or token ids, yielding a `Step` a token as they come.

    Of the `top_k` likeliest tokens the one is taken with the largest (1 − `penalty_alpha`) p − `penalty_alpha` s: p is
    its probability, s the largest cosine similarity of its hidden state, the one that the head reads, to that of any
    token before. Settings left None are those of `generation_config.json`, whose constraints hold in any case, else 0.6
    and 4. PromptError, before anything runs, for a prompt or setting that cannot be.
    """
    values = settings_of(loaded)
    alpha = penalty_alpha if penalty_alpha is not None else values.get("penalty_alpha") or ALPHA
    asked = top_k or (values.get("top_k") if values.get("penalty_alpha") else None) or CANDIDATES
    settings = settings_for(loaded, given)
    ready = prepared(loaded, prompt, settings)
    hidden: list[mx.array] = []
    reader = reader_of(loaded, [ready.ids], ready.limit, settings, report=report, hidden=hidden)
    tokens = contrastive_search(
        reader,
        hidden,
        ready.constraints,
        alpha=alpha,
        candidates=asked,
        logprobs=bool(settings.logprobs),
    )
    return TextStream(loaded, ready.limit, settings.stop, settings.stop_tokens).steps(tokens)


def contrastive_search(
    reader: Reader,
    hidden: list[mx.array],
    constraints: Constraints,
    *,
    alpha: float,
    candidates: int,
    logprobs: bool = False,
) -> Iterator[Decoded]:
    """Yield the tokens, at most `constraints.last`, with their log-probabilities if asked for.

    `hidden` is the list to which the reader adds the hidden states of each pass. n tokens cost n + 1 passes, all but the
    first over a row for each candidate. ZooError when the model's logits are no numbers.
    """
    logits = reader.first()  # (1, V)
    context = Directions(mx.concatenate([each[0] for each in hidden]), constraints.last)
    count = min(candidates, logits.shape[-1])
    reader.select([0] * count)
    text: list[int] = []
    while len(text) < constraints.last:
        changed = constraints(logits, [text]) if constraints.active else logits
        probabilities = mx.softmax(changed.astype(mx.float32), axis=-1)[0]  # (V,)
        likeliest = mx.argsort(-probabilities)[:count]  # (K,)
        each = log_probabilities(logits)[0, likeliest] if logprobs else None  # (K,)
        hidden.clear()
        upcoming = reader.next(likeliest[:, None])  # (K, V)
        directions = unit(hidden[0][:, -1])  # (K, D)
        score = (1 - alpha) * probabilities[likeliest] - alpha * context.nearest(directions)
        mx.eval(score, upcoming, likeliest)
        check_numbers(score.max().item(), f"token {len(text) + 1}")
        chosen = int(mx.argmax(score).item())
        text.append(int(likeliest[chosen].item()))
        yield text[-1], None if each is None else float(each[chosen].item()), None
        context.add(directions[chosen])
        reader.select([chosen] * count)
        logits = upcoming[chosen : chosen + 1]


class Directions:
    """The hidden states of a text's tokens as unit vectors, in a buffer that grows by large steps."""

    def __init__(self, hidden: mx.array, more: int) -> None:  # (T, D)
        self.length, width = hidden.shape
        self.step = min(more, MOST_RESERVED)
        self.buffer = mx.concatenate([unit(hidden), mx.zeros((self.step, width))])

    def add(self, direction: mx.array) -> None:  # (D,)
        """Take in the token that was chosen."""
        if self.length == self.buffer.shape[0]:
            self.buffer = mx.concatenate([self.buffer, mx.zeros((self.step, self.buffer.shape[1]))])
        self.buffer[self.length] = direction
        self.length += 1

    def nearest(self, directions: mx.array) -> mx.array:  # (K, D) -> (K,)
        """The largest cosine similarity of each to the tokens so far."""
        return (directions @ self.buffer[: self.length].T).max(axis=-1)


def unit(vectors: mx.array) -> mx.array:  # (…, D) -> (…, D)
    """Vectors of length 1 in the same directions, in float32."""
    vectors = vectors.astype(mx.float32)
    return vectors / mx.linalg.norm(vectors, axis=-1, keepdims=True)
