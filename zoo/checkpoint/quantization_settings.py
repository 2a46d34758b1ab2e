"""The quantization settings of a checkpoint, and which file they come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.config import CONFIG_JSON, Config, Origin
from zoo.errors import ConfigError


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
