"""The settings of a generation: those of a checkpoint's `generation_config.json`, then the caller's."""

from zoo.generation.settings.settings import Settings, checked_shared, settings_for

__all__ = ["Settings", "checked_shared", "settings_for"]
