"""What a checkpoint says of its quantization, and which file says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.config import CONFIG_JSON, Config, Origin
from zoo.errors import ConfigError


class Settings(dict[str, Any]):
    """Settings of a quantized format that stand in a file of their own, which `origin` names."""

    def __init__(self, values: Mapping[str, Any], origin: Origin) -> None:
        super().__init__(values)
        self.origin = origin


def origin_of(values: Mapping[str, Any]) -> Origin:
    """Where settings or a config come from; a plain mapping is of a config.json."""
    return values.origin if isinstance(values, Settings | Config) else CONFIG_JSON


def refused(values: Mapping[str, Any], why: str) -> ConfigError:
    """The error, to be raised, that settings or a config deserve; it begins with the file that has them."""
    return ConfigError(f"{origin_of(values).name}: {why}")


def choice(settings: Mapping[str, Any], key: str, known: tuple[str, ...], default: str) -> str:
    """The setting in lower case, one of those known; ConfigError naming it otherwise."""
    value = settings.get(key) or default
    if not isinstance(value, str) or value.lower() not in known:
        method = settings.get("quant_method")
        raise refused(settings, f"{method}: {key} {value!r} cannot be loaded; known: {', '.join(known)}")
    return value.lower()
