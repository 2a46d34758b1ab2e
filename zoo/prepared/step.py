"""A decoder's step as one function. Axes: B batch, D width, V vocabulary."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from zoo import runtime
from zoo.blocks.decoder import RECURRENT, Decoder
from zoo.blocks.layer import Layer
from zoo.prepared import attention, parts  # noqa: F401 (their forms are registered)
from zoo.prepared.forms import Function, Preparation, keeps

_KEPT = "_prepared_step"  # the attribute of a model that holds its step


class Step:
    """One more token of each row: ids (B, 1) and the caches -> logits (B, V)."""

    def __init__(self, model: Decoder) -> None:
        arrays = (
            value for module in model.modules() for value in module.values() if isinstance(value, mx.array)
        )
        joins = runtime.joins(sum(array.nbytes for array in arrays))
        self._made = made = Preparation(model, joins)
        self._model, self._embedding, self._head = model, model.embedding, made.of(model.head)
        self._norm = made.of(model.norm) if "norm" in model else None
        kinds = [
            RECURRENT if one.recurrent else one.window for (one,) in (need.memories for need in model.needs)
        ]
        self._masks = {kind: kinds.index(kind) for kind in kinds}  # by the first layer of each kind
        self._layers = [(_layer(made, layer), kind) for layer, kind in zip(model.layers, kinds, strict=True)]

    @property
    def current(self) -> bool:
        """Whether it still computes what the model does: nothing in it was wrapped, replaced or trained since."""
        return self._made.current

    def __call__(self, tokens: mx.array, cache: list[Any]) -> mx.array:  # (B, 1) -> (B, V)
        model = self._model
        x = mx.squeeze(self._embedding(tokens, model.offset(cache, None)), 1)  # (B, D)
        masks = {kind: model.mask(1, kind, cache[first], None, None) for kind, first in self._masks.items()}
        for (layer, kind), kept in zip(self._layers, cache, strict=True):
            x = layer(x, masks[kind], kept)
        return self._head(x if self._norm is None else self._norm(x))  # type: ignore[no-any-return]

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of a model makes a step of its own."""
        return type(None), ()


def prepared_step(model: Any) -> Step | None:
    """The step of a decoder, made once; None for a model that can only run as it is.

    Such a model has a method of its own in the place of the decoder's, or layers that give values to each other, have
    several caches, or none.
    """
    if not keeps(model, Decoder, "__call__", "backbone", "embed", "offset", "mask"):
        return None
    if model.spec.embedding.gives or not all(_alone(need) for need in model.needs):
        return None
    kept: Step | None = vars(model).get(_KEPT)
    if kept is None or not kept.current:
        kept = Step(model)
        object.__setattr__(model, _KEPT, kept)  # as no part of the model
    return kept


def _alone(need: Any) -> bool:
    """Whether a layer is called with the mask and the cache of its one mixer, and nothing else."""
    return len(need.memories) == 1 and bool(need.caches) and not (need.by_part or need.gives or need.takes)


def _layer(made: Preparation, layer: Any) -> Function:
    """A layer as a function of (B, D), a mask and a cache."""
    if not keeps(layer, Layer, "__call__", "add", "run") or layer.passing or len(layer.remembering) > 1:
        return made.of(layer)
    mixer, feedforward = made.of(layer.mixer), made.of(layer.feedforward)
    mixer_norm, feedforward_norm = made.of(layer.mixer_norm), made.of(layer.feedforward_norm)
    if layer.placement == "pre":

        def step(x: mx.array, mask: Any, cache: Any) -> mx.array:
            x = x + mixer(mixer_norm(x), mask, cache)
            return x + feedforward(feedforward_norm(x))
    else:

        def step(x: mx.array, mask: Any, cache: Any) -> mx.array:
            x = mixer_norm(x + mixer(x, mask, cache))
            return feedforward_norm(x + feedforward(x))

    return step
