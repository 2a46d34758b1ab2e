"""Tuning beside mlx-lm's: the same losses on the same batches, and adapters that mlx-lm loads with the zoo's logits."""

import sys
from pathlib import Path

import mlx_lm.utils as mlx_lm
import pytest
from mlx_lm.tuner.utils import load_adapters

import zoo  # isort: skip (before mlx, so that the fast BLAS is loaded)
import mlx.core as mx

from zoo.checkpoint.convert import convert
from zoo.training.adapters import AdapterSettings, adapter_files, add_adapters, write_adapter
from zoo.training.loop import Trainer
from zoo.training.loss import IGNORED, next_token_loss
from zoo.training.record import TrainingRecord, TrainingSettings

from .families import FAMILIES
from .family import VOCAB
from .support import TOLERANCE, far, texts

TOOLS = Path(__file__).parents[2] / "tools"
RATES = {"lora": 1e-2, "dora": 1e-2, "full": 1e-3}
CASES = [(family, None, kind) for family in ("llama", "qwen3", "mixtral") for kind in RATES]
CASES += [
    ("llama", "4", kind) for kind in RATES if kind != "full"
]  # packed matrices are not trained themselves


def folder_of(family, folder, quantize=None):
    """A folder of a small random model, as mlx-lm reads it."""
    FAMILIES[family].make(wide=True).save_pretrained(folder / "hf")
    convert(folder / "hf", folder / "mlx", quantize=quantize, group_size=32 if quantize else None)
    return folder / "mlx"


def tune(source, out, kind):
    """The zoo's model of a folder after a few steps; its adapter is written to `out`."""
    loaded = zoo.load(source)
    adapter = AdapterSettings(kind=kind, rank=4, scale=3.0)
    chosen = add_adapters(loaded.model, adapter)
    settings = TrainingSettings(steps=5, rate=RATES[kind], warmup=1, decay=0.0, schedule="constant")
    tokens = mx.array(texts(VOCAB, 2, 21, seed=3))
    record = TrainingRecord(loaded.architecture.name, 0, vars(settings))
    trainer = Trainer(loaded.model, next_token_loss, settings, record, out.with_name("state.safetensors"))
    trainer.run(iter([(tokens[:, :-1], tokens[:, 1:])] * settings.steps))
    out.mkdir()
    write_adapter(out, *adapter_files(loaded.model, adapter, chosen, loaded.architecture, loaded.recipe))
    return loaded.model


@pytest.mark.parametrize(("family", "quantize", "kind"), CASES)
def test_mlx_lm_loads_what_was_trained(family, quantize, kind, tmp_path):
    source = folder_of(family, tmp_path, quantize)
    tokens = mx.array(texts(VOCAB, 2, 20))
    found = tune(source, tmp_path / "adapter", kind)(tokens)
    theirs, _ = mlx_lm.load_model(source)
    plain = theirs(tokens)
    theirs = load_adapters(theirs, str(tmp_path / "adapter"))
    theirs.eval()
    assert far(plain, found) > 0.01, "training changed nothing"
    assert far(found, theirs(tokens)) <= TOLERANCE


def test_the_losses_are_those_of_mlx_lm(tmp_path, monkeypatch):
    """Of rows of several lengths, whose first tokens are no targets."""
    monkeypatch.syspath_prepend(TOOLS)
    import tune_speed

    monkeypatch.delitem(sys.modules, "tune_speed")
    source = folder_of("llama", tmp_path)
    ids = mx.array(texts(VOCAB, 3, 30))
    first, last = mx.array([[0], [4], [9]]), mx.array([[29], [20], [15]])
    places = mx.arange(29)
    targets = mx.where((places >= first) & (places < last), ids[:, 1:], IGNORED)
    batches = [(ids[:, : width - 1], targets[:, : width - 1]) for width in (30, 26, 22, 30, 26, 22)]
    loaded = zoo.load(source)
    tune_speed.write(
        loaded, add_adapters(loaded.model, tune_speed.ADAPTER, tune_speed.SEED), tmp_path / "first"
    )
    losses = {}
    for engine, train in tune_speed.TRAINERS.items():
        found = losses[engine] = []
        train(str(source), batches, tmp_path, lambda step, loss, found=found: found.append(loss))
    assert losses["zoo"] == pytest.approx(losses["mlx-lm"], rel=1e-4)
    assert losses["zoo"][0] > losses["zoo"][3] * 1.001, "training changed nothing"
