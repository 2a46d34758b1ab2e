"""How SmolLM2 drew one token: the likeliest tokens after each step of the chain."""

from __future__ import annotations

from figures.parts import rect, svg, text
from figures.real_model import REAL_MODEL
from figures.tour_marks import said

LEFT, TOP, COLUMN, ROW, BAR = 84, 62, 112, 20, 66
SHOWN = 10


def draw(language: str) -> str:
    """A row for each token, a column for each step, with the number of tokens that are left below it."""
    found = REAL_MODEL["traces"]["sampling"]
    names = found["pieces"][:SHOWN]
    kept = said(language, "tokens left", "剩余词元")
    bottom = TOP + ROW * len(names) + 16
    parts = [text(0, 15, f"{found['prompt']} …", size=13, bold=True)]
    parts.append(text(LEFT - 8, bottom, kept, size=12, colour="quiet", anchor="end"))
    for row, name in enumerate(names):
        parts.append(text(LEFT - 8, TOP + ROW * row + 14, name, size=12, anchor="end"))
    for column, stage in enumerate(found["stages"]):
        x = LEFT + COLUMN * column
        name = said(language, "the model", "模型") if stage["name"] == "model" else stage["name"]
        setting = "" if stage["setting"] is None else f"{stage['setting']:g}"
        parts += [text(x, 38, name, size=12), text(x, 53, setting, size=12, colour="quiet")]
        parts.append(text(x, bottom, f"{stage['kept']:,}", size=12, bold=True))
        for row, chance in enumerate(stage["chances"][:SHOWN]):
            y = TOP + ROW * row
            if chance:
                parts.append(
                    rect(x, y + 3, max(1, BAR * chance), 13, fill="var(--accent)", line="none", radius=1)
                )
                parts.append(text(x + 4 + BAR * chance, y + 14, f"{chance:.2f}", size=11, colour="quiet"))
    return svg(LEFT + COLUMN * len(found["stages"]), bottom + 6, parts)
