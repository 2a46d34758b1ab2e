"""`zoo tune`: teach an existing model by a person's own examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from zoo.architecture import Objective
from zoo.cli.source_options import (
    FOLDER,
    architecture_option,
    complete_source,
    dtype_option,
    force_option,
    named_values,
    revision_option,
    yes_option,
)
from zoo.cli.training import check_resume, run_training

ADAPTER = ("kind", "rank", "scale", "dropout", "parts", "layers")  # options of `AdapterSettings`


def _parts(_: click.Context, __: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    return tuple(part.strip() for part in text.split(",") if part.strip()) if text is not None else None


@click.command(epilog="Example: zoo tune llama --data examples.jsonl --out my-adapter")
@click.argument("source", shell_complete=complete_source)
@click.option(
    "--data",
    metavar="PATH",
    required=True,
    help='A .jsonl file, a folder with train.jsonl and valid.jsonl, or a data set of the hub: "text"; "prompt" and '
    '"completion"; "messages"; "chosen" and "rejected"; "source" and "target"; or "anchor" and "positive" a line; also '
    "ShareGPT's and Alpaca's.",
)
@click.option("--out", type=FOLDER, required=True, help="The adapter's folder to write.")
@click.option(
    "--type",
    "kind",
    type=click.Choice(["lora", "dora", "full"]),
    help="LoRA or DoRA beside the matrices, or the weights themselves (default: lora).",
)
@click.option("--rank", type=int, help="Rank of the matrices' changes (default: 8).")
@click.option("--scale", type=float, help="Factor of the changes (default: 20).")
@click.option("--dropout", type=float, help="Share of an adapter's inputs that are dropped out (default: 0).")
@click.option(
    "--parts",
    metavar="NAME,…|all",
    callback=_parts,
    help="Addresses within a layer: mixer.query, feedforward, … (default: all linear layers).",
)
@click.option("--layers", type=int, metavar="N", help="Train the last N layers alone.")
@click.option(
    "--objective",
    metavar="NAME[:KEY=VALUE,…]",
    help="What to train for: dpo, orpo, contrastive, distill, … (default: what suits the model's task).",
)
@click.option("--steps", type=int, help="Steps in all (default: three rounds of the data).")
@click.option("--batch", type=int, help="Rows a batch (default: 4).")
@click.option(
    "--accumulate", type=int, metavar="N", help="Batches a step, their gradients averaged (default: 1)."
)
@click.option("--length", type=int, help="Tokens of an example at most (default: 2048).")
@click.option("--rate", type=float, help="Peak learning rate (default: 1e-4; with --type full 1e-5).")
@click.option(
    "--schedule",
    type=click.Choice(["cosine", "linear", "constant"]),
    help="How the learning rate falls after its peak (default: cosine).",
)
@click.option("--warmup", type=int, help="Steps until the peak (default: 100, at most a tenth of the steps).")
@click.option("--clip", type=float, help="Largest norm of the gradients (default: 1).")
@click.option(
    "--checkpoint", is_flag=True, default=None, help="Compute activations again: less memory, more time."
)
@click.option("--seed", type=int, help="Seed of the adapter and the order of the data.")
@click.option("--resume", is_flag=True, help="Go on with the run in OUT; a finished one takes more --steps.")
@click.option("--overwrite", is_flag=True, help="Replace the adapter in OUT, once the new one is trained.")
@click.option("--forget", is_flag=True, help="Delete the state for --resume at the end.")
@architecture_option
@revision_option
@dtype_option
@force_option
@yes_option
def tune(
    source: str,
    data: str,
    out: Path,
    objective: str | None,
    resume: bool,
    overwrite: bool,
    forget: bool,
    architecture: str | None,
    revision: str | None,
    dtype: str | None,
    force: bool,
    **given: Any,
) -> int:
    """Teach SOURCE by the examples in PATH and write an adapter that `zoo run SOURCE --adapter OUT` loads.

    mlx-lm loads it, too. Ctrl-C saves the run, and --resume goes on with it, as if it had not been interrupted.
    """
    from zoo.host.registry import default_registry
    from zoo.training.adapters import AdapterSettings
    from zoo_tune.run import TuneSettings, tune_folder

    check_resume(resume, overwrite)
    asked = {key: value for key, value in given.items() if value is not None}
    adapter = AdapterSettings(**{key: asked.pop(key) for key in ADAPTER if key in asked})
    name, values = (
        named_values(default_registry(), Objective, "--objective", objective) if objective else (None, {})
    )
    settings = TuneSettings(adapter, name, values, asked)
    how: dict[str, Any] = dict(architecture=architecture, revision=revision, dtype=dtype, force=force)
    folder: dict[str, Any] = dict(resume=resume, overwrite=overwrite, keep=not forget)
    record = run_training(
        out.name,
        lambda callbacks: tune_folder(source, out, data, settings, **folder, callbacks=callbacks, **how),
        f"zoo tune … --out {out} --resume",
    )
    if record is None:
        return 130
    validation = f", validation {record.validation[-1][1]}" if record.validation else ""
    click.echo(
        f"{out}: {record.parameters:,} trained parameters, {record.tokens:,} tokens in {record.seconds:.0f} s, "
        f"loss {record.losses[-1][1]}{validation}; `zoo run {source} --adapter {out}` uses it"
    )
    return 0
