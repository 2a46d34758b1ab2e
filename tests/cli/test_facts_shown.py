"""`zoo show` and `zoo compare` as a person sees them: at any width, on a terminal and in a pipe."""

import re

import pytest
from click.testing import CliRunner

from tests.helpers.parameters import ordinary
from tests.helpers.terminal import Terminal
from zoo.cli.program import cli
from zoo.cli.terminal import width
from zoo.host.registry import default_registry

NAMES = sorted(default_registry().architectures)


def at(columns, *arguments):
    done = CliRunner(env={"COLUMNS": str(columns)}).invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("columns", ordinary([40, 80, 120], 40))
@pytest.mark.parametrize("name", NAMES)
def test_every_card_fits(name, columns):
    shown = at(columns, "show", name)
    assert max(map(width, shown.splitlines())) <= columns
    for part in ("parameters", "in bfloat16", "References:", "Run it:"):
        assert part in re.sub(r"\s+", " ", shown)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("smollm2:135m", "zoo run smollm2 TEXT"),
        ("bert:base", "zoo run google-bert/bert-base-uncased TEXT"),
        ("minilm", "zoo embed minilm TEXT"),  # BERT without a head
    ],
)
def test_a_card_says_how_a_preset_is_run(name, line):
    lines = [line.strip() for line in at(80, "show", name).splitlines()]
    assert lines[lines.index("Run it:") + 1] == line


@pytest.mark.parametrize("columns", ordinary([40, 60, 80, 120], 40, 80))
def test_the_list_of_presets_fits_and_its_names_are_whole(columns):
    lines = at(columns, "list", "--presets").splitlines()
    assert max(map(width, lines)) <= columns
    names = {line.split()[0] for line in lines if line.strip()}
    assert {"deepseek-v3:moonlight-16b", "opus-mt-en-zh", "smollm2:360m"} <= names
    assert columns < 80 or sum(line.startswith("name ") for line in lines) == 1


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_tables_of_many_models_are_several_that_fit(columns):
    names = ["gpt2", "llama", "gemma2", "mamba", "deepseek-v3", "transformer", "bert"]
    shown = at(columns, "compare", *names)
    assert max(map(width, shown.splitlines())) <= columns
    heads = [
        line
        for line in shown.splitlines()
        if "gpt2:small" in line and " is " not in line and "compared" not in line
    ]
    assert ("llama:8b" in heads[0]) == (columns >= 80)


def test_what_differs_can_be_read_without_colour_and_is_bold_on_a_terminal(tmp_path):
    with Terminal("compare", "llama", "mixtral", columns=100, cwd=tmp_path) as terminal:
        status, seen = terminal.end()
    assert status == 0
    bold = [line for line in seen.splitlines() if line.startswith("\x1b[1m≠  ")]  # rows of the table
    assert bold and all(line.rstrip().endswith("\x1b[0m") for line in bold)
    assert any("vocabulary" in line for line in bold) and not any("head width" in line for line in bold)
    assert "\x1b" not in at(100, "compare", "llama", "mixtral")


def test_all_adds_every_fact_and_field():
    plain, everything = at(100, "show", "mixtral"), at(100, "show", "mixtral", "--all")
    assert "cache at 128k, 4-bit" not in plain and "layer.mixer.rope.theta" not in plain
    for row in (
        "cache at 128k, 4-bit",
        "weights, mxfp4",
        "parameters, experts",
        "layer.feedforward.router.top_k",
    ):
        assert row in everything


def test_a_variant_says_what_differs_and_a_base_does_not():
    assert "What differs from llama:\n- RMSNorm on each query and key head.\n" in at(80, "show", "qwen3")
    assert "What differs" not in at(80, "show", "llama")
    assert "zoo run qwen3 TEXT" in at(80, "show", "qwen3") and "zoo run qwen3:pocket TEXT" in at(
        80, "show", "qwen3:pocket"
    )


def test_ranks_are_shown_with_what_bounds_them():
    machine = ("--link", "5,100", "--memory", "800", "--compute", "30")
    shown = at(100, "show", "llama:8b", "--ranks", "2", "--parallel", "tensor", *machine)
    assert re.search(r"^weights a rank, bfloat16 +8\.03 GB on each$", shown, re.M)
    assert re.search(r"^transfers a token +65 sums, 1 gather$", shown, re.M)
    assert re.search(r"^decode predicted +[\d.]+ tokens/s, bound by link latency$", shown, re.M)
    slow = at(100, "show", "llama:8b", "--ranks", "2", "--parallel", "tensor", *machine, "--overhead", "500")
    assert re.search(r"^decode predicted +1\.\d+ tokens/s, bound by overhead$", slow, re.M)
    assert "a rank" not in at(100, "show", "llama:8b")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--link", "5,100"], "--link is about several machines: give --ranks, too"),
        (["--parallel", "tensor"], "--parallel is about several machines: give --ranks, too"),
        (["--overhead", "5"], "--overhead is about several machines: give --ranks, too"),
        (["--ranks", "1", "--overhead", "-5"], "`overhead` must be at least 0, got -0.005"),
        (["--ranks", "2", "--link", "5"], "expected two numbers, GB/s,µs, got '5'"),
        (["--ranks", "2", "--memory", "800"], "`memory`: the speed of 2 ranks depends on their `link`, too"),
        (
            ["--ranks", "12", "--parallel", "tensor"],
            "layers.0.mixer.heads: 32 does not divide evenly among 12 ranks",
        ),
    ],
)
def test_machines_that_cannot_be_are_one_line(options, message):
    done = CliRunner().invoke(cli, ["show", "llama:8b", *options])
    assert done.exit_code != 0 and message in " ".join(f"{done.output} {done.exception}".split())
