"""`zoo new`: writes a plugin of a kind, or for a checkpoint. Imports no mlx."""

from __future__ import annotations

from pathlib import Path

import click

from zoo_new.parts import BLOCKS, KINDS
from zoo_new.write_plugin import ARCHITECTURES, create


@click.command()
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(list(KINDS["files"])),
    default="architecture",
    help="What the plugin gives; an architecture is a decoder, or what its base is.",
)
@click.option("--base", metavar="ARCH", help="Make the architecture a variant of this one (llama).")
@click.option(
    "--block",
    type=click.Choice(list(BLOCKS)),
    is_flag=False,
    flag_value="norm",
    help="Give the decoder a block of its own, of this kind (norm), or the block of --kind block.",
)
@click.option(
    "--from",
    "source",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Write it for the checkpoint in this folder, from the family of the zoo that is nearest to its config and "
    "tensors (or --base), and say what is left to do.",
)
def new(name: str, kind: str, base: str | None, block: str | None, source: Path | None) -> None:
    """Write the plugin NAME as a package in the new folder NAME: code, tests, README, CI.

    It installs with pip and passes its tests as written; the README says what to do next.
    """
    if source is not None:
        if kind != "architecture" or block:
            raise click.UsageError(
                "--from reads kind and block from the checkpoint: leave --kind and --block out"
            )
        from zoo_new.from_checkpoint import create_from  # imports mlx

        click.echo(create_from(name, source, base=base))
        return
    folder = create(name, kind, base=base, block=block)
    if kind in ARCHITECTURES:
        following = f"pip install -e {folder} && zoo test {folder.name}"
    else:
        following = f"pip install -e '{folder}[test]' && pytest {folder}"
    click.echo(f"{folder}: written. Next: {following}")
