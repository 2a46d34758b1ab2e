"""Training: the loss, the batches, and that a resumed run is the uninterrupted one."""

import json
import math
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from tests.helpers.small_llama import NUMBERS
from zoo import runtime
from zoo.assemble import assemble
from zoo.checkpoint.open import make_recipe
from zoo.errors import ZooError
from zoo.host.registry import default_registry
from zoo.training.loop import Trainer, TrainingCallbacks, initialise
from zoo.training.loss import IGNORED, cross_entropy, next_token_loss
from zoo.training.objective import next_tokens, padded, rows
from zoo.training.record import TrainingRecord, TrainingSettings
from zoo.training.run import train_folder
from zoo.training.run_folder import open_state, state_path


def small(seed=0):
    registry = default_registry()
    config = NUMBERS | {"vocab_size": 20}
    model = assemble(make_recipe(registry.architecture("llama"), config, registry), registry)
    initialise(model, seed, 1)
    return model


def cycle(seed=0):
    """Texts that repeat 0 … 9: what comes next is known."""
    key = mx.random.key(seed)
    while True:
        key, use = mx.random.split(key)
        ids = (mx.random.randint(0, 10, (4, 1), key=use) + mx.arange(9)) % 10
        yield ids[:, :-1], ids[:, 1:]


def test_cross_entropy_is_the_mean_of_minus_log_p():
    logits = mx.log(mx.array([[[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]]))
    found = cross_entropy(logits, mx.array([[0, 2]])).item()
    assert math.isclose(found, -(math.log(0.5) + math.log(0.7)) / 2, rel_tol=1e-5)
    assert math.isclose(cross_entropy(logits, mx.array([[0, IGNORED]])).item(), -math.log(0.5), rel_tol=1e-5)


def test_its_gradient_is_probability_minus_one_hot():
    logits = mx.array([[[0.3, -1.0, 2.0]]])
    found = mx.grad(lambda x: cross_entropy(x, mx.array([[2]])))(logits)
    assert mx.allclose(found, mx.softmax(logits, axis=-1) - mx.array([[[0.0, 0.0, 1.0]]]), atol=1e-6)


def test_rows_start_with_a_document_and_targets_are_shifted():
    assert list(rows([[1, 2], [3, 4, 5], [6], [7, 8, 9, 10]], 4, 0)) == [[1, 2, 0, 3, 4], [6, 0, 7, 8, 9]]
    texts = ["ab", "cde", "f", "ghij"]
    letters = SimpleNamespace(encode=lambda text: list(map(ord, text)), special_tokens={}, id=lambda token: 0)
    ((inputs, targets),) = next_tokens(texts, letters, TrainingSettings(batch=2, length=4))
    assert inputs.shape == targets.shape == (2, 4)
    assert inputs[:, 1:].tolist() == targets[:, :-1].tolist()


def test_padding_is_never_a_target():
    ((inputs, targets),) = padded(["a", "bcd"], lambda text: list(map(ord, text)), batch=4, end=0)
    assert inputs.tolist() == [[97, 0, 0], [98, 99, 100]]
    assert targets.tolist() == [[0, IGNORED, IGNORED], [99, 100, 0]]


def run(folder, settings, model=None, resume=False, every=10, seen=None):
    model = model or small()
    record = TrainingRecord("llama", 0, vars(settings))
    callbacks = TrainingCallbacks(step=seen or (lambda *values: None))
    state = state_path(folder)
    trainer = Trainer(model, next_token_loss, settings, record, state, callbacks=callbacks, every=every)
    trainer.run(cycle(), open_state(state) if resume else None)
    return model, record


def test_it_learns_what_comes_next(tmp_path):
    model, record = run(tmp_path, TrainingSettings(steps=60, batch=4, length=8, rate=1e-2, warmup=5))
    assert record.losses[0][1] > 2 > 0.3 > record.losses[-1][1]
    assert mx.argmax(model(mx.array([[3, 4, 5]]))[0, -1]).item() == 6
    assert record.tokens == 60 * 4 * 8


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path):
    settings = TrainingSettings(steps=20, batch=4, length=8, warmup=5)
    whole, expected = run(tmp_path / "whole", settings)

    class Stop(Exception):
        pass

    def stop(step, *rest):
        if step == 13:
            raise Stop

    with pytest.raises(Stop):
        run(tmp_path / "cut", settings, seen=stop)
    resumed, record = run(tmp_path / "cut", settings, model=small(seed=9), resume=True)
    rounding = 1e-5 if runtime.on_gpu() else 0  # a GPU adds gradients in an order that changes
    assert np.allclose(record.losses, expected.losses, rtol=rounding, atol=0)
    assert record.tokens == expected.tokens
    for (path, array), (_, other) in zip(
        tree_flatten(resumed.parameters()), tree_flatten(whole.parameters()), strict=True
    ):
        assert mx.allclose(array, other, rtol=0, atol=rounding), path


def test_slow_steps_are_saved_in_between(tmp_path, monkeypatch):
    monkeypatch.setattr("zoo.training.loop.SAVED", 0.0)

    def stop(step, *rest):
        if step == 7:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        run(tmp_path, TrainingSettings(steps=20, batch=4, length=8), seen=stop)
    assert open_state(state_path(tmp_path)).step == 6


def test_a_loss_that_is_no_number_ends_the_run_and_keeps_the_state_before(tmp_path):
    def breaks(model, inputs, targets):
        value = next_token_loss(model, inputs, targets)
        return value * (float("nan") if next(steps) > 12 else 1)

    steps = iter(range(1, 100))
    model, settings = small(), TrainingSettings(steps=20, batch=4, length=8)
    with pytest.raises(ZooError, match="the loss is nan at step 13: try a smaller `rate`"):
        record = TrainingRecord("llama", 0, vars(settings))
        Trainer(model, breaks, settings, record, state_path(tmp_path), every=10).run(cycle())
    assert open_state(state_path(tmp_path)).step == 10


def test_packed_rows_leave_nothing_out():
    documents = [[1, 2], [3, 4, 5, 6, 7], [8]]
    found = list(rows(documents, 3, 0, packed=True))
    assert found == [[1, 2, 0, 3], [3, 4, 5, 6], [6, 7, 0, 8]]
    targets = [id for row in found for id in row[1:]]
    assert targets == [2, 0, 3, 4, 5, 6, 7, 0, 8]


@pytest.mark.slow
def test_a_trained_folder_is_complete_and_runs(tmp_path):
    import zoo

    out = tmp_path / "made"
    record = train_folder("llama", out, TrainingSettings(steps=2, batch=2, length=16), config=NUMBERS)
    wanted = {"model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"}
    wanted |= {"training.json", "training.svg", "run"}
    assert {path.name for path in out.iterdir()} == wanted
    assert [path.name for path in (out / "run").iterdir()] == ["state.safetensors"]
    assert json.loads((out / "training.json").read_text())["tokens"] == record.tokens == 2 * 2 * 16
    assert json.loads((out / "config.json").read_text())["torch_dtype"] == "float16"
    assert zoo.generate(zoo.load(out), "The", max_tokens=2).tokens


@pytest.mark.parametrize("name", ["bert", "transformer", "gpt2", "lstm", "mamba", "deepseek-v3", "gpt-oss"])
def test_the_seed_alone_decides_every_parameter_of_a_new_model(name):
    registry = default_registry()
    architecture = registry.architecture(name)
    recipe = make_recipe(architecture, architecture.preset("tiny").config, registry)
    models = []
    for state in (1, 2):
        mx.random.seed(state)  # what MLX draws by itself when a module is made
        model = assemble(recipe, registry)
        initialise(model, seed=7, layers=2)
        models.append(dict(tree_flatten(model.parameters())))
    first, second = models
    assert [path for path, array in first.items() if not mx.array_equal(array, second[path])] == []


def test_the_first_step_learns(tmp_path):
    untrained = dict(tree_flatten(small().parameters()))
    model, _ = run(tmp_path, TrainingSettings(steps=1, batch=4, length=8))
    assert any(not mx.array_equal(array, untrained[path]) for path, array in tree_flatten(model.parameters()))


def test_a_run_that_changes_no_weight_is_an_error(tmp_path):
    with pytest.raises(ZooError, match="no weight has changed in 3 steps: try a larger `rate`"):
        run(tmp_path, TrainingSettings(steps=3, batch=4, length=8, rate=1e-30))


def measurements(folder, steps, every, resume=False):
    """The losses of all steps, and those that are given with the measurements of the held-out loss."""
    losses, measured = {}, {}
    settings = TrainingSettings(steps=steps, batch=4, length=8, warmup=2)
    callbacks = TrainingCallbacks(
        step=lambda step, loss, rate: losses.update({step: loss}),
        measured=lambda step, loss, *rest: measured.update({step: loss}),
    )
    record, state = TrainingRecord("llama", 0, vars(settings)), state_path(folder)
    trainer = Trainer(
        small(),
        next_token_loss,
        settings,
        record,
        state,
        validate=lambda: 1.0,
        callbacks=callbacks,
        every=every,
    )
    trainer.before = True
    trainer.run(cycle(), open_state(state) if resume else None)
    return losses, measured, record


def test_the_phase_before_a_step_names_that_step(tmp_path):
    settings, state, said = TrainingSettings(steps=3, batch=4, length=8), state_path(tmp_path), []
    callbacks = TrainingCallbacks(phase=said.append, total=lambda steps: said.append(steps))
    for steps in (3, 5):
        resume = open_state(state) if said else None
        settings = settings.to(steps, resume.step if resume else 0)
        record = TrainingRecord("llama", 0, vars(settings))
        Trainer(small(), next_token_loss, settings, record, state, callbacks=callbacks).run(cycle(), resume)
    assert said == ["step 1", 3, "reading on to step 3", "step 4", 5]


def test_a_measurement_has_the_loss_of_its_own_step(tmp_path):
    losses, measured, record = measurements(tmp_path, 7, 3)
    assert measured == {0: None, **{step: pytest.approx(losses[step], abs=1e-4) for step in (3, 6, 7)}}
    assert [step for step, _ in record.losses] == [1, 2, 3, 4, 5, 6, 7]
    again, measured, _ = measurements(tmp_path, 8, 4, resume=True)
    assert measured == {8: pytest.approx(again[8], abs=1e-4)}


def test_a_measurement_after_resuming_has_no_loss_of_an_earlier_step(tmp_path, monkeypatch):
    monkeypatch.setattr("zoo.training.loop.EACH", 0)
    monkeypatch.setattr("zoo.training.loop.SAVED", 0.0)
    stopping = []

    def stop(step, *rest):
        stopping.append(step)
        if step == 5:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        run(tmp_path, TrainingSettings(steps=20, batch=4, length=8, warmup=2), seen=stop)
    assert open_state(state_path(tmp_path)).step == 4
    losses, measured, _ = measurements(tmp_path, 8, 2, resume=True)
    assert measured == {4: None, **{step: pytest.approx(losses[step], abs=1e-4) for step in (6, 8)}}
