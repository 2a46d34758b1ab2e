"""The settings of a training run, its measurements, and their curve: a drawing for a terminal, and an SVG.

Imports no mlx, and needs no plotting library.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from html import escape
from typing import Any

from zoo.architecture import Setting
from zoo.config import MOST, REQUIRED, Config, Origin
from zoo.errors import ConfigError, ZooError

TRAINING = "training.json"  # the record of a run, beside the weights

ALWAYS = ("steps", "batch", "length", "rate", "seed")  # in every record; others have had their defaults

Points = Sequence[Sequence[float]]  # [step, loss] each

# Grey, blue and orange that stand out on white (at least 3 : 1, the text 4.5 : 1) and on black alike.
GREY, BLUE, ORANGE = "#767676", "#3b82d6", "#d06a1d"
WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 44, 52  # margins, for the labels

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille character, by row and column


def _bounded(kind: type, default: object, **bounds: Any) -> Any:
    """A field of `TrainingSettings` with the bounds of its values, as a `Setting` has them."""
    return field(default=default, metadata={"kind": kind, **bounds})


@dataclass(frozen=True)
class TrainingSettings:
    """The hyperparameters of a training run.

    `rate` is the peak learning rate: it is reached after `warmup` steps and falls to a tenth by the `schedule`, "cosine" or
    "linear", or stays ("constant"). `decay` is the weight decay, `clip` the largest norm of the gradients. A step averages the
    gradients of `accumulate` batches. With `checkpoint` the layers' activations are computed again in the backward pass.
    `corpus` and `objective` None are those that suit the model's task. `packed` cuts rows from running text, nothing
    left out. `ends` are the steps at which earlier parts of an extended run ended: each part has a warm-up and a cosine
    of its own.
    """

    steps: int = _bounded(int, 2000, minimum=1, maximum=10**9)
    batch: int = _bounded(int, 16, minimum=1, maximum=2**20)
    length: int = _bounded(int, 64, minimum=1, maximum=MOST)
    rate: float = _bounded(float, 3e-3, above=0)
    warmup: int = _bounded(int, 100, minimum=0, maximum=10**9)
    decay: float = _bounded(float, 0.1, minimum=0)
    clip: float = _bounded(float, 1.0, above=0)
    schedule: str = _bounded(str, "cosine", choices=("cosine", "linear", "constant"))
    accumulate: int = _bounded(int, 1, minimum=1, maximum=2**16)
    checkpoint: bool = _bounded(bool, False)
    seed: int = _bounded(int, 0, minimum=0, maximum=2**64 - 1)
    corpus: str | None = _bounded(str, None, also=(None,))
    objective: str | None = _bounded(str, None, also=(None,))
    packed: bool = _bounded(bool, False)
    ends: tuple[int, ...] = _bounded(int, (), minimum=1, maximum=10**9, several=True)

    def __post_init__(self) -> None:
        for setting in SETTINGS:
            object.__setattr__(self, setting.name, setting.checked(getattr(self, setting.name)))
        if any(end >= later for end, later in itertools.pairwise((*self.ends, self.steps))):
            raise ZooError(f"`ends` must be steps in order, all before {self.steps}, got {list(self.ends)}")

    def to(self, steps: int, done: int) -> TrainingSettings:
        """The settings of the same run with `steps` in all, after `done` steps.

        A run that is not finished goes on with the rates of the longer or shorter one. A finished one gets another
        part: the rate warms up again to its peak and falls by a cosine to a tenth at the new end.
        """
        if steps < done:
            raise ZooError(f"`steps`: {done} are done already, {steps} is fewer")
        ends = (*self.ends, self.steps) if done == self.steps != steps else self.ends
        return replace(self, steps=steps, ends=ends)


SETTINGS = tuple(Setting(each.name, **each.metadata) for each in fields(TrainingSettings))


def settings_in(saved: Mapping[str, Any]) -> TrainingSettings:
    """The settings that a record holds."""
    return TrainingSettings(**{s.name: saved[s.name] for s in SETTINGS if s.name in saved})


def checked_record(values: object, source: str) -> dict[str, Any]:
    """The record of a run as JSON that was read from the file `source`; ConfigError naming a key whose value is wrong."""
    if not isinstance(values, dict):
        raise ConfigError(f"{source}: the record is no JSON object")
    if (null := next((key for key, value in values.items() if value is None), None)) is not None:
        raise ConfigError(f"{source}: {null} is null")
    record = Config(values, origin=Origin(source))
    for key in ("architecture", "documents"):
        if not isinstance(record.get(key, REQUIRED if key == "architecture" else ""), str):
            raise record.error(key, "expected text")
    record.count("parameters", 0, least=0, most=10**15)
    record.count("tokens", least=0, most=10**18)
    record.number("seconds", least=0)
    record.nested("tokenizer")
    record.nested("versions")
    if any(not isinstance(version, str) for version in values.get("versions", {}).values()):
        raise record.error("versions", "expected a text for each name")
    if not isinstance(record["settings"], dict):
        raise record.error("settings", "expected an object")
    saved = Config(record["settings"], "settings.", origin=record.origin)
    for key in ALWAYS:
        saved[key]  # ConfigError where it is missing
    for key in ("config", "adapter", "options"):
        if not isinstance(record["settings"].get(key, {}), dict):
            raise saved.error(key, "expected an object")
    try:
        settings = settings_in(record["settings"])
    except ZooError as error:
        raise ConfigError(f"{source}: settings.{str(error).replace('`', '')}") from None
    for key in ("losses", "validation"):
        _check_points(record, key, settings.steps)
    return values


def _check_points(record: Config, key: str, steps: int) -> None:
    """ConfigError unless the value at a key is a list of steps, from 0 to `steps`, each with its loss."""
    if not isinstance(record[key], list):
        raise record.error(key, "expected a list of steps, each with its loss")
    for index, point in enumerate(record[key]):
        name = f"{key}[{index}]"
        checked = Config({name: point}, origin=record.origin)
        step, *loss = checked.numbers(name)
        if len(loss) != 1 or not (0 <= step <= steps and step.is_integer()):
            raise checked.error(name, f"expected a step from 0 to {steps}, and its loss")


@dataclass
class TrainingRecord:
    """The measurements of a training run: losses in nats a token as [step, loss], validation likewise, and seconds.

    `documents` says whether it saw the corpus's documents or single sentences; `tokenizer` how many tokens its own has,
    and how many of them are whole names of the corpus.
    """

    architecture: str
    parameters: int
    settings: dict[str, Any]
    documents: str = "documents"
    tokenizer: dict[str, Any] = field(default_factory=dict)
    losses: list[list[float]] = field(default_factory=list)
    validation: list[list[float]] = field(default_factory=list)
    tokens: int = 0
    seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)


def svg(record: TrainingRecord) -> str:
    """The curves of training and validation, axes labelled, on no background: readable on light and on dark.

    The title is the architecture and its size.
    """
    steps, low, high = bounds(record)
    across, down = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def point_of(step: float, loss: float) -> tuple[float, float]:
        return LEFT + across * step / steps, TOP + down * (high - loss) / (high - low)

    title = escape(f"{record.architecture}, {record.parameters:,} parameters")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" font-family="system-ui, sans-serif" font-size="12" fill="{GREY}">',
        f"<title>{title}</title>",
        f'<text x="{LEFT}" y="18" font-size="14">{title}</text>',
    ]
    for value in ticks(low, high):
        _, y = point_of(0, value)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{GREY}" stroke-opacity="0.35"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for value in ticks(0, steps):
        x, _ = point_of(value, low)
        parts.append(f'<path d="M{x:.1f} {HEIGHT - BOTTOM}v5" stroke="{GREY}"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 19}" text-anchor="middle">{value:g}</text>')
    parts.append(f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" fill="none" stroke="{GREY}"/>')
    parts.append(f'<text x="{LEFT + across / 2:.1f}" y="{HEIGHT - 10}" text-anchor="middle">step</text>')
    middle = TOP + down / 2
    parts.append(
        f'<text x="14" y="{middle:.1f}" text-anchor="middle" transform="rotate(-90 14 {middle:.1f})">'
        "loss, nats a token</text>"
    )
    for points, colour, name, x in (
        (finite(record.losses), BLUE, "training", WIDTH - RIGHT - 190),
        (finite(record.validation), ORANGE, "validation", WIDTH - RIGHT - 90),
    ):
        coordinates = [point_of(*point) for point in points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in coordinates)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if name == "validation":  # few of them: each is shown
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in coordinates]
        parts.append(f'<path d="M{x} 32h16" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{x + 22}" y="36">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def drawn(record: TrainingRecord, width: int = 80, height: int = 12) -> str:
    """The curves in characters, at most `width` a line: dots for training, rings for validation."""
    steps, low, high = bounds(record)
    labels = {0: f"{high:.2f}", height // 2: f"{(high + low) / 2:.2f}", height - 1: f"{low:.2f}"}
    margin = max(map(len, labels.values()))
    across = width - margin - 2
    cells = [[0] * across for _ in range(height)]

    def cell_of(step: float, loss: float, rows: int, columns: int) -> tuple[int, int]:
        row = round((high - loss) / (high - low) * (rows - 1))
        return min(max(row, 0), rows - 1), min(round(step / steps * (columns - 1)), columns - 1)

    for step, loss in joined(finite(record.losses), 2 * across):
        row, column = cell_of(step, loss, 4 * height, 2 * across)
        cells[row // 4][column // 2] |= DOTS[row % 4][column % 2]
    lines = [[chr(0x2800 + cell) if cell else " " for cell in row] for row in cells]
    for step, loss in finite(record.validation):
        row, column = cell_of(step, loss, height, across)
        lines[row][column] = "○"
    text = [f"{labels.get(i, ''):>{margin}} │{''.join(line)}".rstrip() for i, line in enumerate(lines)]
    text.append(" " * margin + " └" + "─" * across)
    end = f"{steps:g}"
    text.append(" " * (margin + 2) + "0" + "step".center(across - 1 - len(end)) + end)
    return "\n".join(["loss, nats a token · ⠒ training ○ validation", *text])


def finite(points: Points) -> list[Sequence[float]]:
    """The points whose loss is finite."""
    return [point for point in points if math.isfinite(point[1])]


def bounds(record: TrainingRecord) -> tuple[float, float, float]:
    """The last step, the smallest and the largest loss; equal losses are moved apart."""
    points = finite([*record.losses, *record.validation]) or [[1, 0.0]]
    low, high = min(p[1] for p in points), max(p[1] for p in points)
    if high - low < 1e-6:
        low, high = low - 0.5, high + 0.5
    return max(max(p[0] for p in points), 1), low, high


def joined(points: Points, columns: int) -> list[tuple[float, float]]:
    """The points with further ones interpolated between neighbours, so that a line has no gap in any column."""
    floats = [(float(step), float(loss)) for step, loss in points]
    if len(floats) < 2:
        return floats
    span = max(floats[-1][0], 1.0)
    line = []
    for (step, loss), (next_step, next_loss) in itertools.pairwise(floats):
        count = max(int((next_step - step) / span * columns), 1)
        line += [
            (step + (next_step - step) * i / count, loss + (next_loss - loss) * i / count)
            for i in range(count)
        ]
    return [*line, floats[-1]]


def ticks(low: float, high: float) -> list[float]:
    """About five round numbers between two: multiples of 1, 2 or 5 times a power of ten."""
    raw = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= raw)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 10) for i in range(first, math.floor(high / step + 1e-9) + 1)]
