"""The library names arguments, and the command line its options: one message serves both."""

import re
import subprocess
import sys

import click
import pytest

from tests.helpers.waiting import PATIENCE
from zoo.architecture import Command
from zoo.cli.program import with_option_names
from zoo_new.parts import ScaffoldError
from zoo_new.write_plugin import create

HELPS = ("--help", "--help-all")


@click.command()
@click.option("--top-k", type=int)
@click.option("--force", is_flag=True)
@click.option("--json", "as_json", is_flag=True)
@click.option("-q", "--quantize", type=int)
@click.option("--layout")
@click.argument("source")
def run(**given):
    """A command with options of every kind."""


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("`top_k` must be above 0", "--top-k must be above 0"),
        ("`top_k=-1`: must be above 0", "--top-k -1: must be above 0"),
        ("too large; `force=True` loads it nevertheless", "too large; --force loads it nevertheless"),
        ('`layout="hf"` has no place for `quantize=4`', "--layout hf has no place for --quantize 4"),
        ("`force=False` is safe", "`force=False` is safe"),
        ("`json` and `as_json`", "--json and `as_json`"),
        ("`top_p` and `source` are no options of it", "`top_p` and `source` are no options of it"),
        ("`zoo list` shows all, top_k is text", "`zoo list` shows all, top_k is text"),
    ],
)
def test_an_argument_is_shown_as_the_running_commands_option(message, shown):
    assert with_option_names(message, [run]) == shown
    assert with_option_names(message, []) == message


PLUGIN = """
    import warnings
    import click
    from zoo.architecture import Command, hookimpl
    from zoo.errors import ZooError

    @click.group()
    @click.option("--top-k", type=int)
    def grouped(top_k):
        pass

    @grouped.command()
    @click.option("--dry-run", is_flag=True)
    def inner(dry_run):
        warnings.warn("`dry_run=True` writes nothing")
        raise ZooError("`dry_run` goes without `top_k`")

    @click.command()
    @click.option("--top-k", type=int)
    def plain(top_k):
        raise ZooError("`dry_run` goes without `top_k`")

    @hookimpl
    def zoo_commands():
        yield Command("grouped", "grouped_plugin:grouped")
        yield Command("plain", "grouped_plugin:plain")
"""


def test_errors_and_warnings_name_the_options_of_the_command_that_runs(site, command):
    site.add("zoo-grouped", "grouped_plugin", PLUGIN)
    done = command("grouped", "--top-k", "3", "inner", environment=site.environment)
    assert done.returncode == 1
    assert done.stderr == "zoo: --dry-run writes nothing\nzoo: error: --dry-run goes without --top-k\n"
    done = command("plain", environment=site.environment)
    assert done.stderr == "zoo: error: `dry_run` goes without --top-k\n"


def test_a_librarys_error_names_the_argument_and_the_command_its_option(command, tmp_path):
    with pytest.raises(ScaffoldError, match=r'^`base="bert"`: it is of the kind encoder; `block` is'):
        create("child", base="bert", block="norm", where=tmp_path)
    done = command("new", "child", "--base", "bert", "--block")
    assert done.returncode == 1
    assert done.stderr.startswith("zoo: error: --base bert: it is of the kind encoder; --block is")


def test_a_caller_in_process_has_garbage_collected_after_any_end():
    script = """
import gc, sys
from zoo.cli.program import main
for words in (["no-such-command"], ["show", "--no-such-option"], ["show", "no-such-model"], ["--help"], []):
    sys.argv = ["zoo", *words]
    try:
        main()
    except SystemExit as ended:
        assert gc.isenabled(), (words, ended.code)
    else:
        raise AssertionError(words)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_command_runs_with_garbage_collected():
    script = """
import gc, sys
from zoo.cli import doctor
from zoo.cli.program import main
doctor.diagnose = lambda: sys.exit(0 if gc.isenabled() and gc.get_freeze_count() else "not collected")
sys.argv = ["zoo", "doctor"]
main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["tokenize", "llama", "中国 is", "--json"],
        ["run", "llama", "--top-k", "-1", "text"],
        ["--debug", "show", "lama"],
        *(
            pytest.param(arguments, marks=pytest.mark.slow)
            for arguments in (
                ["run", "llama", "The capital city of China is", "--max-tokens", "3", "--seed", "1"],
                ["run", "lama", "text"],
                ["nothing"],
                [],
            )
        ),
    ],
    ids=" ".join,
)
def test_within_this_process_the_command_says_what_it_says_in_its_own(arguments, command, process):
    """Most tests call it by the fixture `command`: what they see is what a user does."""
    within, apart = command(*arguments), process(*arguments)
    assert (within.returncode, within.stdout) == (apart.returncode, apart.stdout)
    if "--debug" in arguments:  # the traceback begins in another file
        within, apart = (done.stderr.strip().splitlines()[-1:] for done in (within, apart))
        assert within == apart and within
    else:
        within, apart = (
            re.sub(r"\d+\.\d+", "…", done.stderr) for done in (within, apart)
        )  # times are not equal
        assert within == apart


def test_help_of_run_fits_a_screen_and_help_all_has_every_option(command):
    short, whole = (command("run", option, environment={"COLUMNS": "80"}).stdout for option in HELPS)
    assert len(short.splitlines()) <= 45 and short.endswith("--max-tokens 20\n")
    for option in ("--prompt", "--max-tokens", "--temperature", "--json", "--help", "--help-all"):
        assert f"{option} " in short and f"{option} " in whole
    for text in ("--dry-base", "Speculative decoding:", "Settings of beam:", "--repack"):
        assert text not in short and text in whole


def test_commands_are_listed_in_groups(command):
    shown = command("--help").stdout
    groups = ["Begin:", "Run:", "Look inside:", "Make:", "Extend:", "This machine:"]
    assert [line for line in shown.splitlines() if line in groups] == groups
    assert Command("mine", "my_plugin:mine").group == "Extend"


def test_zoo_alone_begins_with_what_a_newcomer_can_type(command):
    first = command().stdout.split("Begin:\n")[1].split("\n\n")[0].splitlines()
    assert len(first) == 3 and all(line.startswith("  zoo ") for line in first)


def test_a_warning_is_printed_once_whatever_a_library_does_to_the_filters(site, command):
    site.add(
        "zoo-repeating",
        "repeating_plugin",
        """
        import warnings
        import click
        from zoo.architecture import Command, hookimpl

        @click.command()
        def repeat():
            for _ in range(3):
                warnings.warn("once")
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
            warnings.warn("twice")

        @hookimpl
        def zoo_commands():
            yield Command("repeat", "repeating_plugin:repeat")
        """,
    )
    assert command("repeat", environment=site.environment).stderr == "zoo: once\nzoo: twice\n"


INTERRUPTED_IMPORT = """
import enum, os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored
from zoo.cli.signals import listen
listen()
call = enum.EnumType.__call__
def interrupted(*arguments, **named):
    os.kill(os.getpid(), signal.SIGINT)
    return call(*arguments, **named)
enum.EnumType.__call__ = interrupted
import mlx.core
"""


def test_ctrl_c_while_mlx_is_imported_ends_without_a_word():
    """An exception there aborts the process, with a traceback: mlx.core makes enumerations of Python's."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT], capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
