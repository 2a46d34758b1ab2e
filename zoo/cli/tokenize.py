"""`zoo tokenize`: the pieces that tokenizers cut a text into."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from zoo.cli.completion import complete_source
from zoo.cli.source_options import FILE


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
@click.option("--revision", metavar="NAME", help="A hub id's branch, tag or commit.")
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
    found = []
    with Progress("tokenizing") as report:
        for number, name in enumerate(names):
            report(number, len(names))
            found.append(tokenization(name, tokenizer_of(name, revision), text, special_tokens))
    if as_json:
        values = {
            "text_bytes": len(text.encode("utf-8")),
            "text_characters": len(text),
            "tokenizers": [one.as_json() for one in found],
        }
        click.echo(json.dumps(values, ensure_ascii=False))
        return
    from zoo.cli import token_output

    drawn = sys.stdout.isatty() and not as_table
    most = (300 if sys.stdout.isatty() else 0) if limit is None else limit
    for one in found:
        if len(found) > 1:
            click.echo(one.source)
        shown = one.pieces[: most or None]
        if drawn:
            token_output.draw(shown)
        elif shown:
            click.echo(token_output.listed(shown))
        if len(shown) < len(one.pieces):
            click.echo(f"… {len(one.pieces) - len(shown):,} more pieces; --limit 0 shows all")
        if shown:
            click.echo()
    click.echo(token_output.counted(found))


def _asked(words: tuple[str, ...], path: Path | None) -> tuple[list[str], str]:
    """The sources and the text that the arguments name."""
    from zoo.cli.run import read_pipe
    from zoo.errors import PromptError
    from zoo.files.reading import read_user_text

    if path is not None:
        return list(words), read_user_text(path, PromptError)
    *names, text = words
    if names:
        return names, read_pipe() if text == "-" else text
    if sys.stdin.isatty():
        raise PromptError(f"there is no text to tokenize: give it after {text}, or --file")
    return [text], read_pipe()
