"""`zoo trace`: what it prints and writes, and what it refuses."""

import json

import click.testing
import numpy as np
import pytest
from rich.cells import cell_len

import zoo
from tests.helpers.parameters import ordinary
from zoo.cli.program import cli
from zoo.errors import ZooError

PROMPT = "The capital city of China is"


def run(*arguments, columns=None, monkeypatch=None):
    environment = {"COLUMNS": str(columns)} if columns else {}
    found = click.testing.CliRunner().invoke(
        cli, ["trace", *map(str, arguments)], env=environment, catch_exceptions=False
    )
    assert found.exit_code == 0, found.output
    return found.stdout


def test_it_tells_the_journey_in_order():
    lines = run("llama", PROMPT).splitlines()
    parts = [
        lines.index(part)
        for part in ("Pieces and ids", "Vectors and positions", "Layers", "Logit lens", "Text")
    ]
    assert parts == sorted(parts)
    assert lines[-1] == f"{PROMPT} Beijing."
    assert "The ␣capital ␣city ␣of ␣China ␣is" in lines[3]


@pytest.mark.parametrize(("source", "gate"), [("lstm", "forget_gate"), ("mamba", "scanned")])
def test_gates_of_a_recurrent_layer_are_means_over_its_channels(source, gate):
    trace = zoo.trace(zoo.load(source), PROMPT, max_tokens=1)
    means = trace[f"{trace.streams[-1]}.mixer.{gate}"].mean(axis=-1)
    (row,) = [
        line for line in run(source, PROMPT, "--max-tokens", 1).splitlines() if line.startswith(f"{gate} ")
    ]
    assert np.allclose([float(cell) for cell in row.split()[1:]], means, atol=0.0051)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("transformer", "Hello world"),
        ("bert", "一把把把把住了 [MASK]"),
        ("llada", PROMPT),
        ("mamba", "我爱NLP 🎈"),
    ],
)
@pytest.mark.parametrize("columns", ordinary([40, 80], 40))
def test_lines_fit_the_terminal(source, text, columns):
    lines = run(source, text, columns=columns).splitlines()
    assert lines and max(map(cell_len, lines[:-1])) <= columns


def test_json_has_numbers_that_are_the_traces():
    told = json.loads(run("llama", PROMPT, "--json", "--max-tokens", 2))
    trace = zoo.trace(zoo.load("llama"), PROMPT, max_tokens=2)
    assert [d["token"] for d in told["decisions"]] == trace.tokens
    weights = told["layers"][1]["patterns"][0]["heads"][2]["weights"]
    assert np.allclose(weights, trace["layers.1.mixer.pattern.2"], atol=0.00051)


def test_settings_are_those_of_run():
    told = json.loads(run("llama", PROMPT, "--json", "--temperature", 2, "--top-k", 3, "--seed", 1))
    assert told["settings"] == {"temperature": 2, "top_k": 3, "top_p": 1, "min_p": 0, "seed": 1}
    assert [stage["name"] for stage in told["decisions"][0]["stages"]] == ["model", "temperature", "top_k"]


def test_value_is_printed_as_numbers():
    lines = run("llama", PROMPT, "--value", "layers.1.mixer.pattern.2", "--max-tokens", 1).splitlines()
    trace = zoo.trace(zoo.load("llama"), PROMPT, max_tokens=1)
    rows = [[float(x) for x in line.split()] for line in lines]
    assert np.allclose(rows, trace["layers.1.mixer.pattern.2"], atol=1e-5)
    told = json.loads(
        run("llama", PROMPT, "--value", "layers.1.mixer.pattern.2", "--max-tokens", 1, "--json")
    )
    assert told["shape"] == list(np.shape(told["values"])) and told["unit"] == "probability"


def test_files_are_written(tmp_path):
    page, archive, values = tmp_path / "a.html", tmp_path / "a.npz", tmp_path / "a.json"
    run("llama", PROMPT, "--max-tokens", 1, "--html", page, "--npz", archive, "--json", values)
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert json.loads(values.read_text(encoding="utf-8"))["architecture"] == "llama"
    with np.load(archive) as found:
        assert "layers.3.mixer.pattern" in found
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.json", "a.npz"]


def test_chosen_layer_and_head_are_drawn():
    told = run("llama", PROMPT, "--layer", 1, "--head", 3, "--head", 0, "--max-tokens", 1)
    assert "Attention: layers.1.mixer.pattern.3" in told and "Attention: layers.1.mixer.pattern.0" in told
    assert "Values of layers.1" in told and "layers.1.feedforward.hidden" in told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((PROMPT, "--layer", "99"), "no layer 99"),
        ((PROMPT, "--head", "99"), "no head 99"),
        ((PROMPT, "--value", "layers.1.mixer.patern"), "did you mean layers.1.mixer.pattern"),
        ((PROMPT, "--top-p", "0.5", "--temperature", "0", "--samplers-nothing", "1"), "No such option"),
    ],
)
def test_what_cannot_be_is_one_line_and_leaves_no_file(arguments, message, tmp_path):
    page = tmp_path / "a.html"
    runner = click.testing.CliRunner()
    found = runner.invoke(cli, ["trace", "llama", *arguments, "--html", str(page)])
    assert found.exit_code != 0
    said = str(found.exception) if isinstance(found.exception, ZooError) else found.output
    assert message in said
    assert list(tmp_path.iterdir()) == []


def test_folder_that_is_not_there_is_named_before_anything_runs(tmp_path, command):
    done = command("trace", "llama", PROMPT, "--html", tmp_path / "none" / "a.html")
    assert done.returncode == 1 and done.stdout == ""
    assert "cannot be written" in done.stderr and len(done.stderr.splitlines()) == 1
