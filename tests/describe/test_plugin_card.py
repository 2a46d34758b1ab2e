"""The card of a plugin says what it gives, from its records and recipes, and goes between the marks of a file."""

import os

import pytest

from zoo.architecture import Block, Command, Strategy
from zoo.describe.plugin_card import BEGIN, END, card, rewrite
from zoo.errors import ZooError
from zoo.host.plugins import Plugin
from zoo.host.registry import default_registry
from zoo.recipe import RMSNorm


def test_a_variants_card_tells_the_difference_from_its_base():
    known = default_registry()
    text = card(known.plugin("prefix"), known)
    assert text.startswith("**prefix-lm**: LLaMA with bidirectional attention over the prompt")
    assert "| task | generate |" in text and "| reads `model_type` | prefix-lm |" in text
    assert "What differs from `llama`:\n\n- The prompt's tokens see each other both ways;" in text
    assert "| parameters | 6.74 B |\n" in text
    assert "| Objective | What it asks for | Tasks and causalities |" in text and "| `answer` |" in text
    assert "rms_norm" not in text and "| heads |" not in text and "this memory" not in text


def test_what_has_no_base_is_told_whole():
    known = default_registry()
    text = card(known.plugin("bert"), known)
    assert "| heads | 12 |" in text and "differs from" not in text
    assert "this memory" not in text  # what fits is another on each machine
    assert "google-bert/bert-base-uncased" in text


def test_every_plugin_of_the_zoo_has_a_card():
    known = default_registry()
    for plugin in known.plugins:
        if plugin.first_party and plugin.gives:
            assert card(plugin, known).count("\n") > 2, plugin.name


def test_other_records_are_told_in_tables():
    records = {
        "zoo_blocks": [Block(RMSNorm, "m:C", "scaled | features")],
        "zoo_strategies": [Strategy("twice", "m:f", ("generate",), ("max_tokens",), "says it twice")],
        "zoo_commands": [Command("hello", "m:f", "Says hello.")],
    }
    text = card(Plugin("mine", "zoo-mine", "1.0", records=records), default_registry())
    assert "| `norm/rmsnorm` | scaled / features | `eps` |" in text
    assert "| `twice` | says it twice | generate | max_tokens |" in text
    assert "| `zoo hello` | Says hello. |" in text


def test_experiments_are_in_one_table():
    known = default_registry()
    text = card(known.plugin("lab"), known)
    assert text.count("| Experiment |") == 1 and text.count("| `norm-placement` |") == 1


def test_it_goes_between_the_marks_and_nowhere_else(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    rewrite(path, "new\n")
    rewrite(path, "new\n")
    assert path.read_text() == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    assert [one.name for one in tmp_path.iterdir()] == ["README.md"]


def test_a_file_without_marks_stays_as_it_is(tmp_path, command):
    (tmp_path / "README.md").write_text(f"{END}\n{BEGIN}\n")
    done = command("plugins", "--card", "prefix", "--into", "README.md")
    assert done.returncode == 1 and "README.md: has no lines <!-- card -->" in done.stderr
    assert (tmp_path / "README.md").read_text() == f"{END}\n{BEGIN}\n"
    with pytest.raises(ZooError, match=r"nothing\.md: cannot be read"):
        rewrite(tmp_path / "nothing.md", "")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ZooError, match="pipe: is not a file"):
        rewrite(tmp_path / "pipe", "a card")


def test_the_command_prints_it_or_says_why_not(command):
    done = command("plugins", "--card", "prefix")
    assert done.returncode == 0 and done.stdout == card(
        default_registry().plugin("prefix"), default_registry()
    )
    assert "no plugin 'prefx'; did you mean prefix?" in command("plugins", "--card", "prefx").stderr
    assert "--into goes with --card" in command("plugins", "--into", "README.md").stderr
    blocked = command("plugins", "--card", "prefix", environment={"ZOO_BLOCK": "prefix"})
    assert "plugin prefix is blocked: ZOO_BLOCK names it" in blocked.stderr
