"""LLaDA's pocket writes an answer: what it predicts in each pass for each mask, and which prediction it keeps."""

from __future__ import annotations

from functools import cache
from typing import Any

from figures.parts import rect, svg, text
from figures.tour_marks import said, shade
from zoo.describe.diagram.text_width import text_width

PROMPT, TOKENS = "The official language of Brazil is", 6
DOWN, LEFT, TOP = 30, 58, 28


@cache
def passes() -> list[list[tuple[str, float, str]]]:
    """A row for each pass: of every token of the answer its text, its probability, and whether it "was", is "kept" or "masked"."""
    import zoo
    from zoo.inspect.trace_view.summaries import unmasking_passes

    loaded = zoo.load("llada")
    trace = zoo.trace(loaded, PROMPT, max_tokens=TOKENS, only="head")

    def read(id: int) -> str:
        return loaded.tokenizer.decode([id], skip_special_tokens=False).replace(" ", "␣")

    rows = []
    for each in unmasking_passes(trace):
        start = len(each.ids) - TOKENS
        predicted = {found.position: found for found in each.predictions}
        row = []
        for position in range(start, len(each.ids)):
            found: Any = predicted.get(position)
            if found is None:
                row.append((read(each.ids[position]), 1.0, "was"))
            else:
                state = "kept" if position in each.kept else "masked"
                row.append((read(found.tokens[0]), float(found.probabilities[0]), state))
        rows.append(row)
    return rows


def draw(language: str) -> str:
    """A row a pass: predictions shaded by their probability, framed where they are kept."""
    rows = [
        [
            (words.replace("<|endoftext|>", said(language, "end", "结束")), sure, state)
            for words, sure, state in row
        ]
        for row in passes()
    ]
    widths = [max(text_width(row[column][0], 13) for row in rows) + 14 for column in range(TOKENS)]
    title = said(language, "prediction for each mask", "对每个掩码的预测")
    parts = [text(LEFT, 15, title, size=13, bold=True)]
    for number, row in enumerate(rows):
        y, x = TOP + number * DOWN, float(LEFT)
        parts.append(
            text(
                0,
                y + 18,
                said(language, f"pass {number + 1}", f"第 {number + 1} 遍"),
                size=13,
                colour="quiet",
            )
        )
        for (words, sure, state), width in zip(row, widths, strict=True):
            fill = "var(--ground)" if state == "was" else shade(sure, readable=True)
            border = "var(--accent)" if state == "kept" else "transparent"
            parts.append(
                rect(x + 1, y + 2, width - 2, DOWN - 4, fill=fill, line=border, title=f"{words}: {sure:.4f}")
            )
            bold = state != "masked"
            parts.append(text(x + width / 2, y + 19, words, size=13, anchor="middle", bold=bold))
            x += width
    return svg(LEFT + sum(widths) + 2, TOP + len(rows) * DOWN + 4, parts)
