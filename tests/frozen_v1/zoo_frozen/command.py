"""Version 1 of the contract: a command. NEVER EDIT THIS FILE: see pyproject.toml."""

import click

from zoo.errors import PromptError


@click.command()
@click.argument("word")
def frozen(word):
    """Say WORD."""
    if not word:
        raise PromptError("the word is empty")
    click.echo(f"frozen: {word}")
