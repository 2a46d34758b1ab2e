"""Commands that write, killed at random moments: what was there before is there after, or what was asked for is whole.

ZOO_KILLS sets the kills a command (default 2).
"""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

import zoo
from tests.helpers.small_llama import NUMBERS
from zoo.generation.prefix_cache import PromptCache
from zoo.training.run_folder import open_state, state_path
from zoo_bench.benchmark import read_record

pytestmark = pytest.mark.slow
nightly = pytest.mark.nightly  # each run kills one that writes a folder and one that writes a file
KILLS = int(os.environ.get("ZOO_KILLS", "2"))


def zoo_run(*arguments, kill_after=None):
    """Run a command of the zoo; killed, it may have ended before."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "zoo", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    )
    began = time.monotonic()
    try:
        output, _ = process.communicate(timeout=kill_after)
        assert process.returncode == 0, output.decode()
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    return time.monotonic() - began


def contents(folder):
    """The bytes of a folder's files by name; a training's record and curve tell the time and are left out."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("training.json", "training.svg") and path.parent.name != "run"
    }


@pytest.fixture
def killed(tmp_path):
    """Run a command, killed at random moments, and `check` what it left each time; then run it to its end."""

    def go(arguments, check, prepare=lambda: None):
        prepare()
        whole = zoo_run(*arguments)
        random.seed(0)
        for number in range(KILLS):
            prepare()
            # Where a process starts nothing is written yet: most kills fall into the second half.
            share = random.uniform(0, 1.05) if number % 4 == 0 else random.uniform(0.5, 1.05)
            zoo_run(*arguments, kill_after=share * whole)
            check()
        prepare()
        zoo_run(*arguments)
        check()
        left = [path for path in tmp_path.rglob(".*") if path.name.startswith((".part-", ".lock-"))]
        assert left == [], "the last run removes what killed ones left"

    return go


def remove(path):
    """Remove a folder or file, as a person would before the command is given again."""
    subprocess.run(["rm", "-rf", str(path)], check=True)


def test_convert(killed, tmp_path):
    reference, out = tmp_path / "reference", tmp_path / "out"
    zoo_run("convert", "llama", reference, "-q", "4")
    expected = contents(reference)

    def check():
        assert not out.exists() or contents(out) == expected

    killed(("convert", "llama", out, "-q", "4"), check, lambda: remove(out))


@pytest.fixture
def training(tmp_path):
    """The arguments of a short training."""
    text, config = tmp_path / "text.txt", tmp_path / "config.json"
    text.write_text("\n".join(f"{n} and {n * n % 97} are numbers" for n in range(400)))
    config.write_text(json.dumps(NUMBERS))
    own = (
        "train",
        "llama",
        "--corpus",
        text,
        "--config",
        config,
        "--steps",
        "2",
        "--batch",
        "2",
        "--length",
        "16",
    )
    tokenizer = tmp_path / "tokenizer"
    zoo_run("convert", "llama", tokenizer)
    return (*own, "--tokenizer", tokenizer / "tokenizer.json", "--out")


@nightly
def test_train_into_a_new_folder(killed, tmp_path, training):
    reference, out = tmp_path / "reference", tmp_path / "out"
    zoo_run(*training, reference)
    expected = contents(reference)

    def check():
        if (out / "config.json").exists():
            assert contents(out) == expected
            assert (out / "training.json").exists() and open_state(state_path(out)).step == 2
        elif state_path(out).exists():
            assert contents(out) == {} and open_state(state_path(out)).step == 2
            zoo_run("train", "--out", out, "--resume")
            assert contents(out) == expected

    killed((*training, out), check, lambda: remove(out))


@nightly
def test_train_over_another_model(killed, tmp_path, training):
    out, models = tmp_path / "out", {}
    zoo_run(*training, out, "--seed", "7")
    (out / "diary.txt").write_text("dear diary")
    models["old"] = contents(out)
    zoo_run(*training, tmp_path / "new")
    models["new"] = contents(tmp_path / "new") | {"diary.txt": models["old"]["diary.txt"]}
    seen = set()

    def prepare():
        remove(tmp_path / "out")
        subprocess.run(["cp", "-r", str(tmp_path / "kept"), str(out)], check=True)

    subprocess.run(["cp", "-r", str(out), str(tmp_path / "kept")], check=True)

    def check():
        found = contents(out)
        assert found in models.values()
        seen.add(found == models["new"])
        open_state(state_path(out))

    killed((*training, out, "--overwrite"), check, prepare)
    assert True in seen


@nightly
def test_tune_over_another_adapter(killed, tmp_path):
    data, out, adapters = tmp_path / "data.jsonl", tmp_path / "out", {}
    data.write_text("".join(json.dumps({"text": f"{n} and {n * n % 97}"}) + "\n" for n in range(40)))
    tune = ("tune", "llama", "--data", data, "--steps", "2", "--length", "16", "--out")
    zoo_run(*tune, tmp_path / "kept", "--rank", "2")
    adapters["old"] = contents(tmp_path / "kept")
    zoo_run(*tune, tmp_path / "new")
    adapters["new"] = contents(tmp_path / "new")

    def prepare():
        remove(out)
        subprocess.run(["cp", "-r", str(tmp_path / "kept"), str(out)], check=True)

    def check():
        assert contents(out) in adapters.values()
        open_state(state_path(out))

    killed((*tune, out, "--overwrite"), check, prepare)
    assert contents(out) == adapters["new"]


def test_answers_of_a_file_of_prompts(killed, tmp_path):
    prompts, reference, out = (tmp_path / name for name in ("prompts.jsonl", "reference.jsonl", "out.jsonl"))
    prompts.write_text("".join(json.dumps(f"The capital city of {n}") + "\n" for n in range(60)))
    command = ("run", "llama", "--prompts", prompts, "--max-tokens", "8", "--output")
    zoo_run(*command, reference)
    expected = reference.read_bytes()

    def check():
        assert not out.exists() or expected.startswith(out.read_bytes())

    killed((*command, out), check)  # each run goes on where the one before was killed
    assert out.read_bytes() == expected


@nightly
def test_prompt_cache(killed, tmp_path):
    path, loaded = tmp_path / "talk.cache", zoo.load("llama")
    sizes = set()

    def check():
        if path.exists():
            sizes.add(path.stat().st_size)
            assert PromptCache.load(path, loaded).nbytes > 0

    prompt = "The capital city of China is" * 20
    killed(("run", "llama", prompt, "--max-tokens", "2", "--prompt-cache", path), check, lambda: remove(path))
    assert len(sizes) == 1


@nightly
def test_record_of_a_benchmark(killed, tmp_path):
    record = tmp_path / "record.json"
    command = ("bench", "llama", "--only", "decode", "--runs", "1", "--prompt", "4", "--new", "2")
    zoo_run(*command, "--record", record)
    seen = set()

    def check():
        assert read_record(record)["engines"]["zoo"]
        seen.add(record.read_bytes())

    killed((*command, "--record", record), check)
    assert len(seen) >= 1
