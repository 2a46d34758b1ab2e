"""Every command with standard streams that are closed, full, or read by a program that ends."""

import os
import signal
import subprocess
import sys

import pytest

from tests.helpers.waiting import PATIENCE

PROMPT = "The capital city of China is"
QUICK = {"list": "list", "a version": "--version", "no command": ""}
COMMANDS = QUICK | {
    "help": "--help",
    "run": f"run llama '{PROMPT}' --max-tokens 3",
    "run a file of prompts": "run llama --prompts prompts.jsonl --max-tokens 3",
    "chat": "chat llama",
    "embed": "embed bert hello",
    "show": "show llama",
    "compare": "compare llama gpt2",
    "tokenize": "tokenize llama hello",
    "trace": f"trace llama '{PROMPT}'",
    "perplexity": "perplexity llama text.txt",
    "evaluate": "evaluate llama --data examples.jsonl",
    "lab": "lab",
    "languages": "languages llama",
    "train": "train llama --out trained --steps 2",
    "tune": "tune llama --data examples.jsonl --out tuned --steps 1",
    "convert": "convert llama converted",
    "new": "new mine",
    "plugins": "plugins",
    "cache": "cache",
    "doctor": "doctor",
    "bench": "bench llama --prompt 8 --new 4 --runs 1 --only decode",
    "test": "test lstm",
    "an error": "run llamma hello",
}
OFTEN = (
    *QUICK,
    "run",
    "run a file of prompts",
    "convert",
    "an error",
)  # the others take minutes together: one mechanism


def marks(name):
    marks = [] if name == "a version" else [pytest.mark.slow]
    return marks if name in OFTEN else [*marks, pytest.mark.nightly]


each_command = pytest.mark.parametrize(
    "command", [pytest.param(COMMANDS[name], id=name, marks=marks(name)) for name in COMMANDS]
)


@pytest.fixture
def run(tmp_path):
    """Run a command of the shell, `zoo` being the command with its own line of arguments."""

    def call(command, streams):
        folder = tmp_path / str(len(os.listdir(tmp_path)))
        folder.mkdir()
        (folder / "text.txt").write_text(f"{PROMPT} Beijing.\n")
        (folder / "prompts.jsonl").write_text(f'{{"prompt": "{PROMPT}"}}\n')
        (folder / "examples.jsonl").write_text(f'{{"prompt": "{PROMPT}", "completion": " Beijing"}}\n' * 4)
        line = f"{sys.executable} -m zoo {command} {streams}"
        environment = os.environ | {"HF_HUB_OFFLINE": "1"}
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    return call


@each_command
def test_a_closed_stream_hinders_nothing_but_output(run, command):
    """Without input or an error stream a command does the same; output that cannot be written is an error in one line."""
    plain = run(command, "")
    for streams in ("<&-", "2>&-", "<&- 2>&-"):
        done = run(command, streams)
        assert (done.returncode, len(done.stdout) > 0) == (plain.returncode, len(plain.stdout) > 0), streams
        assert "2>&-" not in streams or done.stderr == ""
    for streams in (">&-", ">/dev/full", ">&- 2>&-", "<&- >&- 2>&-"):
        done = run(command, streams)
        assert done.returncode == (1 if plain.stdout else plain.returncode), streams
        assert "Traceback" not in done.stderr
        if plain.stdout and "2>&-" not in streams:
            assert done.stderr.splitlines()[-1].startswith("zoo: error: the output cannot be written ("), (
                done.stderr
            )


@each_command
def test_a_reader_that_ends_is_no_traceback(run, command):
    done = run(command, "| head -c 1")
    assert done.returncode in (0, 1, 2, 141)
    assert "Traceback" not in done.stderr and "cannot be written" not in done.stderr


def test_no_file_is_taken_for_the_error_stream(run, tmp_path):
    """Without one, the next file that is opened would be, and get what is written to it."""
    code = (
        "import os, sys\n"
        "from zoo.cli.terminal import open_missing\n"
        "open_missing()\n"
        "file = open('file', 'w')\n"
        "os.write(2, b'an error'), print('an error', file=sys.stderr), file.close()\n"
        "print(os.path.getsize('file'), sys.stdin.read() == '')\n"
    )
    line = f'{sys.executable} -c "$CODE" <&- 2>&-'
    environment = os.environ | {"CODE": code}
    assert subprocess.check_output(["bash", "-c", line], cwd=tmp_path, env=environment) == b"0 True\n"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["list", f"run llama '{PROMPT}' --max-tokens 40", "doctor"])
def test_ctrl_c_at_any_moment_prints_no_traceback(command):
    """From the first line of the command on to its end."""
    code = (
        "import os, shlex, signal, sys, threading, time\n"
        "import zoo_command\n"  # what Python does before is not the command's
        "sys.argv = ['zoo', *shlex.split(sys.argv[1])]\n"
        "interrupt = lambda: os.kill(os.getpid(), signal.SIGINT)\n"
        "timer = threading.Timer(float(os.environ['AFTER']), interrupt)\n"
        "timer.daemon = True\n"
        "timer.start()\n"
        "zoo_command.main()\n"
    )
    for number in range(15):
        done = subprocess.run(
            [sys.executable, "-c", code, command],
            env=os.environ | {"AFTER": str(0.02 + 0.1 * number), "HF_HUB_OFFLINE": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        messages = [
            line for line in done.stderr.splitlines() if " · " not in line
        ]  # all but run's statistics
        assert done.returncode in (0, 130, -signal.SIGINT) and len(messages) <= 1, done.stderr
        assert "Traceback" not in done.stderr
