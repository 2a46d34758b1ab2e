"""zoo: a plugin-based model zoo on MLX.

`zoo.load(source)` loads a model, `zoo.stream` and `zoo.generate` run it, `zoo.batch` on several
prompts at once, `zoo.chat` answers messages, `zoo.Engine` takes texts while others run, `zoo.PromptCache` holds what
was computed of texts before, `zoo.embed` makes vectors of texts, `zoo.trace` keeps what a run computes,
`zoo.intervene` changes it. The names are imported when first used. The two
acts of this file are to set `MLX_ENABLE_TF32=0` unless it is set, and to load a fast BLAS on Linux, before `mlx.core` is loaded.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from zoo.errors import ZooError
from zoo.version import __version__ as __version__

if TYPE_CHECKING:
    from zoo.generation import Generated, Step, batch, generate, stream
    from zoo.generation.chat.chat_prompt import chat
    from zoo.generation.loop.engine import Engine
    from zoo.generation.prefix_cache import PromptCache
    from zoo.generation.strategies.embedding import embed
    from zoo.inspect.tracing import Trace, intervene, trace
    from zoo.loading import Loaded, load

__all__ = [
    "Engine",
    "Generated",
    "Loaded",
    "PromptCache",
    "Step",
    "Trace",
    "ZooError",
    "batch",
    "chat",
    "embed",
    "generate",
    "intervene",
    "load",
    "stream",
    "trace",
]

_HOMES = {
    "zoo.loading": ("Loaded", "load"),
    "zoo.generation": ("Generated", "Step", "batch", "generate", "stream"),
    "zoo.generation.chat.chat_prompt": ("chat",),
    "zoo.generation.loop.engine": ("Engine",),
    "zoo.generation.prefix_cache": ("PromptCache",),
    "zoo.generation.strategies.embedding": ("embed",),
    "zoo.inspect.tracing": ("Trace", "intervene", "trace"),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'zoo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# MLX reads this at its first product: without it some GPUs round the inputs of float32 products to 10 bits (TF32).
os.environ.setdefault("MLX_ENABLE_TF32", "0")
if sys.platform == "linux":
    from zoo.cpu.blas import preload_blas

    preload_blas()
