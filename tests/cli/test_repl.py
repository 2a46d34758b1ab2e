"""A conversation without a terminal: markdown, the loop, and how lines of a pipe are answered."""

import io
import json
import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import zoo
from zoo.cli import progress
from zoo.cli.repl.loop import Repl, completions, run
from zoo.cli.repl.reader import PipeReader
from zoo.cli.screen import BOLD, CODE, DIM, RESET, Painter
from zoo.generation.chat.conversation import Conversation
from zoo.generation.chat.session import ChatSession, DroppedTurns

ESCAPES = re.compile(r"\x1b\[[0-9]*m")
MARKED = st.text("ab `*#\n_", max_size=40)
TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"


def painted(*pieces):
    painter = Painter()
    return [*map(painter.paint, pieces), painter.finish()]


def styles(text):
    """Each character of a painted text with its style."""
    found, style = [], ""
    for part in re.split(r"(\x1b\[[0-9]*m)", text):
        if part.startswith("\x1b"):
            style = "" if part == RESET else part[2:-1]
        else:
            found += [(character, style) for character in part]
    return found


@given(st.lists(MARKED, max_size=6))
def test_painted_text_is_the_text_however_it_comes(pieces):
    shown = painted(*pieces)
    assert ESCAPES.sub("", "".join(shown)) == "".join(pieces)
    assert styles("".join(shown)) == styles("".join(painted("".join(pieces))))
    assert all(styles(f"{piece}x")[-1] == ("x", "") for piece in shown), "no style is left on"


@pytest.mark.parametrize(
    ("text", "part", "style"),
    [
        ("# Title\nx", "# Title", BOLD),
        ("a # b", "# b", ""),
        ("#hash", "#hash", ""),
        ("so **bold** it", "**bold**", BOLD),
        ("so **bold** it", " it", ""),
        ("2 ** 3 ** 4", "** 3", ""),
        ("a `b*c*` d", "`b*c*`", CODE),
        ("a `b*c*` d", " d", ""),
        ("``a ` b``.", "``a ` b``", CODE),
        ("```py\nx = **y\n```\nz", "```py", DIM),
        ("```py\nx = **y\n```\nz", "x = **y", CODE),
        ("```py\nx = **y\n```\nz", "\nz"[1:], ""),
        ("**open\nnext", "next", ""),
    ],
)
def test_marks_have_their_style(text, part, style):
    whole = styles("".join(painted(text)))
    start = text.rindex(part)
    assert {found for _, found in whole[start : start + len(part)]} == {style}


def test_control_characters_of_a_model_are_shown():
    assert "\\x1b" in "".join(painted("\x1b[2J")) and "\x1b[2J" not in "".join(painted("\x1b[2J"))


class Typed:
    """A reader of these lines; an exception is raised in the place of a line."""

    def __init__(self, *lines):
        self.lines = list(lines)

    def read(self):
        if not self.lines:
            raise EOFError
        line = self.lines.pop(0)
        if isinstance(line, BaseException):
            raise line
        return line


@pytest.fixture
def repl():
    loaded = zoo.load("llama")
    loaded.tokenizer.chat_template = TEMPLATE
    return Repl(ChatSession(loaded, settings={"max_tokens": 3}))


@pytest.mark.parametrize("end", ["/exit", "exit", "quit", "/quit", "/bye", " exit "])
def test_it_ends(repl, end):
    reader = Typed(end, "more")
    run(repl, reader)
    assert reader.lines == ["more"] and not repl.session.conversation.messages


def test_two_interrupts_on_empty_lines_end_it_and_one_does_not(repl, capsys):
    reader = Typed(KeyboardInterrupt(), "/undo", KeyboardInterrupt(), KeyboardInterrupt(), "more")
    run(repl, reader)
    assert reader.lines == ["more"]
    told = capsys.readouterr().err
    assert told.count("Ctrl-C again") == 2 and "there is no question to take back" in told


def test_a_line_that_is_no_text_is_told(repl, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n/exit\n"), encoding="utf-8"))
    run(repl, PipeReader())
    assert "not UTF-8" in capsys.readouterr().err


def test_settings_are_checked_as_they_are_set(repl, capsys):
    def told(line):
        run(repl, Typed(line))
        return capsys.readouterr().err.strip()

    first, others = told("/set").split("\n", 1)
    assert first == "max_tokens 3" and others.startswith("not set, the checkpoint decides: ")
    assert "temperature, " in others and "max_tokens" not in others
    assert told("/set top-p 0.5") == "top_p 0.5"
    assert "must be a number of more than 0 and at most 1" in told("/set top_p 2")
    assert (
        told("/set tempratur 1")
        == "zoo: tempratur: autoregressive generation has no such setting; did you mean temperature?"
    )
    assert told("/set top_p").startswith("top_p is 0.5: a number of more than 0 and at most 1.")
    assert "is not set" in told("/unset top_p") and repl.session.settings == {"max_tokens": 3}
    assert told("/unset top_p") == "zoo: top_p is not set"
    assert told("/undo now") == "zoo: /undo takes nothing after it"
    assert told("/save") == "zoo: /save needs the name of a file"


def test_three_quotes_begin_and_end_a_question_of_several_lines(repl, capsys, monkeypatch):
    def asked(text):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        repl.session.conversation = Conversation()
        run(repl, PipeReader())
        return [m["content"] for m in repl.session.conversation.messages if m["role"] == "user"]

    assert asked('"""one\ntwo\n"""\nthree\n') == ["one\ntwo", "three"]
    assert asked('"""\n/help\nexit\n"""\n') == ["/help\nexit"]
    assert asked('"""one"""\n""" """\ntwo\n') == ["one", "two"]
    assert asked('"""one\ntwo') == ["one\ntwo"]


def test_a_notice_stands_above_a_progress_bar(repl, capsys, monkeypatch):
    lines = []

    bar = SimpleNamespace(console=SimpleNamespace(print=lambda line, **_: lines.append(line)))
    monkeypatch.setattr(progress, "_shown", [bar])
    repl.dropped(DroppedTurns(1, 120, 60, 128))
    assert capsys.readouterr().err == ""
    assert lines == ["(the context of 128 tokens is full: the oldest turn is left out, 120 tokens become 60)"]


def test_words_are_completed(repl, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "talk.json").write_text("{}")
    (tmp_path / "talks").mkdir()
    assert set(completions(repl, "/s")) == {"/set ", "/save ", "/system "}
    assert set(completions(repl, "/un")) == {"/undo", "/unset "}
    assert "temperature " in set(completions(repl, "/set tem"))
    assert list(completions(repl, "/unset ")) == ["max_tokens"]
    assert list(completions(repl, "/load ta")) == ["talk.json", "talks/"]
    assert list(completions(repl, "/load nowhere/")) == []
    assert list(completions(repl, "what /s")) == []


def test_a_pipe_is_a_conversation_too(folder, command):
    path = folder()
    settings = json.loads((path / "tokenizer_config.json").read_text())
    (path / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": TEMPLATE}))
    lines = "one\n/tokens\n/save kept.json\ntwo\n"
    done = command("chat", path, "--max-tokens", "2", stdin=lines)
    assert done.returncode == 0 and "the conversation has" in done.stderr and ">>>" not in done.stdout
    assert len(done.stdout.splitlines()) >= 2 and "\x1b" not in done.stdout
    went_on = command("chat", path, "--load", "kept.json", stdin="/set\n/undo\n/undo\n")
    assert "max_tokens 2" in went_on.stderr and "taken back: one" in went_on.stderr
    assert "there is no question to take back" in went_on.stderr
    refused = command("chat", path, "--load", "config.json", stdin="")
    assert refused.returncode != 0


def test_what_cannot_be_answered_is_told_and_the_next_is(command):
    done = command("chat", "bert", stdin="nothing hidden\n[MASK] is the capital of France.\n")
    assert "zoo: the prompt has no [MASK] to fill" in done.stderr and "0." in done.stdout
    refused = command("chat", "llama", "--system", "Be brief.")
    assert refused.returncode == 1 and "--system needs a chat template" in refused.stderr
