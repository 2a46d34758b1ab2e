"""Generated tokens, their bytes, and the text that each makes certain."""

from __future__ import annotations

import zoo
from figures.parts import rect, svg, text

PROMPT, TOKENS = "柬埔寨的首都是", 6
BYTE, GAP, LEFT = 34, 10, 62
SAID = {
    "en": ("token id", "bytes", "new text"),
    "zh": ("词元编号", "字节", "新增文本"),
}
NOTHING = {"en": "(none yet)", "zh": "（尚无）"}


def draw(language: str) -> str:
    """A column a token: its id, its bytes in hexadecimal, and the text of its step."""
    loaded = zoo.load("llama")
    steps = list(zoo.stream(loaded, PROMPT, max_tokens=TOKENS))
    parts = [
        text(LEFT - 8, y, words, size=12, colour="quiet", anchor="end")
        for y, words in zip((21, 58, 102), SAID[language], strict=True)
    ]
    x = LEFT
    for step in steps:
        values = loaded.tokenizer.token_bytes(step.token) or b""
        width = max(BYTE * len(values), 66)
        middle = x + width / 2
        parts += [rect(x, 2, width, 28), text(middle, 21, f"{step.token}", size=13, anchor="middle")]
        whole = len(values.decode("utf-8", "ignore").encode()) == len(values)
        for number, value in enumerate(values):
            left = middle + BYTE * (number - len(values) / 2)
            edge = "var(--edge)" if whole else "var(--accent)"
            parts.append(
                rect(left + 1, 39, BYTE - 2, 28, fill="var(--ground)" if whole else "var(--tint)", line=edge)
            )
            parts.append(text(left + BYTE / 2, 58, f"{value:02X}", size=13, anchor="middle"))
        words, colour = (step.text, "ink") if step.text else (NOTHING[language], "quiet")
        size = 20 if step.text else 12
        parts.append(text(middle, 103, words, size=size, colour=colour, anchor="middle"))
        x += width + GAP
    return f'<div style="min-width:{x:.0f}px">{svg(x, 114, parts)}</div>'
