"""`zoo convert`: a checkpoint to a new folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli.source_options import (
    FOLDER,
    architecture_option,
    complete_source,
    repack_option,
    revision_option,
    yes_option,
)

if TYPE_CHECKING:
    from zoo.checkpoint.calibration import Calibration
    from zoo.checkpoint.open import Report


@click.command()
@click.argument("source", shell_complete=complete_source)
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--quantize", "-q", metavar="BITS", help="2, 3, 4, 5, 6, 8, mxfp4, nvfp4 or mxfp8; none dequantizes."
)
@click.option(
    "--group-size",
    type=int,
    help="Weights that share a scale: 32, 64 or 128 (default: 64, or as SOURCE is packed).",
)
@click.option(
    "--recipe",
    metavar="NAME",
    help="Mixed precision, two bit widths: mixed-2-6, mixed-3-4, mixed-3-6, mixed-4-6.",
)
@click.option(
    "--dtype", type=click.Choice(["float32", "float16", "bfloat16"]), help="Cast floats to this type."
)
@click.option(
    "--layout",
    type=click.Choice(["mlx", "hf"]),
    default="mlx",
    show_default=True,
    help="Tensor names and layouts of mlx-lm, or of transformers.",
)
@click.option(
    "--adapter", type=FOLDER, help="A LoRA or DoRA adapter to merge: a folder as mlx-lm or PEFT writes it."
)
@architecture_option
@revision_option
@yes_option
@repack_option
@click.option(
    "--calibrate",
    type=click.Path(path_type=Path),
    help='A text to round by: .txt, .md, or .jsonl with a "text" (or "source" and "target") a line.',
)
@click.option(
    "--method",
    metavar="NAME",
    help="How --calibrate rounds: gptq, awq, sensitivity, or a plugin's (default: gptq).",
)
@click.option(
    "--bits",
    type=float,
    help="Bits of a weight on average, scales included, for --method sensitivity (default: -q's).",
)
@click.option("--calibration-rows", type=int, help="Rows of text that are read (default: 64).")
@click.option("--calibration-length", type=int, help="Tokens of a row (default: 512).")
@click.option("--check", is_flag=True, help="Measure the KL divergence from SOURCE on sample text.")
def convert(source: str, out: Path, check: bool, **how: Any) -> None:
    """Write SOURCE (an architecture, a folder, a GGUF file or a hub id) to the new folder OUT, quantized or not."""
    from zoo.checkpoint.convert import convert as write
    from zoo.cli.progress import Progress
    from zoo.inspect.perplexity import divergence

    with Progress("calibrating", waits=True) as calibrating, Progress("writing", waits=True) as report:
        calibration = _calibration(how, calibrating)
        done = write(source, out, report=report, calibration=calibration, **how)
    click.echo(
        f"{done.folder}: {done.parameters:,} parameters, {done.bytes / 1e6:,.1f} MB, {done.bits:.2f} bits a weight"
    )
    if check:
        with Progress("comparing") as report:
            found = divergence(
                *(source, out), architecture=how["architecture"], revision=how["revision"], report=report
            )
        click.echo(
            f"KL divergence to the source: {found.mean:.4g} nats a token, at most {found.worst:.4g}, {found.tokens} tokens"
        )


def _calibration(how: dict[str, Any], report: Report) -> Calibration | None:
    """Take the options of a calibration out of `how`; ZooError for one of them without --calibrate."""
    from zoo.checkpoint.calibration import Calibration
    from zoo.errors import ZooError

    names = {"calibrate": "text", "calibration_rows": "rows", "calibration_length": "length"}
    names |= {"method": "method", "bits": "bits"}
    given = {names[name]: value for name in names if (value := how.pop(name)) is not None}
    if given and "text" not in given:
        raise ZooError(f"`{next(name for name in names if names[name] in given)}` needs `calibrate`")
    return Calibration(**given, report=report) if given else None
