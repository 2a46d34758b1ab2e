"""The look-up: the ids of a prompt, and the row of the pocket's embedding table that each of them selects."""

from __future__ import annotations

import numpy as np

import zoo
from figures.parts import svg, text
from figures.tour_marks import PROMPT, chip, grid, panels, pieces, said

SHOWN = 32  # columns of the table
CELL = 5.2
ROW = 34


def draw(language: str) -> str:
    """One line a token: its piece, its id, and the first numbers of its row as coloured cells."""
    loaded = zoo.load("llama")
    ids = loaded.tokenizer.encode(PROMPT[language])
    table = np.array(loaded.model.embedding.tokens.weight, dtype=np.float32)
    width = table.shape[1]
    rows = table[ids][:, :SHOWN]
    most = float(np.abs(rows).max())
    heads = (
        (6, said(language, "token", "词元")),
        (92, said(language, "id", "编号")),
        (
            144,
            said(language, f"its row: {SHOWN} of {width} numbers", f"对应的行：{width} 维中的前 {SHOWN} 维"),
        ),
    )
    drawn = [text(x, 16, words, colour="quiet", size=13) for x, words in heads]
    for number, (piece, id, row) in enumerate(zip(pieces(loaded.tokenizer, ids), ids, rows, strict=True)):
        y = 28 + number * ROW
        drawn.append(chip(4, y, piece, width=78))
        drawn.append(text(92, y + 18, str(id)))
        drawn.append(grid([row], 144, y + 3, CELL, 20, most))
    return panels([svg(330, 34 + len(ids) * ROW, drawn)])
