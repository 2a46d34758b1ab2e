"""Makes the math font of the site: the part of STIX Two Math that formulas need, with its MATH table, as WOFF2.

    pip install fonttools brotli
    npm pack @fontsource/stix-two-math && tar xzf fontsource-stix-two-math-*.tgz
    python tools/math_font.py package/files/stix-two-math-latin-400-normal.woff2

It keeps ASCII, the italic letters that a browser makes of single ones, the root, and the characters of the built site's formulas,
and writes `docs/_static/math.woff2` and the style sheet that names them, `docs/_static/math.css`.
"""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
ASCII = range(0x20, 0x7F)
ITALIC = (*range(0x1D434, 0x1D468), *range(0x1D6FC, 0x1D715), 0x210E)  # Latin letters, small Greek ones, h
ROOT = 0x221A  # which no text has: a browser draws it
FORMULA = re.compile(r"<math\b.*?</math>", re.DOTALL)
NO_TEXT = re.compile(r"<annotation\b.*?</annotation>|<[^>]+>", re.DOTALL)
HAN = range(0x3000, 0xA000)  # in the font of the text around a formula
STYLE = """/* Of STIX Two Math, its licence: math-font-licence.txt. Made by tools/math_font.py. */
@font-face{{font-family:"STIX Two Math";src:local("STIX Two Math"),url("math.woff2") format("woff2");font-display:swap;unicode-range:{ranges}}}
math{{font-family:"STIX Two Math","Latin Modern Math","Cambria Math",math}}
"""


def characters(site: Path) -> set[int]:
    """The characters of all formulas of a built site but Chinese ones."""
    found: set[str] = set()
    for path in site.rglob("*.html"):
        for formula in FORMULA.findall(path.read_text(encoding="utf-8")):
            found.update(html.unescape(NO_TEXT.sub("", formula)))
    return {ord(one) for one in found if one > " " and ord(one) not in HAN}


def ranges(codes: Iterable[int]) -> str:
    """Code points as CSS's `unicode-range`."""
    every = sorted(codes)
    starts = [every[0], *(b for a, b in pairwise(every) if b != a + 1)]
    ends = [*(a for a, b in pairwise(every) if b != a + 1), every[-1]]
    return ",".join(f"U+{a:X}" if a == b else f"U+{a:X}-{b:X}" for a, b in zip(starts, ends, strict=True))


def main(source: str) -> None:
    """Write both files."""
    from fontTools.subset import Options, Subsetter
    from fontTools.ttLib import TTFont

    options = Options()
    options.layout_features = ["*"]
    options.hinting = False
    font = TTFont(source)
    subsetter = Subsetter(options)
    subsetter.populate(
        unicodes={*ASCII, *ITALIC, ROOT, *characters(DOCS / "_build" / "html")} & set(font.getBestCmap())
    )
    subsetter.subset(font)
    font.flavor = "woff2"
    path = DOCS / "_static" / "math.woff2"
    font.save(path)
    style = STYLE.format(ranges=ranges(font.getBestCmap()))
    path.with_suffix(".css").write_text(style, encoding="utf-8")
    print(f"{path.name}: {path.stat().st_size:,} bytes, {len(font.getGlyphOrder())} glyphs")


if __name__ == "__main__":
    main(sys.argv[1])
