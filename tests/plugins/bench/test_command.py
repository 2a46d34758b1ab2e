"""`zoo bench`: what the command prints and writes."""

import json

import pytest

from tests.helpers import gguf_files
from zoo.errors import SourceError
from zoo_bench import benchmark
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


@pytest.mark.slow
def test_a_suite_is_measured_beside_mlx_lm_and_recorded(command, tmp_path):
    lengths = "--prompt 4 --new 3 --rows 2 --context 16 --runs 1 --record suite.json"
    gguf_files.random_folder(tmp_path / "model", "llama", rms_norm_eps=1e-5)
    done = command("bench", "model", "--suite", *lengths.split())
    assert done.returncode == 0, done.stderr
    assert "zoo / mlx-lm" in done.stdout and done.stdout.endswith("The record is in suite.json.\n")
    record = json.loads((tmp_path / "suite.json").read_text())
    for figures in record["engines"].values():
        assert {"decode_rate", "prefill_rate", "batch_rate", "context_rate", "peak_bytes"} <= figures.keys()
    assert record["engines"].keys() == {"zoo", "mlx-lm"} and record["source"] == "model"
    assert record["versions"]["mlx-lm"] and record["memory"]


def test_a_suite_without_a_source_asks_for_its_model(command, monkeypatch):
    def download(hub_id, *given, always_ask):
        raise SourceError(f"asked for {hub_id}" if always_ask else "not asked")

    monkeypatch.setattr("zoo.checkpoint.hub.download", download)
    assert f"asked for {benchmark.SUITE_MODEL}" in command("bench", "--suite").stderr
    assert "SOURCE" in command("bench").stderr


def test_a_record_is_named_by_chip_and_model_without_the_path(monkeypatch, tmp_path):
    monkeypatch.setattr(benchmark, "machine", lambda: "Darwin arm64, 12 cores, Apple M3 Max")
    assert benchmark.record_name("mlx-community/Qwen3-4B-4bit") == "apple-m3-max-qwen3-4b-4bit.json"
    assert benchmark.record_name(tmp_path / "My LLaMA") == "apple-m3-max-my-llama.json"


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
