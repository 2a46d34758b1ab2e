"""What takes long says how far it has come, on a terminal alone, and Ctrl-C is heard while it goes on."""

import os
import subprocess
import sys

import mlx.core as mx
import pytest

import zoo
from tests.helpers.terminal import Terminal
from zoo.cache import evaluate_caches
from zoo.checkpoint.convert import convert
from zoo.checkpoint.shards import SaveOptions, write
from zoo.inspect.perplexity import divergence

pytestmark = pytest.mark.slow

# The commands as they are, but each report takes a while, and nobody waits a second for the first bar.
SLOW = (
    "import sys, time, rich.progress, zoo.loading, zoo.cli.progress as p\n"  # rich: which else may come after the work
    "p.AFTER, zoo.checkpoint.finite.READ = 0.01, 1\n"
    "plain = p.Progress.__call__\n"
    "def slow(self, done, total):\n"
    "    plain(self, done, total)\n"
    "    time.sleep({pause} if self.what == {what!r} else 0)\n"
    "p.Progress.__call__ = slow\n"
    "sys.argv = ['zoo', *{arguments!r}]\n"
    "from zoo.cli import main; main()"
)
LONG = "The capital of France is Paris. " * 240  # several pieces
COMMANDS = {
    "loading": ["run", "llama", "hi", "--max-tokens", "2"],
    "reading the prompt": ["run", "llama", LONG, "--max-tokens", "2"],
    "writing": ["convert", "llama", "written", "-q", "4"],
    "comparing": ["convert", "llama", "written", "--check"],
}


@pytest.mark.parametrize("what", COMMANDS)
def test_a_terminal_sees_how_far_it_is(what, tmp_path):
    code = SLOW.format(pause=0.02, what=what, arguments=COMMANDS[what])
    with Terminal(code=code, columns=100, cwd=tmp_path) as terminal:
        status, seen = terminal.end()
    assert status == 0, seen
    bars = [piece for piece in seen.split("\r") if what in piece]
    assert len({bar.partition("%")[0][-3:] for bar in bars if "%" in bar}) > 1, "it moves"
    assert seen.rstrip().splitlines()[-1].count("━") == 0, "it is gone at the end"


@pytest.mark.parametrize("what", COMMANDS)
def test_a_pipe_sees_nothing_of_it(what, tmp_path):
    code = SLOW.format(pause=0, what=what, arguments=COMMANDS[what])
    # A copy of the environment, since that of the process has COLUMNS once readline was imported.
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env={**os.environ}
    )
    assert done.returncode == 0 and "━" not in done.stderr and "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize("what", COMMANDS)
def test_ctrl_c_ends_it_and_leaves_nothing_half_written(what, tmp_path):
    code = SLOW.format(pause=0.2, what=what, arguments=COMMANDS[what])
    with Terminal(code=code, columns=100, cwd=tmp_path) as terminal:
        terminal.until(what)
        terminal.type("\x03")
        status = terminal.end()[0]
    assert status == 130 and "Traceback" not in terminal.seen
    left = [path.name for path in tmp_path.iterdir()]
    assert left == (["written"] if what == "comparing" else [])


def test_ctrl_c_is_heard_inside_a_library_and_a_second_one_ends_it(tmp_path):
    code = (
        "import hashlib, threading, zoo.cli.signals as i\n"
        "i.listen()\n"
        "threading.Timer(0.5, print, ['begun'], {'flush': True}).start()\n"
        "hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)\n"  # minutes, which Python cannot interrupt
    )
    with Terminal(code=code, cwd=tmp_path) as terminal:
        terminal.until("begun")
        terminal.type("\x03")
        terminal.until("stopping after this step; Ctrl-C again ends at once")
        terminal.type("\x03")
        assert terminal.end()[0] == 130


def test_ctrl_c_that_is_answered_is_not_spoken_of(tmp_path):
    code = (
        "import time, zoo.cli.signals as i\n"
        "i.REPEAT = 60\n"  # however busy the machine is
        "listener = i.listen()\n"
        "for turn in range(2):\n"
        "    try:\n"
        "        print('begun', turn, flush=True)\n"
        "        time.sleep(60)\n"
        "    except KeyboardInterrupt:\n"
        "        while listener._deadline is not None: time.sleep(0.01)\n"
        "print('over')\n"
    )
    with Terminal(code=code, cwd=tmp_path) as terminal:
        for turn in range(2):
            terminal.until(f"begun {turn}")
            terminal.type("\x03")
        status, seen = terminal.end()
    assert status == 0 and "over" in seen and "stopping" not in terminal.seen


def test_a_process_that_ignores_ctrl_c_goes_on_ignoring_it():
    code = (
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nimport zoo.cli.signals as i\ni.listen()\n"
        "assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_long_work_gives_ctrl_c_back_to_who_had_it():
    code = (
        "import signal\nimport zoo.cli.signals as i\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # in the background it is ignored
        "before = signal.getsignal(signal.SIGINT)\n"
        "for _ in range(2):\n"
        "    with i.Interrupts(print) as work:\n"
        "        assert signal.getsignal(signal.SIGINT) is not before and not work.asked()\n"
        "    assert signal.getsignal(signal.SIGINT) is before and signal.set_wakeup_fd(-1) == -1\n"
        "listener = i.listen()\n"
        "with i.Interrupts(print) as work:\n"
        "    assert listener.work is work and i.listen() is listener\n"
        "assert listener.work is None and listener.in_place()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_work_that_saves_hears_the_first_ctrl_c_and_ends_at_the_second(tmp_path):
    code = (
        "import time, zoo.cli.signals as i\n"
        "with i.Interrupts(lambda text: print(text, flush=True)) as work:\n"
        "    work.wait_for_step()\n"
        "    print('begun', flush=True)\n"
        "    while not work.asked(): time.sleep(0.01)\n"
        "    time.sleep(60)\n"
        "print('over')\n"
    )
    with Terminal(code=code, columns=120, cwd=tmp_path) as terminal:
        terminal.until("begun")
        terminal.type("\x03")
        terminal.until("stopping after this step, to save it")
        terminal.type("\x03")
        assert terminal.end()[0] == 130 and "over" not in terminal.seen


def test_loading_reports_the_bytes_read(folder, monkeypatch):
    monkeypatch.setattr("zoo.checkpoint.finite.READ", 1000)
    reports = []
    zoo.load(folder(), report=lambda done, total: reports.append((done, total)))
    assert reports[0] == (0, 0) and len(reports) > 5
    done = [done for done, _ in reports]
    assert done == sorted(done) and reports[-1][0] <= reports[-1][1]


def test_a_long_prompt_is_evaluated_layer_by_layer_and_reported(folder, cpu):
    loaded = zoo.load(folder())
    ids, reports = [5 + place % 300 for place in range(100)], []
    found = zoo.generate(
        loaded, ids, max_tokens=3, prefill_chunk=70, report=lambda *told: reports.append(told)
    )
    layers = len(loaded.recipe.layers)
    assert len(reports) == layers and reports[-1] == (70, 100), "the last 30 tokens are no long pass"
    reports.clear()
    assert (
        zoo.generate(loaded, ids, max_tokens=3, report=lambda *told: reports.append(told)).tokens
        == found.tokens
    )
    assert len(reports) == layers and reports[-1] == (100, 100)


def test_settling_evaluates_each_layer_once_and_changes_nothing(folder, cpu):
    loaded = zoo.load(folder())
    tokens, cache = mx.array([[5, 6, 7, 8]]), loaded.model.make_cache()
    logits, told = loaded.model(tokens, cache), []
    evaluate_caches(cache, 4, told.append)
    assert len(told) == len(cache) and told[-1] == 4
    assert mx.array_equal(logits, loaded.model(tokens, loaded.model.make_cache()))


def test_a_gpu_is_not_made_to_wait_for_each_layer(folder, monkeypatch):
    loaded = zoo.load(folder())
    cache, told = loaded.model.make_cache(), []
    loaded.model(mx.array([[5, 6, 7, 8]]), cache)
    monkeypatch.setattr("zoo.runtime.device.on_gpu", lambda: True)
    evaluate_caches(cache, 4, told.append)
    assert told == [4]


def test_a_file_written_in_pieces_is_the_same_file(tmp_path, monkeypatch):
    monkeypatch.setattr("zoo.checkpoint.shards.PIECE", 7)
    tensors = {
        "a": mx.arange(50).astype(mx.bfloat16),
        "b": mx.ones((3, 5)),
        "c": mx.zeros((0, 4)),
        "d": mx.array(2),
    }
    mx.save_safetensors(str(tmp_path / "whole.safetensors"), dict(tensors), metadata={"format": "pt"})
    reports = []
    write(tmp_path / "out", dict(tensors), {}, SaveOptions(report=lambda *told: reports.append(told)))
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == (
        tmp_path / "whole.safetensors"
    ).read_bytes()
    assert reports[-1][0] >= reports[-1][1] > 0


@pytest.mark.parametrize("number", [0, 1, 7, 40])
def test_a_conversion_that_is_interrupted_leaves_nothing(folder, tmp_path, number):
    source, count = folder(), 0

    def report(done, total):
        nonlocal count
        count += 1
        if count > number:
            raise KeyboardInterrupt

    before = set(tmp_path.iterdir())
    with pytest.raises(KeyboardInterrupt):
        convert(source, tmp_path / "out", report=report)
    assert set(tmp_path.iterdir()) == before


def test_the_divergence_is_that_of_the_full_forward(folder, tmp_path):
    source = folder()
    convert(source, tmp_path / "out", quantize="4", group_size=32)
    found = divergence(source, tmp_path / "out")

    def told(path):
        loaded = zoo.load(path, dtype="float32")
        from zoo.inspect.perplexity import SAMPLE

        ids = loaded.tokenizer.encode(SAMPLE)[: loaded.recipe.context]
        logits = loaded.model(mx.array([ids]))[0]
        return logits - mx.logsumexp(logits, axis=-1, keepdims=True)

    wanted, other = told(source), told(tmp_path / "out")
    each = (mx.exp(wanted) * (wanted - other)).sum(axis=-1)
    assert found.mean == pytest.approx(each.mean().item(), rel=1e-3, abs=1e-6)
    assert found.tokens == each.size
