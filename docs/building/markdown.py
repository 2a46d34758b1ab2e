"""Parts of pages that are written as Markdown: plain text, HTML, tables that scroll in a box of their own."""

from __future__ import annotations

import re
from html import escape

MARKS = re.compile(r"([\\`*_\[\]<>$])")


def plain(text: str) -> str:
    """A text in Markdown in which nothing is a mark."""
    return MARKS.sub(r"\\\1", text)


def raw(text: str) -> str:
    """HTML in Markdown."""
    return f"````{{raw}} html\n{text}\n````\n"


def table(head: list[str], rows: list[list[str]], kind: str, label: str) -> str:
    """An HTML table that scrolls in a box of its own; its first column names the rows. The cells are HTML.

    Without a `head`, only the rows have names.
    """
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    top = f"<thead><tr>{top}</tr></thead>" if head else ""
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>'
        for first, *rest in rows
    )
    return (
        f'<div class="zoo-scroll" tabindex="0" role="group" aria-label="{escape(label)}">'
        f'<table class="{kind}">{top}<tbody>{body}</tbody></table></div>'
    )
