"""The options by which commands choose how a source is opened: `@architecture_option` above the command's function."""

from __future__ import annotations

import click

architecture_option = click.option(
    "--architecture", metavar="NAME", help="Use this architecture, whatever the config says."
)
revision_option = click.option("--revision", metavar="NAME", help="A hub id's branch, tag or commit.")
repack_option = click.option(
    "--repack",
    type=click.Choice(["4", "6", "8"]),
    callback=lambda _, __, bits: None if bits is None else int(bits),
    help="Pack in so many bits what no packing of MLX holds as a GGUF file has it.",
)
