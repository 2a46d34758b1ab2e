"""The page of the command line has every command, each with an example that is run, and no other."""

import importlib.util
import re
import sys
from pathlib import Path

import click
import pytest

from zoo.cli.program import cli

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tool():
    """docs/building/command_help.py, which needs no Sphinx."""
    spec = importlib.util.spec_from_file_location(
        "command_help", ROOT / "docs" / "building" / "command_help.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["command_help"] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    yield module
    del sys.modules["command_help"]


def test_every_command_is_shown_with_an_example(tool):
    shown = re.findall(r"^#+ zoo (.*)\n\n<!-- command: \1 -->\n((?:(?!^#).*\n?)*)", PAGE, re.MULTILINE)
    assert [name for name, _ in shown] == tool.paths(cli)
    groups = {name for name in tool.paths(cli) if " " in name}
    for name, rest in shown:
        leads_on = any(other.startswith(f"{name} ") for other in groups)
        assert re.search(rf"^\$ (.* \| )?zoo {name}", rest, re.MULTILINE) or leads_on, (
            f"{name} has no example"
        )


def test_settings_that_strategies_declare_are_told(tool):
    sections = dict(tool.command_help(cli, "run").sections)
    assert "--block-length INTEGER" in dict(sections["Settings of masked-diffusion (plugin llada)"])
    assert "--beams INTEGER" in dict(sections["Settings of beam"])
    assert tool.command_help(cli, "run").usage == "zoo run [OPTIONS] SOURCE [PROMPT]"


def test_options_in_a_text_are_code_so_that_their_hyphens_stay(tool):
    text = """As --out, -q's and (--top-k 4); `a -- b`, top-k - 1, {"4": -5} <!-- end -->, '"' or "-"."""
    code = ["--out", "-q", "--top-k", "a -- b", '{"4": -5}', "<!-- end -->", "'\"'", '"-"']
    assert [part for part, is_code in tool.parts(text) if is_code] == code
    assert "".join(part for part, _ in tool.parts(text)) == text.replace("`", "")
    for path in tool.paths(cli):
        found = tool.command_help(cli, path)
        for told in [*found.text, *(text for _, rows in found.sections for _, text in rows)]:
            assert "--" not in "".join(part for part, is_code in tool.parts(told) if not is_code)


def test_every_option_is_told(tool):
    for path in tool.paths(cli):
        command, context = cli, click.Context(cli, info_name="zoo", **cli.context_settings)
        for name in path.split():
            command = command.get_command(context, name)
            context = click.Context(command, info_name=name, parent=context)
        rows = {name for _, section in tool.command_help(cli, path).sections for name, _ in section}
        for option in command.get_params(context):
            if isinstance(option, click.Option) and not option.hidden:
                assert any(option.opts[-1] in row for row in rows), f"zoo {path} {option.opts}"


def test_a_command_that_there_is_not_is_an_error(tool):
    for name in ("fly", "run away", "cache fly"):
        with pytest.raises(KeyError):
            tool.command_help(cli, name)
