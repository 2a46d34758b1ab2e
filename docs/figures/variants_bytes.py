"""Cache bytes a token of LLaMA-3.1-8B as it is, and as it would be with other numbers of key/value heads; DeepSeek's."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from figures.parts import rect, svg, text
from figures.tour_marks import panels, said
from zoo.describe import describe, facts_of, text_of
from zoo.host.registry import default_registry

LONGEST = 320.0


@cache
def recipe_of(name: str) -> Any:
    """The recipe of a preset."""
    return describe(name, default_registry()).recipe


def with_kv_heads(name: str, kv_heads: int) -> Any:
    """The recipe of a preset, each layer with so many key/value heads."""
    recipe = recipe_of(name)
    layers = [replace(layer, mixer=replace(layer.mixer, kv_heads=kv_heads)) for layer in recipe.layers]
    return replace(recipe, layers=tuple(layers))


def token_bytes(recipe: Any) -> int:
    """What the cache grows by for each token, in bytes, in 16 bits a number."""
    return int(facts_of(recipe).value("cache.token"))


def without_latents(name: str) -> int:
    """The same for a model with latent attention, had it kept the keys and values of all heads instead."""
    registry = default_registry()
    return int(describe(name, registry).sheet(registry).value("cache.expanded"))


def rows(language: str) -> list[tuple[str, int, bool]]:
    """A label, bytes a token, and whether the model is published so."""
    own = recipe_of("llama:8b").layers[0].mixer
    each = [
        (said(language, "multi-head", "多头"), own.heads),
        (said(language, "grouped-query", "分组查询"), own.kv_heads),
        (said(language, "multi-query", "多查询"), 1),
    ]
    return [
        (
            said(language, f"{name}, {number} key/value heads", f"{name}，{number} 个键/值头"),
            token_bytes(with_kv_heads("llama:8b", number)),
            number == own.kv_heads,
        )
        for name, number in each
    ]


def draw(language: str) -> str:
    """Bars, the longest of each picture as wide as it."""
    deepseek = [
        (
            said(language, "if all heads were kept", "若缓存所有头"),
            without_latents("deepseek-v3:671b"),
            False,
        ),
        (said(language, "latent", "潜在"), token_bytes(recipe_of("deepseek-v3:671b")), True),
    ]
    return panels(
        [
            bars(
                said(language, "LLaMA-3.1-8B, cache a token", "LLaMA-3.1-8B，每个词元的缓存"), rows(language)
            ),
            bars(said(language, "DeepSeek-V3, cache a token", "DeepSeek-V3，每个词元的缓存"), deepseek),
        ]
    )


def bars(title: str, found: list[tuple[str, int, bool]]) -> str:
    """A bar for each row under its label."""
    most = max(value for _, value, _ in found)
    drawn = [text(4, 18, title, bold=True)]
    for index, (label, value, published) in enumerate(found):
        y = 34 + index * 50
        fill = "var(--accent)" if published else "var(--edge)"
        drawn.append(text(4, y + 12, label))
        drawn.append(text(LONGEST + 6, y + 12, text_of(value, "bytes"), anchor="end", bold=published))
        drawn.append(rect(4, y + 20, max(2.0, LONGEST * value / most), 14, fill=fill, line=fill, radius=2))
    return svg(LONGEST + 10, 34 + len(found) * 50, drawn)
