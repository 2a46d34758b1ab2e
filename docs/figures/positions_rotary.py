"""RoPE to try: a query and a key of the pocket, turned by their positions, and the score of the two."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path

import mlx.core as mx
import numpy as np

import zoo
from figures.parts import svg, text
from figures.tour_marks import said
from zoo.blocks.position import frequencies

TEXT = "The capital city of China is"
LAYER, HEAD = 1, 2  # a head that looks from "is" at the country
SHOWN = (0, 1, 2, 3, 4, 6)  # pairs that are drawn
POSITION, DISTANCE = 4, 1  # of " China" and of "is" after it
RADIUS = 40.0


@cache
def vectors() -> tuple[np.ndarray, np.ndarray, list[float]]:
    """The query of the last token and the key of the one before, as pairs (d/2, 2), not turned; the frequencies."""
    loaded = zoo.load("llama")
    mixer = loaded.model.layers[LAYER].mixer
    trace = zoo.trace(loaded, TEXT, max_tokens=1, only=f"layers.{LAYER}.mixer_norm")
    queries, keys, _ = mixer.project(mx.array(trace[f"layers.{LAYER}.mixer_norm"])[None, : len(TEXT.split())])
    shared = mixer.heads // mixer.kv_heads
    half = mixer.rope.dims // 2
    found = (np.array(queries)[0, HEAD, -1], np.array(keys)[0, HEAD // shared, -2])
    query, key = (np.stack([vector[:half], vector[half:]], axis=1) for vector in found)
    return query, key, frequencies(mixer.rope.theta, 2 * half)


def draw(language: str) -> str:
    """Two sliders, six pairs as clocks with two hands each, and the score of all pairs."""
    query, key, speeds = vectors()
    data = {"query": query.round(4).tolist(), "key": key.round(4).tolist(), "speeds": speeds, "shown": SHOWN}
    words = {
        "position": said(language, "position j of the key", "键的位置 j"),
        "distance": said(language, "distance i − j to the query", "查询与键的距离 i − j"),
        "score": said(language, "score q·k / √d", "分数 q·k / √d"),
    }
    sliders = "".join(
        f'<label style="display:grid;gap:2px;flex:1 1 220px"><span>{words[name]}: '
        f'<output style="font-weight:600">{start}</output></span>'
        f'<input type="range" name="{name}" min="0" max="24" value="{start}" style="accent-color:var(--accent)"></label>'
        for name, start in (("position", POSITION), ("distance", DISTANCE))
    )
    longest = max(np.linalg.norm(vector, axis=1)[list(SHOWN)].max() for vector in (query, key))
    clocks = "".join(
        clock(pair, query[pair], key[pair], float(longest), speeds[pair], language) for pair in SHOWN
    )
    script = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
    return (
        f'<div id="rotary" style="border:1px solid var(--edge);border-radius:10px;padding:12px">'
        f'<div style="display:flex;flex-wrap:wrap;gap:8px 24px">{sliders}</div>'
        f'<div style="display:flex;flex-wrap:wrap;gap:10px;justify-content:center;margin:10px 0">{clocks}</div>'
        f'<p style="text-align:center;margin:4px 0">{words["score"]} = '
        f'<output name="score" style="font-weight:600;font-variant-numeric:tabular-nums">{score(POSITION, DISTANCE):.3f}</output></p></div>'
        f"<script>({script.strip()})({json.dumps(data)})</script>"
    )


def score(position: int, distance: int) -> float:
    """The score of a query at `position` + `distance` and a key at `position`, as the page computes it."""
    query, key, speeds = vectors()
    total = 0.0
    for (a, b), (c, d), speed in zip(query.tolist(), key.tolist(), speeds, strict=True):
        turned = [
            complex(a, b) * np.exp(1j * speed * (position + distance)),
            complex(c, d) * np.exp(1j * speed * position),
        ]
        total += (turned[0] * turned[1].conjugate()).real
    return total / math.sqrt(2 * len(speeds))


def clock(pair: int, query: np.ndarray, key: np.ndarray, longest: float, speed: float, language: str) -> str:
    """A pair of dimensions as a plane: the hand of the query in the accent colour, that of the key in grey."""
    centre = RADIUS + 8
    drawn = [f'<circle cx="{centre}" cy="{centre}" r="{RADIUS}" style="fill:var(--box);stroke:var(--edge)"/>']
    for name, vector, place, colour in (
        ("key", key, POSITION, "quiet"),
        ("query", query, POSITION + DISTANCE, "accent"),
    ):
        length = RADIUS * math.sqrt(float(np.linalg.norm(vector)) / longest)
        angle = math.degrees(math.atan2(vector[1], vector[0]) + speed * place)
        dashes = ' stroke-dasharray="4 3"' if name == "key" else ""
        drawn.append(
            f'<line data-hand="{name}" data-pair="{pair}" x1="{centre}" y1="{centre}" x2="{centre + length:.1f}" y2="{centre}" '
            f'transform="rotate({-angle:.1f} {centre} {centre})" style="stroke:var(--{colour});stroke-width:3;stroke-linecap:round"{dashes}/>'
        )
    drawn.append(
        text(
            centre, 2 * centre + 12, said(language, f"pair {pair}", f"第 {pair} 对"), anchor="middle", size=13
        )
    )
    return svg(2 * centre, 2 * centre + 18, drawn)
