"""`zoo bench`: what the command prints and writes."""

import json

import pytest

from zoo_bench.command import format_value


@pytest.mark.slow
def test_figures_are_shown_recorded_and_compared(command, tmp_path):
    asked = [
        "bench",
        "llama",
        "--only",
        "host",
        "--only",
        "decode",
        "--runs",
        "1",
        "--prompt",
        "4",
        "--new",
        "3",
    ]
    done = command(*asked, "--record", "old.json")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["zoo"]
    assert any(line.startswith("decode ") and "tokens/s" in line for line in lines)
    assert "medians of 1" in lines[-1]
    record = json.loads((tmp_path / "old.json").read_text())
    assert record["engines"]["zoo"]["decode_rate"] > 0 and record["versions"]["mlx"]
    again = command(*asked, "--compare", "old.json")
    assert "since old.json" in again.stdout and "× as good" in again.stdout
    assert json.loads(command(*asked, "--json").stdout)["what"] == "benchmark"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--against", "vllm"], "vllm"),
        (["--only", "speed"], "speed"),
        (["--compare", "none.json"], "none.json"),
    ],
)
def test_a_mistake_is_one_line(command, arguments, word):
    done = command("bench", "llama", *arguments)
    assert done.returncode == 1 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert word in line


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "s", "–"),
        (2.5, "s", "2.5 s"),
        (0.0123, "s", "12.3 ms"),
        (0.000456, "s", "456 µs"),
        (5_300_000, "bytes", "5.3 MB"),
        (2.4e9, "bytes", "2.40 GB"),
        (1234.5, "tokens/s", "1,234 tokens/s"),
        (9.87, "tokens/s", "9.87 tokens/s"),
        (112, "", "112"),
    ],
)
def test_a_figure_has_three_digits_and_its_unit(value, unit, text):
    assert format_value(value, unit) == text
