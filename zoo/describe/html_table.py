"""A table as HTML, as a notebook shows it. Imports no mlx."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(rows: Iterable[Sequence[object]], head: Sequence[object] = ()) -> str:
    """The table of some rows, their texts escaped, under the names in `head` if there are any."""

    def row(cells: Sequence[object], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(str(cell))}</{tag}>' for cell in cells)}</tr>"

    return f"<table>{row(head, 'th') if head else ''}{''.join(row(cells, 'td') for cells in rows)}</table>"
