"""`zoo train` as a user runs it: refused, interrupted, resumed, killed, on a terminal and off it."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest

import zoo
from tests.helpers.small_llama import NUMBERS
from tests.helpers.waiting import PATIENCE, wait_until
from zoo.checkpoint.convert import convert
from zoo.config import Config
from zoo.host.registry import default_registry
from zoo.training.record import TrainingSettings
from zoo.training.run import train_folder
from zoo.training.run_folder import open_state, state_path


@pytest.fixture
def where(tmp_path, tokenizer_folder):
    """A folder with a text, a config and a tokenizer, and the arguments that use them."""
    lines = (f"line {i} has the numbers {i * 7 % 13} and {i * 11 % 17}" for i in range(400))
    (tmp_path / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps(NUMBERS))
    return [
        *("llama", "--out", "out", "--corpus", "text.txt", "--config", "config.json"),
        *("--tokenizer", str(tokenizer_folder), "--batch", "2", "--length", "16"),
    ]


def started(tmp_path, *arguments, **how):
    return subprocess.Popen(
        [sys.executable, "-m", "zoo", *map(str, arguments)],
        cwd=tmp_path,
        # Whoever runs the tests in a shell's background has SIGINT ignored, and its children too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        **how,
    )


PIPES = dict(stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")


@pytest.mark.slow
def test_a_run_is_written_refused_extended_and_overwritten(command, where, tmp_path):
    done = command("train", *where, "--steps", "4")
    assert done.returncode == 0, done.stderr
    assert "○ validation" in done.stdout and "out: " in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert re.search(r"^step 4 · loss \d\.\d+ · validation \d\.\d+$", done.stderr, re.MULTILINE)
    assert re.search(r"^  line \d+ .* → ", done.stderr, re.MULTILINE)
    assert "\x1b" not in done.stderr and "first step" not in done.stderr
    refused = command("train", *where, "--steps", "4")
    assert refused.returncode == 1 and refused.stdout == ""
    assert refused.stderr.strip() == (
        "zoo: error: out: holds config.json already; --resume goes on with its run, --overwrite trains anew"
    )
    longer = command("train", "llama", "--out", "out", "--resume", "--steps", "6")
    assert longer.returncode == 0, longer.stderr
    assert json.loads((tmp_path / "out" / "training.json").read_text())["settings"]["ends"] == [4]
    assert (tmp_path / "out" / "training.svg").read_text().startswith("<svg")
    over = command("train", "llama", "--out", "out", "--resume")
    assert over.returncode == 1 and "all 6 steps are done; give more --steps to go on" in over.stderr
    anew = command("train", *where, "--steps", "2", "--overwrite", "--forget")
    assert anew.returncode == 0 and not (tmp_path / "out" / "run").exists()


@pytest.mark.slow
def test_ctrl_c_saves_says_so_and_exits_130(where, tmp_path):
    process = started(tmp_path, "train", *where, "--steps", "1000000", **PIPES)
    for line in process.stderr:  # the first measurement: it is well among its steps
        if line.startswith("step 200"):
            break
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130 and out == ""
    assert "stopping after this step, to save it" in errors
    step = int(re.search(r"stopped and saved at step (\d+) of 1000000", errors)[1])
    assert step >= 200 and open_state(state_path(tmp_path / "out")).step == step
    assert "`zoo train llama --out out --resume` goes on" in errors
    assert "Traceback" not in errors and not (tmp_path / "out" / "config.json").exists()


def test_ctrl_c_before_the_first_step_leaves_nothing(where, tmp_path):
    (tmp_path / "text.txt").unlink()
    os.mkfifo(tmp_path / "text.txt")  # a file that takes for ever to read
    process = started(tmp_path, "train", *where, **PIPES)

    writers = []

    def opened():
        try:
            writers.append(os.open(tmp_path / "text.txt", os.O_WRONLY | os.O_NONBLOCK))
        except OSError:  # nobody reads it yet
            return False
        return True

    try:
        wait_until(opened)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        for writer in writers:
            os.close(writer)
    assert process.returncode == 130
    assert not (tmp_path / "out").exists() and "Traceback" not in errors and out == ""


@pytest.mark.slow
def test_ctrl_c_is_answered_inside_a_computation_that_does_not_return(tmp_path):
    code = (
        "import sys, time, threading\nimport zoo\nimport mlx.core as mx\n"
        "from zoo.cli.signals import Interrupts\n"
        "mx.set_default_device(mx.cpu)\n"  # a GPU would be done too soon
        "with Interrupts(print) as asked:\n"
        "    x = mx.ones((1500, 1500))\n"
        "    for _ in range(3000): x = x @ x * 1e-3\n"
        "    threading.Timer(0.5, lambda: print('inside', flush=True)).start()\n"
        "    mx.eval(x)\n"
        "print('over')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        **PIPES,
    )
    try:
        assert process.stdout.readline() == "inside\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        assert process.stdout.read() == ""
    finally:
        process.kill()


@pytest.mark.slow
def test_killed_among_its_steps_it_is_resumed_to_the_same_model(command, where, tmp_path):
    quiet = dict(stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    process = started(tmp_path, "train", *where, "--steps", "200", **quiet)
    wait_until(lambda: state_path(tmp_path / "out").exists())
    process.kill()
    process.wait()
    assert open_state(state_path(tmp_path / "out")).step in (50, 100, 150, 200)
    done = command("train", "llama", "--out", "out", "--resume")
    assert done.returncode == 0, done.stderr
    whole = command("train", *where, "--steps", "200", "--out", "whole")
    assert whole.returncode == 0, whole.stderr
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("out", "whole")]
    assert models[0] == models[1]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["train", "evaluate"])
def test_on_a_terminal_something_is_seen_at_once_and_ctrl_c_is_answered(where, tmp_path, task):
    arguments = [task, *where, "--steps", "1000000"] if task == "train" else [task, "llama", "--all"]
    ours, theirs = pty.openpty()
    process = started(
        tmp_path,
        *arguments,
        stderr=theirs,
        stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
    )
    os.close(theirs)
    shown = ""

    def drawn(mark):
        nonlocal shown
        if select.select([ours], [], [], 0.05)[0]:
            try:
                shown += os.read(ours, 65536).decode("utf-8", "replace")
            except OSError:  # nobody writes any more
                return True
        return mark in shown

    try:
        wait_until(lambda: drawn("reading the corpus" if task == "train" else "asking"))
        wait_until(lambda: drawn("tokens/s" if task == "train" else "%"))
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        if task == "train":
            wait_until(lambda: drawn("stopping after this step"))
        wait_until(lambda: drawn("\0") or process.poll() is not None)
        assert process.wait(PATIENCE) == 130
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_bad_arguments_are_one_line_and_write_nothing(command, where, tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"text": "fine"}\n{"txt": "no"}\n')
    for arguments, words in (
        (["--corpus", "bad.jsonl"], 'bad.jsonl, line 2: has no "text"'),
        (["--corpus", "phrasebook"], "the corpus phrasebook is not for models that do generate"),
        (["--objective", "paint"], "objective 'paint': none of that name"),
        (["--resume"], "out: no run to resume"),
        (["--resume", "--overwrite"], "give one of them"),
        (["--tokenizer", "."], "holds no tokenizer"),
        (["--rate", "nan"], "--rate must be a number of more than 0, got nan"),
    ):
        done = command("train", *where, *arguments)
        assert done.returncode and words in done.stderr and done.stderr.count("\n") == 1, done.stderr
        assert not (tmp_path / "out").exists()


PLUGIN = """
from zoo.architecture import Corpus, Objective, hookimpl

@hookimpl
def zoo_corpora():
    yield Corpus("counting", "zoo_counting_data:counting", tasks=("generate",), summary="numbers in a row")

@hookimpl
def zoo_objectives():
    yield Objective("halved", "zoo_counting_data:HALVED", tasks=("generate",))
"""
DATA = """
from zoo.training.objective import NEXT_TOKEN, TrainingObjective

def counting(split, seed):
    return iter([f"{n} and one is {n + 1}." for n in range(40 if split == "train" else 4)])

HALVED = TrainingObjective(
    NEXT_TOKEN.training, NEXT_TOKEN.validation, lambda model, *batch: NEXT_TOKEN.loss(model, *batch) / 2, running=True
)
"""


@pytest.mark.slow
def test_an_installed_plugins_corpus_and_objective_are_used_by_name(command, where, make_site, tmp_path):
    site = make_site(tmp_path / "site")
    site.add("zoo-counting", "zoo_counting", PLUGIN)
    (site.path / "zoo_counting_data.py").write_text(DATA)
    own = ["--corpus", "counting", "--steps", "2"]
    whole = command("train", *where, *own, environment=site.environment)
    halved = command(
        "train", *where, *own, "--objective", "halved", "--out", "half", environment=site.environment
    )
    assert whole.returncode == halved.returncode == 0, whole.stderr + halved.stderr
    losses = [
        json.loads((tmp_path / out / "training.json").read_text())["losses"][0][1] for out in ("out", "half")
    ]
    assert losses[1] == pytest.approx(losses[0] / 2, abs=1e-3)
    listed = command("plugins", "--json", environment=site.environment)
    gives = {row["name"]: row["gives"] for row in json.loads(listed.stdout)}
    assert gives["zoo_counting"] == ["corpus/counting", "objective/halved"]
    assert gives["corpora"] == ["corpus/atlas", "corpus/phrasebook"] and gives["evaluate"] == ["zoo evaluate"]
    blocked = command(
        "train", *where, *own, "--out", "x", environment=site.environment | {"ZOO_BLOCK": "zoo-counting"}
    )
    assert "no corpus 'counting'; there are: atlas, phrasebook" in blocked.stderr


def test_every_architecture_of_the_zoo_has_numbers_to_train_with():
    for name, architecture in default_registry().architectures.items():
        preset = architecture.preset("pocket")
        assert preset is not None and preset.config, name
        recipe = architecture.recipe(Config(preset.config))
        assert 0.9e6 <= recipe.parameters(recipe.dim) <= 3.3e6, name


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["bart", "gpt", "m2m-100", "marian", "mistral", "mt5", "qwen2", "qwen2-moe", "t5"]
)
def test_an_architecture_without_a_checkpoint_trains_runs_and_converts(
    name, tmp_path, monkeypatch, tokenizer_folder
):
    monkeypatch.setattr("zoo_corpora.atlas.documents", lambda split, seed: iter(["one", "two"]))
    pairs = [("one", "eins"), ("two", "zwei")]
    monkeypatch.setattr("zoo_corpora.phrasebook.documents", lambda split, seed: iter(pairs))
    settings = TrainingSettings(steps=2, batch=2, length=16)
    record = train_folder(name, tmp_path / "made", settings, tokenizer=tokenizer_folder)
    translates = default_registry().architecture(name).task == "translate"
    assert record.settings["corpus"] == ("phrasebook" if translates else "atlas")
    convert(tmp_path / "made", tmp_path / "other")
    texts = [zoo.generate(zoo.load(tmp_path / place), "one two", max_tokens=3) for place in ("made", "other")]
    assert texts[0].tokens == texts[1].tokens and texts[0].finish_reason
    assert not (tmp_path / "other" / "run").exists() and not (tmp_path / "other" / "training.json").exists()


@pytest.mark.slow
def test_a_recipe_is_shown_edited_trained_run_and_converted(command, where, tmp_path):
    def ok(*arguments):
        done = command(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    recipe = json.loads(ok("show", "llama", "--recipe"))
    (run,) = recipe["layers"]
    run["repeat"], recipe["embedding"]["dim"], recipe["context"] = 2, 32, 64
    run["layer"]["mixer"] |= dict(heads=4, kv_heads=2, head_dim=8)
    run["layer"]["feedforward"]["hidden"] = 48
    (tmp_path / "r.json").write_text(json.dumps(recipe))
    (tmp_path / "r (2).json").write_text(json.dumps(recipe))
    shown = ok("show", "r.json", "--all")
    assert re.search(r"^layer\.feedforward\.hidden +48$", shown, re.MULTILINE)
    compared = json.loads(ok("compare", "llama", "r (2).json", "gpt2:pocket", "--all", "--json"))
    assert compared["models"] == ["llama:8b", "r (2).json", "gpt2:pocket"]
    fields = {row["name"]: row for row in compared["fields"]}
    assert fields["layers"]["values"] == [32, 2, 4] and not fields["layer"]["differs"]
    train = ["train", "--recipe", "r.json", *where[1:5], *where[7:], "--steps", "3"]
    assert "out: " in ok(*train)
    assert ok("run", "out", "line 3", "--max-tokens", "3")
    assert re.search(r"^embedding\.vocab +400$", ok("show", "out", "--all"), re.MULTILINE)
    ok("convert", "out", "packed", "-q", "4", "--group-size", "32")
    assert ok("run", "packed", "line 3", "--max-tokens", "3")
    assert "none failed" in ok("test", "out")
    assert "validation" in ok("train", "--out", "out", "--resume", "--steps", "4")
    run["layer"]["mixer"]["kv_heads"] = 3
    (tmp_path / "r.json").write_text(json.dumps(recipe))
    for arguments, words in (
        (["show", "r.json"], "r.json: layers.0.mixer.kv_heads: 3 does not divide heads, 4"),
        (["train", "--recipe", "r.json", "--out", "new"], "r.json: layers.0.mixer.kv_heads: 3 does not"),
        (["train", "--out", "new"], "give an ARCHITECTURE, or --recipe with a JSON file"),
        (["train", "llama", "--recipe", "r.json", "--out", "new"], "not both"),
        (["show", "llama", "--recipe", "--json"], "leave --json, --parameters and --rules out"),
    ):
        done = command(*arguments)
        assert done.returncode and words in done.stderr and done.stderr.count("\n") == 1, done.stderr
        assert done.stdout == "" and not (tmp_path / "new").exists()
