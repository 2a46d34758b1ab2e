"""The numbers of MLX's quantizations; a checkpoint's quantization settings, and which file they come from. Imports no mlx."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.config import CONFIG_JSON, Config, Origin
from zoo.errors import ConfigError

AFFINE_BITS = (1, 2, 3, 4, 5, 6, 8)
AFFINE_GROUPS = (32, 64, 128)
# The other modes' bits and inputs a group; their scales are single bytes.
FLOAT_MODES = {"mxfp4": (4, 32), "nvfp4": (4, 16), "mxfp8": (8, 32)}
# The last step of the path of a router's scores, which choose the experts of every token and get eight bits.
ROUTERS = "router.scores"
ROUTER_BITS, ROUTER_GROUP = 8, 64


class QuantizationSettings(dict[str, Any]):
    """Quantization settings from a file of their own, which `origin` names."""

    def __init__(self, values: Mapping[str, Any], origin: Origin) -> None:
        super().__init__(values)
        self.origin = origin


def origin_of(values: Mapping[str, Any]) -> Origin:
    """The origin of settings or of a config; a plain mapping is of a config.json."""
    return values.origin if isinstance(values, QuantizationSettings | Config) else CONFIG_JSON


def refused(values: Mapping[str, Any], why: str) -> ConfigError:
    """A ConfigError, to be raised, that begins with the file of the settings or config."""
    return ConfigError(f"{origin_of(values).name}: {why}")


def choice(settings: Mapping[str, Any], key: str, known: tuple[str, ...], default: str) -> str:
    """The setting in lower case, one of those known; ConfigError naming it otherwise."""
    value = settings.get(key) or default
    if not isinstance(value, str) or value.lower() not in known:
        method = settings.get("quant_method")
        raise refused(settings, f"{method}: {key} {value!r} cannot be loaded; known: {', '.join(known)}")
    return value.lower()
