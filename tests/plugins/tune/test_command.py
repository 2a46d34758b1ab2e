"""`zoo tune` as a user runs it: refused, interrupted, resumed, overwritten; what was there before stays."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import namedtuple

import pytest

from zoo.training.run_folder import RunFolder, open_state, state_path

LINES = [{"prompt": f"The capital of {n}", "completion": f" is {n * 7 % 13}"} for n in range(40)]


@pytest.fixture
def tune(command, tmp_path):
    """Run `zoo tune llama --data data.jsonl --out out …`, or on another source."""
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))

    def go(*arguments, source="llama"):
        return command("tune", source, "--data", "data.jsonl", "--out", "out", *arguments)

    return go


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(done, words):
    assert done.returncode and words in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 and done.stdout == ""


@pytest.mark.slow
def test_a_run_goes_on_as_it_was_begun_or_is_refused(tune, tmp_path):
    done = tune("--steps", "2", "--batch", "2", "--rank", "4")
    assert done.returncode == 0 and "`zoo run llama --adapter out` uses it" in done.stdout, done.stderr
    assert [line.partition(" · ")[0] for line in done.stderr.splitlines() if line.startswith("step")] == [
        f"step {step}" for step in (0, 1, 2)
    ]
    before = contents(tmp_path / "out")
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps(LINES[0]) + "\n" + json.dumps(LINES[1]) + "\n")
    refused(tune("--steps", "2"), "out: holds adapter_config.json already; --resume goes on with its run")
    resume = ("--resume", "--rank", "4")
    refused(tune(*resume), "all 2 steps are done; give more --steps to go on")
    refused(tune(*resume, "--steps", "1"), "--steps: 2 are done already, 1 is fewer")
    refused(tune("--resume", "--rank", "2", "--steps", "3"), "was made with another --rank; only --steps may")
    refused(tune(*resume, "--batch", "4", "--steps", "3"), "was made with another --batch; only --steps may")
    refused(tune(*resume, "--steps", "3", "--data", str(other)), "is not the data that the run in out was")
    refused(tune(*resume, "--steps", "3", source="qwen3"), "qwen3: is not the model that the run in out was")
    assert contents(tmp_path / "out") == before
    longer = tune(*resume, "--steps", "3")
    assert longer.returncode == 0, longer.stderr
    saved = json.loads((tmp_path / "out" / "training.json").read_text())["settings"]
    assert saved["batch"] == 2 and saved["ends"] == [2]
    anew = tune("--overwrite", "--forget", "--steps", "1")
    assert anew.returncode == 0 and not (tmp_path / "out" / "run").exists()


def test_a_folder_with_a_model_is_never_overwritten(tune, command, tmp_path):
    out = tmp_path / "out"
    assert command("convert", "llama", "out").returncode == 0
    (out / "run").mkdir()
    (out / "run" / "state.safetensors").write_text("the state of a training")
    before = contents(out)
    for how in ((), ("--overwrite",)):
        refused(tune("--steps", "1", *how), "out: holds config.json, and no adapter; give another folder")
    assert contents(out) == before


def test_train_does_not_overwrite_an_adapter(command, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "adapter_config.json").write_text("{}")
    done = command("train", "llama", "--out", "out", "--steps", "1", "--overwrite")
    refused(done, "out: holds adapter_config.json, and no model; give another folder")


def test_out_must_be_a_folder(tune, tmp_path):
    out = tmp_path / "out"
    out.write_text("dear diary")
    assert "is a file" in tune("--steps", "1").stderr and out.read_text() == "dear diary"
    out.unlink()
    os.mkfifo(out)
    refused(tune("--steps", "1"), "out: cannot be read (Not a directory)")
    out.unlink()
    out.symlink_to("nowhere")
    refused(tune("--steps", "1"), "out: is a link to a folder that does not exist")
    assert out.is_symlink() and not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rank", "0"], "--rank must be at least 1, got 0"),
        (["--dropout", "1"], "--dropout must be from 0 to below 1"),
        (["--steps", "0"], "--steps must be a whole number from 1 to"),
        (["--parts", "mixer.foo"], "--parts: no layer 'mixer.foo' takes an adapter"),
        (["--rate", "1e20", "--steps", "1", "--warmup", "0"], "try a smaller --rate"),
        (["--data", "nothing.jsonl"], "nothing.jsonl: no such file or folder of data"),
        (["--objective", "paint"], "no objective 'paint'; there are: "),
        (["--resume"], "out: no run to resume"),
    ],
)
def test_bad_arguments_are_an_error_and_write_nothing(tune, tmp_path, arguments, words):
    done = tune(*arguments)
    assert done.returncode and words in done.stderr.splitlines()[-1], done.stderr
    assert not (tmp_path / "out" / "adapter_config.json").exists()
    assert not state_path(tmp_path / "out").exists()


def test_without_held_out_examples_no_validation_is_claimed(tune, tmp_path):
    (tmp_path / "data.jsonl").write_text(json.dumps(LINES[0]) + "\n")
    done = tune("--data", "data.jsonl", "--steps", "2")
    assert done.returncode == 0, done.stderr
    assert re.search(r"loss \d+\.\d+; `zoo run", done.stdout)
    assert json.loads((tmp_path / "out" / "training.json").read_text())["validation"] == []


def test_a_folder_that_another_run_writes_is_refused(tune, tmp_path):
    with RunFolder(tmp_path / "out").claim():
        refused(tune("--steps", "1"), "another process is writing it")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_full_disk_leaves_the_old_adapter(tune, tmp_path, monkeypatch):
    assert tune("--steps", "1").returncode == 0
    before = contents(tmp_path / "out")

    def full(*_, **__):
        raise RuntimeError("[write] Unable to write 1000 bytes to file.")

    monkeypatch.setattr("zoo.training.adapters.mx.save_safetensors", full)
    done = tune("--steps", "1", "--rank", "2", "--overwrite")
    assert done.returncode and "cannot be written ([write] Unable to write" in done.stderr.splitlines()[-1]
    assert contents(tmp_path / "out") == before
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1, 1, 1_000_000))
    refused(tune("--steps", "1", "--overwrite"), "and the disk has 1 MB left")


@pytest.mark.slow
def test_ctrl_c_saves_and_the_resumed_run_is_the_uninterrupted_one(tune, tmp_path):
    how = ("--schedule", "constant", "--warmup", "1", "--dropout", "0.1", "--batch", "2", "--length", "16")
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "zoo",
            "tune",
            "llama",
            "--data",
            "data.jsonl",
            "--out",
            "out",
            *how,
            "--steps",
            "200",
        ],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    for line in process.stderr:
        if line.startswith("step 50"):
            break
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 130 and out == "" and "stopped and saved at step" in errors
    assert 50 <= open_state(state_path(tmp_path / "out")).step < 200
    assert not (tmp_path / "out" / "adapter_config.json").exists()
    assert tune(*how, "--resume").returncode == 0
    resumed = (tmp_path / "out" / "adapters.safetensors").read_bytes()
    shutil.rmtree(tmp_path / "out")
    assert tune(*how, "--steps", "200").returncode == 0
    assert (tmp_path / "out" / "adapters.safetensors").read_bytes() == resumed
