"""The map of the tour: what a prompt is at each stage, in numbers of the pocket, and the page that explains it."""

from __future__ import annotations

from typing import Any

import numpy as np

import zoo
from figures.parts import FONT, line, rect, text
from figures.tour_marks import PROMPT, arrow, chip_width, grid, pieces, said, shade

WIDTH, LEFT, RIGHT = 442.0, 76.0, 430.0
BEAT = 78.0  # from one stage to the next
LAYER, HEAD = 1, 2
ROW = 220.0  # the room for a row of words


def draw(language: str) -> str:
    """Stages from text to text, each a link; the way back at the left."""
    loaded = zoo.load("llama")
    prompt = PROMPT[language]
    trace = zoo.trace(loaded, prompt, max_tokens=1)
    ids = loaded.tokenizer.encode(prompt)
    names = pieces(loaded.tokenizer, ids)
    choice = trace.choices(3)[0]
    at = f"layers.{LAYER}"
    mixer = loaded.model.layers[LAYER].mixer
    group = HEAD * mixer.kv_heads // mixer.heads
    rotated = trace[f"{at}.mixer.queries"][HEAD], trace[f"{at}.mixer.keys"][group]
    plain = tuple(
        np.array(trace[f"{at}.mixer.{name}"])[:, head * mixer.head_dim : (head + 1) * mixer.head_dim]
        for name, head in (("query", HEAD), ("key", group))
    )
    stages = [
        ("tokens", said(language, "Tokens", "词元"), row_of(names, ids)),
        ("embeddings", said(language, "Embeddings", "嵌入"), strips(trace["embedding.vectors"][: len(ids)])),
        ("attention", said(language, "Queries, keys", "查询与键"), halves(plain, len(ids))),
        ("positions", said(language, "Positions", "位置编码"), halves(rotated, len(ids))),
        ("attention", said(language, "Attention", "注意力"), pattern_of(trace, len(ids))),
        (
            "feedforward",
            said(language, "Feed-forward", "前馈网络"),
            strips(trace[f"{at}.feedforward"][: len(ids)]),
        ),
        (
            "residuals-and-norms",
            said(language, "Residuals", "残差与归一化"),
            strips(trace[at][: len(ids)]),  # what came in, plus attention's result, plus the feed-forward's
        ),
        ("logits", "Logits", strips(trace["head"][-1:], 60)),
        ("sampling", said(language, "Sampling", "采样"), bars(loaded.tokenizer, choice)),
        ("text", said(language, "Text", "文本"), wrote(prompt, loaded.tokenizer.decode([choice.token]))),
    ]
    drawn = [chip_of_text(prompt)]
    y = 46.0
    for page, name, picture in stages:
        drawn.append(arrow((LEFT + RIGHT) / 2, y, (LEFT + RIGHT) / 2, y + 18))
        drawn.append(stage(page, name, picture, y + 18))
        y += BEAT
    count = len(loaded.model.layers)
    top, bottom = 46 + 2 * BEAT + 10, 46 + 7 * BEAT + 4
    around = rect(
        LEFT - 8, top, RIGHT - LEFT + 16, bottom - top, fill="none", line="var(--accent)", radius=10
    )
    drawn.insert(
        0,
        around
        + text(LEFT - 14, (top + bottom) / 2 + 5, f"× {count}", anchor="end", bold=True, colour="accent"),
    )
    return picture_of(drawn, y, loop(language, y))


def picture_of(drawn: list[str], height: float, back: str) -> str:
    """The whole as SVG; its links can be reached by keyboard."""
    style = (
        "<style>.tour-map a{text-decoration:none}.tour-map a:hover rect,.tour-map a:focus-visible rect"
        "{stroke:var(--accent)!important;stroke-width:2}</style>"
    )
    return (
        f'{style}<svg xmlns="http://www.w3.org/2000/svg" class="tour-map" viewBox="0 0 {WIDTH:.0f} {height + 6:.0f}" '
        f'width="{WIDTH * 1.25:.0f}" style="max-width:100%;height:auto;display:block;margin:0 auto;font-family:{FONT}">'
        f"{back}{''.join(drawn)}</svg>"
    )


def stage(page: str, name: str, picture: str, y: float) -> str:
    """A box that leads to its page: the name at the left, what the prompt is at the right."""
    box = rect(LEFT, y, RIGHT - LEFT, BEAT - 24, radius=8)
    name_at = text(LEFT + 12, y + 32, name, bold=True, size=15)
    return f'<a href="{page}.html">{box}{name_at}<g transform="translate({LEFT + 132} {y})">{picture}</g></a>'


def chip_of_text(prompt: str) -> str:
    """The text that comes in."""
    middle = (LEFT + RIGHT) / 2
    return rect(LEFT, 6, RIGHT - LEFT, 36, fill="var(--tint)", radius=18) + text(
        middle, 30, prompt, anchor="middle", size=15
    )


def row_of(names: list[str], ids: list[int] | None = None) -> str:
    """Words side by side, each as wide as it needs, over its id where there are ids."""
    widths = [chip_width(name, 12) for name in names]
    drawn, left = [], 0.0
    for index, name in enumerate(names):
        step = widths[index] * ROW / sum(widths)
        drawn.append(text(left + step / 2, 25 if ids else 33, name, anchor="middle", size=12))
        if ids:
            drawn.append(text(left + step / 2, 43, str(ids[index]), anchor="middle", size=12, colour="quiet"))
        left += step
    return "".join(drawn)


def strips(values: Any, shown: int = 32) -> str:
    """Vectors as rows of coloured cells, their first numbers only."""
    rows = np.array(values, dtype=np.float32)[:, :shown]
    height = 42 / len(rows)
    return grid(rows, 0, 6, 216 / shown, height, float(np.abs(rows).max()))


def halves(values: Any, length: int) -> str:
    """Queries at the left and keys at the right, as rows of coloured cells."""
    rows = [np.array(each, dtype=np.float32)[:length] for each in values]
    most = max(float(np.abs(each).max()) for each in rows)
    width = 104 / rows[0].shape[1]
    return "".join(grid(each, 112 * index, 6, width, 42 / length, most) for index, each in enumerate(rows))


def pattern_of(trace: Any, length: int) -> str:
    """Where the heads of a layer look, one small map each."""
    maps = np.array(trace[f"layers.{LAYER}.mixer.pattern"])[:, :length, :length]
    return "".join(
        grid(pattern, head * 57, 6, 42 / length, 42 / length, 1.0) for head, pattern in enumerate(maps)
    )


def bars(tokenizer: Any, choice: Any) -> str:
    """The likeliest tokens with their probabilities."""
    drawn = []
    for index, (id, probability) in enumerate(
        zip(choice.candidates, choice.stages[0].probabilities, strict=False)
    ):
        y = 5 + index * 15
        word = tokenizer.decode([id]).replace(" ", "␣")
        drawn.append(text(44, y + 12, word, anchor="end", size=12.5))
        drawn.append(rect(50, y + 2, max(1.0, 116 * probability), 10, fill=shade(1.0), line="none", radius=2))
        drawn.append(text(216, y + 12, f"{probability:.3f}", anchor="end", size=12, colour="quiet"))
    return "".join(drawn)


def wrote(prompt: str, token: str) -> str:
    """The end of the text with its new token."""
    tail = prompt[-8:].lstrip()
    before = text(100, 33, f"…{tail}", anchor="end", size=14, colour="quiet")
    return before + text(102, 33, token.replace(" ", "␣"), size=14, bold=True, colour="accent")


def loop(language: str, height: float) -> str:
    """The way back: the new token is appended, and what was computed is in the cache."""
    start = height - BEAT + 46
    cache = f'<a href="cache.html">{text(0, 0, said(language, "append, with the cache", "追加词元，用 KV 缓存"), anchor="middle", size=14, colour="accent")}</a>'
    return (
        line([(LEFT, start), (26, start), (26, 24), (LEFT - 8, 24)], colour="accent", width=1.8)
        + f'<polygon points="{LEFT - 8},19 {LEFT - 8},29 {LEFT},24" style="fill:var(--accent)"/>'
        + f'<g transform="translate(18 {height / 2}) rotate(-90)">{cache}</g>'
    )
