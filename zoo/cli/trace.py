"""`zoo trace`: the journey of a prompt through a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli.generation import model_name, typed_prompt
from zoo.cli.progress import Progress
from zoo.cli.run import piped_prompt
from zoo.cli.setting_options import CommandSettings, SettingsCommand
from zoo.cli.source_options import (
    FILE,
    ModelOptions,
    architecture_option,
    complete_source,
    dtype_option,
    model_options,
    overwrite_option,
    revision_option,
    sampler_option,
    strategy_option,
    yes_option,
)
from zoo.describe.language import LANGUAGES

if TYPE_CHECKING:
    from zoo.inspect.tracing.traced_run import Trace


@click.command(
    cls=SettingsCommand,
    usual=("layers", "heads", "html", "npz", "as_json", "overwrite", "address", "revision", "yes"),
    epilog='Example: zoo trace llama "The capital city of China is" --html trace.html',
)
@click.argument("source", shell_complete=complete_source)
@click.argument("prompt", metavar="TEXT", required=False)
@click.option(
    "--layer", "layers", type=int, multiple=True, metavar="N", help="Show this layer's attention and values."
)
@click.option(
    "--head", "heads", type=int, multiple=True, metavar="N", help="Show the attention of this head."
)
@click.option("--html", type=FILE, help="Write a page to explore, with everything in one file.")
@click.option(
    "--language",
    type=click.Choice(LANGUAGES),
    default="en",
    show_default=True,
    help="Of the words of the page.",
)
@click.option("--npz", type=FILE, help="Write every value, by its address, as a NumPy archive.")
@click.option(
    "--json",
    "as_json",
    is_flag=False,
    flag_value="-",
    metavar="[FILE]",
    help="Print one JSON object, or write it to a file.",
)
@overwrite_option
@click.option(
    "--value", "address", metavar="ADDRESS", help="Print one value as numbers: layers.3.mixer.pattern."
)
@model_options(
    architecture_option, revision_option, dtype_option, sampler_option, strategy_option, yes_option
)
@click.option("--raw", is_flag=True, help="Give the text as it is, without the chat template.")
def trace(
    source: str,
    prompt: str | None,
    layers: tuple[int, ...],
    heads: tuple[int, ...],
    html: Path | None,
    language: str,
    npz: Path | None,
    as_json: str | None,
    overwrite: bool,
    address: str | None,
    raw: bool,
    options: ModelOptions,
    settings: CommandSettings,
) -> None:
    """Follow TEXT through SOURCE (an architecture, a folder, a GGUF file or a hub id), from its pieces to new text.

    Shows pieces and ids, vectors, what each layer adds, where its heads look, what the head would predict after each
    layer, and how each new token was chosen. --html writes all of it as a page; --npz every number. At most 8 tokens
    are written, unless --max-tokens says otherwise.
    """
    from zoo.files.writing import check_outputs, write_markup
    from zoo.inspect.trace_view.summaries import value_json, value_lines

    if prompt is None or prompt == "-":
        prompt = piped_prompt("trace", source)
    written = [path for path in (html, npz, Path(as_json) if as_json not in (None, "-") else None) if path]
    check_outputs(written, overwrite)
    found = _traced(source, prompt, options, settings, raw, address, whole=bool(written))
    if npz is not None:
        found.save(npz, overwrite=overwrite)
    if address is not None:
        if as_json is None:
            click.echo("\n".join(value_lines(found, address)))
        else:
            _write_json(value_json(found, address), as_json, overwrite)
        if html is None:
            return
    from zoo.inspect.trace_view.build_view import build_view

    with Progress("drawing"):
        view = build_view(found)
    chosen = view.patterns(layers, heads)
    if html is not None:
        from zoo.inspect.trace_view.page import page

        write_markup(html, page(view, language), overwrite)
    if address is not None:
        return
    if as_json is not None:
        _write_json(view.to_json(), as_json, overwrite)
    elif not written:
        from zoo.cli.trace_output import show

        show(model_name(found.loaded), view, chosen, layers)
    if written:
        click.echo("wrote " + ", ".join(map(str, written)), err=True)


def _traced(
    source: str,
    prompt: str,
    options: ModelOptions,
    settings: CommandSettings,
    raw: bool,
    address: str | None,
    *,
    whole: bool,
) -> Trace:
    """The trace of a source that is loaded for it: `whole`, or only the value at `address` where there is one."""
    from zoo.generation.chat.chat_prompt import prompt_of
    from zoo.inspect.tracing.intervention import resolve
    from zoo.inspect.tracing.probe import values_of
    from zoo.inspect.tracing.traced_run import trace as run

    loaded = options.load(source)
    only = () if address is None else (resolve(address, values_of(loaded.model, loaded.registry))[0],)
    settings = options.settings(loaded, settings)
    ids = prompt_of(loaded, typed_prompt(loaded, prompt), settings, raw=raw).ids
    with Progress("tracing"):
        return run(loaded, ids, only=() if whole else only, **settings)


def _write_json(values: dict[str, Any], target: str, overwrite: bool) -> None:
    """Write JSON to a file or, for "-", to standard output. SourceError when it cannot be written."""
    from zoo.files.writing import write_record

    if target == "-":
        click.echo(json.dumps(values, ensure_ascii=False, allow_nan=False))
    else:
        write_record(Path(target), values, overwrite, allow_nan=False)
