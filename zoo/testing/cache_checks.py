"""The checks of caches: how much they hold, that a text may be read in any pieces, and the compiled decode step.

Axes: B batch, S source length, T length, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import Any

import mlx.core as mx

from zoo.cache import Cache
from zoo.compiled_step import compiled_step
from zoo.recipe import DynamicScaling, Spec, learned_context
from zoo.testing.subjects import Subject, is_causal, same, translates

# Numbers of tokens at which implementations commonly start another piece, beside those that a spec declares.
BORDERS = (64, 128)
LONGEST = 2048  # beyond which a declared border costs too much to cross
PAST = 3  # tokens of a text after the last border
PADDING = 5  # columns on the left of a padded row, so that its borders lie elsewhere
STEPS = 4  # of the compiled step, each compared


def logits_in_pieces(
    subject: Subject,
    text: mx.array,
    cuts: Iterable[int],
    *,
    source: mx.array | None = None,
    mask: mx.array | None = None,
    prefix: int | mx.array | None = None,
) -> mx.array:
    """The logits (B, T, V) of texts (B, T) that are read with a cache in the pieces between `cuts`.

    `source` (B, S) is what an encoder-decoder translates; its `mask` (B, S) marks that, a decoder's (B, T) the padding
    of the first piece. `prefix` is the length of a prompt that sees itself both ways, within the first piece.
    """
    _, step = reader(subject, source, mask, prefix)
    ends = [0, *cuts, text.shape[1]]
    return mx.concatenate([step(text[:, start:end]) for start, end in pairwise(ends) if start < end], axis=1)


def reader(
    subject: Subject,
    source: mx.array | None = None,
    mask: mx.array | None = None,
    prefix: int | mx.array | None = None,
) -> tuple[list[Any], Callable[[mx.array], mx.array]]:
    """Empty caches, and the function that reads the next tokens (B, T) with them and gives their logits (B, T, V).

    An encoder-decoder translates `source`, else the subject's first text.
    """
    model, caches = subject.model, subject.model.make_cache()
    if translates(subject):
        # The first pass computes the source's keys and values: no other needs the memory they come from.
        memory = [model.encode(subject.tokens[:1] if source is None else source, mask)]
        return caches, lambda tokens: model.decode(tokens, memory.pop() if memory else None, caches, mask)
    given = {"mask": mask, "prefix": prefix}
    first = {name: value for name, value in given.items() if value is not None}

    def step(tokens: mx.array) -> mx.array:
        logits = model(tokens, caches, **first)
        first.clear()
        return logits

    return caches, step


def caches_hold_what_the_recipe_counts(subject: Subject) -> None:
    """Memory is estimated from `kv_cache_size` and `state_size`; the caches must hold as many numbers."""
    total = min(subject.tokens.shape[1], 24)
    decoder = decoder_of(subject)
    caches, step = reader(subject)
    assert len(caches) == len(decoder.layers), (
        f"make_cache gives {len(caches)} caches, one for each of {len(decoder.layers)} layers is expected"
    )
    for start, end in ((0, total // 2), (total // 2, total)):
        mx.eval(step(subject.tokens[:1, start:end]))
        for index, (layer, cache) in enumerate(zip(decoder.layers, caches, strict=True)):
            size = cache.held if isinstance(cache, Cache) else sum(array.size for array in cache.state)
            most, least = (counted(layer, decoder.dim, end, short) for short in (0, 1))
            assert least <= size <= most, (
                f"layers.{index}: after {end} tokens the cache holds {size:,} numbers, the recipe counts {most:,}: "
                f"cached {layer.kv_cache_size(decoder.dim):,} a token, state {layer.state_size(decoder.dim):,}"
            )


def decoder_of(subject: Subject) -> Any:
    """The part of the recipe that makes text: an encoder-decoder's decoder, else the whole."""
    return subject.recipe.decoder if translates(subject) else subject.recipe


def counted(layer: Spec, dim: int, tokens: int, short: int = 0) -> int:
    """How many numbers a layer's cache holds after `tokens` tokens, by its spec; a window may lack `short` columns."""
    windows = (part.attention_window for _, part in layer.walk())
    columns = min([tokens, *(max(window - short, 0) for window in windows if window)])
    return layer.kv_cache_size(dim) * columns + layer.state_size(dim)


def chunks_meet_without_a_seam(subject: Subject) -> None:
    """A long text is computed in pieces; the result must not depend on them."""
    ends = borders(subject.recipe, decoder_of(subject))
    length, small = max(ends) + PAST, max(min(ends) - 1, 7)
    text = mx.random.randint(0, subject.vocab, (1, length), key=mx.random.key(length))  # (1, T)
    prefix = PADDING if subject.architecture.causality == "prefix" else None
    # No piece of these crosses a border.
    expected = logits_in_pieces(subject, text, range(small, length, small), prefix=prefix)
    for what, cuts in (
        ("one piece", ()),
        (f"pieces that end at {', '.join(map(str, ends))}", ends),
        (f"pieces that end at {PADDING} and at the end", (PADDING,)),
    ):
        found = logits_in_pieces(subject, text, cuts, prefix=prefix)
        same(found, expected, f"logits of {length} tokens in {what}")
    if is_causal(subject) and "left" in subject.model.padding:
        row = mx.concatenate([text[:, :PADDING], text[:, :-PADDING]], axis=1)  # (1, T)
        mask = mx.array([[1] * length, [0] * PADDING + [1] * (length - PADDING)])  # (2, T)
        padded = subject.model(mx.concatenate([text, row]), subject.model.make_cache(), mask=mask)
        same(
            padded[1:, PADDING:],
            expected[:, :-PADDING],
            f"logits of {length - PADDING} tokens, padded on the left",
        )


def borders(recipe: Spec, decoder: Spec) -> list[int]:
    """The numbers of tokens after which a piece may begin, up to the decoder's last position.

    There are none where the model takes no text longer than a piece.
    """
    parts = [part for _, part in recipe.walk()]
    # Angles that depend on the length of the text do so beyond the context: there nothing is the same in pieces.
    dynamic = [part.context for part in parts if isinstance(part, DynamicScaling)]
    learned = learned_context(decoder)
    limit = min([*dynamic, *([] if learned is None else [learned])], default=None)
    known = {*BORDERS, *(chunk for part in parts for chunk in declared(part) if 1 < chunk <= LONGEST)}
    return sorted(end for end in known if limit is None or end + PAST <= limit)


def declared(part: Spec) -> tuple[int, ...]:
    """The tuple `chunks` of a spec: the numbers of tokens after which its computation starts another piece."""
    chunks = getattr(part, "chunks", ())
    return chunks if isinstance(chunks, tuple) and all(isinstance(chunk, int) for chunk in chunks) else ()


def compiled_step_equals_the_model(subject: Subject) -> None:
    """The compiled decode step must give the logits of the model's own modules."""
    check_steps(subject, None)
    if "left" in subject.model.padding:
        rows, read = subject.tokens.shape[0], subject.tokens.shape[1] - STEPS
        padding = [min(row, read - 1) for row in range(rows)]
        check_steps(subject, mx.array([[0] * left + [1] * (read - left) for left in padding]))


def check_steps(subject: Subject, mask: mx.array | None) -> None:  # (B, T)
    """Compare the logits of the last tokens, after those before them, which `mask` pads on the left."""
    model, tokens, step = subject.model, subject.tokens, compiled_step(subject.model)
    assert step is not None
    given = tokens[:, :-STEPS]
    forward: Callable[..., mx.array] = model
    caches = [model.make_cache(), model.make_cache()]
    if translates(subject):
        source = None if mask is None else mask[:, ::-1]  # padded on the right
        memory, forward = model.encode(given, source), partial(model.decode, memory=None)
        for cache in caches:
            mx.eval(model.decode(given, memory, cache, source, mask))
    else:
        for cache in caches:
            mx.eval(model(given, cache, mask))
    for place in range(given.shape[1], tokens.shape[1]):
        token = tokens[:, place : place + 1]  # (B, 1)
        same(step(token, caches[1]), forward(token, cache=caches[0])[:, 0], f"logits of token {place + 1}")
