"""`zoo embed`: texts to vectors."""

from __future__ import annotations

import io
import json
from pathlib import Path

import click

from zoo.cli.source_options import (
    FILE,
    ModelOptions,
    architecture_option,
    complete_source,
    dtype_option,
    model_options,
    overwrite_option,
    revision_option,
    yes_option,
)


@click.command()
@click.argument("source", shell_complete=complete_source)
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option(
    "--pooling",
    metavar="MODE[+MODE]...",
    help="Pooling of hidden states: mean, first, last, max, weighted-mean or mean-sqrt-length; several are joined "
    "(default: what the checkpoint says, else mean).",
)
@click.option(
    "--prompt-name",
    metavar="NAME",
    help="The folder's prompt before each text (default: what the folder says).",
)
@click.option(
    "--normalise/--no-normalise", default=None, help="Scale to length 1 (default: what the folder says)."
)
@click.option(
    "--dimensions",
    type=click.IntRange(min=1),
    help="Keep so many numbers of each vector, the first (default: what the folder says).",
)
@click.option("--out", type=FILE, help="Write a .npy or .json file instead.")
@overwrite_option
@model_options(architecture_option, revision_option, yes_option, dtype_option)
def embed(
    source: str,
    texts: tuple[str, ...],
    pooling: str | None,
    prompt_name: str | None,
    normalise: bool | None,
    dimensions: int | None,
    out: Path | None,
    overwrite: bool,
    options: ModelOptions,
) -> None:
    """Turn each TEXT into a vector with SOURCE (an architecture, a folder or a hub id).

    Without TEXT it reads one text from each line of the input. It prints a JSON object a line, or writes --out: a .npy
    array of shape (texts, width), or a .json list of the objects.
    """
    from zoo.cli.run import read_pipe
    from zoo.errors import PromptError
    from zoo.files.writing import check_outputs, write_output

    check_outputs((out,), overwrite)
    if out is not None and out.suffix not in (".npy", ".json"):
        raise click.BadParameter(f"{out.name}: give a name that ends in .npy or .json", param_hint="--out")
    lines = list(texts) or [line for line in read_pipe().splitlines() if line.strip()]
    if not lines:
        raise PromptError("there is no text to embed")
    from zoo.generation.strategies.embedding import embed as vectors_of

    loaded = options.load(source)
    vectors = vectors_of(
        loaded, lines, pooling=pooling, normalise=normalise, prompt_name=prompt_name, dimensions=dimensions
    )
    rows = [{"text": t, "embedding": v} for t, v in zip(lines, vectors.tolist(), strict=True)]
    if out is None:
        for row in rows:
            click.echo(json.dumps(row, ensure_ascii=False))
    elif out.suffix == ".json":
        write_output(out, (json.dumps(rows, ensure_ascii=False) + "\n").encode("utf-8"), overwrite)
    else:
        import numpy

        buffer = io.BytesIO()
        numpy.save(buffer, numpy.array(vectors))
        write_output(out, buffer.getvalue(), overwrite)
