"""The rows of a calibration text, as the inputs of a model. Axes: B rows, T tokens, S source tokens."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from zoo.checkpoint.calibration import Calibration
from zoo.errors import ZooError
from zoo.loading import Loaded
from zoo.recipe import EncoderDecoder
from zoo.training.corpora import read_documents
from zoo.training.masked_lm import MASKED
from zoo.training.objective import mask_of

BATCH = 4  # rows that are run side by side

Inputs = tuple[mx.array, ...]  # what a model is called with


def inputs_of(loaded: Loaded, calibration: Calibration) -> list[Inputs]:
    """The inputs of each pass over the text: tokens (B, T), or, for an encoder-decoder, (1, S) and (1, T).

    A model that fills masks gets some. ZooError for a text that cannot be read, and for a model without a tokenizer.
    """
    if loaded.tokenizer is None:
        raise ZooError(f"{loaded.folder}: has no tokenizer to read the text of `calibrate` with")
    parallel = loaded.model.translates
    text = read_documents(str(calibration.text), parallel)
    documents = [*text.trained, *text.held_out]
    if parallel:
        return [_pair(loaded, pair, calibration.length) for pair in spread(documents, calibration.rows)]
    context = loaded.recipe.context or calibration.length
    length = min(calibration.length, context)
    ids = [id for document in documents for id in loaded.tokenizer.encode(document)]
    rows = [ids[start : start + length] for start in range(0, max(len(ids) - length, 0) + 1, length)]
    rows = spread(rows, calibration.rows)
    if loaded.architecture.causality == "full":
        rows = _mask_rows(loaded, rows)
    return [(mx.array(rows[start : start + BATCH]),) for start in range(0, len(rows), BATCH)]


def spread(rows: Sequence[Any], count: int) -> list[Any]:
    """At most `count` of the rows, at equal distances from one another."""
    step = max(len(rows) / count, 1)
    return [rows[int(index * step)] for index in range(min(count, len(rows)))]


def _pair(loaded: Loaded, pair: tuple[str, str], length: int) -> Inputs:
    assert loaded.tokenizer is not None and isinstance(loaded.recipe, EncoderDecoder)
    start = [loaded.recipe.start]
    source, target = map(loaded.tokenizer.encode, pair)
    given = (source, [*start, *target])
    sides = (loaded.recipe.encoder, loaded.recipe.decoder)
    most = (min(length, side.context or length) for side in sides)
    return tuple(mx.array([ids[:limit]]) for ids, limit in zip(given, most, strict=True))


def _mask_rows(loaded: Loaded, rows: list[list[int]]) -> list[list[int]]:
    """The rows with masks as in training: BERT's share of the tokens, or, for diffusion, a share drawn for each row."""
    assert loaded.tokenizer is not None
    mask, draw = mask_of(loaded.tokenizer), random.Random(0)
    found = []
    for row in rows:
        share = draw.random() if loaded.architecture.task == "denoise" else MASKED
        found.append([mask if draw.random() < share else id for id in row])
    return found
