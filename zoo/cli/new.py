"""`zoo new`: a plugin of one's own, as a complete package."""

from __future__ import annotations

import click

KINDS = ("architecture", "encoder", "encoder-decoder", "block", "strategy", "command")
BLOCKS = ("norm", "mixer", "feedforward", "router")


@click.command()
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    default="architecture",
    help="What the plugin gives; an architecture is a decoder, or what its base is.",
)
@click.option("--base", metavar="ARCH", help="Make the architecture a variant of this one (llama).")
@click.option(
    "--block",
    type=click.Choice(BLOCKS),
    is_flag=False,
    flag_value="norm",
    help="Give the decoder a block of its own, of this kind (norm), or the block of --kind block.",
)
def new(name: str, kind: str, base: str | None, block: str | None) -> None:
    """Write the plugin NAME as a package in the new folder NAME: code, tests, README, CI.

    It installs with pip and passes its tests as written; the README says what to do next.
    """
    from zoo.scaffold import create

    folder = create(name, kind, base=base, block=block)
    if kind == "architecture":
        following = f"pip install -e {folder} && zoo test {folder.name}"
    else:
        following = f"pip install -e '{folder}[test]' && pytest {folder}"
    click.echo(f"{folder}: written. Next: {following}")
