"""zoo: a plugin-based model zoo on MLX.

`zoo.load(source)` loads a model, `zoo.stream` and `zoo.generate` run it, `zoo.batch` on several
prompts at once, `zoo.chat` answers messages, `zoo.Engine` takes texts while others run, `zoo.PromptCache` holds what
was computed of texts before, `zoo.embed` makes vectors of texts, `zoo.trace` keeps what a run computes,
`zoo.intervene` changes it. The names are imported when first used. The
one act of this file is to load a fast BLAS on Linux, which must happen before `mlx.core` is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zoo.errors import ZooError
from zoo.runtime import preload_blas
from zoo.version import __version__ as __version__

if TYPE_CHECKING:
    from zoo.generation import Generated, Step, generate, stream
    from zoo.generation.chat.chat import chat
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
    "Loaded": "zoo.loading",
    "load": "zoo.loading",
    "Generated": "zoo.generation",
    "Step": "zoo.generation",
    "chat": "zoo.generation.chat.chat",
    "generate": "zoo.generation",
    "stream": "zoo.generation",
    "batch": "zoo.generation",
    "Engine": "zoo.generation.loop.engine",
    "PromptCache": "zoo.generation.prefix_cache",
    "embed": "zoo.generation.strategies.embedding",
    "Trace": "zoo.inspect.tracing",
    "intervene": "zoo.inspect.tracing",
    "trace": "zoo.inspect.tracing",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'zoo' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


preload_blas()
