"""The checks of the conformance suite for encoder-decoders. Axes: B batch, S source length, T target length."""

from __future__ import annotations

import mlx.core as mx

from zoo.generation import generate
from zoo.host.discovery import FIRST_PARTY
from zoo.testing.pieces import logits_in_pieces
from zoo.testing.subjects import (
    Subject,
    check_greedy,
    loaded_of,
    packed_layers,
    same,
    same_on_average,
    weights_in,
)

BEAM = f"{FIRST_PARTY}::beam"  # by its full name, which no other plugin can take


def texts(subject: Subject) -> tuple[mx.array, mx.array]:
    """A batch of sources (B, S) and one of targets (B, T)."""
    return subject.tokens, subject.tokens[:, ::-1][:, : subject.tokens.shape[1] - 5]


def cached_translation_equals_full_forward(subject: Subject) -> None:
    """A source's keys and values are computed once, for all of a target."""
    source, target = texts(subject)
    found = logits_in_pieces(subject, target, (1, *range(8, target.shape[1])), source=source)
    same(found, subject.model(source, target), "logits")


def padded_source_equals_the_source_alone(subject: Subject) -> None:
    """Sources of different lengths share a batch."""
    source, target = texts(subject)
    length, padding = source.shape[1], 5
    expected = subject.model(source[1:, : length - padding], target[1:])
    left = mx.concatenate([source[1:, :padding], source[1:, : length - padding]], axis=1)
    for side, row, mask in (
        ("right", source[1:], [1] * (length - padding) + [0] * padding),
        ("left", left, [0] * padding + [1] * (length - padding)),
    ):
        batch, seen = mx.concatenate([source[:1], row]), mx.array([[1] * length, mask])
        same(subject.model(batch, target, seen)[1:], expected, f"logits of the row padded on the {side}")
        found = logits_in_pieces(subject, target, range(1, target.shape[1]), source=batch, mask=seen)
        same(found[1:], expected, f"logits of the row padded on the {side}, cached")


def later_target_changes_no_earlier_logit(subject: Subject) -> None:
    """A model trained to predict the next token must not see it."""
    source, target = texts(subject)
    position = target.shape[1] // 2
    other = mx.where(mx.arange(target.shape[1]) == position, (target + 1) % subject.vocab, target)
    before, after = subject.model(source, target), subject.model(source, other)
    same(after[:, :position], before[:, :position], f"logits before the changed token {position}", 1e-6)
    assert mx.abs(after[:, position:] - before[:, position:]).max().item() > 0, (
        f"token {position} changed no logit after it"
    )


def every_source_token_reaches_every_logit(subject: Subject) -> None:
    """An encoder sees both ways, and a decoder all of its memory."""
    source, target = texts(subject)
    before = subject.model(source, target)
    for position in (0, source.shape[1] - 1):
        other = mx.where(mx.arange(source.shape[1]) == position, (source + 1) % subject.vocab, source)
        moved = mx.abs(subject.model(other, target) - before).max(axis=(0, 2))  # (T,)
        assert mx.all(moved > 0).item(), f"source token {position} does not reach every logit of the target"


def selected_rows_go_on_as_they_were(subject: Subject) -> None:
    """A beam search keeps some rows of the caches and repeats them."""
    source, target = texts(subject)
    rows = mx.array([1, 0, 1])
    memory, cache = subject.model.encode(source), subject.model.make_cache()
    subject.model.decode(target[:, :6], memory, cache)
    for layer in cache:
        layer.select(rows)
    found = subject.model.decode(target[rows, 6:], None, cache)
    same(found, subject.model(source[rows], target[rows])[:, 6:], "logits after the choice of rows")


def greedy_translation_follows_the_full_forward(subject: Subject) -> None:
    """What is streamed must be what the model says."""
    source = subject.tokens[:1]
    new = generate(loaded_of(subject), source[0].tolist(), strategy=BEAM, max_tokens=8).tokens
    logits = subject.model(source, mx.array([[subject.recipe.start, *new]]))[0]  # (T, V)
    check_greedy(new, logits, logits)


def half_precision_translates(subject: Subject) -> None:
    """16-bit weights are what most checkpoints hold."""
    source, target = texts(subject)
    expected = subject.model(source, target)
    # MXFP4 and its like are unpacked to a float of their own, whatever the other weights are.
    floats = any(layer.mode != "affine" for layer in packed_layers(subject.model))
    for dtype in (mx.float16, mx.bfloat16):
        with weights_in(subject, dtype):
            found = subject.model(source, target)
            assert found.dtype == dtype or floats, f"weights of {dtype} give logits of {found.dtype}"
            same_on_average(found, expected, f"{dtype} logits")
