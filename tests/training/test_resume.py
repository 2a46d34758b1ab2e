"""A run that was interrupted is the uninterrupted one, bit for bit; a finished one can be extended."""

import json

import mlx.core as mx
import pytest

import zoo
from zoo.errors import CheckpointError, ZooError
from zoo.training.loop import Stopped, TrainingCallbacks, schedule
from zoo.training.record import TrainingSettings
from zoo.training.run import train_folder
from zoo.training.run_folder import open_state, settings_to_resume, state_path

SHORT = dict(batch=2, length=16, warmup=2)


def stop_after(step):
    """Somebody who wants the run to stop once that step is done."""
    done = []
    return TrainingCallbacks(
        step=lambda number, *_: done.append(number), stop=lambda: bool(done) and done[-1] >= step
    )


@pytest.fixture
def run(tokenizer_folder, text, numbers):
    def go(out, steps=None, resume=False, callbacks=None, **given):
        if resume:
            settings = settings_to_resume(out, {} if steps is None else {"steps": steps})
            return train_folder("llama", out, settings, resume=True, callbacks=callbacks, **given)
        settings = TrainingSettings(steps=steps, corpus=str(text), **SHORT)
        given = {"tokenizer": tokenizer_folder, "config": numbers} | given
        return train_folder("llama", out, settings, callbacks=callbacks, **given)

    return go


def the_same(one, other):
    """Weights, optimizer, losses and the model that was written, to the last bit."""
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    left, right = open_state(state_path(one)), open_state(state_path(other))
    assert left.step == right.step
    for mine, theirs in ((left.model, right.model), (left.optimizer, right.optimizer)):
        assert [name for name, _ in mine] == [name for name, _ in theirs]
        for (name, array), (_, expected) in zip(mine, theirs, strict=True):
            assert array.dtype == expected.dtype and mx.array_equal(array, expected), name
    for key in ("losses", "validation", "tokens", "settings"):
        assert left.record[key] == right.record[key], key


@pytest.mark.slow
def test_interrupted_twice_and_resumed_it_is_the_uninterrupted_run(run, tmp_path):
    run(tmp_path / "whole", 12)
    with pytest.raises(Stopped) as stopped:
        run(tmp_path / "cut", 12, callbacks=stop_after(3))
    assert stopped.value.step == 3 and not (tmp_path / "cut" / "config.json").exists()
    with pytest.raises(Stopped):
        run(tmp_path / "cut", resume=True, callbacks=stop_after(7))
    run(tmp_path / "cut", resume=True)
    the_same(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.slow
def test_an_extended_run_is_the_same_however_it_was_interrupted(run, tmp_path):
    run(tmp_path / "whole", 5)
    first = (tmp_path / "whole" / "model.safetensors").read_bytes()
    run(tmp_path / "whole", 12, resume=True)
    assert (tmp_path / "whole" / "model.safetensors").read_bytes() != first
    run(tmp_path / "cut", 5)
    with pytest.raises(Stopped):
        run(tmp_path / "cut", 12, resume=True, callbacks=stop_after(8))
    run(tmp_path / "cut", resume=True)
    the_same(tmp_path / "whole", tmp_path / "cut")
    record = json.loads((tmp_path / "cut" / "training.json").read_text())
    assert record["settings"]["ends"] == [5] and record["tokens"] == 12 * 2 * 16
    assert zoo.generate(zoo.load(tmp_path / "cut"), "one two", max_tokens=2).tokens


@pytest.mark.slow
def test_an_extension_goes_on_with_the_next_batches(run, tmp_path, monkeypatch):
    """The tokens that an extended run sees are those of one that was that long from the start."""
    seen = []

    def noted(model, inputs, targets):
        seen.append(inputs.tolist())
        return original(model, inputs, targets)

    from zoo.training import objective

    original = objective.NEXT_TOKEN.loss
    method = objective.TrainingObjective(objective.next_tokens, lambda *_: iter(()), noted, running=False)
    monkeypatch.setattr(objective, "NEXT_TOKEN", method)
    run(tmp_path / "long", 6)
    long, seen[:] = list(seen), []
    run(tmp_path / "short", 4)
    run(tmp_path / "short", 6, resume=True)
    assert seen == long and len(long) > 5


def test_the_rate_of_an_extension_warms_up_to_the_peak_and_falls_again():
    rate = schedule(TrainingSettings(steps=3000, rate=1e-2, warmup=100, ends=(1000,)))
    first = schedule(TrainingSettings(steps=1000, rate=1e-2, warmup=100))
    at = {step: rate(mx.array(step)).item() for step in (0, 50, 550, 999, 1000, 1050, 1100, 2000, 3000)}
    for step in (0, 50, 550, 999):
        assert at[step] == first(mx.array(step)).item()
    assert at[1000] == pytest.approx(1e-3, rel=0.01) and at[1050] == pytest.approx(5.5e-3, rel=0.01)
    assert (
        at[1100] == pytest.approx(1e-2, rel=0.01) and at[2000] < at[1100] and at[3000] == pytest.approx(1e-3)
    )


def test_an_unfinished_run_may_be_made_longer_or_shorter(run, tmp_path):
    with pytest.raises(Stopped):
        run(tmp_path / "out", 12, callbacks=stop_after(4))
    with pytest.raises(ZooError, match="`steps`: 4 are done already, 3 is fewer"):
        run(tmp_path / "out", 3, resume=True)
    record = run(tmp_path / "out", 6, resume=True)
    assert record.settings["steps"] == 6 and record.settings["ends"] == ()


def test_what_cannot_be_resumed_is_one_line(run, tmp_path, text, tokenizer_folder):
    with pytest.raises(ZooError, match="no run to resume"):
        run(tmp_path / "nothing", resume=True)
    assert not (tmp_path / "nothing").exists()
    out = tmp_path / "out"
    run(out, 3)
    with pytest.raises(ZooError, match="all 3 steps are done; give more `steps`"):
        run(out, resume=True)
    with pytest.raises(ZooError, match="`batch`: the run was started with 2, not 3; only `steps` may change"):
        settings_to_resume(out, {"batch": 3, "steps": 9})
    with pytest.raises(ZooError, match="trains llama, not mistral"):
        train_folder("mistral", out, settings_to_resume(out, {"steps": 4}), resume=True)
    with pytest.raises(ZooError, match="its own tokenizer"):
        run(out, 4, resume=True, tokenizer=tokenizer_folder)
    with pytest.raises(ZooError, match="another config"):
        run(out, 4, resume=True, config={"hidden_size": 32})
    with pytest.raises(ZooError, match="other settings"):
        train_folder("llama", out, TrainingSettings(steps=4, corpus=str(text)), resume=True)
    text.write_text(text.read_text() + "\nmore", encoding="utf-8")
    with pytest.raises(ZooError, match=r"text\.txt: is not the text that the run"):
        run(out, 4, resume=True)


def test_a_run_that_goes_on_with_other_versions_is_told(run, tmp_path, monkeypatch, recwarn):
    run(tmp_path / "out", 2)
    run(tmp_path / "out", 3, resume=True)
    assert not recwarn.list
    now = zoo.runtime.versions()
    monkeypatch.setattr(zoo.runtime, "versions", lambda: now | {"mlx": "99.0"})
    with pytest.warns(UserWarning, match=f"was started with mlx {now['mlx']}; here it goes on with other"):
        run(tmp_path / "out", 4, resume=True)


def test_a_run_goes_on_where_its_text_was_moved(run, tmp_path, text):
    run(tmp_path / "out", 2)
    moved = text.rename(tmp_path / "elsewhere.txt")
    settings = settings_to_resume(tmp_path / "out", {"steps": 4, "corpus": str(moved)})
    assert train_folder("llama", tmp_path / "out", settings, resume=True).tokens == 4 * 2 * 16


def test_killed_after_the_last_step_the_model_is_written_by_resuming(run, tmp_path, monkeypatch):
    def killed(*_):
        raise SystemExit

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr("zoo.training.run.finish", killed)
        run(tmp_path / "out", 3)
    assert not (tmp_path / "out" / "config.json").exists()
    run(tmp_path / "out", resume=True)
    assert zoo.load(tmp_path / "out").architecture.name == "llama"


@pytest.mark.slow
def test_killed_before_it_replaced_an_older_model_of_the_same_settings(run, tmp_path, monkeypatch):
    out = tmp_path / "out"
    run(out, 3)
    old = (out / "model.safetensors").read_bytes()
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr("zoo.training.run.finish", lambda *_: exit())
        run(
            out,
            3,
            overwrite=True,
            config=json.loads((out / "config.json").read_text()) | {"rms_norm_eps": 1e-3},
        )
    assert (out / "model.safetensors").read_bytes() == old
    run(out, resume=True)
    assert (out / "model.safetensors").read_bytes() != old
    assert json.loads((out / "config.json").read_text())["rms_norm_eps"] == 1e-3


def test_without_keep_nothing_is_left_to_resume(run, tmp_path):
    run(tmp_path / "out", 2, keep=False)
    assert not (tmp_path / "out" / "run").exists() and (tmp_path / "out" / "config.json").exists()
    with pytest.raises(ZooError, match="no run to resume"):
        run(tmp_path / "out", 4, resume=True)


@pytest.mark.parametrize("harm", ["cut", "noise", "no metadata"])
def test_a_damaged_state_is_one_line(run, tmp_path, harm):
    out = tmp_path / "out"
    run(out, 2)
    path = state_path(out)
    data = path.read_bytes()
    if harm == "no metadata":
        mx.save_safetensors(str(path), {"x": mx.zeros(3)})
    else:
        path.write_bytes(data[: len(data) // 2] if harm == "cut" else b"\xff" * 100)
    with pytest.raises(CheckpointError, match=r"state\.safetensors"):
        run(out, 4, resume=True)
