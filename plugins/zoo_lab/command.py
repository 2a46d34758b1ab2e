"""`zoo lab`: experiments that train or run small models here."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli.source_options import FILE, FOLDER
from zoo.errors import ZooError, pluralize

if TYPE_CHECKING:
    from zoo_lab.record import ExperimentRecord

OUT = Path("lab")


@click.command()
@click.argument("name", required=False)
@click.option("--out", type=FOLDER, default=OUT, show_default=True, help="The folder of records and figures.")
@click.option("--seeds", type=int, help="Runs of each arm (default: the experiment's).")
@click.option("--steps", type=int, help="Steps of each training (default: the experiment's).")
@click.option("--quick", is_flag=True, help="A tiny version, which shows that everything runs.")
@click.option("--fresh", is_flag=True, help="Run all again, and replace the record and the figures in OUT.")
@click.option(
    "--figures", type=FILE, metavar="RECORD", help="Run nothing: draw the figures of this record again."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: the experiments, or the record.")
def lab(
    name: str | None,
    out: Path,
    seeds: int | None,
    steps: int | None,
    quick: bool,
    fresh: bool,
    figures: Path | None,
    as_json: bool,
) -> int:
    """Run the experiment NAME and write its record and figures into --out; without a name, list the experiments.

    Ctrl-C stops it; what was run is kept, and the same command goes on from there.
    """
    if figures is not None:
        from zoo_lab.figures import draw
        from zoo_lab.report import read

        if name is not None:
            raise click.UsageError("--figures draws a record again and runs nothing: leave NAME out")
        for path in draw(read(figures), figures.parent, overwrite=fresh):
            click.echo(path)
        return 0
    if name is None:
        _list(out, as_json)
        return 0
    from zoo_lab.figures import draw
    from zoo_lab.plan import Scale
    from zoo_lab.report import read, record_path

    path = record_path(name, out)
    try:
        record = _run(name, out, seeds=seeds, scale=Scale(steps, quick), fresh=fresh)
    except KeyboardInterrupt:
        try:
            record = read(path)
        except ZooError:
            left = "no run was finished, nothing is written"
        else:
            runs = f"{len(record.runs)} of {pluralize(record.seeds * len(record.arms), 'run')}"
            left = f"{runs} are kept in {path}: the same command goes on"
        click.echo(f"zoo: stopped; {left}", err=True)
        return 130
    if as_json:
        click.echo(path.read_text(encoding="utf-8"), nl=False)
    else:
        _show(record)
    try:
        files = draw(record, out, overwrite=fresh)
    except ZooError as error:  # says what figures need
        click.echo(f"zoo: {error}; the record is written: {path}", err=True)
    else:
        click.echo("wrote " + " ".join(map(str, (path, *files))), err=True)
    return 0


def _run(name: str, out: Path, **how: Any) -> ExperimentRecord:
    """Run the experiment with a bar on the error stream of a terminal, elsewhere a line a run."""
    from zoo.cli.progress import Progress, say
    from zoo.cli.signals import Interrupts
    from zoo_lab.record import RunRecord
    from zoo_lab.run import ExperimentCallbacks, run_experiment

    total = 0

    def begun(runs: int, done: int) -> None:
        nonlocal total
        total = runs
        if done:
            say(f"{done} of {runs} runs were done before and are kept; --fresh runs them again")

    def over(run: RunRecord, number: int) -> None:
        if run.failed:
            say(f"{run.arm}, {run.seed}: {run.failed}")
        elif not sys.stderr.isatty():
            say(f"{number}/{total} {run.arm}, {run.seed}: {run.seconds:.1f} s")

    with Interrupts(lambda text: None), Progress(name) as bar:
        return run_experiment(name, out, callbacks=ExperimentCallbacks(begun, bar, over), **how)


def _show(record: ExperimentRecord) -> None:
    """Print the question, the expectation, the numbers and the verdicts."""
    from zoo.cli.terminal import columns, table, wrapped
    from zoo_lab.report import conclusion, findings, rows

    room = columns()
    click.echo(wrapped(record.question, room))
    click.echo(wrapped(record.expected, room, "expected: ", "  ") + "\n")
    head, *body = rows(record)
    click.echo(table(body, head, repeated=1) + "\n")
    for finding in findings(record):
        click.echo(wrapped(f"{finding.verdict}: {finding.claim.text} ({finding.words})", room, later="  "))
    click.echo(wrapped(conclusion(record), room))


def _list(out: Path, as_json: bool) -> None:
    """Print every experiment by name, with its question and the time of its last complete run here or its author's."""
    from zoo.architecture import Experiment
    from zoo.cli.terminal import columns, table, wrapped
    from zoo.host.registry import default_registry
    from zoo_lab.report import read, record_path

    registry, rows = default_registry(), []
    for name, experiment in registry.table(Experiment).listed().items():
        plugin, seconds = registry.plugin_of(experiment), experiment.seconds  # as its author states
        with suppress(ZooError):
            record = read(record_path(experiment.name, out))
            if record.complete and not record.settings.get("quick"):
                seconds = round(record.seconds, 1)
        rows.append(
            {"name": name}
            | {part: getattr(experiment, part) for part in ("summary", "question", "expected")}
            | {"references": list(experiment.references), "seeds": experiment.seeds}
            | {"seconds": seconds}
            | {"distribution": plugin.distribution, "first_party": plugin.first_party}
        )
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False, indent=1))
        return
    columns_shown = {"name": "name", "question": "question", "minutes": "minutes", "distribution": "from"}
    if all(row["first_party"] for row in rows):
        del columns_shown["distribution"]
    for row in rows:
        row["minutes"] = "–" if row["seconds"] is None else f"{row['seconds'] / 60:.1f}"
    click.echo(table([[row[key] for key in columns_shown] for row in rows], list(columns_shown.values())))
    room = columns()
    click.echo("\n" + wrapped("`zoo lab NAME` runs an experiment, with --quick a small version of it", room))
