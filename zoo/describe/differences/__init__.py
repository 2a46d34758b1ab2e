"""The differences between two recipes, in sentences. Imports no mlx."""

from zoo.describe.differences.recipes import differences, is_of_sizes

__all__ = ["differences", "is_of_sizes"]
