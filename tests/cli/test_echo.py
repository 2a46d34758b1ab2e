"""Keys that are typed during an answer are not shown in it, and the terminal is as it was afterwards, however it ends."""

import os
import signal
import termios
import time

import pytest

from tests.helpers.terminal import Terminal

# An answer whose tokens take a while.
SLOW = (
    "import sys, time, zoo.cli.screen as screen\n"
    "plain = screen.Screen.put\n"
    "def put(self, step):\n"
    "    plain(self, step)\n"
    "    time.sleep(0.3)\n"
    "screen.Screen.put = put\n"
    "sys.argv = ['zoo', *{arguments!r}]\n"
    "from zoo.cli import main; main()"
)
RUN = ["run", "llama", "The capital city of", "--max-tokens", "8"]


def echoes(terminal):
    return bool(termios.tcgetattr(terminal.leader)[3] & termios.ECHO)


def hidden(terminal, seconds=60):
    """Wait until the terminal shows no keys."""
    end = time.monotonic() + seconds
    while echoes(terminal):
        assert time.monotonic() < end, "the keys are shown"
        time.sleep(0.01)


@pytest.mark.slow
def test_what_is_typed_during_an_answer_is_not_in_it():
    with Terminal(code=SLOW.format(arguments=RUN)) as terminal:
        hidden(terminal)
        terminal.type("xyzzy")
        status, seen = terminal.end()
        assert status == 0 and "xyzzy" not in seen and "tokens/s" in seen
        assert echoes(terminal)


@pytest.mark.slow
def test_in_a_conversation_it_is_the_beginning_of_the_next_question(tmp_path):
    code = SLOW.format(arguments=["chat", "llama", "--max-tokens", "4"])
    with Terminal(code=code, environment={"XDG_STATE_HOME": str(tmp_path)}) as terminal:
        terminal.until(">>>")
        terminal.type("The capital city of China is\r")
        terminal.until("Bei")
        terminal.type("/exit")
        assert "/exit" not in terminal.until("ing")
        terminal.until("/exit")
        terminal.type("\r")
        assert terminal.end()[0] == 0
        assert echoes(terminal)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_terminal_is_as_it_was_after_a_signal(number):
    with Terminal(code=SLOW.format(arguments=RUN)) as terminal:
        hidden(terminal)
        os.kill(terminal.process.pid, number)
        status, _ = terminal.end()
        assert status == (130 if number == signal.SIGINT else -number)
        assert echoes(terminal)


@pytest.mark.slow
def test_the_terminal_is_as_it_was_after_an_end_at_once():
    code = (
        "import sys, zoo.cli.echo as echo, zoo.cli.signals as signals\n"
        "with echo.hidden_keys():\n"
        "    print('hidden', flush=True)\n"
        "    sys.stdin.readline()\n"
        "    signals.end()\n"
    )
    with Terminal(code=code) as terminal:
        terminal.until("hidden")
        hidden(terminal)
        terminal.type("\n")
        assert terminal.end()[0] == 130
        assert echoes(terminal)
