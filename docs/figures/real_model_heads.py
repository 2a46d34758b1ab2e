"""Heads of SmolLM2 with three habits, found by measuring all of its heads on one prompt, and the weight of the first token."""

from __future__ import annotations

from figures.attention_heads import panel
from figures.plots import Axes
from figures.real_model import POCKET, REAL, REAL_MODEL, by_depth
from figures.tour_marks import panels, said


def draw(language: str, text: str = "attention") -> str:
    """The maps of the heads, a row for each query, and the curves; of the text "chinese" the first two maps alone."""
    found = REAL_MODEL["traces"][text]
    titles = {
        "before": said(language, "the token before", "前一个词元"),
        "induction": said(language, "after the same token", "相同词元之后"),
        "first": said(language, "the first token", "第一个词元"),
    }
    maps = [
        panel(titles[habit], head["address"], head["pattern"], found["pieces"])
        for habit, head in found["heads"].items()
    ]
    return panels([*maps, curves(language)] if text == "attention" else maps[:2])


def curves(language: str) -> str:
    """The mean weight of the first token, by depth."""
    axes = Axes((0, 1), (0, 1), width=340, height=270, right=36)
    x_ticks = {0.0: said(language, "first layer", "第一层"), 1.0: said(language, "last layer", "最后一层")}
    title = said(language, "Weight of the first token", "第一个词元的权重")
    axes.frame(title, x_ticks, {0.0: "0", 0.5: "0.5", 1.0: "1"}, said(language, "depth", "深度"))
    first = REAL_MODEL["traces"]["attention"]["first"]
    return by_depth(
        axes, language, {name: first[name] for name in (POCKET, REAL)}, {POCKET: 0.03, REAL: 0.92}
    )
