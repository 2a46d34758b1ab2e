"""What the lab's text is like: the loss of a model that knows only how frequent each token is, and the length of a document."""

from __future__ import annotations

import math
from collections import Counter
from itertools import islice

from building.build_cache import cached_result

TRAINING, HELD_OUT = 2000, 800  # documents


def frequency_loss() -> float:
    """The held-out loss of token frequencies alone, in nats a token; each count is one more than was seen."""
    return _measured()["loss"]


def tokens_a_document() -> float:
    """The mean number of tokens of a held-out document, its end token included."""
    return _measured()["tokens"]


def _measured() -> dict[str, float]:
    found: dict[str, float] = cached_result(_measure, "lab-corpus")
    return found


def _measure() -> dict[str, float]:
    from zoo.training.corpora import corpus
    from zoo.training.objective import END, token
    from zoo_lab.training import CORPUS, small_tokenizer

    tokenizer, texts = small_tokenizer(CORPUS), corpus(CORPUS, "generate")
    end = token(tokenizer, END)
    counts = Counter(
        id for text in islice(texts.training(0), TRAINING) for id in (*tokenizer.encode(text), end)
    )
    total = counts.total() + tokenizer.vocab_size
    held = [id for text in islice(texts.validation(), HELD_OUT) for id in (*tokenizer.encode(text), end)]
    loss = -sum(math.log((counts[id] + 1) / total) for id in held) / len(held)
    return {"loss": loss, "tokens": len(held) / held.count(end)}
