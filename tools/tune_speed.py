"""Losses, speed and memory of `zoo tune` beside `mlx_lm.lora`.

    python tools/tune_speed.py losses FOLDER
    python tools/tune_speed.py speed FOLDER

Both train the same first adapter on the same rows in the same order with the same optimizer, each in a process of its own, on
texts and on completions of which only the answers are targets. Each pads a batch as it does by itself. `losses` compares the
losses of each step, and the logits of the trained adapter in both. `speed` alternates between them: targets a second, without
the first step of each width, and the most memory that MLX held; a record gets its rounds beside those that it has.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx
import mlx.optimizers as optim

from zoo import runtime
from zoo.files.writing import write_record
from zoo.loading import Loaded
from zoo.runtime import versions
from zoo.training.adapters import AdapterSettings, adapter_files, add_adapters, write_adapter
from zoo.training.answers import ANSWERS
from zoo.training.example_objective import ExampleBatches
from zoo.training.examples import Completion, Example, TextExample
from zoo.training.loop import Batch, Trainer, TrainingCallbacks, schedule
from zoo.training.loss import IGNORED, scored_targets
from zoo.training.record import TrainingRecord, TrainingSettings
from zoo_tune.run import BATCH, LENGTH, RATES, rows_of

EXAMPLES, SEED = 200, 7
ADAPTER = AdapterSettings()
KINDS = ("texts", "completions")
PAD = 32  # to multiples of which mlx-lm pads
RIVERS = ("Aller", "Bode", "Elbe", "Havel", "Isar", "Lahn", "Main", "Neckar", "Oder", "Saale")
PLACES = ("old mill", "stone bridge", "market town", "quiet forest", "harbour", "castle", "railway station")
Step = Callable[[int, float], None]  # called after a step with its number and loss


def sentences(draw: random.Random, least: int, most: int) -> str:
    """Some sentences of about twelve tokens."""
    count = draw.randint(least, most)
    return " ".join(
        f"The river {draw.choice(RIVERS)} flows past the {draw.choice(PLACES)}." for _ in range(count)
    )


def examples(kind: str) -> list[Example]:
    """Texts, or completions, of about 30 to 200 tokens."""
    draw = random.Random(SEED)
    if kind == "texts":
        return [TextExample("", sentences(draw, 3, 18)) for _ in range(EXAMPLES)]
    return [Completion("", sentences(draw, 1, 6), sentences(draw, 1, 8)) for _ in range(EXAMPLES)]


def prepare(kind: str, given: argparse.Namespace, job: Path) -> None:
    """Write the batches, and the adapter before its first step, to a folder."""
    reader = zoo.load(given.tokenizer or given.source)
    rows = rows_of(ANSWERS, reader, examples(kind), given.length)
    batches = ExampleBatches(ANSWERS, reader, rows, (), given.batch, SEED).training()
    loaded = zoo.load(given.source)
    vocab = loaded.recipe.embedding.vocab
    arrays = {}
    for n, batch in enumerate(islice(batches, given.steps)):
        for name, ids in zip("xy", batch, strict=True):
            arrays[f"{name}.{n}"] = mx.where(ids == IGNORED, ids, ids % vocab)  # of another model's tokenizer
    mx.save_safetensors(str(job / "batches.safetensors"), arrays)
    write(loaded, add_adapters(loaded.model, ADAPTER, SEED), job / "first")


def write(loaded: Loaded, chosen: list[str], folder: Path) -> None:
    """Write the adapter of a model to a folder."""
    folder.mkdir()
    write_adapter(folder, *adapter_files(loaded.model, ADAPTER, chosen, loaded.architecture, loaded.recipe))


def batches_in(job: Path) -> list[Batch]:
    """The batches of a folder: inputs and targets (B, T)."""
    arrays = mx.load(str(job / "batches.safetensors"))
    return [(arrays[f"x.{n}"], arrays[f"y.{n}"]) for n in range(len(arrays) // 2)]


def settings_of(steps: int) -> TrainingSettings:
    """The hyperparameters of `zoo tune`, without clipping, which mlx-lm does not have."""
    return TrainingSettings(steps=steps, rate=RATES["lora"], decay=0.0, clip=1e9)


def train_zoo(source: str, batches: Sequence[Batch], job: Path, step: Step) -> None:
    """Train by the zoo; writes the adapter and its logits of the first batch to the folder."""
    loaded = zoo.load(source)
    chosen = add_adapters(loaded.model, ADAPTER, SEED)
    settings = settings_of(len(batches))
    record = TrainingRecord(loaded.architecture.name, 0, vars(settings))
    callbacks = TrainingCallbacks(step=lambda number, loss, _: step(number, loss))
    Trainer(loaded.model, ANSWERS.loss, settings, record, job / "state", callbacks=callbacks).run(
        iter(batches)
    )
    write(loaded, chosen, job / "trained")
    mx.save_safetensors(str(job / "logits.safetensors"), {"logits": loaded.model(batches[0][0])})


def adapted(source: str, adapter: Path) -> Any:
    """mlx-lm's model of a folder with an adapter."""
    from mlx_lm.tuner.utils import load_adapters
    from mlx_lm.utils import load_model

    model, _ = load_model(Path(source))
    model.freeze()
    return load_adapters(model, str(adapter))


def train_mlx_lm(source: str, batches: Sequence[Batch], job: Path, step: Step) -> None:
    """Train by mlx-lm."""
    from mlx_lm.tuner.callbacks import TrainingCallback
    from mlx_lm.tuner.trainer import TrainingArgs, train

    class Callback(TrainingCallback):  # type: ignore[misc]
        def on_train_loss_report(self, report: dict[str, Any]) -> None:
            step(report["iteration"], report["train_loss"])

    def iterate(**_: Any) -> Iterator[tuple[mx.array, mx.array]]:
        yield from map(padded, batches)

    steps = len(batches)
    settings = settings_of(steps)
    optimizer = optim.AdamW(schedule(settings), betas=[0.9, 0.95], weight_decay=settings.decay)
    arguments = TrainingArgs(
        iters=steps, steps_per_report=1, steps_per_save=steps + 1, adapter_file=str(job / "last.safetensors")
    )
    model = adapted(source, job / "first")
    train(model, optimizer, [], args=arguments, iterate_batches=iterate, training_callback=Callback())


def padded(batch: Batch) -> tuple[mx.array, mx.array]:
    """A batch as mlx-lm's loss takes it: ids (B, 32 n + 1), and each row's first and last target (B, 2)."""
    rows, spans = [], []
    width = width_of(batch)
    for inputs, targets in zip(*(array.tolist() for array in batch), strict=True):
        scored = [place for place, id in enumerate(targets, 1) if id != IGNORED]
        ids = [*inputs[: scored[-1]], targets[scored[-1] - 1]]
        rows.append(ids + [0] * (width + 1 - len(ids)))
        spans.append([scored[0], scored[-1]])
    return mx.array(rows), mx.array(spans)


def width_of(batch: Batch) -> int:
    """The width to which mlx-lm pads a batch."""
    return -(-batch[0].shape[1] // PAD) * PAD


TRAINERS = {"zoo": train_zoo, "mlx-lm": train_mlx_lm}


def work(engine: str, source: str, job: Path) -> None:
    """The process of one training: its losses, speed and memory are written to the folder."""
    batches = batches_in(job)
    losses, ends, memory = list[float](), [0.0], [0]

    def step(number: int, loss: float) -> None:
        losses.append(loss)
        ends.append(time.perf_counter())
        memory.append(runtime.peak_memory())

    TRAINERS[engine](source, batches, job, step)
    widths: set[int] = set()
    targets, seconds = 0, 0.0
    for batch, (began, ended) in zip(batches, pairwise(ends), strict=True):
        if (width := width_of(batch)) in widths:
            targets += int(scored_targets(batch))
            seconds += ended - began
        widths.add(width)
    rate = targets / seconds if seconds else 0.0
    figures = {"losses": losses, "targets_per_second": rate, "peak_bytes": memory[-1]}
    (job / f"{engine}.json").write_text(json.dumps(figures), encoding="utf-8")


def trained(engine: str, source: str, job: Path) -> dict[str, Any]:
    """The figures of one training, in a process of its own."""
    shutil.rmtree(job / "trained", ignore_errors=True)
    command = [sys.executable, __file__, "train", source, "--engine", engine, "--job", str(job)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    figures: dict[str, Any] = json.loads((job / f"{engine}.json").read_text(encoding="utf-8"))
    speed = f"{figures['targets_per_second']:.1f} targets/s, {figures['peak_bytes'] / 1e9:.3f} GB"
    print(f"{engine}: {speed}, last loss {figures['losses'][-1]:.4f}", file=sys.stderr, flush=True)
    return figures


def losses(source: str, job: Path) -> dict[str, Any]:
    """The losses of both by step, and how far they and the logits of the trained adapter differ."""
    theirs, ours = (trained(engine, source, job)["losses"] for engine in ("mlx-lm", "zoo"))
    logits = mx.load(str(job / "logits.safetensors"))["logits"]
    expected = adapted(source, job / "trained")(batches_in(job)[0][0])
    apart = mx.abs(logits - expected).max() / (expected.max() - expected.min())
    return {
        "loss_difference": max(abs(a - b) / b for a, b in zip(ours, theirs, strict=True)),
        "logits_difference": apart.item(),
        **{
            engine: [round(loss, 5) for loss in measured]
            for engine, measured in (("zoo", ours), ("mlx-lm", theirs))
        },
    }


def speed(source: str, job: Path) -> dict[str, Any]:
    """The speed and memory of both, one after the other."""
    runs = {engine: trained(engine, source, job) for engine in TRAINERS}
    for figures in runs.values():
        del figures["losses"]
    return runs


PARTS = {"losses": losses, "speed": speed}


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="zoo tune beside mlx_lm.lora.")
    parser.add_argument("part", choices=(*PARTS, "train"))
    parser.add_argument("source", metavar="FOLDER")
    parser.add_argument("--tokenizer", metavar="FOLDER", help="where the model has no tokenizer of its own")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--batch", type=int, default=BATCH, help="rows a batch (4)")
    parser.add_argument("--length", type=int, default=LENGTH, help="tokens of a row at most (2048)")
    parser.add_argument("--steps", type=int, default=100, help="steps of a training (100)")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the figures as JSON, beside those it has")  # fmt: skip
    parser.add_argument("--engine", choices=TRAINERS, help=argparse.SUPPRESS)
    parser.add_argument("--job", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.part == "train":
        work(given.engine, given.source, given.job)
        return 0
    for kind in given.kinds:
        with tempfile.TemporaryDirectory() as folder:
            prepare(kind, given, Path(folder))
            for _ in range(given.rounds):
                figures = PARTS[given.part](given.source, Path(folder))
                if given.record:
                    keep(given, kind, figures)
                else:
                    print(json.dumps({kind: figures}), flush=True)
    return 0


def keep(given: argparse.Namespace, kind: str, figures: dict[str, Any]) -> None:
    """Put the figures of a round into the record, which keeps those of other rounds."""
    path: Path = given.record
    record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    record |= {"versions": versions() | {"mlx-lm": version("mlx-lm")}, "date": time.strftime("%Y-%m-%d")}
    about = {name: getattr(given, name) for name in ("batch", "length", "steps")}
    part = record.setdefault(given.part, {}).setdefault(kind, about | {"rounds": []})
    if {name: part[name] for name in about} != about:
        raise SystemExit(f"{path} has rounds of other sizes")
    part["rounds"].append(figures)
    write_record(path, record, overwrite=None, indent=1)


if __name__ == "__main__":
    sys.exit(main())
