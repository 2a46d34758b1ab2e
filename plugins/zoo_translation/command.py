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
    from zoo.checkpoint.source import find, read_json
    from zoo.errors import TokenizerError
    from zoo.host.registry import default_registry
    from zoo.tokenizer import load_tokenizer

    folder = find(source, default_registry()).folder
    tokenizer = load_tokenizer(folder, read_json(folder / "config.json"))
    if tokenizer is None or tokenizer.languages is None:
        raise TokenizerError(f"{source}: its tokenizer names no languages to choose between")
    codes = sorted(tokenizer.languages.codes)
    click.echo(json.dumps(codes, ensure_ascii=False) if as_json else "\n".join(codes))
