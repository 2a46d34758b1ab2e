"""The picture that previews of links show: what the zoo is, and what the embedded LLaMA does with a prompt."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

from building.build_cache import cached_result
from building.head import CARD, CARD_SIZE

PROMPT = "The capital city of China is"
LAYER = 1  # whose heads are shown
HEADS = 4
TOKENS = 8  # that it may write
LEAD = ("A plugin-based model zoo\nfor Apple silicon, built on MLX", "Run, look inside, compare, build.")
DPI = 100


def draw() -> bytes:
    """The PNG: words and an answer at the left, where the heads of a layer look at the right."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    import zoo
    from zoo.describe.diagram.svg import DARK

    loaded = zoo.load("llama")
    trace = zoo.trace(loaded, PROMPT, max_tokens=TOKENS)
    length = len(trace.prompt)
    heads = trace[f"layers.{LAYER}.mixer.pattern"][:HEADS, :length, :length]  # (H, T, T)

    ground, ink, quiet, accent = (DARK[name] for name in ("ground", "ink", "quiet", "accent"))
    figure = Figure(figsize=tuple(side / DPI for side in CARD_SIZE), dpi=DPI, facecolor=ground)
    figure.text(0.06, 0.76, "zoo", color=accent, size=76, weight="bold")
    figure.text(0.06, 0.55, LEAD[0], color=ink, size=26, linespacing=1.35)
    figure.text(0.06, 0.44, LEAD[1], color=quiet, size=22)
    figure.text(0.06, 0.24, f'zoo run llama "{PROMPT}"', color=quiet, size=14.5, family="monospace")
    figure.text(0.06, 0.14, trace.text.strip(), color=accent, size=24, weight="bold")

    shades = LinearSegmentedColormap.from_list("shades", [ground, accent])
    for number, pattern in enumerate(heads):
        place = figure.add_axes((0.57 + 0.2 * (number % 2), 0.52 - 0.4 * (number // 2), 0.19, 0.362))
        place.imshow(pattern, cmap=shades, vmin=0, vmax=1)
        place.set(xticks=[], yticks=[], facecolor=ground)
        for side in place.spines.values():
            side.set_color(quiet)
    made = io.BytesIO()
    figure.savefig(made, format="png", dpi=DPI, metadata={"Software": None})
    return made.getvalue()


def write(app: Any, error: Exception | None) -> None:
    """Write it once, beside the English pages; Chinese ones lead there."""
    if error is None and app.builder.format == "html" and app.config.zoo_language == "en":
        kept = cached_result(lambda: base64.b64encode(draw()).decode(), "card")
        Path(app.outdir, CARD).write_bytes(base64.b64decode(kept))


def setup(app: Any) -> None:
    """Write it when the pages are built."""
    app.connect("build-finished", write)
