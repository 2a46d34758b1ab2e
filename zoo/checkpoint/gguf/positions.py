"""Translates the RoPE scaling of a GGUF file, by its keys or its tensors of factors, to the `rope_scaling` of a config.json."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.checkpoint.gguf.header import Header, decimal, shown
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
OFF = (0.0, 1.0)  # values by which most factors change nothing
# Tensors of factors, by which wavelengths are multiplied.
FREQUENCIES, SHORT, LONG = (f"rope_{kind}.weight" for kind in ("freqs", "factors_short", "factors_long"))
# LLaMA 3's own RoPE scaling: from the factors that a file holds only their ratios follow.
LOW, HIGH, CONTEXT = 1.0, 4.0, 8192
CLOSE = 1e-5  # of a factor: they are float32
LEAST_FACTOR, MOST_FACTOR = 1e-3, 1e6


def rope_scaling(keys: Mapping[str, Any], header: Header) -> dict[str, Any] | None:
    """Return the scaling that the keys `rope.scaling.…` name. None for no scaling, and for LongRoPE: its factors are tensors.

    ConfigError for a type that transformers calls otherwise or the zoo lacks.
    """
    where = header.path
    if LONG in header.tensors:
        keys = {**keys, "rope.scaling.attn_factor": 1.0}
        if keys.get("rope.scaling.type") == "longrope":
            keys["rope.scaling.type"] = "none"
    factor = keys.get("rope.scaling.factor", keys.get("rope.scale_linear"))
    kind = keys.get("rope.scaling.type", "none" if factor is None else "linear")  # as llama.cpp takes it
    if kind not in ("none", "linear", "yarn"):
        raise ConfigError(
            f"{where}: rope.scaling.type {shown(kind)} is not implemented; known: none, linear, yarn"
        )
    # llama.cpp multiplies rotations by these factors whatever the type is.
    scales, off = (ONE, (1.0,)) if kind == "yarn" else ((*ONE, "rope.scaling.yarn_attn_factor"), OFF)
    for key in scales:
        if keys.get(key, 1.0) not in off:
            raise ConfigError(f"{where}: {key} {shown(keys[key])} is not implemented")
    if kind == "none" or (kind == "linear" and factor in (None, 0, 1)):
        return None
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if not factor:
        raise ConfigError(f"{where}: rope.scaling.factor is missing")
    settings = {name: keys[key] for key, name in YARN.items() if keys.get(key)}
    if "mscale_all_dim" in settings:
        settings["mscale"] = 1.0  # which llama.cpp takes for granted
    return {"rope_type": "yarn", "factor": factor, **settings}


def factor_scaling(factors: Sequence[float], theta: float, where: str) -> dict[str, Any] | None:
    """Return the scaling that divides the frequencies by `factors`. None if all factors are one.

    A file holds the factors, not the rule that made them. Factors that follow LLaMA 3's rule (see `Llama3Scaling`) give that
    scaling. All others give LongRoPE with the same factors for short and long texts. ConfigError for a value out of bounds.
    """
    if all(factor == 1 for factor in factors):
        return None
    if wrong := [factor for factor in factors if not LEAST_FACTOR <= factor <= MOST_FACTOR]:
        raise ConfigError(f"{where} holds {wrong[0]}, which is no factor of a wavelength")
    if min(factors) >= 1 and 1 < theta < math.inf:
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
    return long_scaling(factors, factors, 1.0)


def long_scaling(short: Sequence[float], long: Sequence[float], magnitude: float) -> dict[str, Any]:
    """Return LongRoPE with these factors of short and long texts, and the factor of its cosines and sines."""
    rows = {"short_factor": list(map(decimal, short)), "long_factor": list(map(decimal, long))}
    return {"rope_type": "longrope", **rows, "attention_factor": magnitude}


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
