"""The differences between two recipes, in sentences. Imports no mlx."""

from zoo.describe.differences.recipes import differences

__all__ = ["differences"]
