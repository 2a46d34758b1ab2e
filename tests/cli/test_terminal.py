"""What a terminal would obey is shown on it; a pipe gets every character as it is."""

import io
import re
import sys

import pytest

from tests.helpers.loopback_hub import ID
from tests.helpers.terminal import Terminal
from zoo.cli.terminal import Terminal as Guarded
from zoo.cli.terminal import visible

ATTACK = "\x1b]0;title\x07\x1b[2J\u202egnp.exe\u2066\x9b31m\x7f\r\x08"
SHOWN = r"\x1b]0;title\x07\x1b[2J\u202egnp.exe\u2066\x9b31m\x7f\r\x08"

PLUGIN = f"""
    from zoo.architecture import Command, Strategy, hookimpl
    from zoo.generation.loop.step import Step
    import warnings, click

    TEXT = {ATTACK!r}

    def attack(loaded, prompt):
        yield Step(None, "", draft="draft \\x1b[3J")
        # An escape sequence in two steps.
        for token, text in enumerate((" Bei", "jing \\x1b", "[31m", "红\\n\\t", TEXT)):
            yield Step(token, text, finish_reason="stop" if text == TEXT else None)

    @click.command()
    def cry():
        warnings.warn(f"warning {{TEXT}}")
        print("printed " + TEXT)
        raise click.ClickException(f"error {{TEXT}}")

    @hookimpl
    def zoo_strategies():
        yield Strategy("attack", "evil_plugin:attack", tasks=("generate",), summary="[red]" + TEXT)

    @hookimpl
    def zoo_commands():
        yield Command("cry", "evil_plugin:cry", summary="[bold]sum " + TEXT)
"""


@pytest.fixture
def evil(make_site, tmp_path):
    site = make_site(tmp_path / "site")
    site.add("zoo-evil", "evil_plugin", PLUGIN)
    site.add("zoo-broken", "broken_plugin", f"raise RuntimeError('[red]' + {ATTACK!r} + '[/red]')\n")
    return site.environment


def controls(text):
    """The control characters of a text, but those that a terminal's own line ends are made of."""
    return re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]", text)


@pytest.mark.parametrize(
    "code", [*range(0x20), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x202E, 0x2069, 0xD800, 0xDFFF]
)
def test_every_control_is_visible_but_tab_and_newline(code):
    told = visible(f"a{chr(code)}b")
    if chr(code) in "\t\n":
        assert told == f"a{chr(code)}b"
    else:
        assert told == f"a{ascii(chr(code))[1:-1]}b" and told.isprintable()


def test_what_people_write_stays_as_it_is():
    text = "naïve café – 北京，שלום مرحبا 👩‍🚀 ½ \\x1b [red]\n\ttab"
    assert visible(text) == text


@pytest.mark.slow
def test_a_models_text_is_shown_on_a_terminal(evil, tmp_path):
    with Terminal("run", "llama", "hi", "--strategy", "attack", cwd=tmp_path, environment=evil) as terminal:
        status, seen = terminal.end()
    assert status == 0, seen
    assert r"draft \x1b[3J" in seen and r" Beijing \x1b[31m红" in seen and SHOWN in seen
    assert "\u202e" not in seen and "\x07" not in seen and "\x1b[31m" not in seen and "\x1b[2J" not in seen


def test_a_models_text_goes_into_a_pipe_as_it_is(evil, command):
    done = command("run", "llama", "hi", "--strategy", "attack", environment=evil)
    # Text mode reads the \r of the text as a line's end.
    assert done.stdout == f" Beijing \x1b[31m红\n\t{ATTACK}\n".replace("\r", "\n")


@pytest.mark.slow
def test_a_conversation_shows_it_too(evil, tmp_path):
    with Terminal("run", "llama", "--strategy", "attack", cwd=tmp_path, environment=evil) as terminal:
        terminal.until(">>>")
        terminal.type("hi\r")
        seen = terminal.until(SHOWN) + terminal.until(">>>")
        terminal.type("\x04")
        assert terminal.end()[0] == 0
    assert SHOWN in seen and "\u202e" not in seen and "\x1b[2J" not in seen


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["plugins"], ["[red]"]),
        (["--help"], ["[bold]sum"]),
        (["cry"], ["warning", "printed", "error"]),
        (["run", f"./{ATTACK.replace(chr(8), '')}"], ["no such folder"]),
        (["show", ATTACK], ["is no architecture"]),
        (["--debug", "cry"], ["printed"]),
    ],
)
def test_names_tables_errors_and_warnings_are_shown(evil, tmp_path, arguments, told):
    with Terminal(*arguments, columns=200, cwd=tmp_path, environment=evil) as terminal:
        _, seen = terminal.end()
    assert not controls(seen), seen
    assert r"\x1b]0;title\x07" in seen and r"\u202e" in seen
    assert all(words in seen for words in told), seen


def test_a_pipe_gets_tables_and_errors_as_they_are(evil, command):
    listed = command("plugins", environment=evil).stdout
    # The reason is wrapped, which drops the bell and what moves back on the line.
    assert "\x1b]0;title" in listed and "\x1b[2J\u202egnp.exe" in listed and "[red]" in listed
    done = command("cry", environment=evil)
    assert "\x1b[2J\u202egnp.exe" in done.stdout and "error \x1b]0;title\x07\x1b[2J" in done.stderr


def test_a_bar_of_rich_reaches_the_terminal_and_what_is_printed_meanwhile_does_not():
    from rich.console import Console
    from rich.progress import Progress

    class Screen(io.StringIO):
        def isatty(self):
            return True

    screen, before = Screen(), sys.stderr
    sys.stderr = Guarded(screen)
    try:
        with Progress(console=Console(stderr=True, force_terminal=True), redirect_stdout=False) as bar:
            bar.add_task("training", total=2)
            sys.stderr.write(ATTACK)
    finally:
        sys.stderr = before
    assert "\x1b[?25l" in screen.getvalue() and r"\x1b[?25l" not in screen.getvalue()
    assert SHOWN in screen.getvalue()


@pytest.mark.slow
def test_the_bar_of_a_download_may_control_the_terminal(hub, repository, tmp_path):
    with Terminal(
        "run", ID, "hi", "--max-tokens", "1", environment=hub.environment, cwd=tmp_path
    ) as terminal:
        status, seen = terminal.end()
    assert status == 0, seen
    assert "\r" in seen and r"\r" not in seen and r"\x1b" not in seen
    assert "\rconfig.json:   0%" in seen
