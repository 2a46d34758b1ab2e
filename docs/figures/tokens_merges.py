"""How byte-pair encoding builds a word: the merges of the pocket's tokenizer, in order."""

from __future__ import annotations

import json
from importlib.resources import files
from itertools import pairwise

from figures.parts import svg, text
from figures.tour_marks import chip, chip_width, panels, said

WORD = " capital"
ROW = 36


def draw(language: str) -> str:
    """The word as bytes, and after each merge that applies to it, with the number of the merge in the learned list."""
    stages = merged(WORD)
    heads = said(language, "merge", "合并规则")
    drawn = []
    for row, (rank, pair, parts) in enumerate(stages):
        y = 8 + row * ROW
        x = 8.0
        for part in parts:
            shown = part.replace("Ġ", "␣")
            width = max(28.0, chip_width(shown))
            new = pair is not None and part == "".join(pair)
            drawn.append(chip(x, y, shown, width=width, new=new))
            x += width + 4
        said_rank = said(language, "bytes", "字节") if rank is None else f"{heads} {rank:,}"
        drawn.append(text(336, y + 18, said_rank, anchor="end", colour="quiet", size=14))
    return panels([svg(340, len(stages) * ROW + 8, drawn)])


def merged(word: str) -> list[tuple[int | None, tuple[str, str] | None, list[str]]]:
    """Each state of a word of ASCII letters: the rank of the merge that led to it, its pair, and the parts."""
    path = files("zoo_llama").joinpath("pockets", "llama", "tokenizer.json")
    rules = json.loads(path.read_text(encoding="utf-8"))["model"]["merges"]
    ranks = {tuple(pair): rank for rank, pair in enumerate(rules, start=1)}
    parts = list(word.replace(" ", "Ġ"))
    states: list[tuple[int | None, tuple[str, str] | None, list[str]]] = [(None, None, list(parts))]
    while True:
        pairs = [pair for pair in pairwise(parts) if pair in ranks]
        if not pairs:
            return states
        best = min(pairs, key=lambda pair: ranks[pair])
        parts = joined(parts, best)
        states.append((ranks[best], best, list(parts)))


def joined(parts: list[str], pair: tuple[str, str]) -> list[str]:
    """The parts with every occurrence of the pair made one, from the left."""
    found: list[str] = []
    for part in parts:
        if found and (found[-1], part) == pair:
            found[-1] += part
        else:
            found.append(part)
    return found
