"""The options that commands share which open a source and run it: `@architecture_option` above the command's function."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from zoo.cli.downloads import yes_option

architecture_option = click.option(
    "--architecture", metavar="NAME", help="Use this architecture, whatever the config says."
)
revision_option = click.option("--revision", metavar="NAME", help="A hub id's branch, tag or commit.")
repack_option = click.option(
    "--repack",
    type=click.Choice(["4", "6", "8"]),
    callback=lambda _, __, bits: None if bits is None else int(bits),
    help="Requantize GGUF blocks that MLX has no format for to this many bits.",
)
unpack_option = click.option(
    "--unpack/--packed",
    default=None,
    help="Keep dequantized copies of quantized matrices, faster on a CPU (default: where memory allows).",
)
adapter_option = click.option(
    "--adapter",
    type=click.Path(path_type=Path, file_okay=False),
    help="A LoRA or DoRA adapter: a folder as mlx-lm writes it.",
)
overwrite_option = click.option(
    "--overwrite", is_flag=True, help="Replace an existing file, even one that the zoo did not write."
)
force_option = click.option(
    "--force", is_flag=True, help="Load the model even if it does not seem to fit in memory."
)
dtype_option = click.option(
    "--dtype", type=click.Choice(["float32", "float16", "bfloat16"]), help="Compute in this type."
)
sampler_option = click.option(
    "--sampler",
    "samplers",
    multiple=True,
    metavar="NAME[:KEY=VALUE,…]",
    help="Apply a plugin's sampler; may be given several times.",
)
strategy_option = click.option(
    "--strategy",
    metavar="NAME",
    help="Generation strategy (default: the one for the model's task and the settings).",
)
prompt_cache_option = click.option(
    "--prompt-cache",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File that keeps the KV caches of prompts; a prompt that begins like one of them reuses it.",
)


def model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of commands that run a model on text: how it is opened, and how its text is made."""
    options = (
        *(adapter_option, architecture_option, revision_option, repack_option, unpack_option),
        *(dtype_option, force_option, yes_option),
        *(strategy_option, sampler_option, prompt_cache_option),
    )
    for option in reversed(options):
        command = option(command)
    return command
