"""The engines by their names."""

from __future__ import annotations

from collections.abc import Callable

from zoo_bench.ctranslate2 import CTranslate2
from zoo_bench.engine import BenchmarkEngine, Job
from zoo_bench.llama_cpp import LlamaCpp
from zoo_bench.mlx_lm import Mlx, MlxLm
from zoo_bench.transformers import Transformers
from zoo_bench.zoo_engine import zoo

ENGINES: dict[str, Callable[[Job], BenchmarkEngine]] = {
    "zoo": zoo,
    "mlx": Mlx,
    "mlx-lm": MlxLm,
    "transformers": Transformers,
    "llama.cpp": LlamaCpp,
    "ctranslate2": CTranslate2,
}
