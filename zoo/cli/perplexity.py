"""`zoo perplexity`: how well models predict a text."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli.setting_options import cache_options, policy_of
from zoo.cli.source_options import (
    architecture_option,
    complete_source,
    dtype_option,
    force_option,
    parallel_option,
    revision_option,
    yes_option,
)

if TYPE_CHECKING:
    from zoo.inspect.perplexity import Perplexity


DIFFERENT = "The tokenizers differ: bits a byte compares these models, perplexity and nats a token do not."
# What the columns of a table are called in full.
LONGER = {
    "perplexity": "perplexity a token",
    "nats": "nats a token",
    "context": "context/stride",
    "unknown": "unknown tokens",
}


@click.command(epilog="Example: zoo perplexity llama gpt2 README.md")
@click.argument("names", nargs=-1, required=True, metavar="SOURCE...", shell_complete=complete_source)
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--context", type=int, help="Tokens of a window (the model's own, at most 4,096).")
@click.option("--stride", type=int, help="Tokens between the starts of two windows (half of the context).")
@click.option("--limit", type=int, metavar="TOKENS", help="Maximum number of tokens to score.")
@click.option("--batch", type=int, default=1, show_default=True, help="Windows in a batch.")
@cache_options
@architecture_option
@revision_option
@dtype_option
@parallel_option
@force_option
@yes_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def perplexity(
    names: tuple[str, ...],
    file: Path,
    as_json: bool,
    **given: Any,
) -> None:
    """Measure how well each SOURCE predicts the text in FILE ("-": a pipe), in bits a byte and perplexity a token.

    A token is predicted once, from at least context − stride tokens before it. Bits a byte compares models of different
    tokenizers; perplexity compares those of one tokenizer alone.
    """
    from zoo.cli.progress import Progress
    from zoo.inspect.perplexity import check_source
    from zoo.inspect.perplexity import perplexity as measure
    from zoo.loading import load

    window = {name: given.pop(name) for name in ("context", "stride", "limit", "batch")}
    policy = policy_of(given)
    text = _text(names, file)
    for name in names:
        check_source(name, architecture=given["architecture"], revision=given["revision"])
    found = {}
    for name in names:
        with Progress(f"loading {name}", waits=True) as loading:
            loaded = load(name, report=loading, **given)
        with Progress(f"reading by {name}") as report:
            found[name] = measure(loaded, text, report=report, policy=policy, **window)
        del loaded
    if as_json:
        from zoo.runtime import versions

        values = [{"source": name, **one.as_json()} for name, one in found.items()]
        click.echo(
            json.dumps({"file": str(file), "models": values, "versions": versions()}, ensure_ascii=False)
        )
    else:
        click.echo(table_of(found))


def _text(names: tuple[str, ...], file: Path) -> str:
    """The text of the file or of the pipe; PromptError where it is empty."""
    from zoo.checkpoint.source import is_architecture
    from zoo.cli.run import read_pipe
    from zoo.errors import PromptError
    from zoo.files.reading import read_user_text
    from zoo.host.registry import default_registry

    if str(file) == "-":
        text = read_pipe()
    elif file.exists():
        text = read_user_text(file, PromptError)
    else:
        models = [*names, str(file)] if is_architecture(str(file), default_registry()) else names
        raise click.UsageError(
            f"{file}: no such file; the file with the text comes last: zoo perplexity {shlex.join(models)} FILE"
        )
    if not text:
        raise PromptError(f"{'the pipe' if str(file) == '-' else file}: is empty")
    return text


def table_of(found: dict[str, Perplexity]) -> str:
    """The figures of one model in rows, those of several side by side."""
    from zoo.cli.terminal import columns, table, wrapped

    cells = {name: _cells(one) for name, one in found.items()}
    if len(found) == 1:
        ((name, values),) = cells.items()
        return table([["model", name], *([LONGER.get(key, key), value] for key, value in values.items())])
    unknown = any(one.unknown for one in found.values())
    heads = [head for head in next(iter(cells.values())) if head != "unknown" or unknown]
    rows = [[name, *(values[head] for head in heads)] for name, values in cells.items()]
    lines = table(rows, ["model", *heads], repeated=1)
    if len({one.tokens for one in found.values()}) == 1:
        return lines
    return f"{lines}\n\n{wrapped(DIFFERENT, columns())}"


def _cells(one: Perplexity) -> dict[str, str]:
    window = "all" if one.context is None else f"{one.context:,}"
    return {
        "bits a byte": f"{one.bits_per_byte:.4f}",
        "perplexity": f"{one.perplexity:,.4g}" if math.isfinite(one.perplexity) else "∞",
        "nats": f"{one.nats_per_token:.4f}",
        "tokens": f"{one.tokens:,}",
        "bytes": f"{one.bytes:,}",
        "unknown": f"{one.unknown:,}",
        "context": window if one.stride in (None, one.context) else f"{window}/{one.stride:,}",
        "tokens/s": f"{one.tokens_per_second:,.0f}",
    }
