"""Which dimensions of a head RoPE turns together, in the two pairings that checkpoints have; found by turning each."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from figures.parts import svg, text
from figures.tour_marks import chip, panels, said
from zoo import recipe
from zoo.blocks.position import RoPE

DIMS = 8
STEP = 38.0


def draw(language: str) -> str:
    """Two rows of dimensions, an arc from each to its partner."""
    halves = said(language, "halves: (k, k + d/2)", "前后两半配对：(k, k + d/2)")
    neighbours = said(language, "neighbours: (2k, 2k + 1)", "相邻配对：(2k, 2k + 1)")
    return panels([row(neighbours, True), row(halves, False)])


def partners(interleaved: bool) -> list[tuple[int, int]]:
    """The pairs of dimensions that the block mixes when it turns a vector of one non-zero number."""
    rope = RoPE(recipe.RoPE(interleaved=interleaved), dim=DIMS)
    turned = np.array(rope(mx.eye(DIMS)[:, None, None, :], offset=1))[:, 0, 0]  # (d, d): row i is e_i turned
    found = set()
    for dimension, values in enumerate(turned):
        other = next(int(index) for index in np.flatnonzero(np.abs(values) > 1e-6) if index != dimension)
        found.add((min(dimension, other), max(dimension, other)))
    return sorted(found)


def row(title: str, interleaved: bool) -> str:
    """The dimensions as boxes, the faster a pair turns the stronger its arc."""
    pairs = partners(interleaved)
    drawn = [text(6, 18, title, bold=True)]
    for rank, (first, second) in enumerate(pairs):
        start, end = 6 + (first + 0.45) * STEP, 6 + (second + 0.45) * STEP
        height = 18 + (end - start) * 0.28
        share = 100 - 22 * rank
        drawn.append(
            f'<path d="M{start:.1f} 112C{start:.1f} {112 - height * 1.3:.1f} {end:.1f} {112 - height * 1.3:.1f} {end:.1f} 112" '
            f'style="fill:none;stroke:color-mix(in srgb,var(--accent) {share}%,var(--edge));stroke-width:2"/>'
        )
    drawn += [chip(6 + index * STEP, 112, str(index), width=STEP - 4) for index in range(DIMS)]
    return svg(12 + DIMS * STEP, 144, drawn)
