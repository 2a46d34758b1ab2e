"""What a model keeps after so many tokens, and what one more token costs: attention's cache and recurrent states."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from figures.plots import Axes, log2
from figures.tour_marks import panels, said

LENGTHS = tuple(2**power for power in range(10, 18))
MODELS = {"llama:8b": False, "mamba:2.8b": True}  # whether its line is dashed


@cache
def recipe(name: str) -> Any:
    """The recipe of a preset."""
    from zoo.describe import describe
    from zoo.host.registry import default_registry

    return describe(name, default_registry()).recipe


def memory(name: str, tokens: int) -> int:
    """Bytes of cache or state after so many tokens, cached numbers in 16 bits, states in float32."""
    from zoo.describe.facts.memory import cache_bytes, cache_sizes

    return cache_bytes(cache_sizes(recipe(name)), tokens)


def work(name: str, tokens: int) -> float:
    """FLOPs of one more token after so many, by those after the fewest."""
    from zoo.describe.facts.counts import decode_flops

    first, now = (decode_flops(recipe(name), count) for count in (LENGTHS[0], tokens))
    assert first is not None and now is not None
    return now / first


def draw(language: str) -> str:
    """Two panels: memory, and work."""
    from zoo.describe.facts.fact import text_of

    bytes_ = [2**power for power in range(24, 36, 2)]
    return panels(
        (
            _panel(
                said(language, "memory of the text", "文本占用的内存"),
                memory,
                {value: text_of(value, "bytes") for value in bytes_},
                language,
                left=66,
                logarithmic=True,
            ),
            _panel(
                said(language, "FLOPs of a token, relative", "每词元的浮点运算（相对值）"),
                work,
                {value: f"{value} ×" for value in range(1, 7)},
                language,
                left=44,
            ),
        )
    )


def _panel(
    title: str,
    value: Callable[[str, int], float],
    ticks: dict[int, str],
    language: str,
    *,
    left: float,
    logarithmic: bool = False,
) -> str:
    scale = {"y_scale": log2} if logarithmic else {}
    axes = Axes((LENGTHS[0], LENGTHS[-1]), (min(ticks), max(ticks)), left=left, x_scale=log2, **scale)
    shown = {length: f"{length:,}" for length in LENGTHS[::3]}
    axes.frame(title, shown, ticks, said(language, "tokens before", "之前的词元数"))
    for name, dashed in MODELS.items():
        points = [(length, value(name, length)) for length in LENGTHS]
        axes.curve(points, dashed=dashed, colour="ink" if dashed else "accent")
        colour, (length, height) = ("ink", points[-1]) if dashed else ("accent", points[5])
        axes.name(length, height, name, anchor="end", by=(-6, -8), colour=colour)
    return axes.picture()
