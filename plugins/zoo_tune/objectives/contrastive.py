"""Pairs of sentences: the vectors of a pair are close, those of different pairs of a batch apart.

Axes: B pairs, C candidates, N texts (the anchors, then the candidates), S tokens, D width.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn

from zoo.checkpoint.checkpoint import open_checkpoint
from zoo.errors import ZooError
from zoo.generation.strategies.embedding import cut_text, hidden_states, padded_texts, pool, unit
from zoo.loading import Loaded
from zoo.training.example_objective import ExampleObjective
from zoo.training.examples import SentencePair
from zoo.training.loop import Batch


@dataclass(frozen=True)
class PairRow:
    """The ids of an anchor, its positive and perhaps a negative; `cut` tokens of them were left out."""

    texts: tuple[list[int], ...]
    cut: int

    @property
    def length(self) -> int:
        """The tokens of the longest text."""
        return max(map(len, self.texts))


def contrastive(loaded: Loaded, temperature: float) -> ExampleObjective:
    """InfoNCE on pairs of sentences (van den Oord et al., 2018, equation 4; Gao et al., 2021, equation 5).

    Sentence vectors are those of `zoo.embed`: pooled as the checkpoint says, else the mean. Their cosines are divided by
    `temperature`. A text that occurs in two pairs of a batch counts as another text. ZooError for a model that takes no
    padded rows.
    """
    side = "right" if loaded.model.encodes else "left"
    if side not in loaded.model.padding:
        raise ZooError(f"objective contrastive: {loaded.architecture.name} cannot read padded rows")
    pooling = open_checkpoint(loaded.folder, loaded.registry, loaded.architecture).pooling()
    causality = loaded.architecture.causality

    def encode(pair: SentencePair, loaded: Loaded, length: int) -> list[PairRow]:
        if loaded.tokenizer is None:
            raise ZooError(f"{loaded.folder}: has no tokenizer")
        limit = min(length, pooling.length or length)
        texts = [pair.anchor, pair.positive, *([] if pair.negative is None else [pair.negative])]
        texts = [text.lower() for text in texts] if pooling.lower_case else texts
        ids, cuts = zip(*(cut_text(loaded.tokenizer, text, limit) for text in texts), strict=True)
        return [PairRow(ids, sum(cuts))]

    def loss(model: nn.Module, tokens: mx.array, targets: mx.array, mask: mx.array) -> mx.array:
        states = hidden_states(model, causality, tokens, mask)  # (N, S, D)
        vectors = pool(states, mask, pooling.mode)
        for module in pooling.modules:
            vectors = module(vectors)
        return info_nce(vectors, targets, temperature)

    return ExampleObjective((SentencePair,), encode, collate, loss, examples_in=lambda batch: 1)


def collate(rows: Sequence[PairRow], loaded: Loaded, order: random.Random) -> Batch:
    """Tokens (N, S), the candidate of each anchor (B,), and a mask (N, S).

    Candidates are all positives, in the order of the anchors, then the negatives.
    """
    texts = [row.texts[0] for row in rows] + [row.texts[1] for row in rows]
    texts += [negative for row in rows for negative in row.texts[2:]]
    tokens, mask = padded_texts(loaded, texts)
    return tokens, mx.arange(len(rows)), mask


def info_nce(vectors: mx.array, targets: mx.array, temperature: float) -> mx.array:
    """Mean of two cross-entropies: of each anchor's positive among all candidates, and of its anchor among all anchors.

    Both directions are those of CLIP (Radford et al., 2021, section 2.3). Vectors (N, D) are of B anchors, then of C candidates; targets (B,) are the indices of the positives among these.
    """
    vectors = unit(vectors)
    anchors, candidates = vectors[: targets.size], vectors[targets.size :]
    logits = anchors @ candidates.T / temperature  # (B, C)
    backward = logits[:, targets].T  # (B, B): of each positive, the anchors
    return 0.5 * sum(
        nn.losses.cross_entropy(*given, reduction="mean")
        for given in ((logits, targets), (backward, mx.arange(targets.size)))
    )
