"""Contrastive search: the likely token whose hidden state is least like those before (Su et al., 2022, section 5.1).

Axes: K candidates (rows), T tokens of the text so far, D width, V vocabulary.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Iterator
from typing import Any

import mlx.core as mx

from zoo.checkpoint.sentence_vectors import unit
from zoo.generation.loop.batch import sequence_of
from zoo.generation.loop.batch_decoder import BatchDecoder
from zoo.generation.loop.prompt import Report
from zoo.generation.loop.step import Step
from zoo.generation.sampling.logits import NEG_INF, check_numbers
from zoo.generation.settings import generation_config_of, settings_for
from zoo.loading import Loaded

ALPHA, CANDIDATES = 0.6, 4  # those of the paper's experiments with GPT-2


def stream(
    loaded: Loaded,
    prompt: str | abc.Sequence[int],
    *,
    penalty_alpha: float | None = None,
    top_k: int | None = None,
    report: Report | None = None,
    **given: Any,
) -> Iterator[Step]:
    """Continue `prompt`, text or token ids, yielding a `Step` a token as they come.

    Of the `top_k` likeliest tokens the one is taken with the largest (1 − `penalty_alpha`) p − `penalty_alpha` s: p is
    its probability, after penalties and bans, s the largest cosine similarity of its hidden state, the one that the head
    reads, to that of any token before. Settings left None are those of `generation_config.json`, whose constraints hold
    in any case, else 0.6 and 4. n tokens cost n + 1 passes, all but the first over a row for each candidate. PromptError,
    before anything runs, for a prompt or setting that cannot be; ZooError when the model's logits are no numbers.
    """
    values = generation_config_of(loaded)
    alpha = penalty_alpha if penalty_alpha is not None else values.get("penalty_alpha") or ALPHA
    asked = top_k or (values.get("top_k") if values.get("penalty_alpha") else None) or CANDIDATES
    settings = settings_for(loaded, {**given, "temperature": 0.0})  # its probabilities are the model's own
    sequence = sequence_of(loaded, prompt, settings)
    states = HiddenStates()
    decoder = BatchDecoder(loaded, [sequence.ids], sequence.limit, settings, report=report, on_hidden=states)

    def run() -> Iterator[Step]:
        logits = decoder.first()  # (1, V)
        count = min(asked, logits.shape[-1])
        decoder.select([0] * count)
        states.reading = False
        while not sequence.finished:
            scores = sequence.sampler.scores(logits)[0]  # (V,)
            likeliest = mx.argsort(-scores)[:count]  # (K,)
            probabilities = mx.softmax(scores)[likeliest]
            upcoming = decoder.next(likeliest[:, None])  # (K, V)
            score = (1 - alpha) * probabilities - alpha * states.nearest()  # (K,)
            # Fewer tokens than candidates may be allowed.
            score = mx.where(scores[likeliest] > NEG_INF, score, NEG_INF)
            highest = logits.max()
            mx.eval(score, upcoming, highest)
            check_numbers(highest.item(), f"token {len(sequence.tokens) + 1}")
            chosen = int(mx.argmax(score).item())
            yield sequence.choose(int(likeliest[chosen].item()), logits)
            states.keep(chosen)
            decoder.select([chosen] * count)
            logits = upcoming[chosen : chosen + 1]

    return run()


class HiddenStates:
    """The hidden states that a decoder's passes give: those of the text so far, and those of the last candidates.

    They are unit vectors.
    """

    def __init__(self) -> None:
        self.reading = True  # the prompt
        self.text: mx.array | None = None  # (T, D)
        self.candidates: mx.array | None = None  # (K, D)

    def __call__(self, place: int, hidden: mx.array) -> None:
        """Take in the hidden states of a pass: (1, T, D) of the prompt, (K, 1, D) of candidates."""
        if not self.reading:
            self.candidates = unit(hidden[:, -1])
        elif self.text is None:
            self.text = unit(hidden[0])
        else:
            self.text = mx.concatenate([self.text, unit(hidden[0])])

    def keep(self, chosen: int) -> None:
        """Go on with one of the candidates."""
        assert self.text is not None and self.candidates is not None
        self.text = mx.concatenate([self.text, self.candidates[chosen : chosen + 1]])

    def nearest(self) -> mx.array:  # (K,)
        """The largest cosine similarity of each candidate to the tokens so far."""
        assert self.text is not None and self.candidates is not None
        return (self.candidates @ self.text.T).max(axis=-1)
