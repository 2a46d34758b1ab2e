"""Tables, checks and statistics fit into the terminal, and no word is cut."""

import json
import re

import pytest
from click.testing import CliRunner

from tests.helpers.terminal import Terminal
from zoo.cli import cli
from zoo.cli.run import Statistics
from zoo.cli.terminal import facts, table, width, wrapped
from zoo.host.registry import default_registry

NARROW = {"COLUMNS": "80"}


def words(text):
    """The words of a text, without the lines that are drawn."""
    return [word for word in text.split() if not all(c in "≠●→·▲↑⊕" or "─" <= c <= "╿" for c in word)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("list",),
        ("list", "--all"),
        ("plugins",),
        ("test", "bert"),
        ("compare", "gpt2", "gpt2-postln", "llama"),
        ("compare", "gpt2", "llama", "qwen3", "gemma2", "mamba", "deepseek-v3", "transformer"),
        ("show", "llama"),
        ("show", "deepseek-v3", "--parameters"),
        ("show", "transformer"),
    ],
    ids=" ".join,
)
def test_at_80_columns_no_line_is_wider_and_no_word_is_cut(arguments):
    narrow, wide = (CliRunner(env=environment).invoke(cli, arguments) for environment in (NARROW, {}))
    assert narrow.exit_code == wide.exit_code == 0, narrow.stderr
    assert narrow.stdout and max(map(width, narrow.stdout.splitlines())) <= 80
    whole = set(words(wide.stdout))
    for word in words(narrow.stdout):
        drawn = all(
            "─" <= character <= "▿" or character in "→⊕" for character in word
        )  # the edge of a box is as long as the box
        assert drawn or word in whole, f"{word!r} is a part of a word"


def test_a_terminal_is_asked_for_its_width(tmp_path):
    with Terminal("list", columns=60, cwd=tmp_path) as terminal:
        status, seen = terminal.end()
    assert status == 0 and 50 < max(map(width, seen.splitlines())) <= 60


def test_in_a_pipe_a_row_is_a_line(command):
    listed = command("list").stdout
    row = next(line for line in listed.splitlines() if line.startswith("qwen3-moe "))
    assert "qwen3" in row and "30b-a3b" in row and default_registry().architecture("qwen3-moe").summary in row


def test_the_list_says_how_many_more_there_are_and_all_names_them(command):
    listed, everything = command("list").stdout, command("list", "--all").stdout
    count = len(default_registry().bridged)
    assert f"{count} more run through mlx-lm's own code" in listed and "zoo list --all" in listed
    assert "helium" not in listed and "helium" in everything
    assert len(listed.splitlines()) < len(default_registry().architectures) + 6


def test_a_word_selects_what_is_listed(command):
    def names(*arguments):
        return [row["name"] for row in json.loads(command("list", "--json", *arguments).stdout)]

    every = names()
    assert names("QWEN3.5") == ["qwen3.5", "qwen3.5-moe"]
    assert names("translate") and set(names("translate")) < set(every)
    assert names("Qwen2.5") == ["qwen2"]  # an alias of a preset
    assert names("helium") == ["mlx-lm::helium"]
    assert "helium" in command("list", "helium").stdout  # without --all
    shown = command("list", "qwen3.5").stdout
    assert "qwen3.5-moe" in shown and "llama4" not in shown and "●" not in shown
    presets = names("--presets", "smollm2")
    assert presets and all("smollm2" in name for name in presets)
    assert set(names("--presets", "apache")) < set(names("--presets"))


def test_suggestions_name_the_zoos_own_before_another_librarys(command):
    assert default_registry().suggestion("lama") == "; did you mean llama or llama4?"
    assert default_registry().suggestion("heliun").startswith("; did you mean mlx-lm::helium")
    refused = command("run", "lama", "hi").stderr
    assert "did you mean llama or llama4?" in refused and "mlx-lm" not in refused


def test_statistics_end_lines_between_two_facts():
    statistics = Statistics(12, 0.1, began=1.0, first=1.5, ended=2.0, tokens=9)
    parts = ["llama", *statistics.lines()]
    lines = facts(parts, 80).splitlines()
    assert len(lines) == 2 and max(map(width, lines)) <= 80
    assert [part for line in lines for part in line.split(" · ")] == parts
    assert facts(parts, None).count("\n") == 0


def test_statistics_say_nothing_of_what_was_not_generated(command):
    told = Statistics(12, 0.1, began=1.0).lines()
    assert told[0] == "prompt 12 tokens" and not any("generated" in part or "first" in part for part in told)
    assert "prompt 1 token, 2.0 tokens/s" in Statistics(1, 0.1, began=1.0, first=1.5).lines()
    done = command("run", "bert", "[MASK] is the capital of France.")
    assert (
        "–" not in done.stderr
        and " 0 tokens" not in done.stderr
        and re.search(r"prompt \d+ tokens", done.stderr)
    )


@pytest.mark.parametrize("room", [20, 33, 47, 80])
def test_a_table_keeps_every_word_in_its_column(room):
    rows = [["alpha", "one two three four five six seven", "x"], ["b", "北京是中国的首都", "word " * 9]]
    drawn = table(rows, ["name", "what it is", "more"], room=room)
    assert max(map(width, drawn.splitlines())) <= room
    flat = re.sub(r"[\s─]", "", drawn)
    assert sorted(flat) == sorted(re.sub(r"\s", "", "".join("".join(r) for r in rows) + "namewhatitismore"))


def test_words_longer_than_a_line_are_cut_and_keep_every_character():
    path = "/models/" + "/".join(f"folder{number}" for number in range(20))
    lines = wrapped(f"see {path} there", 40, "→ ", "  ").splitlines()
    assert max(map(width, lines)) <= 40
    assert "".join(line[2:].replace(" ", "") for line in lines) == f"see{path}there"
