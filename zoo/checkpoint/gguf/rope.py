"""A GGUF file's scaling of rotary positions as the `rope_scaling` of a config.json."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.checkpoint.gguf.header import shown
from zoo.errors import ConfigError

YARN = {
    "rope.scaling.original_context_length": "original_max_position_embeddings",
    "rope.scaling.yarn_beta_fast": "beta_fast",
    "rope.scaling.yarn_beta_slow": "beta_slow",
    "rope.scaling.yarn_attn_factor": "attention_factor",
    "rope.scaling.yarn_log_multiplier": "mscale_all_dim",
}
# The keys of `rope_scaling`, dotted, to those they are read from.
NAMES = {
    "rope_scaling.rope_type": "rope.scaling.type",
    "rope_scaling.factor": "rope.scaling.factor",
    **{f"rope_scaling.{name}": key for key, name in YARN.items()},
}
ONE = ("rope.scaling.yarn_ext_factor", "rope.scaling.attn_factor")
# All keys that are understood here.
READ = (
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scale_linear",
    *YARN,
    *ONE,
)

# LLaMA 3's own: from the factors that a file holds only their ratios follow.
LOW, HIGH, CONTEXT = 1.0, 4.0, 8192
CLOSE = 1e-5  # of a factor: they are float32


def rope_scaling(keys: Mapping[str, Any], where: str) -> dict[str, Any] | None:
    """The scaling that the keys `rope.scaling.…` name, None for none; `where` begins an error.

    ConfigError for a type that transformers calls otherwise or the zoo lacks.
    """
    kind = keys.get("rope.scaling.type", "linear" if "rope.scale_linear" in keys else "none")
    factor = keys.get("rope.scaling.factor", keys.get("rope.scale_linear"))
    if kind == "none" or (kind == "linear" and factor in (None, 0, 1)):
        return None
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind != "yarn":
        raise ConfigError(
            f"{where}: rope.scaling.type {shown(kind)} is not implemented; known: none, linear, yarn"
        )
    if not factor:
        raise ConfigError(f"{where}: rope.scaling.factor is missing")
    for key in ONE:
        if keys.get(key, 1.0) != 1.0:
            raise ConfigError(f"{where}: {key} {shown(keys[key])} is not implemented")
    settings = {name: keys[key] for key, name in YARN.items() if keys.get(key)}
    if "mscale_all_dim" in settings:
        settings["mscale"] = 1.0  # which llama.cpp takes for granted
    return {"rope_type": "yarn", "factor": factor, **settings}


def llama3_scaling(factors: Sequence[float], theta: float, where: str) -> dict[str, Any] | None:
    """LLaMA 3's scaling from what it divides each frequency by, which is all that a file keeps of it.

    None where the factors are all one. ConfigError when LLaMA 3's rule (see `Llama3Scaling`) makes no such factors.
    """
    if all(factor == 1 for factor in factors):
        return None
    if all(1 <= factor < math.inf for factor in factors) and 1 < theta < math.inf:
        turns = [theta ** (-k / len(factors)) / (2 * math.pi) for k in range(len(factors))]  # a position
        for low, high, context in (*_fitted(factors, turns), (LOW, HIGH, CONTEXT)):
            made = [_factor(max(factors), (context * turn - low) / (high - low)) for turn in turns]
            if all(math.isclose(*pair, rel_tol=CLOSE) for pair in zip(factors, made, strict=True)):
                return {
                    "rope_type": "llama3",
                    "factor": max(factors),
                    "low_freq_factor": low,
                    "high_freq_factor": high,
                    "original_max_position_embeddings": context,
                }
    raise ConfigError(
        f"{where}: rope_freqs.weight holds factors that are not LLaMA 3's, which are not implemented"
    )


def _factor(most: float, kept: float) -> float:
    """The divisor of a frequency of which the share `kept` stays as it is."""
    kept = min(max(kept, 0.0), 1.0)
    return 1 / ((1 - kept) / most + kept)


def _fitted(factors: Sequence[float], turns: Sequence[float]) -> list[tuple[float, float, int]]:
    """The rule through two factors between the extremes: its share is a line over the turns a position makes."""
    most = max(factors)
    between = [index for index, factor in enumerate(factors) if 1 + CLOSE < factor < most * (1 - CLOSE)]
    if len(between) < 2:
        return []
    first, last = between[0], between[-1]
    kept = [(1 / factors[index] - 1 / most) / (1 - 1 / most) for index in (first, last)]
    slope = (kept[0] - kept[1]) / (turns[first] - turns[last])
    least = slope * turns[last] - kept[1]
    # The share is (context · turns − low) / (high − low), with low set to one.
    if not slope > 0 or not 0.001 < least < 1000 or slope / least > 2**40:
        return []
    return [(LOW, round(LOW + 1 / least, 3), max(1, round(slope / least)))]
