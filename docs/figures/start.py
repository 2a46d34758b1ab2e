"""The pictures of the start page: what the zoo prints, what happens inside, and what a new architecture takes."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from html import escape

import numpy as np

import zoo
from figures.parts import number, rect, svg, text
from figures.tour_marks import PROMPT, grid, pieces, shade
from zoo.describe.diagram.text_width import text_width

WIDTH, HEIGHT = 224.0, 132.0
MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"
SIZE, ADVANCE, EDGE = 10.0, 6.05, 8.0  # of letters of one width, and the margin beside them
COLUMNS = int((WIDTH - 2 * EDGE) / ADVANCE)
TOKENS = 12  # that are written at most
COUNTRY = {"en": "␣China", "zh": "中"}
CANDIDATES = 3
STEP = re.compile(r"(?<=\()|(?=\.)|(?<=, )")  # where a line of code may end


def draw(language: str, name: str) -> str:
    """The picture "run", "look" or "build"."""
    return {"run": run, "look": look, "build": build}[name](language)


def run(language: str) -> str:
    """A terminal: the command of the README, and what it prints."""
    loaded = zoo.load("llama")
    shown = []
    for prompt in (PROMPT[language], PROMPT["en" if language == "zh" else "zh"]):
        answer = zoo.generate(loaded, prompt, max_tokens=TOKENS).text.strip()
        first = re.split(r"(?<=[.。])", answer)[0]
        shown += [("$ zoo run llama \\", "ink"), (f'  "{prompt}"', "ink"), (first, "accent")]
    parts = [rect(1, 1, WIDTH - 2, HEIGHT - 2, fill="var(--ground)", radius=8)]
    return picture(
        [*parts, *(mono(EDGE, 24 + index * 18, words, colour) for index, (words, colour) in enumerate(shown))]
    )


def look(language: str) -> str:
    """The head that looks most at the country from the last token: its pattern, and the likeliest next tokens."""
    loaded = zoo.load("llama")
    trace = zoo.trace(loaded, PROMPT[language], max_tokens=1)
    names = pieces(loaded.tokenizer, trace.prompt)
    country = names.index(COUNTRY[language])
    heads = [
        np.array(head)[: len(names), : len(names)]
        for layer in range(len(loaded.model.layers))
        for head in trace[f"layers.{layer}.mixer.pattern"]
    ]
    pattern = max(heads, key=lambda head: float(head[-1, country]))
    cell = 108 / len(names)
    left = max(text_width(name, 11) for name in names) + 8
    parts = [grid(pattern, left, 12, cell, cell, 1.0)]
    for row, name in enumerate(names):
        y = 12 + row * cell + cell / 2 + 4
        strong = row in (country, len(names) - 1)
        parts.append(text(left - 5, y, name, size=11, anchor="end", bold=strong))
    choice, from_x = trace.choices(CANDIDATES)[0], left + 108 + 14
    chances = zip(choice.candidates, choice.stages[0].probabilities, strict=False)
    for row, (token, chance) in enumerate(list(chances)[:CANDIDATES]):
        y = 44 + row * 24
        word = loaded.tokenizer.decode([token]).replace(" ", "␣")
        parts.append(text(from_x, y, word, size=11, bold=row == 0, colour="ink"))
        parts.append(
            rect(from_x, y + 3, max(1.0, chance * (WIDTH - from_x)), 7, fill=shade(1), line="none", radius=2)
        )
    return picture(parts)


def build(language: str) -> str:
    """The code of Mistral's recipe, in lines that fit."""
    import zoo_llama

    tree = ast.parse(textwrap.dedent(inspect.getsource(zoo_llama.mistral))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    tree.body = [
        one for one in tree.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
    ]
    lines = [
        piece for line in ast.unparse(tree).replace("    ", "  ").splitlines() for piece in wrapped(line)
    ]
    parts = [rect(1, 1, WIDTH - 2, HEIGHT - 2, fill="var(--ground)", radius=8)]
    top = (HEIGHT - len(lines) * 18) / 2 + 13
    parts += [
        mono(EDGE, top + index * 18, line, "accent" if index == len(lines) - 1 else "ink")
        for index, line in enumerate(lines)
    ]
    return picture(parts)


def wrapped(line: str) -> list[str]:
    """A line of code cut so that each part fits the picture, later parts further in."""
    indent = len(line) - len(line.lstrip())
    found, current = [], ""
    for piece in STEP.split(line):
        if current.strip() and len(current) + len(piece) > COLUMNS:
            found.append(current.rstrip())
            current = " " * (indent + 1)
        current += piece
    return [*found, current]


def mono(x: float, y: float, words: str, colour: str) -> str:
    """Words in letters of one width, spaces kept."""
    return (
        f'<text x="{number(x)}" y="{number(y)}" font-size="{number(SIZE)}" xml:space="preserve" '
        f'style="font-family:{MONO};white-space:pre" fill="var(--{colour})">{escape(words)}</text>'
    )


def picture(parts: list[str]) -> str:
    """The parts as SVG, as wide as its place."""
    return svg(WIDTH, HEIGHT, parts).replace(f'width="{number(WIDTH)}" style="', 'width="100%" style="', 1)
