"""Which queries use which keys and values: multi-head, grouped-query, multi-query, latent attention; of eight heads."""

from __future__ import annotations

from figures.parts import line, rect, svg, text
from figures.tour_marks import panels, said

HEADS = 8
STEP = 38.0
LEFT = 14.0


def draw(language: str) -> str:
    """Four small pictures: heads above, what is kept of each token below."""
    pictures = [
        shared(said(language, name, chinese), groups, language)
        for name, chinese, groups in (
            ("multi-head", "多头", 8),
            ("grouped-query", "分组查询", 2),
            ("multi-query", "多查询", 1),
        )
    ]
    return panels([*pictures, latent(language)])


def queries() -> list[str]:
    """The row of query heads."""
    return [
        rect(centre(index) - 15, 30, 30, 26)
        + text(centre(index), 48, f"q{index + 1}", anchor="middle", size=13)
        for index in range(HEADS)
    ]


def centre(index: float) -> float:
    """The middle of a head's place."""
    return LEFT + (index + 0.5) * STEP


def shared(title: str, groups: int, language: str) -> str:
    """Heads that share `groups` pairs of keys and values."""
    size = HEADS // groups
    drawn = [text(LEFT, 18, title, bold=True), *queries()]
    for group in range(groups):
        middle = centre(group * size + (size - 1) / 2)
        drawn += [
            line([(centre(group * size + index), 56), (middle, 104)], colour="line") for index in range(size)
        ]
        drawn.append(pair(middle, f"k{group + 1}", f"v{group + 1}"))
    drawn.append(kept(said(language, f"kept: {groups} × (k, v)", f"缓存：{groups} 组 (k, v)")))
    return svg(LEFT * 2 + HEADS * STEP, 178, drawn)


def pair(middle: float, key: str, value: str) -> str:
    """A key above its value, in a box that stands out."""
    box = rect(middle - 15, 104, 30, 42, fill="var(--tint)", line="var(--accent)")
    return (
        box
        + text(middle, 121, key, anchor="middle", size=13)
        + text(middle, 139, value, anchor="middle", size=13)
    )


def kept(words: str) -> str:
    """The line below: what is kept of a token."""
    return text(LEFT, 170, words, colour="quiet")


def latent(language: str) -> str:
    """Heads whose keys and values are made of one short vector."""
    middle = centre((HEADS - 1) / 2)
    drawn = [text(LEFT, 18, said(language, "latent", "潜在"), bold=True), *queries()]
    for index in range(HEADS):
        x = centre(index)
        drawn.append(line([(x, 56), (x, 66)], colour="line"))
        drawn.append(text(x, 80, "k v", anchor="middle", size=12, colour="quiet"))
        drawn.append(line([(x, 86), (middle, 112)], colour="line", dashed=True))
    drawn.append(rect(middle - 80, 112, 100, 30, fill="var(--tint)", line="var(--accent)"))
    drawn.append(text(middle - 30, 132, said(language, "latent c", "潜在向量 c"), anchor="middle", size=13))
    drawn.append(rect(middle + 26, 112, 66, 30, fill="var(--tint)", line="var(--accent)"))
    drawn.append(text(middle + 59, 132, said(language, "RoPE key", "RoPE 键"), anchor="middle", size=13))
    drawn.append(kept(said(language, "kept: c and one rotated key", "缓存：c 与一个旋转键")))
    return svg(LEFT * 2 + HEADS * STEP, 178, drawn)
