"""Weight rules: an invertible algebra from a checkpoint's tensor names to parameter paths. Imports no mlx."""

from __future__ import annotations

from zoo.weights.patterns import fill, matcher, matches
from zoo.weights.rules import (
    Depthwise,
    Ignore,
    Join,
    OutputHead,
    Rename,
    Rule,
    Split,
    Stack,
    Tensors,
    Transpose,
    apply,
    fused,
    invert,
    owner,
)

__all__ = [
    "Depthwise",
    "Ignore",
    "Join",
    "OutputHead",
    "Rename",
    "Rule",
    "Split",
    "Stack",
    "Tensors",
    "Transpose",
    "apply",
    "fill",
    "fused",
    "invert",
    "matcher",
    "matches",
    "owner",
]
