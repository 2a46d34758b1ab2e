"""The hypotheses that a beam search keeps at each step, and the greedy text beside them."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

import zoo
from figures.parts import line, rect, svg, text
from zoo.generation.loop.batch_decoder import BatchDecoder
from zoo.generation.loop.prompt import tokenize_prompt
from zoo.generation.sampling import processors_of
from zoo.generation.sampling.logits import logprobs
from zoo.generation.settings import Settings
from zoo.generation.strategies.beam import BeamConfig, BeamSearch, run_searches

PROMPT, BEAMS, LIMIT = "Egypt", 3, 12
COLUMN, ROW, WIDE, HIGH = 88, 62, 74, 38
SAID = {
    "en": {"step": "step {}", "greedy": "greedy", "beams": "beam search"},
    "zh": {"step": "第 {} 步", "greedy": "贪心", "beams": "束搜索"},
}


class Watched:
    """A decoder that keeps which hypotheses run on, and with which tokens."""

    def __init__(self, decoder: BatchDecoder) -> None:
        self.decoder = decoder
        self.steps: list[list[tuple[int, int]]] = []  # a step, then the rows: the row before, and the token
        self.rows: list[int] = []

    def first(self) -> mx.array:
        """The logits of the first new token, (1, V)."""
        return self.decoder.first()

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these rows, in this order."""
        self.rows = list(rows)
        self.decoder.select(rows)

    def next(self, tokens: mx.array) -> mx.array:
        """The logits after one more token in each row, (H, 1) -> (H, V)."""
        ids = tokens[:, 0].tolist()
        self.steps.append(list(zip(self.rows or range(len(ids)), ids, strict=True)))
        self.rows = []
        return self.decoder.next(tokens)


def draw(language: str) -> str:
    """A column a step: each hypothesis with its last token and log-probability, a line to the one it continues."""
    said = SAID[language]
    loaded = zoo.load("llama")
    (steps, found), (_, greedy) = searched(loaded, BEAMS), searched(loaded, 1)
    kept = paths(steps)
    parts = []
    for step, rows in enumerate(steps):
        x = COLUMN * step + 7
        middle = x + WIDE / 2
        parts.append(
            text(middle, 13, said["step"].format(step + 1), size=12, colour="quiet", anchor="middle")
        )
        for row, (before, token) in enumerate(rows):
            y = 24 + ROW * row
            path = kept[step][row]
            best = path == found[: step + 1]
            if step:
                start = (x - COLUMN + WIDE, 24 + ROW * before + HIGH / 2)
                colour, width = ("accent", 2.5) if best else ("line", 1.25)
                parts.insert(0, line([start, (x, y + HIGH / 2)], colour=colour, width=width))
            edge, fill = ("var(--accent)", "var(--tint)") if best else ("var(--edge)", "var(--box)")
            parts.append(rect(x, y, WIDE, HIGH, fill=fill, line=edge))
            word = loaded.tokenizer.decode([token]).strip()
            parts.append(text(middle, y + 16, word, size=13, anchor="middle", bold=best))
            value = signed(total(loaded, path))
            parts.append(text(middle, y + 32, value, size=12, colour="quiet", anchor="middle"))
            if path == greedy[: step + 1]:
                words = said["greedy"]
                parts.append(text(middle, y + HIGH + 14, words, size=12, colour="quiet", anchor="middle"))
    bottom = 24 + ROW * BEAMS + 14
    for number, (name, tokens) in enumerate((("greedy", greedy), ("beams", found))):
        words = f"{said[name]}: {PROMPT}{loaded.tokenizer.decode(tokens)} ({signed(total(loaded, tokens))})"
        parts.append(text(7, bottom + 20 * number, words, size=13, bold=name == "beams"))
    width = COLUMN * len(steps)
    return f'<div style="min-width:{width}px">{svg(width, bottom + 30, parts)}</div>'


def signed(value: float) -> str:
    """A number with two digits and, where it is negative, a minus sign."""
    return f"{value:.2f}".replace("-", "−")


def searched(loaded: zoo.Loaded, beams: int) -> tuple[list[list[tuple[int, int]]], list[int]]:
    """The rows of each step, and the tokens of the text that was found."""
    ids = loaded.tokenizer.encode(PROMPT)
    decoder = Watched(BatchDecoder(loaded, [ids], LIMIT))
    settings = Settings(max_tokens=LIMIT)
    _, constraints = tokenize_prompt(loaded, ids, settings)
    search = BeamSearch(processors_of(loaded, settings, constraints), BeamConfig(beams))
    list(run_searches(decoder, [search]))
    best = search.found()[0]
    return decoder.steps[: len(best.tokens)], list(best.tokens)


def paths(steps: list[list[tuple[int, int]]]) -> list[list[list[int]]]:
    """The tokens of each hypothesis at each step."""
    found: list[list[list[int]]] = []
    for rows in steps:
        before = found[-1] if found else [[]] * len(rows)
        found.append([[*before[parent], token] for parent, token in rows])
    return found


def total(loaded: zoo.Loaded, tokens: list[int]) -> float:
    """The log-probability of some tokens after the prompt, in nats."""
    prompt = loaded.tokenizer.encode(PROMPT)
    each = logprobs(loaded.model(mx.array([prompt + tokens]))[0, len(prompt) - 1 : -1])  # (T, V)
    return float(mx.take_along_axis(each, mx.array(tokens)[:, None], axis=-1).sum().item())
