"""`zoo test`: the conformance suite from the shell."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zoo.cli.source_options import complete_source, yes_option
from zoo.cli.terminal import wrapped
from zoo.errors import ZooError, pluralize

if TYPE_CHECKING:
    from zoo.testing import CheckResult, Subject


@click.command()
@click.argument("source", shell_complete=complete_source)
@click.option(
    "--reference",
    type=click.Path(path_type=Path),
    metavar="FOLDER_OR_NPZ",
    help="Also compare logits with this: another checkpoint of the same model, or an npz of tokens and logits.",
)
@click.option("--tolerance", type=float, help="Of --reference: share of the logits' range (1e-4).")
@yes_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def test(debug: bool, source: str, reference: Path | None, tolerance: float | None, as_json: bool) -> None:
    """Run the conformance suite on SOURCE; the exit status is 1 when a check fails.

    It builds an architecture (llama) or preset (mistral:tiny) small, with random weights, and loads a folder or hub id
    in float32. With --reference an architecture stands for its own checkpoint.
    """
    from zoo.host.registry import default_registry
    from zoo.testing import TOLERANCE, results_of

    if tolerance is not None and not (reference and 0 < tolerance < 1):
        raise ZooError("--tolerance goes with --reference and lies between 0 and 1")
    made, what = _subject(source, trained=reference is not None)
    plugin = default_registry().plugin_of(made.architecture)
    head = f"{made.architecture.name} ({plugin.label}), {what}"
    if not as_json:
        click.echo(wrapped(head))
    compared = []
    if reference is not None:  # before the checks: one that cannot be read, or does not fit, is told at once
        from zoo.testing.reference import agreement

        compared.append(agreement(made, reference, tolerance or TOLERANCE))
    results: list[CheckResult] = []
    for result in chain(results_of(made), compared):
        if not as_json:
            same = (r.name for r in results if result.message and r.message == result.message)
            _show(result, debug, next(same, None))
        results.append(result)
    failed = [result for result in results if not result.passed]
    if as_json:
        rows = [{k: v for k, v in vars(r).items() if k != "traceback" or debug} for r in results]
        click.echo(json.dumps({"subject": head, "checks": rows}, ensure_ascii=False, indent=1))
    else:
        library = made.architecture.name.partition("::")[0] if made.architecture.bridged else ""
        count = f"{pluralize(len(results), 'check')}{f' of {library}' if library else ''}"
        rest = "; the others need a model that runs" if [r.name for r in failed] == ["model_runs"] else ""
        click.echo(f"{count}, {len(failed) or 'none'} failed{rest}")
    if failed:
        click.get_current_context().exit(1)


def _subject(source: str, trained: bool) -> tuple[Subject, str]:
    """The model to test, and a description of its weights."""
    from zoo.checkpoint.source import split_preset
    from zoo.cli.progress import Progress
    from zoo.host.registry import default_registry
    from zoo.loading import load
    from zoo.testing import subject, subject_of

    plain, preset = split_preset(source)
    if plain in default_registry() and not trained and not source.startswith((".", "/", "~")):
        made = subject(plain, preset)
        return made, f"{made.recipe.parameters(made.recipe.dim):,} random parameters"
    with Progress("loading", waits=True) as report:
        loaded = load(source, dtype="float32", report=report)
    return subject_of(loaded), f"the checkpoint {loaded.folder}"


def _show(result: CheckResult, debug: bool, same: str | None) -> None:
    """Print a result; `same` names an earlier check that failed with the same message."""
    mark, below = "ok    " if result.passed else "FAILED", " " * 10
    click.echo(wrapped(f"{result.name.replace('_', ' ')}: {result.reason}", first=f"  {mark}  ", later=below))
    if not result.passed:
        message = f"as {same.replace('_', ' ')} does" if same else result.message
        click.echo(wrapped(message, first=below, later=below))
        if debug and result.traceback and not same:
            click.echo(result.traceback.rstrip())
