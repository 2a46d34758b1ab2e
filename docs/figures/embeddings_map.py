"""Embeddings on two axes: words of the pocket's, names of its atlas, or of SmolLM2's, everyday words."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any, NamedTuple

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx
import numpy as np

from figures.parts import FONT, svg
from figures.real_model import REAL_MODEL
from figures.tour_marks import said

COLUMNS = ("country", "capital", "language", "currency", "continent")
FIELD = {"country": "name"}  # the atlas calls it so
EVERYDAY = {  # each word is one token of SmolLM2
    "country": [
        "France",
        "Germany",
        "Italy",
        "Spain",
        "Japan",
        "China",
        "Egypt",
        "Russia",
        "India",
        "Greece",
    ],
    "family": [
        "mother",
        "father",
        "sister",
        "brother",
        "son",
        "daughter",
        "aunt",
        "uncle",
        "wife",
        "husband",
    ],
    "animal": ["dog", "cat", "horse", "cow", "lion", "tiger", "bird", "fish", "bear", "wolf"],
    "colour": ["red", "blue", "green", "yellow", "white", "black", "brown", "purple", "orange", "pink"],
    "day": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"],
}
MOST = 20  # of a kind, so that none outweighs the others
WIDTH, HEIGHT = 660, 460
STYLE = (
    ".embedding-map text{fill:var(--ink)}.embedding-map .near{opacity:0;pointer-events:none}"
    ".embedding-map a{text-decoration:none;outline:none}"
    ".embedding-map a:hover .near,.embedding-map a:focus .near{opacity:1}"
    ".embedding-map a:hover .mark,.embedding-map a:focus .mark{stroke:var(--ink);stroke-width:2}"
)


class Look(NamedTuple):
    """How a kind of words is shown: its mark, how much of the accent its colour has, and its name in Chinese."""

    mark: str
    share: int  # in per cent
    chinese: str

    @property
    def colour(self) -> str:
        """The mark tells the kind, too, for who cannot tell colours."""
        return f"color-mix(in srgb,var(--accent) {self.share}%,var(--quiet))"


LOOKS = {
    "country": Look("●", 0, "国家"),
    "capital": Look("■", 100, "首都"),
    "language": Look("▲", 60, "语言"),
    "currency": Look("◆", 80, "货币"),
    "continent": Look("★", 40, "大洲"),
    "family": Look("■", 100, "家人"),
    "animal": Look("▲", 60, "动物"),
    "colour": Look("◆", 80, "颜色"),
    "day": Look("★", 40, "星期"),
}


@dataclass(frozen=True)
class Point:
    """A token: its word, its kind, its place from 0 to 1, and the tokens nearest to it among all that are shown."""

    word: str
    kind: str
    x: float
    y: float
    near: str


def everyday_words(tokenizer: Any) -> dict[int, tuple[str, str]]:
    """The everyday words: their word and kind by id."""
    found = {}
    for kind, words in EVERYDAY.items():
        for word in words:
            (id,) = tokenizer.encode(f" {word}", special_tokens=False)
            found[id] = (word, kind)
    return found


def atlas_names(tokenizer: Any) -> dict[int, tuple[str, str]]:
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


def projected(
    loaded: zoo.Loaded, words: Mapping[int, tuple[str, str]], left_kind: str, upper_kind: str
) -> tuple[list[Point], float]:
    """The points, on the two axes along which the vectors differ most, and the share of the variance on these.

    `words` has word and kind by id. An axis has no sign: the mean of `left_kind` is at the left, of `upper_kind` above.
    """
    unit = unit_rows(loaded, list(words))
    left, sizes, _ = np.linalg.svd(unit - unit.mean(axis=0), full_matrices=False)
    places = left[:, :2] * sizes[:2]
    kinds = np.array([kind for _, kind in words.values()])
    for axis, kind in enumerate((left_kind, upper_kind)):
        places[:, axis] *= -np.sign(places[kinds == kind, axis].mean())
    low, high = places.min(axis=0), places.max(axis=0)
    alike = unit @ unit.T
    named = list(words.values())
    points = []
    for index, ((word, kind), place) in enumerate(zip(named, (places - low) / (high - low), strict=True)):
        order = [other for other in np.argsort(-alike[index]) if other != index][:4]
        near = ", ".join(f"{named[other][0]} {alike[index, other]:.2f}" for other in order)
        points.append(Point(word, kind, round(float(place[0]), 4), round(float(place[1]), 4), near))
    return points, float((sizes[:2] ** 2).sum() / (sizes**2).sum())


def unit_rows(loaded: zoo.Loaded, ids: Sequence[int]) -> np.ndarray:
    """The embeddings of these tokens, divided by their lengths: (N, D)."""
    rows = np.array(loaded.model.embedding.vectors(mx.array(ids)[None])[0].astype(mx.float32))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def of_pocket() -> tuple[list[Point], float]:
    """The points of the pocket, countries at the left and languages above, and the share of the variance."""
    loaded = zoo.load("llama")
    return projected(loaded, atlas_names(loaded.tokenizer), "country", "language")


def of_smollm2(loaded: zoo.Loaded) -> tuple[list[Point], float]:
    """The points of SmolLM2, days at the left and countries above, and the share of the variance."""
    return projected(loaded, everyday_words(loaded.tokenizer), "day", "country")


def share() -> float:
    """The share of the vectors' variance that the two axes of the pocket's picture hold."""
    return of_pocket()[1]


def draw(language: str, model: str = "pocket") -> str:
    """A scatter whose points tell their word, and the nearest ones, when they are pointed at or focused.

    Of the pocket, or of the model "real", SmolLM2, as it was recorded.
    """
    if model == "real":
        points = [Point(**point) for point in REAL_MODEL["embeddings"]["points"]]
        label = said(language, "Embeddings of SmolLM2 on two axes", "SmolLM2 的嵌入在两个轴上的投影")
    else:
        points, _ = of_pocket()
        label = said(language, "Embeddings of the pocket on two axes", "袖珍模型的嵌入在两个轴上的投影")
    kinds = list(dict.fromkeys(point.kind for point in points))
    labelled = with_room(points, kinds)
    drawn = [mark(point, language, labelled.get(point)) for point in points]
    legend = []
    for number, kind in enumerate(kinds):
        x, look = 40 + number * WIDTH / len(kinds), LOOKS[kind]
        word = said(language, kind, look.chinese)
        legend.append(
            f'<text x="{x:.0f}" y="16" font-size="15" style="fill:{look.colour}">{look.mark}</text>'
            f'<text x="{x + 20:.0f}" y="15" font-size="14" fill="var(--ink)">{word}</text>'
        )
    return (
        f"<style>{STYLE}</style>{svg(WIDTH, 22, legend)}"
        f'<svg xmlns="http://www.w3.org/2000/svg" class="embedding-map" viewBox="0 0 {WIDTH} {HEIGHT + 40}" width="{WIDTH}" '
        f'style="min-width:520px;max-width:100%;height:auto;display:block;margin:0 auto;font-family:{FONT}" '
        f'role="group" aria-label="{label}">{"".join(drawn)}</svg>'
    )


def place(point: Point) -> tuple[float, float]:
    """Where a point is in the picture."""
    return 24 + point.x * (WIDTH - 100), 16 + point.y * (HEIGHT - 32)


def with_room(points: list[Point], kinds: list[str]) -> dict[Point, bool]:
    """The points whose words can be written without covering another word or mark, and whether at the mark's left.

    The words of the others show when they are asked for.
    """
    taken = [(x - 8, y - 8, x + 8, y + 8) for x, y in map(place, points)]
    found = {}
    for point in sorted(points, key=lambda point: -kinds.index(point.kind)):
        x, y = place(point)
        width = 3 + 7.2 * len(point.word)
        for at_left, start in ((False, x + 9), (True, x - 9 - width)):
            box = (start, y - 7, start + width, y + 7)
            if start >= 0 and not any(
                box[0] < right and left < box[2] and box[1] < low and high < box[3]
                for left, high, right, low in taken
            ):
                taken.append(box)
                found[point] = at_left
                break
    return found


def mark(point: Point, language: str, at_left: bool | None) -> str:
    """One point, its word at its left or right, and the line about it at the foot; None: the word shows when asked for."""
    look = LOOKS[point.kind]
    x, y = place(point)
    nearest = said(language, "nearest", "最近")
    about = said(language, f"{point.word} ({point.kind})", f"{point.word}（{look.chinese}）")
    foot = f"{escape(about)} · {nearest}: {escape(point.near)}"
    shown = ' class="near"' if at_left is None else ""
    word = f'x="{x - 10:.0f}" text-anchor="end"' if at_left else f'x="{x + 10:.0f}"'
    return (
        f'<a tabindex="0" role="img" aria-label="{foot}">'
        f'<text class="mark" x="{x:.0f}" y="{y + 5:.0f}" font-size="15" text-anchor="middle" style="fill:{look.colour}">'
        f'{look.mark}</text><text {word} y="{y + 4:.0f}" font-size="13"{shown}>{escape(point.word)}</text>'
        f'<text class="near" x="24" y="{HEIGHT + 24}" font-size="15">{foot}</text></a>'
    )
