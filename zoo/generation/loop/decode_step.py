"""The pass of one more token in each row. Axes: B rows, V vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx

if TYPE_CHECKING:
    from zoo.compiled_step import CompiledStep


class DecodeStep:
    """Runs one more token in each row, by the model's compiled step where it has one.

    The first pass is the model's own, so that the first token does not wait for the compilation.
    """

    def __init__(self, model: Any) -> None:
        self._model, self._translates = model, model.translates
        self._step: CompiledStep | None = None
        self._passes = 0

    def __call__(self, tokens: mx.array, cache: list[Any]) -> mx.array:  # (B, 1) -> (B, V)
        self._passes += 1
        if self._passes == 2:
            self._step = self._prepared(tokens, cache)
        if self._step is not None:
            return self._step(tokens, cache)
        if self._translates:
            return self._model.decode(tokens, None, cache)[:, 0]  # type: ignore[no-any-return]
        return self._model.head(self._model.backbone(tokens, cache))[:, 0]  # type: ignore[no-any-return]

    def _prepared(self, tokens: mx.array, cache: list[Any]) -> CompiledStep | None:
        """The model's compiled step, where it has one. What is under way is waited for: it holds matrices that are replaced."""
        from zoo.compiled_step import compiled_step

        mx.eval(tokens, [one.state for one in cache])
        return compiled_step(self._model)
