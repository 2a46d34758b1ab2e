"""The decode step compiled to plain functions: one more token of each row, with less work for Python.

A model of small matrices, and any model on a fast GPU, waits for Python: it has to build the graph of each token. Here a
module is turned into a function, once: attributes are looked up, weights transposed, projections of the same vector
joined in one product, steps that change nothing for a single token left out. The blocks stay what a model is: the
compiled step is made from them, gives the same numbers, and calls a block that it does not know. Names of parameters, saved
files and traces stay as they were.

Axes: B batch, D width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo.blocks.decoder import Decoder
from zoo.blocks.encoder_decoder import EncoderDecoder
from zoo.blocks.joined import joins_projections
from zoo.blocks.model import Model
from zoo.blocks.ranked import Elsewhere
from zoo.compiled_step import attention, blocks  # noqa: F401 (their forms are registered)
from zoo.compiled_step.compiler import Function, StepCompiler, has_methods_of
from zoo.recipe.models import Memory, Needs

NO_CACHE = "no cache"  # the kind of a layer that another rank has
_KEPT = "_compiled_step"  # the attribute of a model that holds its step


class CompiledStep:
    """One more token of each row: ids (B, 1) and the caches -> logits (B, V).

    `model` is `decoder`, or the encoder-decoder that it is a part of.
    """

    def __init__(self, model: nn.Module, decoder: Decoder) -> None:
        self._made = made = StepCompiler(model, joins_projections(model))
        self._decoder, self._head = decoder, made.compile(decoder.head)
        # (B, 1), the position of each row -> (B, D)
        self._embedding = made.compile_if_known(decoder.embedding) or (
            lambda tokens, *inputs: mx.squeeze(decoder.embedding(tokens, *inputs), 1)
        )
        self._gives = bool(decoder.spec.embedding.gives)
        self._norm = made.compile(decoder.norm) if "norm" in decoder else None
        # For each layer the kind of its mask, or, if its parts have masks of their own, pairs (part, kind of its mask).
        kinds = [
            tuple((memory.path, _kind(need, memory)) for memory in need.memories)
            if need.by_part
            else _kind(need, need.memories[0])
            for need in decoder.needs
        ]
        self._by_part = {kind for kind in kinds if isinstance(kind, tuple)}
        # A mask of each kind is made from the first cache that needs it: (layer, part).
        self._masks: dict[Any, tuple[int, str | None]] = {}
        for index, kind in enumerate(kinds):
            for part, one in kind if isinstance(kind, tuple) else [(None, kind)]:
                if one != NO_CACHE:
                    self._masks.setdefault(one, (index, part))
        # Each layer's function, the kind of its mask, and whether values are handed to it.
        self._layers = [
            (self._compile(layer, passes), kind, passes)
            for layer, kind, passes in zip(decoder.layers, kinds, map(_passes, decoder.needs), strict=True)
        ]

    def _compile(self, layer: nn.Module, passes: bool) -> Function:
        """The function of a layer: (B, D), mask, cache -> (B, D); a fourth argument are the values handed on, if it passes any."""
        known = self._made.compile_if_known(layer) if passes else self._made.compile(layer)
        return known or (
            lambda x, mask, cache, passed: mx.squeeze(
                layer(mx.expand_dims(x, 1), mask, cache, passed=passed), 1
            )
        )

    @property
    def current(self) -> bool:
        """Whether it still computes what the model does: nothing in it was wrapped, replaced or trained since."""
        return self._made.current

    def __call__(self, tokens: mx.array, cache: list[Any]) -> mx.array:  # (B, 1) -> (B, V)
        decoder = self._decoder
        offset = self._made.positions.next = decoder.offset(cache, None)
        passed: dict[str, Any] = {}  # with an axis of one token, as in the blocks
        x = self._embedding(tokens, offset, *((passed,) if self._gives else ()))  # (B, D)
        masks = {
            kind: decoder.mask(1, kind, cache[index] if part is None else cache[index][part], None, None)
            for kind, (index, part) in self._masks.items()
        }
        for parts in self._by_part:
            masks[parts] = {part: masks[kind] for part, kind in parts}
        for (layer, kind, passes), kept in zip(self._layers, cache, strict=True):
            x = layer(x, masks.get(kind), kept, *((passed,) if passes else ()))
        return self._head(x if self._norm is None else self._norm(x))  # type: ignore[no-any-return]

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of a model makes a step of its own."""
        return type(None), ()


def compiled_step(model: Model) -> CompiledStep | None:
    """The compiled decode step of a decoder or encoder-decoder; None for a model that cannot be compiled.

    The step is made once. The caches of an encoder-decoder must hold the source. A model cannot be compiled if it
    overrides a method of the decoder, or if its layers have no cache and read no values that others give.
    """
    decoder = model.decoder if has_methods_of(model, EncoderDecoder, "decode") else model
    if not has_methods_of(decoder, Decoder, "__call__", "backbone", "embed", "offset", "mask"):
        return None
    layers = zip(decoder.layers, decoder.needs, strict=True)
    if not all(isinstance(layer, Elsewhere) or _compilable(need) for layer, need in layers):
        return None
    kept: CompiledStep | None = vars(model).get(_KEPT)
    if kept is None or not kept.current:
        kept = CompiledStep(model, decoder)
        object.__setattr__(model, _KEPT, kept)  # as no part of the model
    return kept


def _kind(need: Needs, memory: Memory) -> Any:
    """The kind of the mask of a part (`Memory.mask_kind`), or `NO_CACHE`."""
    return memory.mask_kind if need.caches else NO_CACHE


def _passes(need: Needs) -> bool:
    """Whether a layer gives or takes values."""
    return bool(need.gives or need.takes)


def _compilable(need: Needs) -> bool:
    """Whether a layer is called with the masks and caches of its parts, or of its one mixer, or reads what others give."""
    cached = bool(need.caches or need.takes) or any(memory.recurrent for memory in need.memories)
    several = need.by_part and len(need.caches) == len(need.memories)
    return cached and (several or (len(need.memories) == 1 and not need.by_part))
