"""`zoo tokenize`: the pieces that tokenizers cut a text into, in colours on a terminal, in a pipe a line each."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zoo.cli.source_options import FILE, complete_source, revision_option
from zoo.cli.terminal import columns, facts, table, width
from zoo.errors import PromptError, pluralize

if TYPE_CHECKING:
    from zoo.inspect.tokenization import Piece, Tokenization

SPACE = "␣"
# Light backgrounds of the 256 colours, black on each readable, that differ in brightness as in hue.
COLOURS = ("black on color(153)", "black on color(223)", "black on color(151)", "black on color(189)")
SPECIAL = "bold white on color(240)"
UNKNOWN = "bold black on color(210)"
GAP = 1  # cells between two pieces
PIPE = 100  # columns of a pipe, which has no width of its own


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="SOURCE... [TEXT]", shell_complete=complete_source)
@click.option("--file", "path", type=FILE, help="Read the text from this file.")
@click.option(
    "--special-tokens/--no-special-tokens",
    default=True,
    help="Show the tokens that the tokenizer adds around a text (shown).",
)
@click.option("--table", "as_table", is_flag=True, help="One line for each piece, as in a pipe.")
@click.option(
    "--limit",
    type=click.IntRange(0),
    help="Pieces of each tokenizer to show, 0 for all (300 on a terminal, all in a pipe).",
)
@revision_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def tokenize(
    words: tuple[str, ...],
    path: Path | None,
    special_tokens: bool,
    as_table: bool,
    limit: int | None,
    revision: str | None,
    as_json: bool,
) -> None:
    """Show how the tokenizer of each SOURCE cuts TEXT into pieces, and how many it makes of it.

    SOURCE is an architecture, a folder, a GGUF file or a hub id; weights are not read. Without a TEXT, or with "-", it
    is read from a pipe, without the line ends after it. In a piece ␣ stands for a space, and \\xe4 for a byte that is a
    part of a character.
    """
    from zoo.cli.progress import Progress
    from zoo.inspect.tokenization import tokenization, tokenizer_of

    names, text = _asked(words, path)
    results = []
    with Progress("tokenizing") as report:
        for number, name in enumerate(names):
            report(number, len(names))
            results.append(tokenization(name, tokenizer_of(name, revision), text, special_tokens))
    if as_json:
        values = {
            "text_bytes": len(text.encode("utf-8")),
            "text_characters": len(text),
            "tokenizers": [result.as_json() for result in results],
        }
        click.echo(json.dumps(values, ensure_ascii=False))
        return
    drawn = sys.stdout.isatty() and not as_table
    most = (300 if sys.stdout.isatty() else 0) if limit is None else limit
    for result in results:
        if len(results) > 1:
            click.echo(result.source)
        shown = result.pieces[: most or None]
        if drawn:
            draw(shown)
        elif shown:
            click.echo(listed(shown))
        if len(shown) < len(result.pieces):
            click.echo(f"… {len(result.pieces) - len(shown):,} more pieces; --limit 0 shows all")
        if shown:
            click.echo()
    click.echo(counted(results))


def _asked(words: tuple[str, ...], path: Path | None) -> tuple[list[str], str]:
    """The sources and the text that the arguments name."""
    from zoo.cli.run import read_pipe
    from zoo.files.reading import read_user_text

    if path is not None:
        return list(words), read_user_text(path, PromptError)
    *names, text = words
    if names:
        return names, read_pipe() if text == "-" else text
    if sys.stdin.isatty():
        raise PromptError(f"there is no text to tokenize: give it after {text}, or --file")
    return [text], read_pipe()


def written(piece: Piece) -> str:
    r"""A piece in visible, distinguishable signs.

    A space is ␣, a byte that is a part of a character `\xe4`; a backslash, a ␣ of the text, and what has no width or no
    picture of its own are escapes as in Python.
    """
    if piece.special or piece.unknown:
        return escaped(piece.token)
    return escaped(piece.bytes.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace"))


def escaped(text: str) -> str:
    r"""Text in signs that can be seen: a space is ␣, what has no picture of its own an escape as in Python."""
    signs = [SPACE if s == " " else s if s.isprintable() and s != SPACE else ascii(s)[1:-1] for s in text]
    if signs and unicodedata.category(text[0]).startswith("M"):  # it would join what is before it
        signs[0] = ascii(text[0])[1:-1]
    return "".join(signs)


def listed(pieces: Sequence[Piece]) -> str:
    """A line for each piece: id, piece, bytes in hexadecimal digits, the characters that it covers, its kind."""
    rows = [
        [
            str(piece.id),
            written(piece),
            piece.bytes.hex(" ") or "–",
            "–" if piece.start is None else f"{piece.start}–{piece.end}",
            _kind(piece),
        ]
        for piece in pieces
    ]
    return table(rows, ["id", "piece", "bytes", "characters", "kind"])


def _kind(piece: Piece) -> str:
    if piece.unknown:
        return "unknown"
    kind = "special, added" if piece.added else "special" if piece.special else ""
    return kind or ("part of a character" if piece.partial else "")


def counted(results: Sequence[Tokenization]) -> str:
    """How many pieces each tokenizer made of the text, side by side."""
    text = results[0].text
    size = pluralize(len(text.encode("utf-8")), "byte"), pluralize(len(text), "character")
    rows = [
        [
            result.source,
            f"{result.own:,}",
            f"{len(result.pieces) - result.own}",
            _ratio(result.bytes_per_token),
            _ratio(result.characters_per_token),
            str(result.unknown),
            f"{result.vocabulary:,}",
        ]
        for result in results
    ]
    if len(rows) == 1:
        ((source, _, added, *ratios, unknown, vocabulary),) = rows
        tokens = pluralize(results[0].own, "token") + f" and {added} added around the text" * (added != "0")
        each = [f", {ratio} a token" if results[0].own else "" for ratio in ratios]
        sizes = size[0] + each[0], size[1] + each[1]
        return facts([source, tokens, *sizes, f"{unknown} unknown", f"vocabulary {vocabulary}"])
    head = ["tokenizer", "tokens", "added", "bytes a token", "characters a token", "unknown", "vocabulary"]
    return f"text: {size[0]}, {size[1]}\n{table(rows, head, repeated=1)}"


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def draw(pieces: Sequence[Piece]) -> None:
    """Draw pieces on the terminal as coloured cells, each with its id below it.

    Bytes are shown where the piece is not plain ASCII, and the kind of special and unknown tokens.
    """
    cells = []
    for number, piece in enumerate(pieces):
        plain = piece.partial or (piece.bytes.isascii() and piece.text.isprintable())
        note = _kind(piece).removesuffix(", added") if piece.special or piece.unknown else ""
        lines = written(piece), str(piece.id), note or ("" if plain else piece.bytes.hex())
        style = UNKNOWN if piece.unknown else SPECIAL if piece.special else COLOURS[number % len(COLOURS)]
        cells.append((lines, style, "\n" in piece.text))
    draw_cells(cells)


def draw_cells(cells: Iterable[tuple[Sequence[str], str, bool]]) -> None:
    """Draw cells in rows that fit the terminal: lines, the first in a style, and whether the cell ends its row."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False)
    room = columns() or PIPE
    rows: list[list[tuple[list[str], str, int]]] = [[]]
    for lines, style, ends_row in cells:
        shown = [cut(line, room - GAP) for line in lines]
        size = max(map(width, shown)) + GAP
        if sum(each for _, _, each in rows[-1]) + size > room:
            rows.append([])
        rows[-1].append((shown, style, size))
        if ends_row:
            rows.append([])
    for row in filter(None, rows):
        for number in range(len(row[0][0])):
            text = Text()
            for shown, style, size in row:
                text.append(shown[number], "dim" if number else style)
                text.append(" " * (size - width(shown[number])))
            text.rstrip()
            if text:
                console.print(text, soft_wrap=True)


def cut(text: str, room: int) -> str:
    """The text, with an ellipsis at its end where it is wider than `room` cells."""
    if width(text) <= room:
        return text
    from rich.text import Text

    shown = Text(text)
    shown.truncate(room, overflow="ellipsis")
    return shown.plain
