"""The recording of a terminal, docs/pictures/recording.svg, with a box to pause it."""

from __future__ import annotations

from building.build_cache import DOCS

PAUSE = {"en": "Pause", "zh": "暂停"}


def draw(language: str) -> str:
    """The SVG inline, so that it has the page's colours and its text can be selected."""
    picture = (DOCS / "pictures" / "recording.svg").read_text(encoding="utf-8")
    return (
        f'<div class="zoo-player">{picture}'
        f'<label><input type="checkbox" autocomplete="off"> {PAUSE[language]}</label></div>'
    )
