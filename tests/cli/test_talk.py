"""`zoo run SOURCE` on a terminal: it says what it is, and what is typed is answered, obeyed or refused."""

import json

import pytest
from slow_run import slow_run
from terminal import Terminal

PROMPT = "The capital of France is"
TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    "{% if messages|length > 2 %}{{ raise_exception('turns: ' ~ messages|length) }}{% endif %}"
)
SLOW = slow_run("llama", "--max-tokens", "100", seconds=0.2)


@pytest.fixture
def talk(tmp_path):
    """A conversation with the embedded LLaMA, at its first prompt; gives it, and what it said before."""
    with Terminal("run", "llama", "--max-tokens", "8", cwd=tmp_path) as terminal:
        yield terminal, terminal.until(">>> ")


def ask(terminal, line):
    """What comes between a line and the next prompt."""
    terminal.type(line)
    return terminal.until("\n>>> ")


def test_it_says_that_no_line_is_remembered_and_how_to_end(talk):
    terminal, began = talk
    assert "llama has no chat template" in began and "each line is a prompt of its own" in began
    assert "/help" in began and "/exit" in began and "Ctrl-D" in began
    assert " Paris" in ask(terminal, f"{PROMPT}\n")
    helped = ask(terminal, "/help\n")
    for word in ("/exit", "exit", "quit", "/bye", "Ctrl-D", "Ctrl-C"):
        assert word in helped


@pytest.mark.parametrize("end", ["/exit\n", "exit\n", "quit\n", "/quit\n", "/bye\n", " exit \n", "\x04"])
def test_it_ends_cleanly(talk, end):
    terminal, _ = talk
    terminal.type(end)
    assert terminal.end()[0] == 0


def test_an_unknown_command_is_told_and_not_sent(talk):
    terminal, _ = talk
    told = ask(terminal, "/hepl me\n")
    assert "/hepl is no command and was not sent" in told and "Paris" not in told
    assert "is no command" not in ask(terminal, " /usr is\n")


def test_ctrl_c_clears_a_half_typed_line_and_ends_on_an_empty_one(talk):
    terminal, _ = talk
    for _ in range(2):
        terminal.type("The capital of Chi")
        terminal.until("Chi")
        assert "Ctrl-C again" in ask(terminal, "\x03")
    assert " Paris" in ask(terminal, f"{PROMPT}\n")
    assert "Ctrl-C again" in ask(terminal, "\x03")
    terminal.type("\x03")
    assert terminal.end()[0] == 0
    assert "Traceback" not in terminal.seen


def test_ctrl_c_stops_an_answer_and_no_more(tmp_path):
    with Terminal(code=SLOW, cwd=tmp_path) as terminal:
        terminal.until(">>> ")
        terminal.type(f"{PROMPT}\n")
        terminal.until(" Paris")
        assert "(stopped)" in ask(terminal, "\x03")
        terminal.type("/exit\n")
        assert terminal.end()[0] == 0


def test_with_a_chat_template_it_is_a_conversation_unless_raw(folder, tmp_path):
    path = folder()
    settings = json.loads((path / "tokenizer_config.json").read_text())
    (path / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": TEMPLATE}))
    with Terminal("run", path, "--max-tokens", "2", cwd=tmp_path) as terminal:
        assert "llama: a conversation." in terminal.until(">>> ")
        ask(terminal, "first\n")
        assert "turns: 3" in ask(terminal, "second\n"), "the first line and its answer come before it"
        assert "turns: 3" in ask(terminal, "third\n"), "one that failed is forgotten"
        terminal.type("\x04")
        assert terminal.end()[0] == 0
    with Terminal("run", path, "--raw", "--max-tokens", "2", cwd=tmp_path) as terminal:
        assert "llama with --raw each line is a prompt of its own" in terminal.until(">>> ").replace(
            "\r\n", " "
        )
        ask(terminal, "first\n")
        assert "turns" not in ask(terminal, "second\n")


def test_a_refused_prompt_is_told_and_the_next_one_answered(tmp_path):
    with Terminal("run", "bert", cwd=tmp_path) as terminal:
        terminal.until(">>> ")
        assert "zoo: the prompt has no [MASK] to fill" in ask(terminal, "nothing hidden\n")
        assert "0." in ask(terminal, "[MASK] is the capital of France.\n")
