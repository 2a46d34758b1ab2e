"""Checks that each block of a model returns an array of the expected shape and dtype.

Axes: B batch, T length, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from zoo.blocks.decoder import Decoder
from zoo.blocks.encoder_decoder import Encoder, EncoderDecoder
from zoo.testing.subjects import Subject

# The kinds of specs whose modules give an array of the shape of their input.
KEEPING = ("layer", "mixer", "cross", "feedforward", "norm")


@contextmanager
def checked_outputs(subject: Subject, *, keeps_16_bits: bool = False) -> Iterator[None]:
    """Within the `with` block, raise AssertionError with the path of the first block whose output does not fit.

    With `keeps_16_bits` no block may give wider floats than it got, unless its spec says that it `widens`. Watched are
    the layers, mixers, feed-forwards, norms and embeddings of models that the zoo's own modules assemble.
    """
    own = isinstance(subject.model, Decoder | Encoder | EncoderDecoder)
    modules = dict(subject.model.named_modules()) if own else {}
    watched = {
        path: (modules[path], spec)
        for path, spec in subject.recipe.walk()
        if path in modules and spec.kind in (*KEEPING, "embedding")
    }
    before: dict[str, tuple[nn.Module, type]] = {}
    try:
        for path, (module, spec) in watched.items():
            if any(module is other for other, _ in before.values()):
                continue  # one module in two places
            before[path] = module, type(module)
            width = spec.dim if spec.kind == "embedding" else None
            _set_class(module, _checked_class(path, type(module), width, not keeps_16_bits or spec.widens))
        yield
    finally:
        for module, kind in before.values():
            _set_class(module, kind)


def _set_class(module: nn.Module, kind: type) -> None:
    object.__setattr__(module, "__class__", kind)


def _checked_class(path: str, kind: Any, width: int | None, widens: bool) -> type:
    """The class of the module at `path` while its outputs are checked.

    `width` (D) is that of an embedding's vectors, None for other modules; `widens`: 16-bit floats may become float32.
    """
    own: Callable[..., Any] = kind.__call__

    def call(self: Any, x: Any = None, *inputs: Any, **options: Any) -> Any:
        y = own(self, x, *inputs, **options)
        name = f"{path} ({kind.__name__})"
        assert isinstance(y, mx.array), f"{name} gives {type(y).__name__}, expected an array"
        if isinstance(x, mx.array):
            shape = x.shape if width is None else (*x.shape, width)
            assert y.shape == shape, f"{name} gives shape {y.shape}, expected {shape}"
            assert mx.issubdtype(y.dtype, mx.floating), f"{name} gives {y.dtype}, expected floats"
            assert width or widens or y.dtype.size <= x.dtype.size, f"{name} widens {x.dtype} to {y.dtype}"
        return y

    return type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__})
