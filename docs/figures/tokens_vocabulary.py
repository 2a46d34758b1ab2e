"""What the size of a vocabulary trades: tokens a text takes against the rows of the embedding table."""

from __future__ import annotations

from itertools import islice

from figures.parts import line, svg, text
from figures.tour_marks import panels, said
from zoo.training.corpora import corpus
from zoo.training.vocabulary import train_tokenizer

SIZES = (261, 300, 400, 600, 1000, 1800)
DOCUMENTS = 800  # that each tokenizer learns from
WIDTH = 128  # of the pocket models
LEFT, TOP, RIGHT, BOTTOM = 24.0, 40.0, 304.0, 190.0


def draw(language: str) -> str:
    """Two curves over the vocabulary: tokens of the held-out sentences, and parameters of the embedding."""
    texts = corpus("atlas", "generate")
    learned, held_out = list(islice(texts.sample(), DOCUMENTS)), list(texts.validation())
    counts = []
    for size in SIZES:
        tokenizer = train_tokenizer(learned, size)
        counts.append(sum(len(found.ids) for found in tokenizer.encode_batch(held_out)) / len(held_out))
    return panels(
        [
            curve(said(language, "tokens a sentence", "每句的词元数"), counts, language, 48),
            curve(
                said(language, "thousand embedding parameters", "嵌入表的参数（千）"),
                [size * WIDTH / 1000 for size in SIZES],
                language,
                256,
            ),
        ]
    )


def curve(title: str, values: list[float], language: str, top: float) -> str:
    """One curve, from 0 to `top` and beyond, its points marked with their values."""
    most = max(top, *values)
    across = [LEFT + (RIGHT - LEFT) * size / SIZES[-1] for size in SIZES]
    up = [BOTTOM - (BOTTOM - TOP) * value / most for value in values]
    points = list(zip(across, up, strict=True))
    drawn = [
        line([(LEFT, TOP), (LEFT, BOTTOM), (RIGHT, BOTTOM)], colour="edge"),
        line(points, colour="accent", width=2),
        text(8, 18, title, size=14, bold=True),
        text(
            (LEFT + RIGHT) / 2,
            BOTTOM + 36,
            said(language, "tokens in the vocabulary", "词表大小"),
            anchor="middle",
        ),
    ]
    for (x, y), size, value in zip(points, SIZES, values, strict=True):
        drawn.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" style="fill:var(--accent)"><title>{size}: {value:.1f}</title></circle>'
        )
    for index in (0, len(SIZES) - 1):
        x, y = points[index]
        side = "start" if index == 0 and values[0] > values[-1] else "middle"
        drawn.append(text(x, BOTTOM + 17, f"{SIZES[index]:,}", anchor="middle", colour="quiet"))
        drawn.append(
            text(
                x + (8 if index == 0 and values[0] > values[-1] else 0),
                y - (4 if index == 0 and values[0] > values[-1] else 11),
                f"{values[index]:.1f}",
                anchor=side,
            )
        )
    return svg(340, 232, drawn)
