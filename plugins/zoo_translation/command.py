"""`zoo languages`: between which languages a model translates."""

import json

import click


@click.command()
@click.argument("source")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def languages(source, as_json):
    """Print the codes of the languages that SOURCE (an architecture, a folder or a hub id) knows, for --target-language.

    Only its tokenizer is read.
    """
    from zoo.checkpoint.checkpoint import open_checkpoint
    from zoo.checkpoint.source import find
    from zoo.errors import TokenizerError
    from zoo.host.registry import default_registry

    registry = default_registry()
    tokenizer = open_checkpoint(
        find(source, registry, weights=False, tokenizer=True).path, registry
    ).tokenizer()
    if tokenizer is None or tokenizer.languages is None:
        raise TokenizerError(f"{source}: its tokenizer names no languages to choose between")
    codes = sorted(tokenizer.languages.codes)
    click.echo(json.dumps(codes, ensure_ascii=False) if as_json else "\n".join(codes))
