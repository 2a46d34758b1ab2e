"""`zoo new`: a plugin as a complete package, from templates. Imports no mlx."""

from zoo.scaffold.package import KINDS, create

__all__ = ["KINDS", "create"]
