"""The engines by their names."""

from __future__ import annotations

from collections.abc import Callable

from zoo.insight.benchmark.llama_cpp import LlamaCpp
from zoo.insight.benchmark.own import zoo
from zoo.insight.benchmark.peers import Asked, Engine, Mlx, MlxLm, Transformers
from zoo.insight.benchmark.translators import CTranslate2

ENGINES: dict[str, Callable[[Asked], Engine]] = {
    "zoo": zoo,
    "mlx": Mlx,
    "mlx-lm": MlxLm,
    "transformers": Transformers,
    "llama.cpp": LlamaCpp,
    "ctranslate2": CTranslate2,
}
