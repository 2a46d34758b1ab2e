"""A figure of the lab as part of a page, in the colours of its theme."""

from __future__ import annotations

import re
from pathlib import Path

from zoo_lab.figures import TEXT

RECORDS = Path(__file__).parent.parent / "records" / "lab"
IDENT = re.compile(r'(\bid="|href="#|url\(#)')
# The style sheet would hold for the whole page.
GLOBAL = re.compile(r"\s*<(metadata|style)\b.*?</\1>", re.DOTALL)
PRECISE = re.compile(r"-?\d+\.\d{4,}")  # coordinates, to a millionth of a point
SPACES = re.compile(r"\s*\n\s*")
WIDTH = 460  # pixels at most


def draw(language: str, name: str) -> str:
    """The figure `name` of docs/records/lab. Its identifiers are unique among those of the page."""
    picture = (RECORDS / f"{name}.svg").read_text(encoding="utf-8")
    picture = picture[picture.index("<svg ") :]
    picture = GLOBAL.sub("", picture)
    picture = PRECISE.sub(lambda found: f"{float(found[0]):.1f}", SPACES.sub("\n", picture))
    size = f'style="width:100%;max-width:{WIDTH}px;height:auto;stroke-linejoin:round"'
    picture = re.sub(r'width="[^"]*" height="[^"]*"', size, picture, count=1)
    return IDENT.sub(rf"\1{name}-", picture).replace(TEXT, "var(--quiet)")
