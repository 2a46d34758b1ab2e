"""Checks of tuning: every model learns by an adapter, and the adapter survives saving, loading, fusing and resuming."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from zoo.checkpoint.convert import convert
from zoo.errors import ZooError
from zoo.testing.subjects import Subject, answer, is_saved, load_model, packed_model, same, save_model

if TYPE_CHECKING:
    from zoo.training.adapters import AdapterSettings
    from zoo.training.loop import Batch

STEPS = 6
TOKENS = 12  # of each text that is learned
HALF = "half.safetensors"
RATES = {"lora": 1e-2, "dora": 1e-2, "full": 1e-3}  # peak learning rates of the checks


def is_tuned(subject: Subject) -> bool:
    """Whether the model is small and random, and run by the zoo's own blocks."""
    return is_saved(subject) and not subject.trained and not subject.architecture.bridged


def lora_learns_and_is_kept(subject: Subject) -> None:
    """Tuning by LoRA must lower the loss, and be the same saved, loaded, fused and resumed."""
    check_tuning(subject, "lora")


def dora_learns_and_is_kept(subject: Subject) -> None:
    """Tuning by DoRA must lower the loss, and be the same saved, loaded, fused and resumed."""
    check_tuning(subject, "dora")


def full_tuning_learns_and_is_kept(subject: Subject) -> None:
    """Training all weights must lower the loss, and be the same saved, loaded, fused and resumed."""
    check_tuning(subject, "full")


def lora_of_a_quantized_model_learns_and_is_kept(subject: Subject) -> None:
    """Tuning by LoRA beside packed matrices must lower the loss, and be the same saved, loaded and resumed."""
    check_tuning(subject, "lora", packed=True)


def check_tuning(subject: Subject, kind: str, packed: bool = False) -> None:
    """AssertionError unless a kind of tuning lowers the loss and is kept by files and by an interruption."""
    from zoo.training.adapters import AdapterSettings, adapter_files, write_adapter

    subject = replace(subject, tokens=subject.tokens[:, :TOKENS])
    settings = AdapterSettings(kind=kind, rank=4, scale=2.0, dropout=0.1)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        base = folder / "base"
        save_model(subject, packed_model(subject, folder / "plain") if packed else subject.model, base)
        model, chosen, losses = tuned(subject, base, settings, folder / "run")
        assert min(losses[-3:]) < losses[0], (
            f"the loss went from {losses[0]:.4g} to {losses[-1]:.4g} in {STEPS} steps"
        )
        expected = answer(subject, model)
        tensors, config = adapter_files(model, settings, chosen, subject.architecture, subject.recipe)
        adapter = folder / "adapter"
        adapter.mkdir()
        write_adapter(adapter, tensors, config)
        loaded = load_model(subject, base, adapter=adapter)
        same(answer(subject, loaded.model), expected, "logits with the loaded adapter")
        if not packed:  # packing again would round
            how: dict[str, Any] = dict(architecture=subject.architecture, registry=subject.registry)
            convert(base, folder / "fused", adapter=adapter, dtype="float32", **how)
            fused = load_model(subject, folder / "fused").model
            same(answer(subject, fused), expected, "logits of the fused model")
        resumed, _, _ = tuned(subject, base, settings, folder / "resumed", folder / "run" / HALF)
        for (path, array), (_, other) in zip(trained(model), trained(resumed), strict=True):
            assert mx.array_equal(array, other).item(), f"{path} is another after an interruption"
        _check_refused(subject, base, adapter, tensors, config)


def tuned(
    subject: Subject, base: Path, settings: AdapterSettings, run: Path, resume: Path | None = None
) -> tuple[nn.Module, list[str], list[float]]:
    """The model in `base` after `STEPS` steps on the subject's texts, the addresses that took part, and the losses.

    The state after half of the steps is kept in `run`; with `resume` the run goes on from such a state.
    """
    from zoo.training.adapters import add_adapters
    from zoo.training.loop import Trainer, TrainingCallbacks
    from zoo.training.loss import cross_entropy
    from zoo.training.record import TrainingRecord, TrainingSettings
    from zoo.training.run_folder import open_state

    *shape, classes = answer(subject).shape
    targets = mx.random.randint(0, classes, shape, key=mx.random.key(7))

    def loss(model: nn.Module, tokens: mx.array, targets: mx.array) -> mx.array:
        return cross_entropy(answer(subject, model).astype(mx.float32), targets)

    def batches() -> Iterator[Batch]:
        while True:
            yield subject.tokens, targets

    training = TrainingSettings(
        steps=STEPS, rate=RATES[settings.kind], warmup=2, decay=0.0, schedule="constant"
    )
    losses: list[float] = []
    state = run / "state.safetensors"

    def note(step: int, loss: float, rate: float) -> None:
        losses.append(loss)
        if step == STEPS // 2 + 1 and resume is None:
            shutil.copy(state, run / HALF)

    model = load_model(subject, base).model
    chosen = add_adapters(model, settings)
    record = TrainingRecord(subject.architecture.name, 0, vars(training))
    callbacks = TrainingCallbacks(step=note)
    trainer = Trainer(model, loss, training, record, state, callbacks=callbacks, every=STEPS // 2)
    run.mkdir()
    trainer.run(batches(), None if resume is None else open_state(resume))
    return model, chosen, losses


def trained(model: nn.Module) -> list[tuple[str, mx.array]]:
    """The trainable parameters by path."""
    return sorted(tree_flatten(model.trainable_parameters()))


def _check_refused(subject: Subject, base: Path, adapter: Path, tensors: Any, config: Any) -> None:
    """AssertionError unless the adapter with a tensor of another model is refused by name."""
    from zoo.training.adapters import write_adapter

    full = config["fine_tune_type"] == "full"
    stranger = "stranger.weight" if full else "stranger.lora_a"
    extra = dict.fromkeys((stranger,) if full else (stranger, "stranger.lora_b"), mx.ones((4, 4)))
    write_adapter(adapter, {**tensors, **extra}, config)
    try:
        load_model(subject, base, adapter=adapter)
    except ZooError as error:
        assert "stranger" in str(error), f"an adapter of another model is refused without its name: {error}"
    else:
        raise AssertionError("an adapter of another model is loaded")
