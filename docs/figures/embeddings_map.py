"""The embeddings of the pocket on two axes: names of countries, capitals, languages, currencies and continents."""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

import zoo
from figures.parts import FONT, svg
from figures.tour_marks import said

COLUMNS = ("country", "capital", "language", "currency", "continent")
FIELD = {"country": "name"}  # the atlas calls it so
CHINESE = {"country": "国家", "capital": "首都", "language": "语言", "currency": "货币", "continent": "大洲"}
MARKS = {"country": "●", "capital": "■", "language": "▲", "currency": "◆", "continent": "★"}
MOST = 20  # of a kind, so that none outweighs the others
WIDTH, HEIGHT = 660, 460
STYLE = (
    ".embedding-map text{fill:var(--ink)}.embedding-map .near{opacity:0;pointer-events:none}"
    ".embedding-map a{text-decoration:none;outline:none}"
    ".embedding-map a:hover .near,.embedding-map a:focus .near{opacity:1}"
    ".embedding-map a:hover .mark,.embedding-map a:focus .mark{stroke:var(--ink);stroke-width:2}"
)


@dataclass(frozen=True)
class Point:
    """A token: its word, its kind, its place from 0 to 1, and the tokens nearest to it among all that are shown."""

    word: str
    kind: str
    x: float
    y: float
    near: str


def explanations(tokenizer: Any) -> dict[int, tuple[str, str]]:
    """The names of the atlas that are one token of the vocabulary: their word and kind by id."""
    text = files("zoo_corpora").joinpath("atlas.tsv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text), delimiter="\t"))
    names = {
        kind: list(dict.fromkeys(row[f"{FIELD.get(kind, kind)}_en"].removeprefix("the ") for row in rows))
        for kind in COLUMNS
    }
    shared = Counter(
        name for those in names.values() for name in those
    )  # Singapore is a country and a capital
    found: dict[int, tuple[str, str]] = {}
    for kind, those in names.items():
        encoded = (
            (name, tokenizer.encode(f" {name}", special_tokens=False)) for name in those if shared[name] == 1
        )
        single = [(ids[0], name) for name, ids in encoded if len(ids) == 1]
        found |= {id: (name, kind) for id, name in single[:MOST]}
    return found


def projected() -> tuple[list[Point], float]:
    """The points, on the two axes along which the vectors differ most, and the share of the variance on these."""
    loaded = zoo.load("llama")
    words = explanations(loaded.tokenizer)
    table = np.array(loaded.model.embedding.tokens.weight, dtype=np.float32)[list(words)]
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    left, sizes, _ = np.linalg.svd(unit - unit.mean(axis=0), full_matrices=False)
    places = left[:, :2] * sizes[:2]
    kinds = np.array([kind for _, kind in words.values()])
    for axis, kind in enumerate(
        ("country", "language")
    ):  # an axis has no sign: countries left, languages above
        places[:, axis] *= -np.sign(places[kinds == kind, axis].mean())
    low, high = places.min(axis=0), places.max(axis=0)
    alike = unit @ unit.T
    named = list(words.values())
    points = []
    for index, ((word, kind), place) in enumerate(zip(named, (places - low) / (high - low), strict=True)):
        order = [other for other in np.argsort(-alike[index]) if other != index][:4]
        near = ", ".join(f"{named[other][0]} {alike[index, other]:.2f}" for other in order)
        points.append(Point(word, kind, float(place[0]), float(place[1]), near))
    return points, float((sizes[:2] ** 2).sum() / (sizes**2).sum())


def share() -> float:
    """The share of the vectors' variance that the two axes of the picture hold."""
    return projected()[1]


def draw(language: str) -> str:
    """A scatter whose points tell their word, and the nearest ones, when they are pointed at or focused."""
    points, _ = projected()
    labelled = with_room(points)
    drawn = [mark(point, language, point in labelled) for point in points]
    legend = []
    for number, kind in enumerate(COLUMNS):
        x, word = 40 + number * WIDTH / len(COLUMNS), said(language, kind, CHINESE[kind])
        legend.append(
            f'<text x="{x:.0f}" y="16" font-size="15" style="fill:{colour(kind)}">{MARKS[kind]}</text>'
            f'<text x="{x + 20:.0f}" y="15" font-size="14" fill="var(--ink)">{word}</text>'
        )
    label = said(language, "Embeddings of the pocket on two axes", "袖珍模型的嵌入在两个轴上的投影")
    return (
        f"<style>{STYLE}</style>{svg(WIDTH, 22, legend)}"
        f'<svg xmlns="http://www.w3.org/2000/svg" class="embedding-map" viewBox="0 0 {WIDTH} {HEIGHT + 40}" width="{WIDTH}" '
        f'style="min-width:520px;max-width:100%;height:auto;display:block;margin:0 auto;font-family:{FONT}" '
        f'role="group" aria-label="{label}">{"".join(drawn)}</svg>'
    )


def place(point: Point) -> tuple[float, float]:
    """Where a point is in the picture."""
    return 24 + point.x * (WIDTH - 100), 16 + point.y * (HEIGHT - 32)


def with_room(points: list[Point]) -> list[Point]:
    """The points whose words can be written without covering another word or mark; the others' show when asked."""
    taken = [(x - 8, y - 8, x + 8, y + 8) for x, y in map(place, points)]
    found = []
    for point in sorted(points, key=lambda point: COLUMNS[::-1].index(point.kind)):
        x, y = place(point)
        box = (x + 9, y - 7, x + 12 + 7.2 * len(point.word), y + 7)
        if not any(
            box[0] < right and left < box[2] and box[1] < low and high < box[3]
            for left, high, right, low in taken
        ):
            taken.append(box)
            found.append(point)
    return found


def colour(kind: str) -> str:
    """The colour of a kind: its mark tells it, too, for who cannot tell colours."""
    shares = {"country": 0, "capital": 100, "language": 60, "currency": 80, "continent": 40}
    return f"color-mix(in srgb,var(--accent) {shares[kind]}%,var(--quiet))"


def mark(point: Point, language: str, labelled: bool) -> str:
    """One point, and the line about it at the foot of the picture."""
    x, y = place(point)
    nearest = said(language, "nearest", "最近")
    about = said(language, f"{point.word} ({point.kind})", f"{point.word}（{CHINESE[point.kind]}）")
    foot = f"{escape(about)} · {nearest}: {escape(point.near)}"
    shown = "" if labelled else ' class="near"'
    return (
        f'<a tabindex="0" role="img" aria-label="{foot}">'
        f'<text class="mark" x="{x:.0f}" y="{y + 5:.0f}" font-size="15" text-anchor="middle" style="fill:{colour(point.kind)}">'
        f'{MARKS[point.kind]}</text><text x="{x + 10:.0f}" y="{y + 4:.0f}" font-size="13"{shown}>{escape(point.word)}</text>'
        f'<text class="near" x="24" y="{HEIGHT + 24}" font-size="15">{foot}</text></a>'
    )
