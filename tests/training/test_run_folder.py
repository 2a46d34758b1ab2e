"""The folder of a training: nothing is lost in it, and a killed run leaves the model before or the new one."""

import os
import shutil
from collections import namedtuple

import pytest

import zoo
from zoo.errors import CheckpointError, SourceError, ZooError
from zoo.training import run_folder
from zoo.training.record import TrainingSettings
from zoo.training.run import train_folder
from zoo.training.run_folder import open_state, settings_to_resume, state_path
from zoo.training.vocabulary import NAMES

SHORT = dict(steps=2, batch=2, length=16)


@pytest.fixture
def made(tmp_path, tokenizer_folder, text, numbers):
    def go(out=tmp_path / "out", name="llama", changes=None, **given):
        settings = TrainingSettings(**SHORT, corpus=str(text))
        given |= {"tokenizer": tokenizer_folder, "config": numbers | (changes or {})}
        return train_folder(name, out, settings, **given)

    made = go
    made.out = tmp_path / "out"
    return made


def test_a_folder_that_holds_something_is_refused_and_left_alone(made, tmp_path):
    made()
    before = {path: path.read_bytes() for path in made.out.rglob("*") if path.is_file()}
    with pytest.raises(
        SourceError, match=r"out: holds config\.json already; `resume` goes on .* `overwrite`"
    ):
        made()
    assert {path: path.read_bytes() for path in made.out.rglob("*") if path.is_file()} == before
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "diary.txt").write_text("dear diary")
    with pytest.raises(SourceError, match=r"holds diary\.txt, and no model"):
        made(notes)
    with pytest.raises(SourceError, match=r"holds diary\.txt, and no model; give"):
        made(notes, overwrite=True)
    assert [path.name for path in notes.iterdir()] == ["diary.txt"]


def test_overwriting_removes_the_old_model_and_nothing_else(made):
    made()
    (made.out / "diary.txt").write_text("dear diary")
    (made.out / "accuracy.json").write_text("of the old model")
    (made.out / "model-00001-of-00002.safetensors").write_text("old")
    made(overwrite=True, changes={"hidden_size": 32})
    assert (made.out / "diary.txt").exists() and not (made.out / "accuracy.json").exists()
    assert [path.name for path in made.out.glob("*.safetensors")] == ["model.safetensors"]
    assert zoo.load(made.out).recipe.dim == 32


def test_an_empty_folder_and_a_killed_runs_leavings_are_no_model(made):
    (made.out / "run").mkdir(parents=True)
    (made.out / "run" / f".part-{'0' * 16}.safetensors").write_text("half a state")
    made()
    assert zoo.load(made.out).architecture.name == "llama"


class Killed(BaseException):
    """The process ends here."""


def kill(monkeypatch, function, moment):
    """Call `function`, the process killed instead of the rename or removal numbered `moment`; how many there were."""
    count = 0

    def counted(real):
        def call(*arguments, **named):
            nonlocal count
            if count == moment:
                raise Killed
            count += 1
            return real(*arguments, **named)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", counted(os.replace))
        patch.setattr(run_folder.Path, "unlink", counted(run_folder.Path.unlink))
        function()
    return count


def publish(part, out):
    with run_folder.publishing(out, NAMES) as folder:
        shutil.copytree(part, folder, dirs_exist_ok=True)


@pytest.fixture
def models(made, tmp_path):
    """Two finished folders of other widths."""
    for name, width in (("old", 16), ("new", 32)):
        made(tmp_path / name, keep=False, changes={"hidden_size": width})
    return tmp_path / "old", tmp_path / "new"


def test_a_model_takes_the_place_of_another_in_one_step(models, tmp_path, monkeypatch):
    old, new = models
    (old / "run").mkdir()
    (old / "run" / "state.safetensors").write_text("state")
    seen = []
    swap = run_folder.swap

    def watched(part, place):
        seen.append((zoo.load(place).recipe.dim, zoo.load(part).recipe.dim))
        swap(part, place)
        seen.append((zoo.load(place).recipe.dim, zoo.load(part).recipe.dim))

    def never(*_):
        raise AssertionError("a file was moved by itself")

    monkeypatch.setattr(run_folder, "swap", watched)
    monkeypatch.setattr(run_folder, "_move", never)
    publish(new, old)
    assert seen == [(16, 32), (32, 16)]
    assert (old / "run" / "state.safetensors").read_text() == "state"
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


@pytest.mark.slow
@pytest.mark.parametrize("case", ["a new folder", "another model"])
def test_where_folders_cannot_be_swapped_a_killed_run_leaves_a_model_or_none(
    models, tmp_path, monkeypatch, case
):
    old, new = models

    def no_swap(*_):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(run_folder, "swap", no_swap)

    def fill(name):
        out = tmp_path / name
        if case == "another model":
            shutil.copytree(old, out)
        else:
            (out / "run").mkdir(parents=True)
        return out, lambda: publish(new, out)

    moments = kill(monkeypatch, fill("whole")[1], None)
    assert moments > 5
    assert zoo.load(tmp_path / "whole").recipe.dim == 32
    for moment in range(moments):
        out, publishing = fill(f"killed{moment}")
        with pytest.raises(Killed):
            kill(monkeypatch, publishing, moment)
        if (out / "config.json").exists():
            assert zoo.load(out).recipe.dim in (16, 32)
        assert (out / "config.json").exists() or not (out / "training.json").exists()


def test_killed_before_its_record_is_published_a_run_is_resumed(made, monkeypatch):
    def no_swap(*_):
        raise OSError(22, "Invalid argument")

    real = os.replace

    def dying(source, target):
        if target == made.out / "training.json":
            raise Killed
        real(source, target)

    monkeypatch.setattr(run_folder, "swap", no_swap)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(os, "replace", dying)
        made()
    assert (made.out / "config.json").exists()
    train_folder("llama", made.out, settings_to_resume(made.out, {}), resume=True)
    assert zoo.load(made.out).architecture.name == "llama" and (made.out / "training.json").exists()


def test_killed_while_it_saves_the_state_before_is_left(made, monkeypatch):
    made()
    path = state_path(made.out)
    before = path.read_bytes()

    def again():
        train_folder("llama", made.out, settings_to_resume(made.out, {"steps": 3}), resume=True)

    with pytest.raises(Killed):
        kill(monkeypatch, again, 0)
    assert path.read_bytes() == before and open_state(path).step == 2
    assert zoo.load(made.out).architecture.name == "llama"
    again()
    assert open_state(path).step == 3


def test_what_cannot_be_written_is_said_before_the_first_step(made, tmp_path, monkeypatch):
    def never(*_, **__):
        raise AssertionError("a step was taken")

    monkeypatch.setattr("zoo.training.run.Trainer", never)
    usage = namedtuple("usage", "total used free")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: usage(1, 1, 9_000_000))
        with pytest.raises(SourceError, match=r"out: 18 MB will be written, and the disk has 9 MB left"):
            made(changes={"hidden_size": 64})
    assert not made.out.exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(SourceError, match=r"file/out: cannot be written \(Not a directory\)"):
        made(tmp_path / "file" / "out")

    def rules(*_, **__):
        raise CheckpointError("llama: no weight rule exports norm.weight")

    monkeypatch.setattr("zoo.training.run.export", rules)
    with pytest.raises(CheckpointError, match="no weight rule exports"):
        made()
    assert not made.out.exists()


def test_a_folder_that_may_not_be_written_is_said(made, tmp_path, monkeypatch):
    locked = tmp_path / "locked"
    locked.mkdir()

    def refused(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(run_folder.tempfile, "TemporaryFile", refused)
    with pytest.raises(SourceError, match=r"locked/deep/out: cannot be written \(Permission denied\)"):
        made(locked / "deep" / "out")
    assert list(locked.iterdir()) == []


def test_rows_longer_than_a_models_positions_are_refused(tmp_path, text, tokenizer_folder):
    settings = TrainingSettings(steps=1, length=65, corpus=str(text))
    with pytest.raises(ZooError, match="`length`: gpt2 has 64 positions, fewer than 65"):
        train_folder("gpt2", tmp_path / "out", settings, tokenizer=tokenizer_folder)
